"""Design §10.2: drives, waits, close, shutdown, and pauses in the middle of a commit.

Left to the issues that build what they are about, because nothing here could show them: a summary
that lands after a competing head, and an overflow retry while a collapse runs (collapse); a watch
that registers while a commit is under way (watch). The rows about torn and malformed JSONL lines,
failed unlinks and retired scratch on disk are promises of the storage, held in
``tests/backends/jsonl``.
"""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from pico_harness import (
    Call,
    Cancellation,
    EntryDraft,
    TaskRuntime,
    Tx,
    scratch_list,
)
from pico_harness.errors import (
    CallCancelledError,
    RejectedError,
    SessionClosedError,
    SessionStoppingError,
    WaitCycleError,
)
from pico_harness.harness import ROOT
from pico_store.address import Seq
from pico_store.query import EntryQuery
from tests.harness.names import COUNT, NOTE
from tests.harness.scripted import (
    Aborted,
    Done,
    Planned,
    Running,
    Script,
    Stop,
    Task,
    Tool,
    begin,
    finish,
    run_through,
)
from tests.harness.worlds import World, both, on_loop, outcome, planned, settle_down

FRAMES = scratch_list("frames")


@on_loop
async def test_readers_see_the_old_state_while_a_commit_is_paused(held: World) -> None:
    assert held.gate is not None
    harness = await held.open()
    root = await harness.root()
    await harness.value(COUNT).set(1)
    held.gate.shut()

    def plan(tx: Tx) -> Seq:
        tx.value(COUNT).set(2)
        return tx.entry(NOTE, "new")

    writing = asyncio.ensure_future(root.commit(plan))
    await held.gate.arrival()
    seen = await harness.value(COUNT).get()
    page = await harness.entries(EntryQuery(conversation_id=ROOT))
    held.gate.open()

    id = await writing
    assert seen == 1
    assert page.items == []
    assert await harness.value(COUNT).get() == 2
    assert [
        entry.id for entry in (await harness.entries(EntryQuery(conversation_id=ROOT))).items
    ] == [id]


@on_loop
async def test_main_and_scratch_writes_in_one_batch_are_refused(world: World) -> None:
    errors: list[BaseException | None] = []

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        await begin(task, runtime)
        before = (await harness.inspect()).last_seq
        main: list[Tx] = []

        def grab(tx: Tx) -> None:
            main.append(tx)

        await runtime.commit(grab)
        mixed = await outcome(runtime.commit(lambda tx: tx.list(FRAMES).append(1)))
        assert isinstance(mixed, BaseException)
        errors.append(mixed)
        errors.append(await outcome(runtime.scratch(lambda tx: tx.value(COUNT).set(1))))
        errors.append(await outcome(runtime.scratch(lambda _: main[0].value(COUNT).set(1))))
        assert (await harness.inspect()).last_seq == before
        await finish(task, runtime)

    kind = Script(execute)
    harness = await world.open(kind)
    root = await harness.root()
    await root.commit(lambda tx: tx.task(kind, Planned()))

    assert await root.drive() == "idle"
    assert [type(error).__name__ for error in errors] == ["BuilderError"] * 3


@on_loop
async def test_repeated_drives_attach_once_and_leave_no_waiter(world: World) -> None:
    stop = Stop()
    kind = Script(lambda task, runtime: _begin_and_wait(task, runtime, stop))
    harness, root, id = await planned(world, kind)
    scheduler = harness._driver.scheduler
    calls = [Call(Cancellation()) for _ in range(3)]
    drives = [asyncio.ensure_future(outcome(root.drive(call=call))) for call in calls]
    await stop.reached.wait()
    await settle_down(harness)
    waiting = len(scheduler.waits)

    calls[0].cancellation.cancel("enough")
    calls[0].cancellation.cancel("twice")
    drives[1].cancel()
    await settle_down(harness)
    left = len(scheduler.waits)
    stop.go()

    assert waiting == 3
    assert left == 1
    assert isinstance(await drives[0], CallCancelledError)
    assert await drives[2] == "idle"
    assert len(scheduler.waits) == 0
    assert [call.cancellation._callbacks for call in calls] == [{}, {}, {}]
    assert scheduler.ancestry._attached == {ROOT}
    assert kind.calls == [("execute", id)]


