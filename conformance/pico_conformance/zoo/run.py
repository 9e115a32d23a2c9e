"""`pico zoo`: every mutant hunted, side by side, and one table of what caught it."""

from __future__ import annotations

import os
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from concurrent.futures import as_completed
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

import msgspec

from pico_conformance.workers import open_workers, unwound_by_sigterm
from pico_conformance.zoo.hunt import Catch, Trail, hunt
from pico_conformance.zoo.mutant import Mutant, controls, load_mutants
from pico_store.command import UsageError
from pico_store.commands.output import plural, print_json, print_line, table


@dataclass(slots=True)
class Hunt:
    """What came of hunting some mutants."""

    seed: int
    mutants: dict[str, Mutant]
    """By name; the order is that of the table."""
    catches: list[Catch] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def survivors(self) -> list[str]:
        """The mutants that the suite does not see."""
        return [c.name for c in self.catches if self.mutants[c.name].clauses and not c.caught]

    @property
    def slandered(self) -> list[str]:
        """The backends that were caught although nothing is planted into them."""
        return [c.name for c in self.catches if c.caught and not self.mutants[c.name].clauses]

    @property
    def holds(self) -> bool:
        """Whether the suite sees every fault and nothing else."""
        return not (self.survivors or self.slandered)

    def print(self) -> None:
        """Print one line a mutant, then what the hunt came to."""
        head = ("mutant", "breaks", "rule", "writes", "s", "replay", "writes", "s")
        for line in table([head, *map(self._line, self.catches)]):
            print(line)
        planted = [catch for catch in self.catches if self.mutants[catch.name].clauses]
        by_rules = sum(bool(catch.rules.caught_by) for catch in planted)
        by_replay = sum(bool(catch.replay.caught_by) for catch in planted)
        print_line()
        print_line(
            f"{plural(len(planted), 'mutant')}: {by_rules} caught by rules, {by_replay} by random "
            f"histories alone, {len(self.survivors)} by neither; seed {self.seed}, "
            f"{self.seconds:.0f} s"
        )
        for name in self.survivors:
            print_line(f"SURVIVED: {name}: {self.mutants[name].description}")
        for name in self.slandered:
            print_line(f"CAUGHT WITHOUT A FAULT: {name}")

    def _line(self, catch: Catch) -> tuple[str, ...]:
        cells = [catch.name, " ".join(self.mutants[catch.name].clauses) or "-"]
        for trail in (catch.rules, catch.replay):
            cells += [trail.caught_by.removeprefix("test_") or "-"]
            cells += [f"{trail.writes:,}", f"{trail.seconds:.1f}"]
        return tuple(cells)

    def as_json(self) -> dict[str, object]:
        """Return the hunt for programs."""
        return {
            "seed": self.seed,
            "seconds": round(self.seconds, 3),
            "survivors": self.survivors,
            "caughtWithoutFault": self.slandered,
            "mutants": [
                {
                    "name": catch.name,
                    "description": self.mutants[catch.name].description,
                    "clauses": self.mutants[catch.name].clauses,
                    "base": self.mutants[catch.name].base,
                    "caught": catch.caught,
                    "rules": _plain(catch.rules),
                    "replay": _plain(catch.replay),
                }
                for catch in self.catches
            ],
        }


def run_zoo(args: Namespace) -> int:
    """Hunt mutants, print what caught each and return 1 if one got through."""
    if args.file is not None and not args.json:
        raise UsageError(f"zoo: {args.file!r} is one argument too many; see --help")
    jobs = os.cpu_count() or 1 if args.jobs is None else args.jobs
    if jobs < 1:
        raise UsageError(f"zoo: --jobs {jobs}; allowed: 1 or more")
    zoo = Hunt(args.seed, _chosen(args.only))
    start = time.monotonic()
    with unwound_by_sigterm():
        found = {catch.name: catch for catch in hunt_all(list(zoo.mutants), args.seed, jobs)}
    zoo.catches = [found[name] for name in zoo.mutants]
    zoo.seconds = time.monotonic() - start
    if args.json and args.file is None:
        print_json(zoo.as_json())
    else:
        zoo.print()
    if args.file is not None:
        text = msgspec.json.format(msgspec.json.encode(zoo.as_json()))
        Path(args.file).write_bytes(text)
    return 0 if zoo.holds else 1


def _chosen(names: list[str] | None) -> dict[str, Mutant]:
    """Return the mutants to hunt: all and the controls, or those that are named."""
    # The controls first: they run through everything, longer than any mutant.
    every = {**controls(), **load_mutants()}
    for name in names or ():
        if name not in every:
            near = get_close_matches(name, every, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UsageError(f"zoo: no mutant {name!r}{hint}")
    return every if names is None else {name: every[name] for name in names}


def hunt_all(names: list[str], seed: int, jobs: int) -> Iterator[Catch]:
    """Hunt mutants in processes of their own, several at once; yield what came of each."""
    shows = sys.stderr.isatty()
    try:
        with open_workers(jobs) as workers:
            waiting = [workers.submit(_hunt_there, name, seed) for name in names]
            for done, future in enumerate(as_completed(waiting), 1):
                if shows:
                    sys.stderr.write(f"\r\x1b[K{done} of {len(names)}")
                    sys.stderr.flush()
                yield future.result()
    finally:
        if shows:
            sys.stderr.write("\r\x1b[K")


def _hunt_there(name: str, seed: int) -> Catch:
    return hunt({**controls(), **load_mutants()}[name], seed)


def _plain(trail: Trail) -> dict[str, object]:
    return {
        "caughtBy": trail.caught_by or None,
        "clauses": trail.clauses,
        "writes": trail.writes,
        "seconds": round(trail.seconds, 3),
        "message": trail.message,
    }
