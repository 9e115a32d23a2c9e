"""Kinds, runtimes and harnesses used wrongly: refused with an error that says what and whose."""

from __future__ import annotations

import asyncio
import enum
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar

import pytest

from pico_harness import (
    EntryDraft,
    Harness,
    TaskRuntime,
    TaskState,
    Tx,
)
from pico_harness.errors import (
    AuthorityError,
    HarnessError,
    KindError,
    NestedOperationError,
    SessionClosedError,
    StaleInvocationError,
    StoredTypeError,
    UnknownTaskError,
    WrongLoopError,
)
from pico_harness.harness import ROOT
from pico_store.address import Seq
from pico_store.records import TaskRole
from tests.harness.names import COUNT, ITEMS, MEMO, NOTE
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
from tests.harness.worlds import World, make_world, on_loop, outcome, planned


class _AlsoPlanned(TaskState, frozen=True, tag="planned"):
    pass


class _Mixed(enum.Enum):
    """No member of it says by itself which one it is, once it is JSON."""

    RED = "red"
    TWO = 2


class _OfNoType(TaskState, frozen=True):
    colour: _Mixed


class _Kinds:
    """Kinds that are not well formed, by what is wrong."""

    class Nameless(Script):
        name = ""

    class RoleMissing(Script):
        states: ClassVar[Mapping[type[TaskState], TaskRole]] = {Planned: None, Done: "terminal"}  # type: ignore[dict-item]

    class Stateless(Script):
        states: ClassVar[Mapping[type[TaskState], TaskRole]] = {}

    class NoState(Script):
        states: ClassVar[Mapping[type[TaskState], TaskRole]] = {Planned: "start", int: "terminal"}  # type: ignore[dict-item]

    class Endless(Script):
        states: ClassVar[Mapping[type[TaskState], TaskRole]] = {
            Planned: "start",
            Running: "inflight",
        }

    class BeginsInFlight(Script):
        states: ClassVar[Mapping[type[TaskState], TaskRole]] = {
            Running: "inflight",
            Done: "terminal",
        }

    class Unreadable(Script):
        states: ClassVar[Mapping[type[TaskState], TaskRole]] = {
            Planned: "start",
            _OfNoType: "terminal",
        }

    class Twice(Script):
        states: ClassVar[Mapping[type[TaskState], TaskRole]] = {
            Planned: "start",
            _AlsoPlanned: "start",
            Done: "terminal",
        }


def _derived(status: str) -> Script:
    variant = type(status.title(), (TaskState,), {}, frozen=True)
    named = type("Named", (Script,), {"states": {Planned: "start", variant: "terminal"}})
    kind: Script = named()
    return kind


@pytest.mark.parametrize(
    "make",
    [
        _Kinds.Nameless,
        _Kinds.RoleMissing,
        _Kinds.Stateless,
        _Kinds.NoState,
        _Kinds.Endless,
        _Kinds.BeginsInFlight,
        _Kinds.Unreadable,
        _Kinds.Twice,
        lambda: _derived("orphaned"),
        lambda: _derived("faulted"),
    ],
)
@on_loop
async def test_a_kind_that_is_not_well_formed_is_refused(
    memory: World, make: Callable[[], Script]
) -> None:
    harness = await memory.open()

    with pytest.raises(KindError, match="TASKS-1"):
        harness.task_kinds.register(make())

    assert "script" not in harness.task_kinds


@on_loop
async def test_registries_know_what_they_hold(memory: World) -> None:
    kind = Script(lambda task, runtime: Stop().wait())
    harness = await memory.open(kind)
    root = await harness.root()
    await root.commit(lambda tx: tx.task(kind, Planned()))

    with pytest.raises(KindError, match="is registered"):
        harness.task_kinds.register(Script())
    with pytest.raises(KindError, match="has live tasks"):
        harness.task_kinds.remove("script")
    with pytest.raises(KindError, match="no task kind 'tool'"):
        harness.task_kinds.replace(Tool())
    with pytest.raises(KindError, match="no task kind 'tool'"):
        harness.task_kinds.remove("tool")
    good = Script()
    harness.task_kinds.replace(good)
    await root.drive()
    harness.task_kinds.remove("script")
    assert "script" not in harness.task_kinds


