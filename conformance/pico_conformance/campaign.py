"""Many histories, one after another or side by side, until there is a difference or time is up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from pico_conformance.bench import Bench, open_bench
from pico_conformance.difference import Failure
from pico_conformance.histories import Generator
from pico_conformance.operation import History
from pico_conformance.profile import PROFILES
from pico_conformance.replay import Care, Replay
from pico_conformance.tally import Tally
from pico_conformance.target import Target, resolve_target
from pico_conformance.workers import open_workers

_NAMES: Final = tuple(PROFILES)
_SLICE: Final = 20
"""Histories between two reports of progress."""
_SHARE: Final = 50
"""Histories that one of several processes takes at a time."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Which histories to replay, and how carefully."""

    target: Target
    seed: int
    other: Target | None = None
    """Where sessions move to in the middle of their history."""
    profiles: tuple[str, ...] = _NAMES
    care: Care = field(default_factory=Care)
    whole: int = 1
    """One history of so many is compared in whole at its end, the others by samples and export."""

    def care_for(self, number: int) -> Care:
        """Return how carefully a history is compared."""
        if number // len(self.profiles) % self.whole == 0:
            return self.care
        return replace(self.care, at_the_end=False)


@dataclass(frozen=True, slots=True)
class Finding:
    """The first history on which a backend and the model differ."""

    number: int
    """Together with the seed it names the history."""
    history: History
    failure: Failure


@dataclass(slots=True)
class Outcome:
    """What a campaign did and found."""

    tally: Tally = field(default_factory=Tally)
    finding: Finding | None = None
    first: int = 0
    stop: int = 0
    """The number of the history after the last one."""


def generator(seed: int, number: int, profiles: tuple[str, ...] = _NAMES) -> Generator:
    """Return the generator of one history; the two numbers say everything about it."""
    return Generator(Random(f"{seed}/{number}"), PROFILES[profiles[number % len(profiles)]])


@dataclass(frozen=True, slots=True)
class _Benches:
    """What the histories of one process are replayed on, one after another."""

    plan: Plan
    bench: Bench
    other: Bench | None

    def replay(self, first: int, stop: int, is_over: Callable[[Tally], bool]) -> Outcome:
        """Replay the histories of some numbers until one fails or it is over."""
        outcome = Outcome(first=first, stop=first)
        plan = self.plan
        for number in range(first, stop):
            if is_over(outcome.tally):
                break
            replay = Replay(self.bench, self.other, outcome.tally, plan.care_for(number))
            history, failure = replay.run(generator(plan.seed, number, plan.profiles))
            outcome.stop = number + 1
            if failure is not None:
                outcome.finding = Finding(number, history, failure)
                break
        return outcome


@contextmanager
def _open_benches(plan: Plan) -> Iterator[_Benches]:
    with ExitStack() as stack:
        bench = stack.enter_context(open_bench(plan.target))
        other = None if plan.other is None else stack.enter_context(open_bench(plan.other))
        yield _Benches(plan, bench, other)


def run(
    plan: Plan,
    *,
    seconds: float | None = None,
    writes: int | None = None,
    histories: int | None = None,
    first: int = 0,
    jobs: int = 1,
    progress: Callable[[Tally], None] = lambda tally: None,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Replay histories from number ``first`` on, until one of the limits given or a difference.

    Args:
        plan: Which histories.
        seconds: By the clock.
        writes: Accepted ones.
        histories: Whole ones.
        first: The number to begin with.
        jobs: How many processes; more than one needs a target that is found by its name.
        progress: Is told every now and then what was done so far.
        clock: Seconds that only grow.
    """
    end = None if seconds is None else clock() + seconds
    done = Outcome(first=first, stop=first)

    def is_over(tally: Tally) -> bool:
        return (end is not None and clock() >= end) or (
            writes is not None and done.tally.writes + tally.writes >= writes
        )

    last = None if histories is None else first + histories
    if jobs > 1:
        outcomes = _side_by_side(plan, first, last, jobs, lambda: is_over(Tally()))
    else:
        outcomes = _one_by_one(plan, first, last, is_over)
    for outcome in outcomes:
        done.tally.add(outcome.tally)
        done.stop = max(done.stop, outcome.stop)
        finding = outcome.finding
        if finding is not None and (done.finding is None or finding.number < done.finding.number):
            done.finding = finding
        progress(done.tally)
    return done


def _one_by_one(
    plan: Plan, first: int, last: int | None, is_over: Callable[[Tally], bool]
) -> Iterator[Outcome]:
    with _open_benches(plan) as benches:
        while (last is None or first < last) and not is_over(Tally()):
            stop = first + _SLICE if last is None else min(first + _SLICE, last)
            outcome = benches.replay(first, stop, is_over)
            yield outcome
            if outcome.finding is not None:
                return
            first = stop


def _side_by_side(
    plan: Plan, first: int, last: int | None, jobs: int, is_over: Callable[[], bool]
) -> Iterator[Outcome]:
    assert plan.target.named, "another process finds a target by its name"
    names = (plan.target.name, None if plan.other is None else plan.other.name)
    failed = False
    with open_workers(jobs) as workers:
        running: set[Future[Outcome]] = set()
        while True:
            while (
                len(running) < jobs
                and not failed
                and not is_over()
                and (last is None or first < last)
            ):
                stop = first + _SHARE if last is None else min(first + _SHARE, last)
                share = _Share(*names, plan.seed, plan.profiles, plan.care, plan.whole)
                running.add(workers.submit(_run_there, share, first, stop))
                first = stop
            if not running:
                return
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                outcome = future.result()
                failed = failed or outcome.finding is not None
                yield outcome


@dataclass(frozen=True, slots=True)
class _Share:
    """A plan that can be sent to another process."""

    target: str
    other: str | None
    seed: int
    profiles: tuple[str, ...]
    care: Care
    whole: int


def _run_there(share: _Share, first: int, stop: int) -> Outcome:
    plan = Plan(
        resolve_target(share.target),
        share.seed,
        None if share.other is None else resolve_target(share.other),
        share.profiles,
        share.care,
        share.whole,
    )
    with _open_benches(plan) as benches:
        return benches.replay(first, stop, lambda tally: False)
