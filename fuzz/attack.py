"""What an attack is: something that a seed repeats exactly, tried until a budget is used up."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

Failures = list[str]
"""What was found wrong, each in a few words."""


@dataclass(slots=True)
class Attempt:
    """What came of one seed."""

    tries: int = 0
    """Kills, cuts, failures or inputs; one attempt may make many."""
    failures: Failures = field(default_factory=list)
    data: bytes = b""
    """The input that failed, where the seed alone does not lead back to it."""


class Fault(NamedTuple):
    """A promise that an attack broke."""

    attack: str
    backend: str
    seed: int
    what: str
    data: bytes = b""


class Budget(NamedTuple):
    """When to stop; the attempt that is under way ends first."""

    tries: int | None = None
    seconds: float | None = None


@dataclass(slots=True)
class Outcome:
    """What came of an attack on one backend."""

    attack: str
    backend: str
    tries: int = 0
    attempts: int = 0
    seconds: float = 0.0
    faults: list[Fault] = field(default_factory=list)
    missing: str = ""
    """Why nothing was tried, where this machine lacks something."""


def _nothing_missing(backend: str) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Attack:
    """One kind of attack."""

    name: str
    backends: tuple[str, ...]
    """What it applies to."""
    attempt: Callable[[str, int], Attempt]
    """Attacks a backend as a seed says; equal seeds do the same, up to when a signal arrives."""
    missing: Callable[[str], str] = _nothing_missing
    """Says what this machine lacks for it; empty: nothing."""

    def run(self, backend: str, seed: int, budget: Budget) -> Outcome:
        """Attack with one seed after another until the budget is used up or much is found."""
        outcome = Outcome(self.name, backend, missing=self.missing(backend))
        if outcome.missing:
            return outcome
        begun = time.monotonic()
        while not _is_used_up(budget, outcome):
            done = self._attempt(backend, seed)
            outcome.tries += done.tries
            outcome.attempts += 1
            for what in done.failures[:_FAULTS_A_SEED]:
                outcome.faults.append(Fault(self.name, backend, seed, what, done.data))
            outcome.seconds = time.monotonic() - begun
            seed += 1
        return outcome

    def _attempt(self, backend: str, seed: int) -> Attempt:
        try:
            return self.attempt(backend, seed)
        except Exception:  # noqa: BLE001 - whatever a store raises here is a finding
            return Attempt(1, [f"an unexpected error\n{traceback.format_exc()}"])


_FAULTS_A_SEED: Final = 5
_FAULTS_MAX: Final = 25


def _is_used_up(budget: Budget, outcome: Outcome) -> bool:
    if len(outcome.faults) >= _FAULTS_MAX:
        return True
    if budget.tries is not None and outcome.tries >= budget.tries:
        return True
    return budget.seconds is not None and outcome.seconds >= budget.seconds