@pytest.mark.parametrize("order", ["PCG", "PGC", "CPG", "CGP", "GPC", "GCP"])
@on_loop
async def test_a_deletion_leaves_nothing_of_what_was_driven_below(world: World, order: str) -> None:
    """A conversation, a child and a grandchild, driven by themselves in every order."""
    kind = Script()
    harness = await world.open(kind)

    def child(conversation: Seq, tx: Tx) -> Seq:
        owner = tx.task(kind, Planned(), conversation=conversation)
        return tx.create_conversation(owner=owner)

    ids = {"P": await harness.commit(lambda tx: tx.create_conversation())}
    ids["C"] = await harness.commit(partial(child, ids["P"]))
    ids["G"] = await harness.commit(partial(child, ids["C"]))
    for name in order:
        handle = await harness.conversation(ids[name])
        assert handle is not None
        assert await handle.drive() == "idle"
    await settle_down(harness)

    await harness.delete_conversation(ids["P"])

    assert len(harness._driver.scheduler.ancestry) == 0
    assert harness._driver.scheduler.ancestry._attached == set()


async def _begin_and_wait(task: Task, runtime: TaskRuntime, stop: Stop) -> None:
    await begin(task, runtime)
    await stop.wait()
    await finish(task, runtime)


@on_loop
async def test_background_work_goes_on_after_a_drive_was_cancelled(world: World) -> None:
    stop = Stop()
    kind = Script(lambda task, runtime: _begin_and_wait(task, runtime, stop))
    harness = await world.open(kind)
    root = await harness.root()
    first = await root.commit(lambda tx: tx.task(kind, Planned()))
    driving = asyncio.ensure_future(root.drive())
    await stop.reached.wait()

    driving.cancel()
    await outcome(driving)
    second = await root.commit(lambda tx: tx.task(kind, Planned(), background=True))
    stop.go()

    assert await harness.wait_for_task(first)
    assert await harness.wait_for_task(second)


@on_loop
async def test_a_task_that_drives_itself_is_refused_before_anything(world: World) -> None:
    errors: list[BaseException | None] = []

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        own = await runtime.conversation(runtime.conversation_id)
        assert own is not None
        before = (await harness.inspect()).last_seq
        errors.append(await outcome(own.drive()))  # type: ignore[arg-type]
        errors.append(await outcome(harness.drive()))  # type: ignore[arg-type]
        errors.append(await outcome(runtime.wait_for_task(task.id)))  # type: ignore[arg-type]
        assert (await harness.inspect()).last_seq == before
        await run_through(task, runtime)

    kind = Script(execute)
    harness, root, id = await planned(world, kind)

    assert await root.drive() == "idle"
    assert [type(error) for error in errors] == [WaitCycleError] * 3
    assert all(f"task {id}" in str(error) for error in errors)


@on_loop
async def test_work_that_would_close_a_cycle_of_waits_is_refused(world: World) -> None:
    child_made: list[Seq] = []
    waiting = asyncio.Event()

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        def spawn(tx: Tx) -> Seq:
            tx.patch(task.id, Running())
            child = tx.create_conversation(owner=task.id)
            tx.task(blocker, Planned(), conversation=child)
            return child

        child_made.append(await runtime.commit(spawn))
        handle = await runtime.conversation(child_made[0])
        assert handle is not None
        waiting.set()
        await handle.drive()
        await finish(task, runtime)

    stop = Stop()
    blocker = Tool(lambda task, runtime: _begin_and_wait(task, runtime, stop))
    kind = Script(execute)
    harness = await world.open(kind, blocker)
    root = await harness.root()
    id = await root.commit(lambda tx: tx.task(kind, Planned()))
    driving = asyncio.ensure_future(root.drive())
    await waiting.wait()
    await stop.reached.wait()
    before = (await harness.inspect()).last_seq

    closing = await outcome(
        harness.commit(
            lambda tx: tx.task(blocker, Planned(), conversation=child_made[0], after=[id])
        )
    )
    after = (await harness.inspect()).last_seq
    stop.go()

    assert isinstance(closing, WaitCycleError)
    assert after == before
    assert await driving == "idle"


