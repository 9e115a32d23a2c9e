"""Many runs: their seeds shared out to processes, failures replayed with a trace."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from pico_harness.testing.planted import CONTROLS, FAULTS
from pico_harness.testing.planting import planted
from pico_harness.testing.run import Report, run
from pico_store.backends import open_store
from pico_store.command import UsageError
from pico_store.storage import Store

SHARE = 250
"""How many seeds a process gets at a time."""
GARBAGE = 10
"""After how many runs garbage is collected."""


@dataclass(frozen=True, slots=True)
class Tally:
    """What a number of runs came to."""

    runs: int
    commits: int
    tasks: int
    failures: tuple[Report, ...]
    """The first failing runs, with their traces."""


@dataclass(frozen=True, slots=True)
class Hunt:
    """How long a planted fault stayed hidden."""

    name: str
    harmless: bool
    seeds: int | None
    """How many seeds it took; ``None``: it was not found."""
    problem: str

    @property
    def right(self) -> bool:
        """Whether it was found, if it is a fault, or not, if it is harmless."""
        return (self.seeds is None) is self.harmless


def campaign(
    seeds: range, *, backend: str = "memory:", jobs: int = 1, failures_max: int = 5
) -> Tally:
    """Run the scenario of each seed.

    Args:
        seeds: Which.
        backend: The store URL; its path is the folder or the beginning of a file name that each run
            adds a number to, in a folder of its own.
        jobs: How many processes.
        failures_max: After so many failing seeds the rest is left out.
    """
    shares = [seeds[at : at + SHARE] for at in range(0, len(seeds), SHARE)]
    work = partial(_share, backend)
    if jobs == 1:
        return _sum(map(work, shares), failures_max)
    with ProcessPoolExecutor(jobs) as pool:
        try:
            return _sum(pool.map(work, shares), failures_max)
        finally:
            pool.shutdown(cancel_futures=True)


def _sum(tallies: Iterator[Tally], failures_max: int) -> Tally:
    runs = commits = tasks = 0
    failures: list[Report] = []
    for tally in tallies:
        runs += tally.runs
        commits += tally.commits
        tasks += tally.tasks
        failures += tally.failures
        if len(failures) >= failures_max:
            break
    return Tally(runs, commits, tasks, tuple(failures[:failures_max]))


def _share(backend: str, seeds: Sequence[int]) -> Tally:
    commits = tasks = 0
    failures: list[Report] = []
    with quiet() as ran, stores(backend) as make:
        for seed in seeds:
            report = _run(seed, make)
            ran()
            commits += report.commits
            tasks += report.tasks
            if report.problems:
                failures.append(_run(seed, make, traced=True))
    return Tally(len(seeds), commits, tasks, tuple(failures))


def _run(seed: int, make: Callable[[], Store], *, traced: bool = False) -> Report:
    store = make()
    try:
        return run(seed, store, traced=traced)
    finally:
        store.close()


@contextmanager
def quiet() -> Iterator[Callable[[], None]]:
    """Run without the reports of broken tasks, and without looking for garbage in between.

    Each run leaves a knot of a loop, its tasks and futures; to look for them again and again while
    the next run works costs a fifth of the time. Gives what is to be called after each run.
    """
    log = logging.getLogger("pico_harness")
    disabled, collects = log.disabled, gc.isenabled()
    log.disabled = True
    gc.disable()
    # What is there already is no garbage of the runs, and need not be gone through each time.
    gc.freeze()
    runs = count(1)

    def ran() -> None:
        if next(runs) % GARBAGE == 0:
            gc.collect()

    try:
        yield ran
    finally:
        log.disabled = disabled
        gc.unfreeze()
        if collects:
            gc.enable()


@contextmanager
def stores(backend: str) -> Iterator[Callable[[], Store]]:
    """Give what makes an empty store as often as it is asked."""
    scheme, colon, rest = backend.partition(":")
    path, _, options = rest.partition("?")
    if not colon:
        raise UsageError(f"backend {backend!r}; allowed: a store URL, such as memory: or sqlite:")
    if path:
        raise UsageError(f"backend {backend!r}; allowed: a URL without a path, {scheme}:")
    if scheme == "memory":
        yield lambda: open_store(backend)
        return
    numbers = count()
    with TemporaryDirectory() as folder:

        def make() -> Store:
            query = f"?{options}" if options else ""
            return open_store(f"{scheme}:{Path(folder) / str(next(numbers))}{query}")

        yield make


def hunt(seeds_max: int, names: Sequence[str] = ()) -> Iterator[Hunt]:
    """Plant every known fault, one after the other, and look how many seeds find it.

    Args:
        seeds_max: When to give one up.
        names: Parts of the names of those to plant; all, if empty.

    Raises:
        UsageError: A part is in no name.
    """
    known = [fault.name for fault in (*FAULTS, *CONTROLS)]
    for part in names:
        if not any(part in name for name in known):
            problem = f"no planted fault has {part!r:.60} in its name"
            raise UsageError(f"{problem}; without --only, every name is shown")
    for harmless, faults in ((False, FAULTS), (True, CONTROLS)):
        for fault in faults:
            if not names or any(name in fault.name for name in names):
                with planted(fault):
                    found, problem = _first(seeds_max)
                yield Hunt(fault.name, harmless, found, problem)


def _first(seeds_max: int) -> tuple[int | None, str]:
    for start in range(0, seeds_max, SHARE):
        with quiet() as ran, stores("memory:") as make:
            for seed in range(start, min(start + SHARE, seeds_max)):
                report = _run(seed, make)
                ran()
                if report.problems:
                    return seed + 1, report.problems[0]
    return None, ""