@pytest.mark.parametrize("change", ["register", "replace", "remove"])
@on_loop
async def test_a_kind_is_not_changed_where_nothing_can_follow(world: World, change: str) -> None:
    """Within a builder or on another thread; what would have followed was waited for for ever."""
    old, new = Script(), Tool() if change == "register" else Script()
    harness = await world.open(old)
    root = await harness.root()
    kinds = harness.task_kinds
    changes = {
        "register": lambda: kinds.register(new),
        "replace": lambda: kinds.replace(new),
        "remove": lambda: kinds.remove("script"),
    }

    def plan(tx: Tx) -> None:
        tx.task(old, Planned())
        with pytest.raises(NestedOperationError):
            changes[change]()

    await root.commit(plan)
    with pytest.raises(WrongLoopError):
        await asyncio.to_thread(changes[change])

    assert list(kinds) == [old]
    assert await root.drive() == "idle"
    if change == "register":
        changes[change]()
        await root.commit(lambda tx: tx.task(new, Planned()))
        assert await root.drive() == "idle"


@on_loop
async def test_a_task_read_as_another_kind_is_not_there(memory: World) -> None:
    kind, tool = Script(), Tool()
    harness = await memory.open(kind, tool)
    root = await harness.root()
    id = await root.commit(lambda tx: tx.task(kind, Planned()))

    assert await harness.get_task(tool, id) is None
    task = await harness.get_task(id)
    assert task is not None
    with pytest.raises(StoredTypeError, match="KIND-2"):
        _Strange().read(task)


class _Strange(Script):
    states: ClassVar[Mapping[type[TaskState], TaskRole]] = {Done: "start", Aborted: "terminal"}


@on_loop
async def test_use_after_close_says_so_everywhere(world: World) -> None:
    harness = await world.open(Script())
    root = await harness.root()
    await harness.close()

    for call in (
        harness.root(),
        harness.inspect(),
        harness.drive(),
        harness.shutdown(),
        harness.commit(lambda _: None),
        harness.acceptance("r"),
        harness.abort_task(Seq(1)),
        harness.wait_for_task(Seq(1)),
        root.drive(),
        root.abort(),
        root.accept(EntryDraft("note")),
        root.snapshot(),
        root.context(),
        harness.value(COUNT).get(),
        harness.value(COUNT).set(1),
        harness.list(ITEMS).append(1),
    ):
        error = await outcome(call)
        assert isinstance(error, SessionClosedError), (call, error)
    await harness.close()


@on_loop
async def test_a_runtime_is_of_no_use_after_its_method(world: World) -> None:
    """TASKS-7."""
    kept: list[TaskRuntime] = []

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        kept.append(runtime)
        await run_through(task, runtime)

    kind = Script(execute)
    harness, root, id = await planned(world, kind)
    await root.drive()
    before = (await harness.inspect()).last_seq

    for call in (
        kept[0].commit(lambda tx: tx.value(COUNT).set(1)),
        kept[0].scratch(lambda tx: tx.value(MEMO).set(1)),
        kept[0].abort_task(id),
        kept[0].value(COUNT).set(1),
        kept[0].list(ITEMS).append(1),
    ):
        error = await outcome(call)
        assert isinstance(error, StaleInvocationError)
        assert f"task {id}" in str(error)
    assert (await harness.inspect()).last_seq == before


@on_loop
async def test_a_runtime_of_one_task_is_of_no_use_to_another(world: World) -> None:
    kept: list[TaskRuntime] = []
    errors: list[object] = []
    stop = Stop()

    async def lend(task: Task, runtime: TaskRuntime) -> None:
        kept.append(runtime)
        await begin(task, runtime)
        await stop.wait()
        await finish(task, runtime)

    async def borrow(task: Task, runtime: TaskRuntime) -> None:
        await stop.reached.wait()
        errors.append(await outcome(kept[0].commit(lambda tx: tx.value(COUNT).set(1))))
        stop.go()
        await run_through(task, runtime)

    kind, tool = Script(lend), Tool(borrow)
    harness = await world.open(kind, tool)
    root = await harness.root()
    id = await root.commit(lambda tx: tx.task(kind, Planned()))
    await root.commit(lambda tx: tx.task(tool, Planned()))

    assert await root.drive() == "idle"
    assert isinstance(errors[0], StaleInvocationError)
    assert f"runtime of task {id}" in str(errors[0])
    assert await harness.value(COUNT).get() is None


@on_loop
async def test_what_a_method_leaves_behind_can_write_nothing(world: World) -> None:
    left: list[asyncio.Future[object]] = []
    stop = Stop()

    async def late(runtime: TaskRuntime) -> object:
        await stop.wait()
        return await outcome(runtime.commit(lambda tx: tx.value(COUNT).set(1)))

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        left.append(asyncio.ensure_future(late(runtime)))
        await run_through(task, runtime)

    kind = Script(execute)
    harness = await world.open(kind)
    root = await harness.root()
    await root.commit(lambda tx: tx.task(kind, Planned()))
    await root.drive()
    stop.go()

    assert isinstance(await left[0], StaleInvocationError)
    assert await harness.value(COUNT).get() is None


