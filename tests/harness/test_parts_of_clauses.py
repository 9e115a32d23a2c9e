"""Parts of clauses that could be missing from the code without another test failing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import ClassVar

import pytest

from pico_harness import (
    BuilderError,
    Call,
    CallCancelledError,
    Cancellation,
    EntryDraft,
    EntryKind,
    Harness,
    KindError,
    Options,
    StaleInvocationError,
    StoredTypeError,
    TaskParkedError,
    TaskRuntime,
    TaskState,
    Tx,
    inbox,
)
from pico_store.address import Seq
from pico_store.query import TaskQuery
from pico_store.records import TaskRole
from tests.harness.scripted import (
    Done,
    Planned,
    Running,
    Script,
    Stop,
    Task,
    Tool,
    begin,
    finish,
    hang,
)
from tests.harness.worlds import World, on_loop, outcome, settle_down


@on_loop
async def test_a_call_that_is_cancelled_already_begins_nothing(world: World) -> None:
    """LINE-3, where operations run at once as well as where they queue."""
    harness = await world.open()
    call = Call(Cancellation())
    call.cancellation.cancel("given up")
    built: list[Tx] = []

    with pytest.raises(CallCancelledError, match="given up"):
        await harness.commit(built.append, call=call)

    assert built == []


@pytest.mark.parametrize(
    ("write", "allowed"),
    [
        (lambda tx, id: tx.patch(id, Done()), "settle"),
        (lambda tx, id: tx.settle(id, Running()), "patch"),
    ],
    ids=["patch to an end", "settle to no end"],
)
@on_loop
async def test_the_verb_is_that_of_the_role(
    memory: World, write: Callable[[Tx, Seq], None], allowed: str
) -> None:
    """LINE-6: refused by the harness, which says what is allowed, and before any storage."""
    refused: list[BaseException | None] = []

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        refused.append(await outcome(runtime.commit(lambda tx: write(tx, task.id))))
        await finish(task, runtime)

    kind = Script(execute)
    harness = await memory.open(kind)
    root = await harness.root()
    await root.commit(lambda tx: tx.task(kind, Planned()))

    assert await root.drive() == "idle"

    (error,) = refused
    assert isinstance(error, BuilderError)
    assert str(error).endswith(f"allowed: {allowed} (LINE-6)")
    await harness.close()


class _Older(Script):
    """The same kind as it was, with another type for a field; a class within is no other status."""

    class Planned(TaskState, frozen=True):
        note: int

    states: ClassVar[Mapping[type[TaskState], TaskRole]] = {Planned: "start", Done: "terminal"}


@on_loop
async def test_what_is_stored_otherwise_than_declared_is_named(memory: World) -> None:
    """KIND-2, for a field of a task and for the data of an entry."""
    kind = Script()
    harness = await memory.open(kind)
    root = await harness.root()
    note, other = EntryKind[object]("note"), EntryKind[int]("other", int)
    task_id = await root.commit(lambda tx: tx.task(kind, Planned("text")))
    entry_id = await root.commit(lambda tx: tx.entry(note, "text"))
    entry = await harness.get_entry(entry_id)
    assert entry is not None

    with pytest.raises(StoredTypeError, match=rf"task {task_id} .*note.*KIND-2"):
        await harness.get_task(_Older(), task_id)
    with pytest.raises(StoredTypeError, match=rf"entry {entry_id} .*Expected `int`.*KIND-2"):
        EntryKind("note", int).data(entry)
    with pytest.raises(StoredTypeError, match=rf"entry {entry_id} is of kind 'note'.*KIND-2"):
        other.data(entry)

    assert note.data(entry) == "text"
    task = await harness.get_task(task_id)
    assert task is not None
    assert task.state["note"] == "text"
    await harness.close()


@on_loop
async def test_a_role_that_there_is_not_is_refused(memory: World) -> None:
    """TASKS-1: of the first status, and of every other one."""

    class Misspelt(Script):
        states: ClassVar[Mapping[type[TaskState], TaskRole]] = {
            Planned: "start",
            Running: "inflght",  # type: ignore[dict-item]
            Done: "terminal",
        }

    harness = await memory.open()

    with pytest.raises(KindError, match=r"'running' has role 'inflght'.*TASKS-1"):
        harness.task_kinds.register(Misspelt())

    await harness.close()


def _two_conversations(tx: Tx) -> tuple[Seq, Seq]:
    return tx.create_conversation(), tx.create_conversation()


@on_loop
async def test_a_drive_orphans_what_it_serves_and_nothing_else(world: World) -> None:
    """TASKS-2."""
    kind = Script()
    harness = await world.open(kind)
    one, other = await harness.commit(_two_conversations)
    here = await harness.commit(lambda tx: tx.task(kind, Planned(), conversation=one))
    there = await harness.commit(lambda tx: tx.task(kind, Planned(), conversation=other))
    await harness.close()
    harness = await world.open(Tool())
    handle = await harness.conversation(one)
    assert handle is not None

    assert await handle.drive() == "idle"

    tasks = await harness.get_tasks((here, there))
    assert [tasks[id].status for id in (here, there)] == ["orphaned", "planned"]
    await harness.close()


@on_loop
async def test_a_wait_for_a_parked_task_lasts_as_long_as_its_budget(world: World) -> None:
    """TASKS-5, TASKS-6: a drive is told of parked tasks; a wait for one drives nothing."""
    kind, tool = Script(), Tool()
    harness = await world.open(kind, tool)
    root = await harness.root()
    parked = await root.commit(lambda tx: tx.task(kind, Planned(), background=True))
    behind = await root.commit(lambda tx: tx.task(tool, Planned(), after=[parked]))
    await harness.close()
    harness = await world.open(tool)

    with pytest.raises(TaskParkedError, match=f"what waits for them: {behind}; "):
        await (await harness.root()).drive()
    assert not await harness.wait_for_task(parked, 0)

    assert tool.calls == []
    await harness.close()


@on_loop
async def test_a_faulted_task_keeps_its_fields(world: World) -> None:
    """TASKS-3: the task ends with what it held, and with what was wrong."""

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        raise ValueError("broken")

    kind = Script(execute)
    harness = await world.open(kind, options=Options(on_task_fault="task"))
    root = await harness.root()
    id = await root.commit(lambda tx: tx.task(kind, Planned("kept")))

    assert await root.drive() == "idle"

    task = await harness.get_task(id)
    assert task is not None
    assert (task.status, task.state["note"]) == ("faulted", "kept")
    assert "broken" in str(task.state["error"])
    await harness.close()


@on_loop
async def test_a_task_that_was_resumed_is_counted_from_the_start(world: World) -> None:
    """TASKS-5: one more loss after that does not park it again."""
    kind = Script(hang, recover=_hang_on)
    options = Options(crashes_max=2)
    harness = await world.open(kind, options=options)
    root = await harness.root()
    id = await root.commit(lambda tx: tx.task(kind, Planned()))
    parked: list[bool] = []
    for _ in range(2):
        await _until_called(kind, harness)
        harness = await world.open(kind, options=options)
        parked.append(bool((await harness.inspect()).parked))
    await harness.resume_task(id)
    await _until_called(kind, harness)

    harness = await world.open(kind, options=options)

    assert parked == [False, True]
    assert (await harness.inspect()).parked == ()


async def _hang_on(task: Task, runtime: TaskRuntime) -> None:
    await asyncio.get_running_loop().create_future()


async def _until_called(kind: Script, harness: Harness) -> object:
    """Drive until the kind's method runs and everything else is done; return the drive."""
    before = len(kind.calls)
    driving = asyncio.ensure_future(outcome(harness.drive()))
    while len(kind.calls) == before:
        await asyncio.sleep(0)
    await settle_down(harness)
    return driving


