"""A kind that breaks its contract stops the session, or by option ends its task alone (TASKS-3)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pico_harness import Faulted, FaultReport, Options, TaskRuntime, Tx, current_call, scratch_value
from pico_harness.errors import (
    HarnessError,
    SessionFaultedError,
    TaskCancelledError,
    WaitCycleError,
)
from pico_harness.harness import ROOT
from pico_store.address import Seq
from tests.harness.scripted import (
    Aborted,
    Done,
    Planned,
    Script,
    Stop,
    Task,
    Tool,
    begin,
    finish,
)
from tests.harness.worlds import World, both, on_loop, outcome, planned, settle_down

MEMO = scratch_value("memo")


class _SpeechlessError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


async def _nothing(task: Task, runtime: TaskRuntime) -> None:
    pass


async def _raises(task: Task, runtime: TaskRuntime) -> None:
    raise LookupError("out of nowhere")


async def _raises_speechless(task: Task, runtime: TaskRuntime) -> None:
    raise _SpeechlessError


async def _raises_a_novel(task: Task, runtime: TaskRuntime) -> None:
    raise LookupError("x\ud800")


async def _raises_a_group(task: Task, runtime: TaskRuntime) -> None:
    raise BaseExceptionGroup("two", [LookupError("one"), ZeroDivisionError("other")])


async def _cancels(task: Task, runtime: TaskRuntime) -> None:
    raise asyncio.CancelledError


async def _marks_only(task: Task, runtime: TaskRuntime) -> None:
    await runtime.scratch(lambda tx: tx.value(MEMO).set(1))


async def _stays(task: Task, runtime: TaskRuntime) -> None:
    await runtime.commit(lambda tx: tx.patch(task.id, Planned("changed")))


def _returns_a_number(task: Task, runtime: TaskRuntime) -> Any:
    return 5


BROKEN: list[Any] = [
    _nothing,
    _raises,
    _raises_speechless,
    _raises_a_group,
    _marks_only,
    _stays,
    _returns_a_number,
    None,
]


@pytest.mark.parametrize("execute", BROKEN)
@on_loop
async def test_a_broken_execute_stops_the_session_with_a_report(world: World, execute: Any) -> None:
    reports: list[FaultReport] = []
    kind = Script(execute)
    harness = await world.open(kind, options=Options(on_report=reports.append))
    root = await harness.root()
    id = await root.commit(lambda tx: tx.task(kind, Planned()))

    errors = await both(root.drive(), harness.wait_for_task(id), harness.drive())

    assert [type(error) for error in errors] == [SessionFaultedError] * 3
    assert f"execute of task {id} (script)" in str(errors[0])
    assert [(report.task_id, report.kind, report.method) for report in reports] == [
        (id, "script", "execute")
    ]
    refused = await outcome(root.commit(lambda tx: tx.create_conversation()))
    assert isinstance(refused, SessionFaultedError)
    await harness.close()
    good = Script()
    again = await world.open(good)
    assert (await again.get_task(id)).role == "start"  # type: ignore[union-attr]
    assert await (await again.root()).drive() == "idle"


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize("method", ["execute", "abort"])
@on_loop
async def test_a_forgotten_await_is_named(world: World, method: str) -> None:
    """TASKS-3: Python's own warning goes where nobody who drives may look."""

    async def forgets(task: Task, runtime: TaskRuntime) -> None:
        await runtime.scratch(lambda tx: tx.value(scratch_value("step", int)).set(1))
        runtime.commit(lambda tx: tx.settle(task.id, Done()))  # type: ignore[unused-coroutine]

    kind = Script(forgets, abort=forgets)
    harness = await world.open(kind)
    root = await harness.root()
    id = await root.commit(lambda tx: tx.task(kind, Planned()))
    if method == "abort":
        await harness.abort_task(id)

    error = await outcome(root.drive())

    assert isinstance(error, SessionFaultedError)
    assert f"{method} of task {id} (script) returned without" in str(error)
    assert "commits that were asked for and never awaited: 1" in str(error)


@pytest.mark.parametrize("execute", [*BROKEN, _raises_a_novel])
@on_loop
async def test_a_broken_execute_with_the_option_ends_its_task_alone(
    world: World, execute: Any
) -> None:
    reports: list[FaultReport] = []
    kind, tool = Script(execute), Tool()
    options = Options(on_report=reports.append, on_task_fault="task")
    harness = await world.open(kind, tool, options=options)
    root = await harness.root()
    id = await root.commit(lambda tx: tx.task(kind, Planned("note")))
    after = await root.commit(lambda tx: tx.task(tool, Planned(), after=[id]))

    assert await root.drive() == "idle"
    task = await harness.get_task(kind, id)
    assert task is not None
    assert isinstance(task.state, Faulted)
    assert "execute of task" in task.state.error
    assert len(reports) == 1
    assert tool.calls == [("execute", after)]
    await harness.close()
    again = await world.open(kind)
    assert (await again.get_task(kind, id)).state == task.state  # type: ignore[union-attr]


