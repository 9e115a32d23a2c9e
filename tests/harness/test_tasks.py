"""Tasks across processes and phases: facts 91 to 118, TASKS-1 to TASKS-6.

Facts that are rows of the matrix, contracts or processes are tests there. Facts 102 to 109 speak of
generations, tools, collapse and jobs; what the core owes them is the recovery by role, tested here.
"""

from __future__ import annotations

import asyncio

import pytest

from pico_harness import (
    Call,
    Cancellation,
    TaskRuntime,
    Tx,
)
from pico_harness.errors import CallCancelledError, SessionFaultedError, TaskParkedError
from pico_harness.losses import CRASHES
from pico_store.address import ScratchAddress
from pico_store.batch import ScratchBatch, ValueSet
from tests.harness.scripted import (
    Aborted,
    Done,
    Failed,
    Planned,
    Script,
    Stop,
    Task,
    Tool,
    begin,
    hang,
)
from tests.harness.worlds import World, both, on_loop, outcome, planned, settle_down, until_inflight


@on_loop
async def test_open_starts_nothing(world: World) -> None:
    """Fact 91."""
    kind = Script()
    harness, _, id = await planned(world, kind)
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
    await until_inflight(harness, 2)
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
    harness, root, id = await planned(world, kind)
    driving = asyncio.ensure_future(root.drive())
    await until_inflight(harness, 1)
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
    harness, root, id = await planned(world, kind)
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
async def test_a_session_that_another_task_faulted_is_no_crash_of_this_one(world: World) -> None:
    """TASKS-5: only what took the process along counts."""

    async def broken(task: Task, runtime: TaskRuntime) -> None:
        await others.wait()
        raise ZeroDivisionError

    patient = Script(hang, recover=lambda task, runtime: _wait(others))
    others = Stop()
    harness, root, id = await planned(world, patient)
    driving = asyncio.ensure_future(outcome(root.drive()))
    await until_inflight(harness, 1)
    await harness.close()
    await driving
    for _ in range(6):
        others = Stop()
        bad = Tool(broken, abort=run_abort)
        again = await world.open(patient, bad)
        for task in (await again.inspect()).start:
            await again.abort_task(task.id)
        root = await again.root()
        await root.commit(lambda tx, bad=bad: tx.task(bad, Planned()))  # type: ignore[misc]
        driving = asyncio.ensure_future(outcome(root.drive()))
        await others.reached.wait()
        await settle_down(again)
        others.go()
        assert isinstance(await driving, SessionFaultedError)
        await again.close()

    last = await world.open(Script())
    assert (await last.inspect()).parked == ()
    assert [task.id for task in (await last.inspect()).inflight] == [id]


@pytest.mark.parametrize("background", [False, True])
@on_loop
async def test_who_cannot_run_a_task_does_not_forget_its_losses(
    memory: World, *, background: bool
) -> None:
    harness = await memory.open(kind := Script(hang))
    root = await harness.root()
    id = await root.commit(lambda tx: tx.task(kind, Planned(), background=background))
    driving = asyncio.ensure_future(outcome(harness.drive()))
    await until_inflight(harness, 1)
    await harness.close()
    await driving
    storage = memory.store.open("a")
    storage.commit(ScratchBatch(id, (ValueSet(ScratchAddress(id, CRASHES), 4),)))
    storage.close()

    other = await memory.open(Tool())
    await other.close()

    again = await memory.open(Script())
    assert [task.id for task in (await again.inspect()).parked] == [id]


async def run_abort(task: Task, runtime: TaskRuntime) -> None:
    await runtime.commit(lambda tx: tx.settle(task.id, Aborted()))


async def _wait(stop: Stop) -> None:
    stop.reached.set()
    await Stop().wait()


@on_loop
async def test_a_settlement_that_makes_background_work_is_idle_at_once(world: World) -> None:
    async def execute(task: Task, runtime: TaskRuntime) -> None:
        def plan(tx: Tx) -> None:
            tx.task(tool, Planned(), background=True)
            tx.settle(task.id, Done())

        await runtime.commit(plan)

    kind, tool = Script(execute), Tool(hang)
    harness = await world.open(kind, tool)
    root = await harness.root()
    id = await root.commit(lambda tx: tx.task(kind, Planned()))

    assert await both(root.drive(), harness.wait_for_task(id), harness.drive()) == [
        "idle",
        True,
        "idle",
    ]