@on_loop
async def test_work_of_another_ownership_tree_is_not_waited_for(world: World) -> None:
    """TASKS-4."""
    kind = Script()
    harness = await world.open(kind)
    one, other = await harness.commit(_two_conversations)
    first = await harness.commit(lambda tx: tx.task(kind, Planned(), conversation=one))
    before = (await harness.inspect()).last_seq

    with pytest.raises(BuilderError, match=r"in another ownership tree.*TASKS-4"):
        await harness.commit(lambda tx: tx.task(kind, Planned(), conversation=other, after=[first]))

    assert (await harness.inspect()).last_seq == before
    await harness.close()


@on_loop
async def test_what_a_method_left_behind_writes_nothing_while_the_next_one_runs(
    world: World,
) -> None:
    """TASKS-7: the task is live and runs, but not by that invocation."""
    stop, late = Stop(), Stop()
    left: list[asyncio.Future[object]] = []

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        await begin(task, runtime)
        left.append(asyncio.ensure_future(outcome(write_late(task, runtime))))

    async def write_late(task: Task, runtime: TaskRuntime) -> None:
        await late.wait()
        await runtime.commit(lambda tx: tx.settle(task.id, Done("late")))

    async def recover(task: Task, runtime: TaskRuntime) -> None:
        await stop.wait()
        await finish(task, runtime)

    kind = Script(execute, recover=recover)
    harness = await world.open(kind)
    root = await harness.root()
    id = await root.commit(lambda tx: tx.task(kind, Planned()))
    driving = asyncio.ensure_future(root.drive())
    await stop.reached.wait()

    late.go()
    error = await left[0]
    stop.go()

    assert isinstance(error, StaleInvocationError)
    assert await driving == "idle"
    task = await harness.get_task(kind, id)
    assert task is not None
    assert task.state == Done()
    await harness.close()


@on_loop
async def test_an_input_is_placed_once(memory: World) -> None:
    """IN-1: refused by its status, not by what the queue holds."""
    harness = await memory.open()
    root = await harness.root()
    draft = EntryDraft("note")
    id = await root.accept(draft)
    item = inbox.InboxItem("followUp", draft)
    await root.commit(lambda tx: inbox.place(tx, root.id, id, item))

    with pytest.raises(BuilderError, match=rf"input {id} is running .*IN-1"):
        await root.commit(lambda tx: inbox.place(tx, root.id, id, item))

    await harness.close()


def test_a_program_that_ends_without_closing_leaves_its_tasks_as_they_are(memory: World) -> None:
    """PROC-1, TASKS-3: its event loop ended the method, which broke no contract by that."""
    kind = Script(hang)

    async def main() -> object:
        harness = await memory.open(kind, options=Options(on_task_fault="task"))
        root = await harness.root()
        await root.commit(lambda tx: tx.task(kind, Planned()))
        return await _until_called(kind, harness)

    asyncio.run(main())

    (task,) = memory.store.open("a", read_only=True).scan_tasks(TaskQuery()).items
    assert task.status == "running"
