"""Trying kinds of your own: under random schedules, through crashes, to their end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from random import Random

from pico_harness.arguments import (
    check_callable,
    check_flag,
    check_instance,
    check_iterable,
    wrong,
)
from pico_harness.errors import (
    ArgumentError,
    SessionClosedError,
    SessionFaultedError,
    TaskParkedError,
    UnknownTaskError,
)
from pico_harness.harness import Harness
from pico_harness.opening import Options
from pico_harness.task_kind import RunnableKind
from pico_harness.testing.campaign import quiet, stores
from pico_harness.testing.loop import SimulatedLoop
from pico_harness.testing.properties import Monitor
from pico_harness.testing.run import LoopClock, World, schedule
from pico_harness.testing.storage import Fault, SimulatedAway
from pico_store.errors import CommitUncertainError, StorageFaultedError
from pico_store.storage import Store

Story = Callable[[Harness], Awaitable[None]]

_ALLOWED = {
    "tasks": "a function that makes the kinds, such as lambda: [Kind()]",
    "begin": "a coroutine function of the harness, which creates the work",
    "check": "a coroutine function of the harness, which looks at what came of it",
}
_FAULTS: tuple[Fault, ...] = ("crash_before", "crash_after", "uncertain_before", "uncertain_after")
_EXCUSED = (
    SessionClosedError,
    SessionFaultedError,
    StorageFaultedError,
    CommitUncertainError,
    TaskParkedError,
    UnknownTaskError,
)


class TrialFailedError(AssertionError):
    """A seed showed something that must not be.

    Attributes:
        seed: Which; `simulate` with it alone shows the same again.
        problems: What was wrong.
        trace: What happened until then, a line each.
    """

    def __init__(self, seed: int, problems: Iterable[str], trace: Iterable[str]) -> None:
        self.seed = seed
        self.problems = tuple(problems)
        self.trace = tuple(trace)
        lines = [*self.trace, *self.problems, f"again: simulate(..., seeds=[{seed}])"]
        super().__init__("\n".join((f"seed {seed}", *lines)))


@dataclass(frozen=True, slots=True)
class Trial:
    """What is tried."""

    tasks: Callable[[], Iterable[RunnableKind]]
    """Makes the kinds, anew for each process."""
    begin: Story
    """Creates the work, in a session that holds only its root; it does not drive."""
    check: Story
    """Looks at a session whose tasks are all terminal, and raises if something is wrong."""
    aborts: bool = False
    """Whether live tasks are aborted at random."""


def simulate(
    tasks: Callable[[], Iterable[RunnableKind]],
    begin: Story,
    check: Story,
    *,
    seeds: Iterable[int],
    store: str = "memory:",
    aborts: bool = False,
) -> int:
    """Try kinds under one schedule for each seed, and return how many there were.

    Each seed begins the work in one process, drives it in up to three that crash, lose a commit or
    are closed at a random moment, and drives it to its end in a last one. All the while everything
    that a harness promises is checked, the contract of kinds included; at the end comes ``check``.

    Args:
        tasks: Makes the kinds, anew for each process, as a restart would.
        begin: Creates the work; it does not drive.
        check: Looks at what came of it, and raises if something is wrong.
        seeds: The same seed runs the same.
        store: A store URL without a path; stores are made in a temporary folder.
        aborts: Whether live tasks are aborted at random.

    Raises:
        TrialFailedError: The first seed that shows something wrong, with its trace.
        ArgumentError: There is no seed, so that nothing would be tried, or an argument is of
            another type.
    """
    for what, name in ((tasks, "tasks"), (begin, "begin"), (check, "check")):
        check_callable(what, name, _ALLOWED[name])
    check_iterable(seeds, "seeds", "integers from 0 on, such as range(100)")
    check_instance(store, str, "store", "a store URL without a path, such as 'sqlite:'")
    check_flag(aborts, "aborts")
    trial = Trial(tasks, begin, check, aborts)
    done = 0
    with quiet() as ran, stores(store) as make:
        for seed in seeds:
            if type(seed) is not int or seed < 0:
                raise wrong(seed, "seeds", "integers from 0 on, such as range(100)")
            if _problems(trial, seed, make, traced=False):
                world = _problems(trial, seed, make, traced=True)
                assert world is not None, f"seed {seed} failed once and not again"
                raise TrialFailedError(seed, world.problems, world.trace or ())
            ran()
            done += 1
    if not done:
        raise ArgumentError("seeds", "none, so nothing was tried; allowed: one or more")
    return done


def _problems(trial: Trial, seed: int, make: Callable[[], Store], *, traced: bool) -> World | None:
    """Run one seed; ``None``: nothing was wrong."""
    store = make()
    try:
        world = World(store, seed, schedule(seed), traced=traced)
        random = Random(seed)
        away = random.random() < 0.5
        _live(trial, world, _Begin(trial), {}, away=False)
        for _ in range(random.randrange(4)):
            faults: dict[int, Fault] = {}
            if random.random() < 0.8:
                faults[int(random.random() ** 2 * 60)] = random.choice(_FAULTS)
            _live(trial, world, _Drive(trial, random), faults, away=away)
        _live(trial, world, _Finish(trial), {}, away=away)
    finally:
        store.close()
    return world if world.problems else None


def _live(
    trial: Trial,
    world: World,
    body: Callable[[Harness, Monitor], Awaitable[None]],
    faults: dict[int, Fault],
    *,
    away: bool,
) -> None:
    if world.problems:
        return
    world.note(f"--- {type(body).__name__[1:].lower()}, faults: {faults}")

    async def run(harness: Harness, monitor: Monitor) -> None:
        await body(harness, monitor)

    world.live(run, trial.tasks(), _options, faults=faults, away=away, every=1)


def _options(loop: SimulatedLoop, away: SimulatedAway | None) -> Options:
    # Parked tasks would end nowhere; a trial has fewer crashes than it takes by default.
    return Options(clock=LoopClock(loop, 0), away=away)


class _Begin:
    """The first process: it creates the work and closes."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial

    async def __call__(self, harness: Harness, monitor: Monitor) -> None:
        await self._trial.begin(harness)
        await harness.close()


class _Drive:
    """A process that drives for a while."""

    def __init__(self, trial: Trial, random: Random) -> None:
        self._trial = trial
        self._random = random

    async def __call__(self, harness: Harness, monitor: Monitor) -> None:
        driving = asyncio.get_running_loop().create_task(self._drive(harness), name="drive")
        # Nobody knows how long the work takes: from a millisecond to a quarter of an hour.
        patience = 10 ** (self._random.random() * 6 - 3)
        if self._trial.aborts and self._random.random() < 0.6:
            await asyncio.wait([driving], timeout=patience * self._random.random())
            await self._abort(harness)
        await asyncio.wait([driving], timeout=patience)
        await harness.close()
        await driving

    async def _drive(self, harness: Harness) -> None:
        try:
            await harness.drive()
        except _EXCUSED:
            return

    async def _abort(self, harness: Harness) -> None:
        try:
            seen = await harness.inspect()
            live = [task.id for task in (*seen.start, *seen.inflight)]
            if live:
                await harness.abort_task(self._random.choice(live))
        except _EXCUSED:
            return


class _Finish:
    """The last process: it drives everything to its end and looks at it."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial

    async def __call__(self, harness: Harness, monitor: Monitor) -> None:
        while monitor.ledger.live:
            await harness.drive()
            for id in list(monitor.ledger.live):
                await harness.wait_for_task(id)
        await self._trial.check(harness)
        await harness.close()
