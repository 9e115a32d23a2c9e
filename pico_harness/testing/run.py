"""One simulated run: a scenario under one schedule, from its first open to its last close."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import cast

from pico_harness.call import HOST
from pico_harness.harness import Harness
from pico_harness.losses import CRASHES
from pico_harness.opening import Options
from pico_harness.task_kind import RunnableKind
from pico_harness.testing.facts import check_facts
from pico_harness.testing.hosts import ROOT, Hosts, resume
from pico_harness.testing.ledger import Ledger
from pico_harness.testing.loop import (
    Choices,
    HaltedError,
    RandomChoices,
    SimulatedLoop,
    SimulationError,
)
from pico_harness.testing.properties import Monitor
from pico_harness.testing.scenario import Life, Scenario, generate
from pico_harness.testing.scripted import Stage
from pico_harness.testing.storage import CrashError, Fault, SimulatedAway, SimulatedStorage
from pico_harness.tx import Tx
from pico_store.address import Seq
from pico_store.batch import Batch, MainBatch, ScratchBatch, SettleTask
from pico_store.errors import CommitUncertainError, RetryableError
from pico_store.records import BatchRange
from pico_store.storage import Storage, Store

Body = Callable[[Harness, Monitor], Coroutine[object, object, None]]

SESSION = "simulated"


@dataclass(frozen=True, slots=True)
class Report:
    """What a run came to."""

    seed: int
    problems: tuple[str, ...]
    trace: tuple[str, ...]
    """What happened, a line each; empty unless it was asked for."""
    commits: int
    tasks: int


class World:
    """What outlives the processes of a run: the store, the facts, the time."""

    def __init__(self, store: Store, seed: int, choices: Choices, *, traced: bool) -> None:
        """Make one around an empty store.

        Args:
            store: Where the session is made.
            seed: Where delays come from.
            choices: The schedule.
            traced: Whether to write down what happens.
        """
        self.problems: list[str] = []
        self.trace: list[str] | None = [] if traced else None
        self.ledger = Ledger(self.tell)
        self._store = store
        self._random = Random(seed * 31 + 7)
        self._choices = choices
        self._now = 0.0
        self._loop: SimulatedLoop | None = None
        self._opened = False
        self.may_break: Callable[[Seq], bool] = lambda id: False
        """Tells whether a task may break its kind's contract."""
        self.counts_drives = False
        """Whether bodies say when they begin to drive."""

    def tell(self, problem: str) -> None:
        """Take note of a violation, and stop."""
        self.note(f"VIOLATION {problem}")
        self.problems.append(problem)
        if self._loop is not None:
            self._loop.halt()

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        if self.trace is not None:
            self.trace.append(text)

    # --- One process ---

    def live(
        self,
        body: Body,
        kinds: Iterable[RunnableKind],
        options: Callable[[SimulatedLoop, SimulatedAway | None], Options],
        *,
        faults: dict[int, Fault],
        away: bool,
        every: int,
    ) -> bool:
        """Open the session in a new process and do something; False if the process died.

        Args:
            body: What is done; it ends the session.
            kinds: The kinds that are registered.
            options: Makes the options of the session.
            faults: See `SimulatedStorage`.
            away: Whether commits are carried by the loop.
            every: See `Monitor`.
        """
        # What it leaves out of a loop's methods needs the outside world.
        loop = self._loop = SimulatedLoop(  # type: ignore[abstract]
            self._choices, start=self._now
        )
        loop.trace = self.trace
        loop.on_unhandled = self.tell
        chosen = options(loop, SimulatedAway(self._random) if away else None)
        monitor = Monitor(self.ledger, self.tell, crashes_max=chosen.crashes_max, every=every)
        loop.on_idle = monitor.idle
        monitor.breaks_session = chosen.on_task_fault == "session"
        monitor.may_break = self.may_break
        monitor.driven = not self.counts_drives
        storage = SimulatedStorage(
            self._open_session(),
            faults=faults,
            on_commit=partial(self._committed, monitor),
            on_fault=partial(self._faulted, monitor),
            on_close=monitor.storage_closed,
        )

        async def main() -> None:
            # Its reads are bound when it is made, which no type can say.
            harness = await _open(cast(Storage, storage), kinds, chosen)
            if harness is not None:
                monitor.watch(harness._driver)
                await body(harness, monitor)

        return self._run(loop, monitor, main())

    def _run(
        self, loop: SimulatedLoop, monitor: Monitor, main: Coroutine[object, object, None]
    ) -> bool:
        died = False
        try:
            loop.run(main)
            if not monitor.closed:
                self.tell("the session ended and its storage is open")
            monitor.ended()
        except (HaltedError, CrashError):
            died = True
        except SimulationError as error:
            self.tell(str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, no run may end with it
            self.tell(f"the run ended with {type(error).__name__}: {error}")
        finally:
            monitor.dead = True
            self._now = loop.time()
            loop.close()
            HOST.cancellation._callbacks.clear()
        return not died

    def _open_session(self) -> Storage:
        if self._opened:
            return self._store.open(SESSION, take_over=True)
        self._opened = True
        return self._store.create(SESSION)

    def _committed(self, monitor: Monitor, batch: Batch, written: BatchRange) -> None:
        if self.trace is not None:
            self.note(f"          commit {written.first}: {_summary(batch)}")
        monitor.committed(batch)
        self.ledger.apply(batch, written)

    def _faulted(self, monitor: Monitor, fault: Fault, batch: Batch) -> None:
        self.note(f"          {fault} at {_summary(batch)}")
        if fault.startswith("crash"):
            monitor.dead = True
            assert self._loop is not None
            self._loop.halt()
        elif fault == "retry" and isinstance(batch, ScratchBatch) and _harness_owned(batch):
            monitor.uncounted(batch.task)
        elif fault.startswith("uncertain") or _harness_owned(batch):
            # A batch of the harness itself has nobody who would try it again.
            monitor.faulted = True


async def _open(
    storage: Storage, kinds: Iterable[RunnableKind], options: Options
) -> Harness | None:
    """Open a session, however often its storage is busy; ``None``: its root is of unknown fate."""
    while True:
        try:
            return await Harness.open(storage, tasks=kinds, options=options)
        except RetryableError:
            continue
        except CommitUncertainError:
            storage.close()
            return None


class LoopClock:
    """The session's clock, which shows the loop's time."""

    def __init__(self, loop: SimulatedLoop, offset_ms: int) -> None:
        self._loop = loop
        self._offset = offset_ms

    def now(self) -> int:
        return self._offset + int(self._loop.time() * 1000)


def run(
    seed: int,
    store: Store,
    *,
    scenario: Scenario | None = None,
    choices: Choices | None = None,
    traced: bool = False,
    every: int = 1,
) -> Report:
    """Run a scenario to its end, through crashes and closes.

    Args:
        seed: What everything follows from: scenario, schedule and delays.
        store: An empty store, for this run alone.
        scenario: What happens, if not the scenario of the seed.
        choices: The schedule, if not that of the seed.
        traced: Whether the report holds a trace.
        every: After how many commits the indexes are compared with storage.
    """
    chosen = scenario if scenario is not None else generate(seed)
    world = World(store, seed, choices or schedule(seed), traced=traced)
    stage = Stage(chosen, world.ledger)
    world.may_break = stage.may_break
    world.counts_drives = True
    for life in chosen.lives:
        if not world.problems:
            _live(world, stage, life, every)
    if not world.problems:
        stage.mended = True
        _finish(world, stage, away=seed % 3 == 0, every=every)
    if not world.problems:
        for problem in check_facts(stage):
            world.tell(problem)
    trace = tuple(world.trace or ())
    ledger = world.ledger
    return Report(seed, tuple(world.problems), trace, ledger.batches, len(ledger.tasks))


def schedule(seed: int) -> Choices:
    """Return the schedule of a seed: random, or with few preemptions; some with slow processors."""
    preemption = 1.0 if seed % 3 else 0.05
    slow = (0.0, 0.02, 0.0, 0.2)[seed % 4]
    return RandomChoices(seed, preemption=preemption, slow=slow)


def _live(world: World, stage: Stage, life: Life, every: int) -> None:
    world.note(f"--- a life: {life}")
    stage.opened()

    async def body(harness: Harness, monitor: Monitor) -> None:
        await Hosts(stage, monitor, life, harness).live()

    kinds = (stage.work, stage.extra) if life.knows_extra else (stage.work,)
    options = partial(_options, stage.scenario, len(life.acts) % 2 * 86_400_000)
    world.live(body, kinds, options, faults=life.faults, away=life.away, every=every)


def _finish(world: World, stage: Stage, *, away: bool, every: int) -> None:
    """Drive everything to its end in a last process."""
    world.note("--- the last life")
    stage.opened()

    async def body(harness: Harness, monitor: Monitor) -> None:
        root = await harness.root()
        for keys in stage.scenario.groups:
            if stage.id_of(keys[0]) is None:
                await root.commit(partial(_create, stage, keys))
        for task in (await harness.inspect()).parked:
            await resume(harness, monitor, task.id)
        monitor.driven = True
        while stage.ledger.live:
            outcome = await harness.drive()
            assert outcome == "idle"
            for id in list(stage.ledger.live):
                await harness.wait_for_task(id)
        await harness.close()

    options = partial(_options, stage.scenario, 0)
    world.live(body, (stage.work, stage.extra), options, faults={}, away=away, every=every)


def _create(stage: Stage, keys: tuple[int, ...], tx: Tx) -> None:
    stage.create(tx, keys, ROOT)


def _options(
    scenario: Scenario, offset_ms: int, loop: SimulatedLoop, away: SimulatedAway | None
) -> Options:
    return Options(
        on_task_fault=scenario.on_task_fault,
        crashes_max=scenario.crashes_max,
        clock=LoopClock(loop, offset_ms),
        away=away,
    )


def _harness_owned(batch: Batch) -> bool:
    if isinstance(batch, ScratchBatch):
        return getattr(batch.writes[0].address, "namespace", "") == CRASHES
    assert isinstance(batch, MainBatch)
    return any(isinstance(w, SettleTask) and w.status == "faulted" for w in batch.writes)


def _summary(batch: Batch) -> str:
    if isinstance(batch, ScratchBatch):
        return f"scratch of task {batch.task}"
    return ", ".join(_write(write) for write in batch.writes)


def _write(write: object) -> str:
    name = type(write).__name__
    parts = [str(getattr(write, n)) for n in ("id", "status", "abort", "data") if hasattr(write, n)]
    return f"{name}({' '.join(parts)})"
