"""What grows with the work that is there, counted: attaching, looking for cycles, settling."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator

import pytest

from pico_harness import TaskRuntime, Tx
from pico_harness.errors import WaitCycleError
from pico_harness.live import LiveIndex
from pico_harness.scheduler import Scheduler
from pico_harness.waits import Waiter, Waits
from pico_store.address import Seq
from pico_store.records import JsonValue
from pico_store.records import Task as Stored
from tests.harness.scripted import (
    Joiner,
    Planned,
    Running,
    Script,
    Stop,
    Task,
    Tool,
    finish,
    run_through,
)
from tests.harness.worlds import World, on_loop, settle_down

COUNT = 300


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[Seq]:
    """Note every task that the scheduler considers to run, and every one that a walk meets."""
    met: list[Seq] = []
    reserve, above, below = Scheduler._reserve, Waits._above, Waits._below

    def reserving(self: Scheduler, ids: Iterable[Seq], actions: list[object]) -> None:
        ids = list(ids)
        met.extend(ids)
        reserve(self, ids, actions)  # type: ignore[arg-type]

    def noting(
        walk: Callable[[Waits, Seq, object], Iterable[Seq]],
    ) -> Callable[[Waits, Seq, object], Iterator[Seq]]:
        def step(self: Waits, id: Seq, new: object) -> Iterator[Seq]:
            met.append(id)
            yield from walk(self, id, new)

        return step

    monkeypatch.setattr(Scheduler, "_reserve", reserving)
    monkeypatch.setattr(Waits, "_above", noting(above))  # type: ignore[arg-type]
    monkeypatch.setattr(Waits, "_below", noting(below))  # type: ignore[arg-type]
    return met


def _child(tx: Tx, task: Task, kind: Script) -> Seq:
    child = tx.create_conversation(owner=task.id)
    tx.task(kind, Planned(), conversation=child)
    tx.patch(task.id, Running())
    return child


@on_loop
async def _drive_children(memory: World, looked_at: list[Seq]) -> None:
    kind = Tool()

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        child = await runtime.commit(lambda tx: _child(tx, task, kind))
        handle = await runtime.conversation(child)
        assert handle is not None
        assert await handle.drive() == "idle"
        await finish(task, runtime)

    parent = Script(execute)
    harness = await memory.open(parent, kind)
    root = await harness.root()
    await root.commit(lambda tx: [tx.task(parent, Planned()) for _ in range(COUNT)])
    await root.drive()
    scheduler = harness._driver.scheduler

    assert len(kind.calls) == COUNT
    assert len(looked_at) <= 12 * COUNT
    assert len(scheduler.ancestry) == len(scheduler.ancestry._attached) == 1


def test_attaching_looks_at_what_it_makes_served(memory: World, looked_at: list[Seq]) -> None:
    """Parents that each drive a child are looked at for their own sake alone; none stays."""
    _drive_children(memory, looked_at)


@on_loop
async def _drive_one_by_one(memory: World, looked_at: list[Seq]) -> None:
    kind = Script()
    harness = await memory.open(kind)
    root = await harness.root()
    forks = [await root.fork("start") for _ in range(COUNT)]
    for fork in forks:
        await fork.commit(lambda tx: tx.task(kind, Planned()))
    looked_at.clear()

    for fork in forks:
        await fork.drive()

    assert len(looked_at) <= 5 * COUNT


def test_conversations_that_are_driven_one_by_one_leave_the_others_alone(
    memory: World, looked_at: list[Seq]
) -> None:
    _drive_one_by_one(memory, looked_at)


@on_loop
async def _grow_a_chain(memory: World, looked_at: list[Seq]) -> None:
    kind, stop = Tool(), Stop()

    async def wait(task: Task, runtime: TaskRuntime) -> None:
        await stop.wait()
        await finish(task, runtime)

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        child = await runtime.commit(lambda tx: _child(tx, task, first))
        handle = await runtime.conversation(child)
        assert handle is not None
        driving = asyncio.ensure_future(handle.drive())
        await stop.reached.wait()
        last = Seq(child + 1)
        looked_at.clear()
        for _ in range(COUNT):
            last = await handle.commit(lambda tx, last=last: tx.task(kind, Planned(), after=[last]))  # type: ignore[misc]
        grown.append(len(looked_at))
        with pytest.raises(WaitCycleError):
            await handle.commit(lambda tx: tx.task(kind, Planned(), after=[last, task.id]))
        stop.go()
        await driving
        await finish(task, runtime)

    grown: list[int] = []
    first, parent = Joiner(wait), Script(execute)
    harness = await memory.open(parent, first, kind)
    root = await harness.root()
    await root.commit(lambda tx: tx.task(parent, Planned()))
    assert await root.drive() == "idle"

    assert len(kind.calls) == COUNT
    assert grown[0] <= 5 * COUNT


def test_a_chain_that_grows_where_its_owner_drives_is_not_walked(
    memory: World, looked_at: list[Seq]
) -> None:
    """TASKS-4: and a circle is still found, however long the chain behind it."""
    _grow_a_chain(memory, looked_at)


def _task(id: int, conversation: int, after: Iterable[int], *, background: bool) -> Stored:
    above = tuple(map(Seq, after))
    state: dict[str, JsonValue] = {"status": "planned"}
    return Stored(
        Seq(id), Seq(conversation), "k", "planned", "start", state, above, background=background
    )


def _found(waits: Waits, new: list[Stored]) -> bool:
    try:
        waits.check_new(new)
    except WaitCycleError:
        return True
    return False


def _circular(tasks: list[Stored], waiters: list[Waiter], new: list[Stored]) -> bool:
    """Tell whether a new task waits for one that waits for it, by following everything."""
    everything = {task.id: task for task in (*tasks, *new)}

    def above(id: Seq) -> list[Seq]:
        found = list(everything[id].after)
        for waiter in waiters:
            if waiter.by != id:
                continue
            if waiter.task is not None:
                found.append(waiter.task)
            found += [
                task.id
                for task in everything.values()
                if task.conversation_id == waiter.conversation and not task.background
            ]
        return found

    for task in new:
        stack, met = above(task.id), set[Seq]()
        while stack:
            id = stack.pop()
            if id == task.id:
                return True
            if id not in met:
                met.add(id)
                stack += above(id)
    return False


@on_loop
async def test_looking_from_both_ends_finds_the_same_circles() -> None:
    """TASKS-4: against a search that follows everything, over random graphs of waits."""
    found = {True: 0, False: 0}
    loop = asyncio.get_running_loop()
    for seed in range(3_000):
        draw = random.Random(seed)
        count = draw.randint(2, 8)
        tasks = [
            _task(
                id,
                draw.randint(101, 103),
                draw.sample(range(1, id), k=min(id - 1, draw.randint(0, 2))),
                background=draw.random() < 0.3,
            )
            for id in range(1, count + 1)
        ]
        waits = Waits(LiveIndex(tasks))
        waiters: list[Waiter] = []
        for _ in range(draw.randint(0, 4)):
            by = Seq(draw.randint(1, count))
            to_task = draw.random() < 0.4
            waiter = Waiter(
                loop.create_future(),
                by,
                task=Seq(draw.randint(1, count)) if to_task else None,
                conversation=None if to_task else Seq(draw.randint(101, 103)),
            )
            try:
                waits.check(waiter)
            except WaitCycleError:
                continue
            waits.add(waiter)
            waiters.append(waiter)
        new = [
            _task(
                id,
                draw.randint(101, 103),
                draw.sample(range(1, id), k=min(id - 1, draw.randint(0, 2))),
                background=draw.random() < 0.3,
            )
            for id in range(count + 1, count + 1 + draw.randint(1, 3))
        ]
        expected = _circular(tasks, waiters, new)
        assert _found(waits, new) is expected, seed
        found[expected] += 1
    assert min(found.values()) > 100, found


@on_loop
async def test_a_wide_fan_is_taken_apart_from_its_far_end(memory: World) -> None:
    """What one task frees is a set: each abort of those that wait for it removes one."""
    kind, stop = Script(), Stop()

    async def wait(task: Task, runtime: TaskRuntime) -> None:
        await stop.wait()
        await run_through(task, runtime)

    first = Tool(wait)
    harness = await memory.open(kind, first)
    root = await harness.root()
    head = await root.commit(lambda tx: tx.task(first, Planned()))
    fan = await root.commit(
        lambda tx: [tx.task(kind, Planned(), after=[head]) for _ in range(COUNT)]
    )
    driving = asyncio.ensure_future(root.drive())
    await stop.reached.wait()
    live = harness._driver.scheduler.live
    assert list(live[head].dependents) == fan

    for id in reversed(fan[1:]):
        await harness.abort_task(id)
    await settle_down(harness)

    assert isinstance(live[head].dependents, dict)
    assert list(live[head].dependents) == fan[:1]
    stop.go()
    assert await driving == "idle"
