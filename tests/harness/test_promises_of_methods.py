"""What methods promise beside the clauses, each of which could have been broken unnoticed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from pico_harness import (
    AuthorityError,
    BuilderError,
    ConversationHandle,
    EntryDraft,
    EntryKind,
    Options,
    RequestAlreadyAcceptedError,
    StaleInvocationError,
    TaskRuntime,
    Tx,
    WaitCycleError,
    inbox,
)
from pico_harness.waits import Waiter
from pico_store.address import Seq
from pico_store.limits import BATCH_WRITES_MAX
from pico_store.query import EntryQuery
from tests.harness.scripted import Done, Planned, Script, Task, Tool, finish, hang
from tests.harness.worlds import World, on_loop, outcome, settle_down


@on_loop
async def test_a_task_does_not_end_the_session_that_runs_it(world: World) -> None:
    """PROC-1, TASKS-4."""
    refused: list[object] = []

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        refused.extend((await outcome(harness.close()), await outcome(harness.shutdown())))
        await finish(task, runtime)

    kind = Script(execute)
    harness = await world.open(kind)
    root = await harness.root()
    await root.commit(lambda tx: tx.task(kind, Planned()))

    assert await root.drive() == "idle"

    assert [type(error) for error in refused] == [WaitCycleError, WaitCycleError]
    await harness.close()


@on_loop
async def test_an_abort_reaches_what_tasks_own_and_nothing_beside(world: World) -> None:
    """TASKS-8."""
    kind = Script()
    harness = await world.open(kind)
    root = await harness.root()

    def plan(tx: Tx) -> tuple[Seq, Seq, Seq]:
        outer = tx.task(kind, Planned(), conversation=root.id)
        child = tx.create_conversation(owner=outer)
        inner = tx.task(kind, Planned(), conversation=child)
        beside = tx.task(kind, Planned(), conversation=tx.create_conversation())
        return outer, inner, beside

    ids = await harness.commit(plan)

    assert await root.abort() == 2

    tasks = await harness.get_tasks(ids)
    assert [task.abort for task in tasks.values()] == [True, True, False]
    await harness.close()


@on_loop
async def test_an_abort_withdraws_more_inputs_than_a_batch_holds(memory: World) -> None:
    """TASKS-8."""
    harness = await memory.open()
    root = await harness.root()
    count = BATCH_WRITES_MAX // 2
    draft = EntryDraft("note")
    ids = await root.commit(lambda tx: [inbox.accept(tx, root.id, draft) for _ in range(count)])
    ids.append(await root.accept(draft))

    assert await root.abort() == 0

    results = [await root.result(id) for id in ids]
    assert {result.status for result in results if result is not None} == {"cancelled"}
    assert None not in results
    await harness.close()


@on_loop
async def test_marking_again_writes_nothing(world: World) -> None:
    kind = Script()
    harness = await world.open(kind)
    root = await harness.root()
    id = await root.commit(lambda tx: tx.task(kind, Planned()))
    await harness.abort_task(id)
    before = harness.counts().last_seq

    await harness.abort_task(id)

    assert harness.counts().last_seq == before
    await harness.close()


@on_loop
async def test_a_task_that_ended_owns_nothing_new(world: World) -> None:
    """LINE-6."""
    kind = Script()
    harness = await world.open(kind)
    root = await harness.root()
    id = await root.commit(lambda tx: tx.task(kind, Planned()))
    await root.drive()

    with pytest.raises(AuthorityError, match=rf"owner {id}, which is not live.*LINE-6"):
        await root.commit(lambda tx: tx.create_conversation(owner=id))

    await harness.close()


@on_loop
async def test_a_conversation_is_busy_with_what_its_ended_tasks_own(world: World) -> None:
    tool = Tool(hang)

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        def plan(tx: Tx) -> None:
            tx.task(tool, Planned(), conversation=tx.create_conversation(owner=task.id))
            tx.settle(task.id, Done())

        await runtime.commit(plan)

    kind = Script(execute)
    harness = await world.open(kind, tool)
    above = await harness.commit(lambda tx: tx.create_conversation())
    await harness.commit(lambda tx: tx.task(kind, Planned(), conversation=above))
    handle = await harness.conversation(above)
    assert handle is not None
    assert await handle.drive() == "idle"
    await settle_down(harness)

    with pytest.raises(BuilderError, match=rf"conversation {above} or what it owns is busy"):
        await harness.delete_conversation(above)

    await harness.close()


class _OfTheTurn(Script):
    name = "of the turn"
    turn = True


@on_loop
async def test_a_task_is_part_of_the_turn_as_its_kind_says(memory: World) -> None:
    kind, other = _OfTheTurn(), Script()
    harness = await memory.open(kind, other)
    root = await harness.root()

    ids = await root.commit(lambda tx: (tx.task(kind, Planned()), tx.task(other, Planned())))

    tasks = await harness.get_tasks(ids)
    assert [task.turn for task in tasks.values()] == [True, False]
    await harness.close()


@on_loop
async def test_a_payload_is_draft_mode_and_conversation(memory: World) -> None:
    """IN-2."""
    harness = await memory.open()
    root = await harness.root()
    other = await harness.conversation(await harness.commit(lambda tx: tx.create_conversation()))
    assert other is not None
    draft = EntryDraft("note")
    await root.accept(draft, request_id="r")

    same = await outcome(root.accept(draft, request_id="r"))
    mode = await outcome(root.accept(draft, mode="steer", request_id="r"))
    elsewhere = await outcome(other.accept(draft, request_id="r"))

    known = [error for error in (same, mode, elsewhere) if isinstance(error, Exception)]
    assert all(isinstance(error, RequestAlreadyAcceptedError) for error in known)
    assert [error.same_payload for error in known] == [True, False, False]  # type: ignore[attr-defined]
    await harness.close()


class _SlowClock:
    """One millisecond later each time that it is looked at."""

    def __init__(self) -> None:
        self.time = 0

    def now(self) -> int:
        self.time += 1
        return self.time


@on_loop
async def test_who_sleeps_wakes_by_the_clock_of_the_session(memory: World) -> None:
    """However long the event loop thinks that was."""
    clock = _SlowClock()
    woken: list[int] = []

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        await runtime.sleep(5)
        woken.append(clock.time)
        await finish(task, runtime)

    kind = Script(execute)
    harness = await memory.open(kind, options=Options(clock=clock))
    root = await harness.root()
    await root.commit(lambda tx: tx.task(kind, Planned()))

    assert await root.drive() == "idle"

    assert woken == [5]
    await harness.close()


@pytest.mark.parametrize("background", [False, True])
@on_loop
async def test_a_task_does_not_drive_the_whole_session(memory: World, *, background: bool) -> None:
    """TASKS-4: it is part of it, in the background too."""
    refused: list[object] = []

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        refused.append(await outcome(harness.drive()))
        await finish(task, runtime)

    kind = Script(execute)
    harness = await memory.open(kind)
    root = await harness.root()
    id = await root.commit(lambda tx: tx.task(kind, Planned(), background=background))

    assert await root.drive() == "idle"
    assert await harness.wait_for_task(id)

    (error,) = refused
    assert isinstance(error, WaitCycleError)
    await harness.close()


@on_loop
async def test_a_handle_of_a_runtime_is_of_no_use_to_the_host(memory: World) -> None:
    """TASKS-7: what is written with it is in the task's name."""
    handles: list[ConversationHandle | None] = []

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        handle = await runtime.conversation(runtime.conversation_id)
        assert handle is not None
        await handle.commit(lambda tx: tx.entry(EntryKind[object]("note")))
        handles.append(handle)
        await finish(task, runtime)

    kind = Script(execute)
    harness = await memory.open(kind)
    root = await harness.root()
    id = await root.commit(lambda tx: tx.task(kind, Planned()))
    assert await root.drive() == "idle"
    (handle,) = handles
    assert handle is not None

    with pytest.raises(StaleInvocationError, match=f"the runtime of task {id}"):
        await handle.commit(lambda tx: tx.entry(EntryKind[object]("note")))

    (entry,) = (await harness.entries(EntryQuery(conversation_id=root.id))).items
    assert entry.by_task_id == id
    await harness.close()


@on_loop
async def test_an_entry_read_as_another_kind_is_not_there(memory: World) -> None:
    harness = await memory.open()
    root = await harness.root()
    note, other = EntryKind[object]("note"), EntryKind[object]("other")
    id = await root.commit(lambda tx: tx.entry(note))

    assert await harness.get_entry(note, id) is not None
    assert await harness.get_entry(other, id) is None
    await harness.close()


@on_loop
async def test_a_budget_is_in_milliseconds(memory: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """TASKS-6."""
    kind = Script()
    harness = await memory.open(kind)
    id = await harness.commit(lambda tx: tx.task(kind, Planned(), conversation=Seq(1)))
    loop = asyncio.get_running_loop()
    later, delays = loop.call_later, list[float]()

    def at_once(delay: float, callback: Callable[[Waiter], None], waiter: Waiter) -> object:
        delays.append(delay)
        return later(0, callback, waiter)

    monkeypatch.setattr(loop, "call_later", at_once)

    assert not await harness.wait_for_task(id, 250)

    assert delays == [0.25]
    await harness.close()
