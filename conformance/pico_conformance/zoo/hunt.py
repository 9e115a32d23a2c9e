"""Hunting one mutant: with the rules, and with random histories alone."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final, cast

from pico_conformance.campaign import Plan, run
from pico_conformance.rule import Rule, load_rules, run_rule
from pico_conformance.target import Target, resolve_target
from pico_conformance.zoo.mutant import Base, Mutant
from pico_store.address import Seq
from pico_store.batch import Batch
from pico_store.records import BatchRange
from pico_store.storage import Storage, Store

WRITES: Final[dict[Base, int]] = {
    "memory": 12_000,
    "sqlite": 2_000,
    "lmdb": 2_000,
    "jsonl": 2_000,
}
"""Accepted writes of histories: no more than `pico conformance` makes in its ten seconds."""


@dataclass(frozen=True, slots=True)
class Trail:
    """What one way of hunting came to."""

    caught_by: str
    """The rule or history; empty if the mutant got through."""
    writes: int
    """Accepted by the mutant until it was caught, or until the end."""
    seconds: float
    message: str = ""
    """What differed."""
    clauses: tuple[str, ...] = ()
    """Those of the rule."""


@dataclass(frozen=True, slots=True)
class Catch:
    """What came of a mutant."""

    name: str
    rules: Trail
    replay: Trail

    @property
    def caught(self) -> bool:
        """Whether the suite sees the fault."""
        return bool(self.rules.caught_by or self.replay.caught_by)


def hunt(mutant: Mutant, seed: int, *, writes: int | None = None) -> Catch:
    """Hunt a mutant down in both ways, each up to its first success or the end of its budget."""
    budget = WRITES[mutant.base] if writes is None else writes
    return Catch(mutant.name, hunt_by_rules(mutant), hunt_by_replay(mutant, seed, budget))


def hunt_by_rules(mutant: Mutant) -> Trail:
    """Run the rules until one fails, those that name what the mutant breaks first."""
    meter = _Meter()
    target = meter.around(mutant.target())
    start = time.monotonic()
    for rule in sorted(load_rules(), key=lambda rule: _rank(rule, mutant)):
        result = run_rule(rule, target)
        if result.verdict == "failed":
            last = result.detail.strip().splitlines()[-1]
            seconds = time.monotonic() - start
            return Trail(rule.name, meter.writes, seconds, last, rule.clauses)
    return Trail("", meter.writes, time.monotonic() - start)


def hunt_by_replay(mutant: Mutant, seed: int, writes: int) -> Trail:
    """Replay histories until one differs from the model, as `pico conformance` does."""
    start = time.monotonic()
    plan = Plan(mutant.target(), seed, resolve_target("memory"))
    outcome = run(plan, writes=writes)
    finding = outcome.finding
    seconds = time.monotonic() - start
    if finding is None:
        return Trail("", outcome.tally.writes, seconds)
    caught_by = f"history {finding.number}"
    return Trail(caught_by, outcome.tally.writes, seconds, finding.failure.message)


def _rank(rule: Rule, mutant: Mutant) -> tuple[bool, bool]:
    """Return what puts the telling rules first, and those about sizes, which are slow, last."""
    return not set(rule.clauses) & set(mutant.clauses), "JSON-5" in rule.clauses


class _Meter:
    """Counts the writes that stores accept."""

    def __init__(self) -> None:
        self.writes = 0

    def around(self, target: Target) -> Target:
        """Return a target whose stores are counted."""

        def open_store(path: str) -> Store:
            return cast(Store, _MeteredStore(target.open_store(path), self))

        return Target(target.name, target.promises, open_store, target.named)


class _MeteredStore:
    def __init__(self, store: Store, meter: _Meter) -> None:
        self._store = store
        self._meter = meter

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def create(self, session_id: str) -> Storage:
        return cast(Storage, _MeteredStorage(self._store.create(session_id), self._meter))

    def open(self, session_id: str, *, read_only: bool = False, take_over: bool = False) -> Storage:
        storage = self._store.open(session_id, read_only=read_only, take_over=take_over)
        return cast(Storage, _MeteredStorage(storage, self._meter))


class _MeteredStorage:
    def __init__(self, storage: Storage, meter: _Meter) -> None:
        self._storage = storage
        self._meter = meter

    def __getattr__(self, name: str) -> object:
        return getattr(self._storage, name)

    def commit(self, batch: Batch, *, expected_first: Seq | None = None) -> BatchRange:
        done = self._storage.commit(batch, expected_first=expected_first)
        self._meter.writes += len(batch.writes)
        return done