@on_loop
async def test_an_abort_makes_no_work(world: World) -> None:
    errors: list[object] = []

    async def abort(task: Task, runtime: TaskRuntime) -> None:
        own = await runtime.conversation(runtime.conversation_id)
        assert own is not None
        for plan in (lambda tx: tx.task(kind, Planned()), lambda tx: tx.create_conversation()):
            errors.append(await outcome(runtime.commit(plan)))
        errors.append(await outcome(own.accept(EntryDraft("note"))))
        await runtime.commit(lambda tx: tx.settle(task.id, Aborted()))

    kind = Script(abort=abort)
    harness, root, id = await planned(world, kind)
    await harness.abort_task(id)

    assert await root.drive() == "idle"
    assert [type(error) for error in errors] == [AuthorityError] * 3


@on_loop
async def test_an_unknown_task_is_not_waited_for(world: World) -> None:
    harness = await world.open()

    for call in (
        harness.wait_for_task(Seq(99)),
        harness.wait_for_task(ROOT),
        harness.abort_task(Seq(99)),
        harness.resume_task(Seq(99)),
    ):
        error = await outcome(call)
        assert isinstance(error, UnknownTaskError)


def test_another_event_loop_is_refused(world: World) -> None:
    found: list[Harness] = []

    async def first() -> None:
        found.append(await world.open())

    async def second() -> list[object]:
        harness = found[0]
        return [
            await outcome(call)
            for call in (
                harness.commit(lambda tx: tx.value(COUNT).set(1)),
                harness.value(COUNT).get(),
                harness.drive(),
                harness.wait_for_task(Seq(1)),
                harness.inspect(),
                harness.close(),
                harness.shutdown(),
            )
        ]

    asyncio.run(first())
    errors = asyncio.run(second())

    assert [type(error) for error in errors] == [WrongLoopError] * 7


@on_loop
async def test_another_thread_is_refused(world: World) -> None:
    harness = await world.open()
    errors: list[object] = []

    async def elsewhere() -> None:
        errors.append(await outcome(harness.commit(lambda tx: tx.value(COUNT).set(1))))

    def without_a_loop() -> None:
        try:
            harness.commit(lambda tx: tx.value(COUNT).set(1)).send(None)
        except HarnessError as error:
            errors.append(error)

    for work in (lambda: asyncio.run(elsewhere()), without_a_loop):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    assert [type(error) for error in errors] == [WrongLoopError] * 2
    assert await harness.value(COUNT).get() is None


@on_loop
async def test_a_kind_may_use_another_session(world: World, tmp_path: Path) -> None:
    """Its invocation is nobody there: what it writes is the host's."""
    other_world = make_world("memory", tmp_path)
    tool = Tool()
    other = await other_world.open(tool)
    found: list[object] = []

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        await begin(task, runtime)
        root = await other.root()
        id = await root.commit(lambda tx: tx.task(tool, Planned()))
        entry = await root.commit(lambda tx: tx.entry(NOTE, 1))
        found.append(await root.drive())
        found.append((await other.get_task(id)).status)  # type: ignore[union-attr]
        found.append((await other.get_entry(entry)).by_task_id)  # type: ignore[union-attr]
        await finish(task, runtime)

    kind = Script(execute)
    harness = await world.open(kind)
    root = await harness.root()
    await root.commit(lambda tx: tx.task(kind, Planned()))

    assert await root.drive() == "idle"
    assert found == ["idle", "done", None]


@on_loop
async def test_a_session_opened_within_a_task_is_of_its_own(world: World, tmp_path: Path) -> None:
    other_world = make_world("memory", tmp_path)
    tool = Tool()
    found: list[object] = []

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        await begin(task, runtime)
        other = await other_world.open(tool)
        root = await other.root()
        await root.commit(lambda tx: tx.task(tool, Planned()))
        found.append(await root.drive())
        await other.shutdown()
        await finish(task, runtime)

    kind = Script(execute)
    harness = await world.open(kind)
    root = await harness.root()
    await root.commit(lambda tx: tx.task(kind, Planned()))

    assert await root.drive() == "idle"
    assert found == ["idle"]
    assert [method for method, _ in tool.calls] == ["execute"]
