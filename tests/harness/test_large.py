"""Sizes: deep ownership, long dependencies, much history; costs are counted, not timed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from pico_harness import Harness, TaskRuntime, Tx
from pico_harness.errors import WaitCycleError
from pico_harness.harness import ROOT
from pico_store.address import Seq
from pico_store.backends import open_store
from pico_store.batch import MainBatch, MainWrite, SettleTask
from pico_store.errors import LimitExceededError
from pico_store.records import Conversation, Task
from pico_store.storage import Store
from tests.harness.names import MARK
from tests.harness.scripted import Done, Planned, Script, Stop, Tool, begin, finish, through
from tests.harness.scripted import Task as ScriptTask
from tests.harness.worlds import World, make_world, on_loop, outcome, settle_down

DEPTH = 10_000
CHILDREN = 100_000


@pytest.fixture(params=["memory", "sqlite"])
def plain(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """A store whose commits are short."""
    world = make_world(request.param, tmp_path)
    yield world
    world.store.close()


def _nested(tx: Tx, kind: Script, above: Seq, levels: int) -> Seq:
    """Create conversations that own one another through a task each; return the deepest."""
    for _ in range(levels):
        owner = tx.task(kind, Planned(), conversation=above)
        above = tx.create_conversation(owner=owner)
    return above


@on_loop
async def test_ten_thousand_nested_owners_are_served_and_aborted(plain: World) -> None:
    """TASKS-4, fact 117."""
    kind = Script()
    harness = await plain.open(kind)
    root = await harness.root()
    middle = await harness.commit(lambda tx: _nested(tx, kind, ROOT, DEPTH // 2))
    deepest = await harness.commit(lambda tx: _nested(tx, kind, middle, DEPTH // 2))
    last = await harness.commit(lambda tx: tx.task(kind, Planned(), conversation=deepest))

    marked = await root.abort()
    await harness.close()
    again = await plain.open(kind)
    driven = await (await again.root()).drive()

    assert marked == DEPTH + 1
    assert driven == "idle"
    assert await again.wait_for_task(last)
    await settle_down(again)
    assert len(again._driver.scheduler.ancestry) == 1


@on_loop
async def test_ten_thousand_chained_dependencies_run_in_order(memory: World) -> None:
    """TASKS-4."""
    kind = Script()
    harness = await memory.open(kind)
    root = await harness.root()

    def plan(tx: Tx) -> list[Seq]:
        ids: list[Seq] = []
        for _ in range(DEPTH):
            ids.append(tx.task(kind, Planned(), after=ids[-1:]))
        return ids

    ids = await root.commit(plan)

    assert await root.drive() == "idle"
    assert kind.calls == [("execute", id) for id in ids]


@on_loop
async def test_a_cycle_through_ten_thousand_dependencies_is_found(memory: World) -> None:
    errors: list[object] = []
    last: list[Seq] = []

    async def execute(task: ScriptTask, runtime: TaskRuntime) -> None:
        await begin(task, runtime)
        errors.append(await outcome(runtime.wait_for_task(last[0])))
        await finish(task, runtime)

    first, kind = Tool(execute), Script()
    harness = await memory.open(first, kind)
    root = await harness.root()

    def plan(tx: Tx) -> Seq:
        id = tx.task(first, Planned())
        for _ in range(DEPTH - 1):
            id = tx.task(kind, Planned(), after=[id])
        return id

    last.append(await root.commit(plan))

    assert await root.drive() == "idle"
    assert isinstance(errors[0], WaitCycleError)


@on_loop
async def test_ten_thousand_tasks_that_wait_for_one_are_freed_or_aborted(memory: World) -> None:
    stop = Stop()

    first, kind = Tool(through(stop)), Script()
    harness = await memory.open(first, kind)
    root = await harness.root()

    def plan(tx: Tx) -> None:
        id = tx.task(first, Planned())
        for _ in range(DEPTH - 1):
            tx.task(kind, Planned(), after=[id])

    await root.commit(plan)
    driving = asyncio.ensure_future(root.drive())
    await stop.reached.wait()

    assert await root.abort() == DEPTH
    assert await driving == "idle"
    assert {method for method, _ in kind.calls} == {"abort"}


def _history(store: Store) -> list[Seq]:
    """Make a session of finished children and two live tasks, by raw batches."""
    storage = store.create("a")
    storage.commit(MainBatch((Conversation(ROOT),)))
    left = CHILDREN
    while left:
        writes: list[MainWrite] = []
        first = storage.last_seq + 1
        for _ in range(min(left, 2_500)):
            owner, child, task = (Seq(first + len(writes) + n) for n in range(3))
            writes += [
                Task(owner, ROOT, "script", "planned", "start", {"status": "planned"}),
                Conversation(child, None, owner),
                Task(task, child, "script", "planned", "start", {"status": "planned"}),
                SettleTask(task, "done", {"status": "done"}),
            ]
        storage.commit(MainBatch(tuple(writes)))
        owners = [write.id for write in writes[::4] if isinstance(write, Task)]
        storage.commit(
            MainBatch(tuple(SettleTask(id, "done", {"status": "done"}) for id in owners))
        )
        left -= len(owners)
    first = storage.last_seq + 1
    live = [Seq(first), Seq(first + 2)]
    storage.commit(
        MainBatch(
            (
                Task(live[0], ROOT, "script", "planned", "start", {"status": "planned"}),
                Conversation(Seq(first + 1), None, live[0]),
                Task(live[1], Seq(first + 1), "script", "planned", "start", {"status": "planned"}),
            )
        )
    )
    storage.close()
    return live


def test_a_hundred_thousand_finished_children_are_not_read(tmp_path: Path) -> None:
    """Fact 115, field report 44."""
    store = open_store(f"sqlite:{tmp_path}/a.db?durability=process")
    live = _history(store)
    _open_and_drive(store, live)
    store.close()


@on_loop
async def _open_and_drive(store: Store, live: list[Seq]) -> None:
    storage = store.open("a")
    kind = Script()
    opened = storage.counters.rows_decoded

    harness = await Harness.open(storage, tasks=[kind])
    driven = await (await harness.root()).drive()

    assert driven == "idle"
    assert sorted(kind.calls) == [("execute", id) for id in live]
    assert opened <= 50
    assert storage.counters.rows_decoded <= 50
    assert (await harness.get_task(kind, live[0])).state == Done()  # type: ignore[union-attr]
    await harness.close()


@on_loop
async def test_a_fork_that_marks_more_than_a_batch_holds_is_refused_and_says_how(
    memory: World,
) -> None:
    """LINE-7."""
    kind = Script()
    harness = await memory.open(kind)
    root = await harness.root()
    for count in (DEPTH, 1):
        await root.commit(lambda tx, n=count: [tx.task(kind, Planned()) for _ in range(n)])  # type: ignore[misc]
    before = memory.storages[-1].last_seq

    with pytest.raises(LimitExceededError, match=r"marks 10,001 tasks .* await abort\(\) first"):
        await root.fork("start", abort=True)

    assert memory.storages[-1].last_seq == before
    assert await root.abort() == DEPTH + 1
    fork = await root.fork("start", abort=True, values={MARK: 1})
    assert await fork.value(MARK).get() == 1
    assert await harness.drive() == "idle"


@pytest.mark.parametrize(("tasks", "fits"), [(DEPTH - 2, True), (DEPTH - 1, False)])
@on_loop
async def test_a_fork_marks_as_many_as_there_is_room_for(
    memory: World, *, tasks: int, fits: bool
) -> None:
    kind = Script()
    harness = await memory.open(kind)
    root = await harness.root()
    await root.commit(lambda tx: [tx.task(kind, Planned()) for _ in range(tasks)])

    found = await outcome(root.fork("start", abort=True, values={MARK: 1}))

    assert isinstance(found, LimitExceededError) is not fits
    assert len((await harness.inspect()).start) == tasks
    marked = [task for task in (await harness.inspect()).start if task.abort]
    assert len(marked) == (tasks if fits else 0)