@pytest.mark.parametrize("close_first", [True, False])
@on_loop
async def test_a_close_and_a_commit_keep_their_order(
    world: World,
    close_first: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    harness = await world.open()
    setting, closing = harness.value(COUNT).set(1), harness.close()

    if close_first:
        _, set_result = await both(closing, setting)
    else:
        set_result, _ = await both(setting, closing)

    assert (set_result is None) is not close_first
    assert isinstance(set_result, SessionClosedError) is close_first
    again = await world.open()
    assert await again.value(COUNT).get() == (None if close_first else 1)


@on_loop
async def test_a_task_that_returns_after_the_close_is_still_joined(world: World) -> None:
    stop = Stop()
    errors: list[BaseException] = []

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        await begin(task, runtime)
        await stop.wait_through()
        try:
            await finish(task, runtime)
        except SessionClosedError as error:
            errors.append(error)
            raise

    kind = Script(execute)
    harness, root, id = await planned(world, kind)
    driving = asyncio.ensure_future(root.drive())
    await stop.reached.wait()
    closings = [asyncio.ensure_future(harness.close()) for _ in range(2)]

    await settle_down(harness)
    pending = [closing.done() for closing in closings]
    stop.go()
    await asyncio.gather(*closings)

    assert pending == [False, False]
    assert await driving == "closed"
    assert len(errors) == 1
    again = await world.open(kind)
    assert [task.id for task in (await again.inspect()).inflight] == [id]
    await (await again.root()).drive()
    assert kind.calls == [("execute", id), ("recover", id)]


@pytest.mark.parametrize("accept_first", [True, False])
@on_loop
async def test_a_shutdown_and_an_accept_keep_their_order(
    world: World,
    accept_first: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    kind = Script(lambda task, runtime: Stop().wait())
    harness = await world.open(kind)
    root = await harness.root()
    await root.commit(lambda tx: tx.task(kind, Planned()))
    kept = await root.accept(EntryDraft("note", data="kept"), mode="nextRun")
    accepting = root.accept(EntryDraft("note", data="x"), request_id="r")
    stopping = harness.shutdown()

    if accept_first:
        accepted, stopped = await both(accepting, stopping)
    else:
        # A shutdown is a task of its own; it takes the line when that first runs.
        ending = asyncio.ensure_future(outcome(stopping))
        while harness._driver.scheduler.phase == "open":
            await asyncio.sleep(0)
        accepted, stopped = await outcome(accepting), await ending

    assert stopped is None
    again = await world.open(kind)
    root = await again.root()
    assert (await root.result(kept)).status == "queued"  # type: ignore[union-attr]
    receipt = await again.acceptance("r")
    if accept_first:
        assert receipt is not None
        assert receipt.input_id == accepted
        assert (await root.result(receipt.input_id)).status == "queued"  # type: ignore[union-attr]
    else:
        assert isinstance(accepted, (SessionStoppingError, SessionClosedError))
        assert receipt is None


@on_loop
async def test_a_shutdown_marks_everything_and_runs_the_clean_up(world: World) -> None:
    """PROC-3."""
    stop = Stop()
    kind = Script(lambda task, runtime: _begin_and_wait(task, runtime, stop))
    later = Tool()
    harness = await world.open(kind, later)
    root = await harness.root()
    first = await root.commit(lambda tx: tx.task(kind, Planned()))
    second = await root.commit(lambda tx: tx.task(later, Planned(), after=[first]))
    third = await root.commit(lambda tx: tx.task(later, Planned(), background=True))
    driving = asyncio.ensure_future(root.drive())
    await stop.reached.wait()
    await harness.wait_for_task(third)

    await both(harness.shutdown(), harness.shutdown())

    assert await driving in ("idle", "closed")
    again = await world.open(kind, later)
    ended = await again.get_tasks([first, second, third])
    assert [task.status for task in ended.values()] == ["aborted", "aborted", "done"]
    assert [call for call in later.calls if call[1] == second] == [("abort", second)]


@on_loop
async def test_a_close_interrupts_a_shutdown_whose_rest_is_aborted_later(world: World) -> None:
    """PROC-3."""
    stop = Stop()

    async def clean_up(task: Task, runtime: TaskRuntime) -> None:
        await stop.wait()

    kind = Script(lambda task, runtime: Stop().wait(), abort=clean_up)
    harness, _, id = await planned(world, kind)
    stopping = asyncio.ensure_future(outcome(harness.shutdown()))
    await stop.reached.wait()

    await harness.close()

    assert isinstance(await stopping, SessionClosedError)
    good = Script()
    again = await world.open(good)
    assert await (await again.root()).drive() == "idle"
    assert good.calls == [("abort", id)]


@on_loop
async def test_a_caller_that_gives_up_on_a_shutdown_does_not_stop_it(world: World) -> None:
    stop = Stop()

    async def clean_up(task: Task, runtime: TaskRuntime) -> None:
        await stop.wait()
        await runtime.commit(lambda tx: tx.settle(task.id, Aborted()))

    kind = Script(lambda task, runtime: Stop().wait(), abort=clean_up)
    harness, _, id = await planned(world, kind)
    stopping = asyncio.ensure_future(harness.shutdown())
    await stop.reached.wait()

    stopping.cancel()
    await outcome(stopping)
    stop.go()
    await harness.close()

    again = await world.open(kind)
    task = await again.get_task(kind, id)
    assert task is not None
    assert task.abort


@on_loop
async def test_two_overlapping_drives_execute_a_task_once(world: World) -> None:
    kind = Script()
    harness = await world.open(kind)
    root = await harness.root()
    ids = await root.commit(lambda tx: [tx.task(kind, Planned()) for _ in range(5)])

    assert await both(root.drive(), harness.drive(), root.drive()) == ["idle"] * 3
    assert kind.calls == [("execute", id) for id in ids]


@pytest.mark.parametrize("which", [0, 1])
@on_loop
async def test_a_drive_that_is_cancelled_leaves_the_other_alone(world: World, which: int) -> None:
    stop = Stop()
    kind = Script(lambda task, runtime: _begin_and_wait(task, runtime, stop))
    harness, root, id = await planned(world, kind)
    drives = [asyncio.ensure_future(root.drive()) for _ in range(2)]
    await stop.reached.wait()
    await settle_down(harness)

    drives[which].cancel()
    await settle_down(harness)
    stop.go()

    assert await drives[1 - which] == "idle"
    assert drives[which].cancelled()
    assert (await harness.get_task(kind, id)).state == Done()  # type: ignore[union-attr]


@on_loop
async def test_scratch_ahead_of_main_counts_after_a_crash(world: World) -> None:
    frames = Stop()

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        await begin(task, runtime)
        for n in range(50):
            await runtime.scratch(lambda tx, n=n: tx.list(FRAMES).append(n))  # type: ignore[misc]
        await frames.wait()

    kind = Script(execute)
    harness, root, id = await planned(world, kind)
    driving = asyncio.ensure_future(outcome(root.drive()))
    await frames.reached.wait()
    last = (await harness.inspect()).last_seq

    again = await world.open(kind)
    seen = (await again.inspect()).last_seq
    next_id = await (await again.root()).commit(lambda tx: tx.entry(NOTE, 1))

    assert (last, seen, next_id) == (id + 51, last, last + 1)
    await harness.close()
    assert await driving == "closed"


@on_loop
async def test_deleting_waits_for_what_still_runs(world: World) -> None:
    """TASKS-9."""
    stop = Stop()

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        await run_through(task, runtime)
        await stop.wait()

    kind = Script(execute)
    harness = await world.open(kind)
    child = await harness.commit(lambda tx: tx.create_conversation())
    id = await harness.commit(lambda tx: tx.task(kind, Planned(), conversation=child))
    handle = await harness.conversation(child)
    assert handle is not None
    driving = asyncio.ensure_future(handle.drive())
    await stop.reached.wait()
    await driving

    refused = await outcome(harness.delete_conversation(child))
    stop.go()
    await settle_down(harness)
    await harness.delete_conversation(child)

    assert isinstance(refused, RejectedError)
    assert f"task {id}" in str(refused)
    assert await harness.conversation(child) is None
