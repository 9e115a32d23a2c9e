"""Field reports of cancellation, owners, order, jobs and child conversations, in small."""

from __future__ import annotations

import asyncio

import pytest

from pico_harness import (
    Options,
    TaskRuntime,
    Tx,
)
from pico_harness.errors import SessionFaultedError
from pico_harness.harness import ROOT
from pico_store.address import Seq
from pico_store.errors import OwnershipLostError
from pico_store.query import EntryQuery
from tests.harness.names import COUNT, NOTE
from tests.harness.scripted import (
    Done,
    Failed,
    Planned,
    Running,
    Script,
    Stop,
    Task,
    Tool,
    begin,
    finish,
    hang,
    run_through,
    through,
)
from tests.harness.worlds import World, on_loop, outcome, settle_down, until_inflight


@on_loop
async def test_aborting_one_conversation_leaves_the_other_alone(world: World) -> None:
    """Field report 29: the sibling, a fork and background work go on."""
    stop = Stop()

    kind = Script(through(stop))
    harness = await world.open(kind)
    root = await harness.root()
    entry = await root.commit(lambda tx: tx.entry(NOTE, 1))
    other, fork = await root.fork("start"), await root.fork(entry)
    ids = {
        name: await where.commit(lambda tx: tx.task(kind, Planned()))
        for name, where in (("root", root), ("other", other), ("fork", fork))
    }
    ids["job"] = await root.commit(lambda tx: tx.task(kind, Planned(), background=True))
    driving = asyncio.ensure_future(harness.drive())
    await until_inflight(harness, 4)

    assert await root.abort() == 1
    stop.go()

    assert await driving == "idle"
    await harness.wait_for_task(ids["job"])
    tasks = await harness.get_tasks(ids.values())
    assert [task.status for task in tasks.values()] == ["aborted", "done", "done", "done"]


@pytest.mark.parametrize("abort", [True, False])
@on_loop
async def test_a_fork_marks_what_runs_in_the_same_commit_or_leaves_it(
    world: World,
    abort: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """Field report 12."""
    stop = Stop()

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        await begin(task, runtime)
        await stop.wait_through()
        await runtime.commit(lambda tx: tx.value(COUNT).set(1))
        await finish(task, runtime)

    kind = Script(execute)
    harness = await world.open(kind)
    root = await harness.root()
    entry = await root.commit(lambda tx: tx.entry(NOTE, 1))
    id = await root.commit(lambda tx: tx.task(kind, Planned()))
    driving = asyncio.ensure_future(root.drive())
    await stop.reached.wait()
    last = (await harness.inspect()).last_seq

    await root.fork(entry, abort=abort)
    written = (await harness.inspect()).last_seq - last
    stop.go()

    assert await driving == "idle"
    assert written == (2 if abort else 1)
    assert await harness.value(COUNT).get() == (None if abort else 1)
    assert (await harness.get_task(id)).status == ("aborted" if abort else "done")  # type: ignore[union-attr]


@on_loop
async def test_a_harness_that_was_taken_over_merges_nothing(world: World) -> None:
    """Field report 10."""
    stale = await world.open()
    root = await stale.root()
    await root.commit(lambda tx: tx.entry(NOTE, "shared"))
    fresh = await world.open()
    await (await fresh.root()).commit(lambda tx: tx.entry(NOTE, "fresh"))

    error = await outcome(root.commit(lambda tx: tx.entry(NOTE, "stale")))
    later = await outcome(root.commit(lambda tx: tx.entry(NOTE, "stale")))

    assert isinstance(error, OwnershipLostError)
    assert isinstance(later, SessionFaultedError)
    entries = (await fresh.entries(EntryQuery(conversation_id=ROOT))).items
    assert [entry.data for entry in entries] == ["shared", "fresh"]
    await stale.close()


@on_loop
async def test_no_order_comes_from_a_clock(world: World) -> None:
    """Field report 11."""

    class Frozen:
        def now(self) -> int:
            return 0

    kind = Script()
    harness = await world.open(kind, options=Options(clock=Frozen()))
    root = await harness.root()

    ids = [await root.commit(lambda tx: tx.task(kind, Planned())) for _ in range(50)]
    await root.drive()

    assert kind.calls == [("execute", id) for id in ids]


@on_loop
async def test_a_job_that_was_lost_gives_one_notice(world: World) -> None:
    """Field report 70, with scripted kinds in the place of jobs."""

    async def lost(task: Task, runtime: TaskRuntime) -> None:
        def plan(tx: Tx) -> None:
            tx.entry(NOTE, "lost")
            tx.settle(task.id, Failed())

        await runtime.commit(plan)

    job = Script(hang, recover=lost)
    harness = await world.open(job)
    root = await harness.root()
    id = await root.commit(lambda tx: tx.task(job, Planned(), background=True))
    await root.drive()
    await until_inflight(harness, 1)

    for _ in range(3):
        again = await world.open(job)
        await again.drive()
        assert await again.wait_for_task(id)
        await again.close()

    third = await world.open(job)
    entries = (await third.entries(EntryQuery(conversation_id=ROOT))).items
    assert [entry.data for entry in entries] == ["lost"]
    await harness.close()


@pytest.mark.parametrize("answered", [True, False])
@on_loop
async def test_a_child_is_found_again_by_its_ownership(
    world: World,
    answered: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """Field report 71: lost between spawn and work, or between the child's end and the parent's."""

    async def spawn(task: Task, runtime: TaskRuntime) -> None:
        def plan(tx: Tx) -> Seq:
            tx.patch(task.id, Running())
            child = tx.create_conversation(owner=task.id)
            tx.task(worker, Planned(), conversation=child)
            return child

        child = await runtime.commit(plan)
        if answered:
            handle = await runtime.conversation(child)
            assert handle is not None
            await handle.drive()
        await Stop().wait()

    async def resume(task: Task, runtime: TaskRuntime) -> None:
        (child,) = task.owns
        handle = await runtime.conversation(child)
        assert handle is not None
        await handle.drive()

        def plan(tx: Tx) -> None:
            tx.entry(NOTE, "result")
            tx.settle(task.id, Done())

        await runtime.commit(plan)

    worker = Tool(run_through if answered else hang, recover=run_through)
    parent = Script(spawn, recover=resume)
    harness = await world.open(parent, worker)
    root = await harness.root()
    id = await root.commit(lambda tx: tx.task(parent, Planned()))
    driving = asyncio.ensure_future(outcome(root.drive()))
    await until_inflight(harness, 1 if answered else 2)
    await settle_down(harness)

    again = await world.open(parent, worker)
    assert await (await again.root()).drive() == "idle"

    entries = (await again.entries(EntryQuery(conversation_id=ROOT))).items
    assert [(entry.data, entry.by_task_id) for entry in entries] == [("result", id)]
    assert len(again._driver.scheduler.live) == 0
    assert len([call for call in worker.calls if call[0] == "recover"]) == (0 if answered else 1)
    await harness.close()
    await driving