@on_loop
async def test_a_group_of_errors_is_reported_with_its_parts(world: World) -> None:
    async def execute(task: Task, runtime: TaskRuntime) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(runtime.commit(lambda tx: 1 // 0))

    kind = Script(execute)
    harness = await world.open(kind, options=Options(on_task_fault="task"))
    root = await harness.root()
    id = await root.commit(lambda tx: tx.task(kind, Planned()))

    assert await root.drive() == "idle"

    found = await harness.get_task(kind, id)
    assert found is not None
    assert isinstance(found.state, Faulted)
    assert "(1 sub-exception): ZeroDivisionError: " in found.state.error


@on_loop
async def test_a_cancellation_that_nobody_asked_for_stops_the_session(world: World) -> None:
    kind = Script(_cancels)
    _, root, id = await planned(world, kind)

    error = await outcome(root.drive())

    assert isinstance(error, SessionFaultedError)
    assert f"execute of task {id} (script) raised CancelledError" in str(error)


@on_loop
async def test_an_abort_that_does_not_settle_is_broken(world: World) -> None:
    kind = Script(abort=_nothing)
    harness, root, id = await planned(world, kind)
    await harness.abort_task(id)

    error = await outcome(root.drive())

    assert isinstance(error, SessionFaultedError)
    assert f"abort of task {id} (script) returned without settling" in str(error)


@on_loop
async def test_a_listener_of_reports_that_raises_hides_no_fault(world: World) -> None:
    def tell(report: FaultReport) -> None:
        raise ZeroDivisionError("the listener")

    kind = Script(_raises)
    harness = await world.open(kind, options=Options(on_report=tell))
    root = await harness.root()
    id = await root.commit(lambda tx: tx.task(kind, Planned()))

    error = await outcome(root.drive())

    assert isinstance(error, SessionFaultedError)
    assert f"task {id}" in str(error)
    await harness.close()


@on_loop
async def test_a_callback_of_a_cancellation_that_raises_stops_no_other(world: World) -> None:
    heard: list[str] = []

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        await begin(task, runtime)
        current_call().cancellation.on_cancel(lambda: 1 / 0)
        current_call().cancellation.on_cancel(lambda: heard.append("second"))
        await stop.wait()

    stop = Stop()
    kind, tool = Script(execute), Tool(lambda task, runtime: Stop().wait())
    harness = await world.open(kind, tool)
    root = await harness.root()
    await root.commit(lambda tx: [tx.task(kind, Planned()), tx.task(tool, Planned())])
    driving = asyncio.ensure_future(root.drive())
    await stop.reached.wait()
    await settle_down(harness)

    await root.abort()

    assert await driving == "idle"
    assert heard == ["second"]
    assert [method for method, _ in tool.calls] == ["execute", "abort"]


@on_loop
async def test_three_tasks_cannot_wait_in_a_ring(world: World) -> None:
    errors: list[object] = []
    entered = [asyncio.Event() for _ in range(3)]
    ids: list[Seq] = []

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        await begin(task, runtime)
        n = int(task.state.note)
        entered[n].set()
        for event in entered:
            await event.wait()
        if n == 2:
            await settle_down(harness)
        found = await outcome(runtime.wait_for_task(ids[(n + 1) % 3]))
        if n == 2:
            errors.append(found)
        await finish(task, runtime)

    kind = Script(execute)
    harness = await world.open(kind)
    root = await harness.root()
    ids += await root.commit(lambda tx: [tx.task(kind, Planned(n)) for n in "012"])

    assert await root.drive() == "idle"
    assert isinstance(errors[0], WaitCycleError)
    assert f"task {ids[2]} waits for task {ids[0]}" in str(errors[0])


@on_loop
async def test_a_wait_through_dependencies_is_found(world: World) -> None:
    errors: list[object] = []

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        await begin(task, runtime)
        errors.append(await outcome(runtime.wait_for_task(last[0])))
        await finish(task, runtime)

    kind, tool = Script(execute), Tool()
    harness = await world.open(kind, tool)
    root = await harness.root()

    def plan(tx: Tx) -> list[Seq]:
        id = tx.task(kind, Planned())
        below = [tx.task(tool, Planned(), after=[id]) for _ in range(2)]
        return [id, tx.task(tool, Planned(), after=below)]

    id, end = await root.commit(plan)
    last = [end]

    assert await root.drive() == "idle"
    assert isinstance(errors[0], WaitCycleError)
    assert f"task {id} waits for task {end}" in str(errors[0])


@on_loop
async def test_a_background_task_may_not_drive_what_waits_for_it(world: World) -> None:
    errors: list[object] = []

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        await begin(task, runtime)
        own = await runtime.conversation(runtime.conversation_id)
        assert own is not None
        errors.append(await outcome(own.drive()))
        await finish(task, runtime)

    kind, tool = Script(execute), Tool()
    harness = await world.open(kind, tool)
    root = await harness.root()

    def plan(tx: Tx) -> None:
        id = tx.task(kind, Planned(), background=True)
        tx.task(tool, Planned(), after=[id])

    await root.commit(plan)

    assert await root.drive() == "idle"
    assert isinstance(errors[0], WaitCycleError)


@on_loop
async def test_diamonds_of_waits_and_dependencies_are_allowed(world: World) -> None:
    async def execute(task: Task, runtime: TaskRuntime) -> None:
        await begin(task, runtime)
        for id in task.state.tasks if isinstance(task.state, Planned) else ():
            assert await runtime.wait_for_task(id)
        await finish(task, runtime)

    kind = Script(execute)
    harness = await world.open(kind)
    root = await harness.root()

    def plan(tx: Tx) -> Seq:
        top = tx.task(kind, Planned())
        sides = [tx.task(kind, Planned(), after=[top]), tx.task(kind, Planned(tasks=[top]))]
        return tx.task(kind, Planned(tasks=[top, *sides]), after=sides)

    id = await root.commit(plan)

    assert await root.drive() == "idle"
    assert (await harness.get_task(kind, id)).state == Done()  # type: ignore[union-attr]


@on_loop
async def test_a_broken_abort_faults_and_a_replaced_kind_recovers(world: World) -> None:
    async def broken(task: Task, runtime: TaskRuntime) -> None:
        raise ZeroDivisionError("broken clean-up")

    kind = Script(lambda task, runtime: Stop().wait(), abort=broken)
    harness, root, id = await planned(world, kind)
    driving = asyncio.ensure_future(outcome(root.drive()))
    await settle_down(harness)

    stopping = await outcome(harness.shutdown())

    assert isinstance(stopping, SessionFaultedError)
    assert isinstance(stopping.__cause__, ZeroDivisionError)
    assert f"abort of task {id} (script)" in str(stopping)
    assert isinstance(await driving, SessionFaultedError)
    await harness.close()
    good = Script()
    again = await world.open(good)
    assert [task.id for task in (await again.inspect()).start] == [id]
    assert await (await again.root()).drive() == "idle"
    assert good.calls == [("abort", id)]


@on_loop
async def test_a_broken_abort_with_the_option_ends_its_task_alone(world: World) -> None:
    async def broken(task: Task, runtime: TaskRuntime) -> None:
        raise ZeroDivisionError("broken clean-up")

    kind = Script(lambda task, runtime: Stop().wait(), abort=broken)
    harness = await world.open(kind, options=Options(on_task_fault="task"))
    root = await harness.root()
    id = await root.commit(lambda tx: tx.task(kind, Planned()))
    driving = asyncio.ensure_future(root.drive())
    await settle_down(harness)

    await harness.abort_task(id)

    assert await driving == "idle"
    assert (await harness.get_task(id)).status == "faulted"  # type: ignore[union-attr]


@on_loop
async def test_what_an_aborted_task_tries_to_write_is_no_fault(world: World) -> None:
    errors: list[BaseException] = []

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        await begin(task, runtime)
        try:
            await stop.wait()
        except asyncio.CancelledError:
            # A kind that tidies up in its own name, and lets the refusal end it.
            try:
                await finish(task, runtime)
            except HarnessError as error:
                errors.append(error)
                raise

    stop = Stop()
    kind = Script(execute)
    harness, root, id = await planned(world, kind)
    driving = asyncio.ensure_future(root.drive())
    await stop.reached.wait()

    await harness.abort_task(id)

    assert await driving == "idle"
    assert isinstance(errors[0], TaskCancelledError)
    assert (await harness.get_task(kind, id)).state == Aborted()  # type: ignore[union-attr]
    assert (await harness.get_task(kind, id)).conversation_id == ROOT  # type: ignore[union-attr]
