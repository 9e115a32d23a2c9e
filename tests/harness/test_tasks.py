"""Tasks across processes and phases: facts 91 to 118, TASKS-1 to TASKS-6, and field reports.

Facts that are rows of the matrix, contracts or processes are tests there. Facts 102 to 109 speak of
generations, tools, collapse and jobs; what the core owes them is the recovery by role, tested here.
"""

from __future__ import annotations

import asyncio

import pytest

from pico_harness import (
    Call,
    Cancellation,
    EntryKind,
    Harness,
    Options,
    TaskRuntime,
    Tx,
    session_value,
)
from pico_harness.errors import CallCancelledError, SessionFaultedError, TaskParkedError
from pico_harness.harness import ROOT
from pico_store.address import Seq
from pico_store.errors import OwnershipLostError
from pico_store.query import EntryQuery
from tests.harness.scripted import (
    Aborted,
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
)
from tests.harness.worlds import World, both, on_loop, outcome, settle_down

NOTE = EntryKind[object]("note")
COUNT = session_value("count", int)


async def _until_inflight(harness: Harness, count: int) -> None:
    while len((await harness.inspect()).inflight) < count:
        await asyncio.sleep(0)


@on_loop
async def test_open_starts_nothing(world: World) -> None:
    """Fact 91."""
    kind = Script()
    harness = await world.open(kind)
    root = await harness.root()
    id = await root.commit(lambda tx: tx.task(kind, Planned()))
    await harness.close()

    again = await world.open(kind)
    await (await again.root()).snapshot()
    assert [task.id for task in (await again.inspect()).start] == [id]
    await settle_down(again)

    assert kind.calls == []


@pytest.mark.parametrize("end", [Done(), Failed(), Aborted()])
@on_loop
async def test_a_dependency_that_ended_anyhow_frees_what_waits(
    world: World, end: Done | Failed | Aborted
) -> None:
    """Fact 93."""

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        await runtime.commit(lambda tx: tx.settle(task.id, end))

    kind, tool = Script(execute), Tool()
    harness = await world.open(kind, tool)
    root = await harness.root()
    first = await root.commit(lambda tx: tx.task(kind, Planned()))
    second = await root.commit(lambda tx: tx.task(tool, Planned(), after=[first]))
    await root.drive()
    third = await root.commit(lambda tx: tx.task(tool, Planned(), after=[first]))

    assert await root.drive() == "idle"
    assert tool.calls == [("execute", second), ("execute", third)]


@on_loop
async def test_recovery_goes_by_role_and_mark_alone(world: World) -> None:
    """Facts 100 and 101: in flight recovers, planned executes, marked aborts, terminal rests."""
    kind = Script(hang)
    harness = await world.open(kind)
    root = await harness.root()
    inflight, marked = await root.commit(lambda tx: [tx.task(kind, Planned()) for _ in range(2)])
    driving = asyncio.ensure_future(outcome(root.drive()))
    await _until_inflight(harness, 2)
    waiting = await root.commit(lambda tx: tx.task(kind, Planned(), after=[inflight]))
    crashed = await world.open(Script(hang))
    await crashed.abort_task(marked)
    good = Script()

    again = await world.open(good)
    assert await (await again.root()).drive() == "idle"

    assert sorted(good.calls) == [("abort", marked), ("execute", waiting), ("recover", inflight)]
    for left in (harness, crashed):
        await left.close()
    await driving
    third = await world.open(good)
    assert await third.drive() == "idle"
    assert len(good.calls) == 3


@on_loop
async def test_an_unknown_kind_is_reported_and_orphaned_when_driven(world: World) -> None:
    """Fact 110, TASKS-2."""
    kind, tool = Script(), Tool()
    harness = await world.open(kind, tool)
    root = await harness.root()
    gone = await root.commit(lambda tx: tx.task(kind, Planned("kept")))
    ended = await root.commit(lambda tx: tx.task(tool, Planned(), background=True))
    await harness.close()

    again = await world.open(tool)
    seen = await again.inspect()
    last = seen.last_seq
    assert [task.id for task in seen.orphaned] == [gone]
    assert (await again.inspect()).last_seq == last
    await (await again.root()).drive()
    await again.wait_for_task(ended)

    task = await again.get_task(gone)
    assert task is not None
    assert (task.status, task.state["note"]) == ("orphaned", "kept")
    assert kind.calls == []
    await again.close()
    third = await world.open()
    last = (await third.inspect()).last_seq
    await third.drive()
    assert (await third.inspect()).last_seq == last


@on_loop
async def test_a_kind_registered_before_driving_recovers(world: World) -> None:
    kind = Script(hang)
    harness = await world.open(kind)
    root = await harness.root()
    id = await root.commit(lambda tx: tx.task(kind, Planned()))
    driving = asyncio.ensure_future(root.drive())
    await _until_inflight(harness, 1)
    await harness.close()
    await driving

    again = await world.open()
    good = Script()
    again.task_kinds.register(good)

    assert await again.drive() == "idle"
    assert good.calls == [("recover", id)]


@on_loop
async def test_a_background_task_waits_for_its_kind(world: World) -> None:
    kind = Script()
    harness = await world.open(kind)
    root = await harness.root()
    id = await root.commit(lambda tx: tx.task(kind, Planned(), background=True))
    await harness.close()

    again = await world.open()
    assert await again.drive() == "idle"
    assert [task.id for task in (await again.inspect()).parked] == [id]
    again.task_kinds.register(kind)

    assert await again.wait_for_task(id)
    assert kind.calls == [("execute", id)]


@on_loop
async def test_what_waits_for_a_parked_task_is_told_so(world: World) -> None:
    kind, tool = Script(), Tool()
    harness = await world.open(kind, tool)
    root = await harness.root()
    parked = await root.commit(lambda tx: tx.task(kind, Planned(), background=True))
    id = await root.commit(lambda tx: tx.task(tool, Planned(), after=[parked]))
    await harness.close()
    again = await world.open(tool)

    errors = await both((await again.root()).drive(), again.drive())

    assert [type(error) for error in errors] == [TaskParkedError] * 2
    assert all(error.tasks == (id,) for error in errors)  # type: ignore[union-attr]
    again.task_kinds.register(kind)
    assert await again.drive() == "idle"


@on_loop
async def test_creating_and_waiting_never_hangs(world: World) -> None:
    """Fact 112."""
    kind = Script()
    harness = await world.open(kind)
    root = await harness.root()
    await root.drive()

    for n in range(200):
        id = await root.commit(lambda tx: tx.task(kind, Planned()))
        assert await (harness.wait_for_task(id) if n % 2 else root.drive()) in (True, "idle")
        assert await harness.wait_for_task(id)

    assert len(harness._driver.scheduler.waits) == 0


@on_loop
async def test_a_wait_that_is_given_up_rejects_itself_alone(world: World) -> None:
    """Fact 112, TASKS-6."""
    kind = Script(hang)
    harness = await world.open(kind)
    root = await harness.root()
    id = await root.commit(lambda tx: tx.task(kind, Planned()))
    dead = _cancelled_call()
    at_once = await outcome(harness.wait_for_task(id, call=dead))
    budget = await harness.wait_for_task(id, 0)
    long = asyncio.ensure_future(harness.wait_for_task(id))
    call = _call()
    short = asyncio.ensure_future(outcome(harness.wait_for_task(id, call=call)))
    await settle_down(harness)

    call.cancellation.cancel("enough")

    assert isinstance(at_once, CallCancelledError)
    assert budget is False
    assert isinstance(await short, CallCancelledError)
    assert not long.done()
    await root.abort()
    await root.drive()
    assert await long


def _call() -> Call:
    return Call(Cancellation())


def _cancelled_call() -> Call:
    call = _call()
    call.cancellation.cancel("before")
    return call


@on_loop
async def test_no_idle_gap_between_a_settlement_and_its_successor(world: World) -> None:
    """Fact 113."""

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        left = int(task.state.note)

        def plan(tx: Tx) -> None:
            if left:
                tx.task(kind, Planned(str(left - 1)))
            tx.settle(task.id, Done())

        await begin(task, runtime)
        await runtime.commit(plan)

    kind = Script(execute)
    harness = await world.open(kind)
    root = await harness.root()
    await root.commit(lambda tx: tx.task(kind, Planned("5")))

    outcomes = await both(*(root.drive() for _ in range(3)), harness.drive())

    assert outcomes == ["idle"] * 4
    assert len(kind.calls) == 6


@on_loop
async def test_aborting_one_conversation_leaves_the_other_alone(world: World) -> None:
    """Field report 29: the sibling, a fork and background work go on."""
    stop = Stop()

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        await begin(task, runtime)
        await stop.wait()
        await finish(task, runtime)

    kind = Script(execute)
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
    await _until_inflight(harness, 4)

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
    await _until_inflight(harness, 1)

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
    await _until_inflight(harness, 1 if answered else 2)
    await settle_down(harness)

    again = await world.open(parent, worker)
    assert await (await again.root()).drive() == "idle"

    entries = (await again.entries(EntryQuery(conversation_id=ROOT))).items
    assert [(entry.data, entry.by_task_id) for entry in entries] == [("result", id)]
    assert len(again._driver.scheduler.live) == 0
    assert len([call for call in worker.calls if call[0] == "recover"]) == (0 if answered else 1)
    await harness.close()
    await driving
