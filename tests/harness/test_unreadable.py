"""Live tasks whose stored state their kind cannot read: parked, told of, and harmless."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import ClassVar, TypeAlias

import pytest

from pico_harness import (
    FaultReport,
    Harness,
    KindError,
    Options,
    Registry,
    RunnableKind,
    TaskKind,
    TaskOf,
    TaskParkedError,
    TaskRuntime,
    TaskState,
    inspect_storage,
)
from pico_harness.errors import UnknownTaskError
from pico_store.address import Seq
from pico_store.records import Task as Stored
from pico_store.records import TaskRole
from tests.harness.scripted import Planned, Script, Tool, hang
from tests.harness.worlds import World, both, on_loop, outcome, settle_down


class Begun(TaskState, frozen=True, tag="planned"):
    """What the next release of the kind calls planned; the older one has other fields."""

    title: str


class Moving(TaskState, frozen=True, tag="running"):
    """Likewise in flight; its check raises what no decoder expects."""

    note: str = ""

    def __post_init__(self) -> None:
        if not self.note:
            raise KeyError("note")


class Over(TaskState, frozen=True, tag="done"):
    """The end."""


Next: TypeAlias = Begun | Moving | Over


class NextScript(TaskKind[Next]):
    """The next release of `Script`, which reads nothing that was stored before."""

    name = "script"
    states: ClassVar[Mapping[type[TaskState], TaskRole]] = {
        Begun: "start",
        Moving: "inflight",
        Over: "terminal",
    }

    def __init__(self) -> None:
        self.calls: list[Seq] = []

    async def execute(self, task: TaskOf[Next], runtime: TaskRuntime) -> None:
        self.calls.append(task.id)
        await runtime.commit(lambda tx: tx.settle(task.id, Over()))

    recover = execute
    abort = execute


class Roles(Script):
    """The same statuses in other roles."""

    states: ClassVar[Mapping[type[TaskState], TaskRole]] = {
        **{state: "inflight" if role == "start" else role for state, role in Script.states.items()},
    }


async def _stored(world: World) -> tuple[Seq, Seq, Seq]:
    """Store a task in flight, one that has not begun and one in the background, and crash."""
    kind = Script(hang)
    harness = await world.open(kind)
    root = await harness.root()
    inflight = await root.commit(lambda tx: tx.task(kind, Planned()))
    driving = asyncio.ensure_future(outcome(root.drive()))
    while not (await harness.inspect()).inflight:
        await asyncio.sleep(0)
    await harness.close()
    await driving
    harness = await world.open(kind)
    root = await harness.root()
    start = await root.commit(lambda tx: tx.task(kind, Planned("kept")))
    background = await root.commit(lambda tx: tx.task(kind, Planned("kept"), background=True))
    await harness.close()
    return inflight, start, background


async def _status(harness: Harness, id: Seq) -> str:
    task = await harness.get_task(id)
    assert task is not None
    return task.status


@on_loop
async def test_what_cannot_be_read_is_parked_and_disturbs_nothing(world: World) -> None:
    """TASKS-2, TASKS-5: nothing is faulted, orphaned or settled, and all else runs."""
    inflight, start, background = ids = await _stored(world)
    reports: list[FaultReport] = []
    kind, tool = NextScript(), Tool()
    harness = await world.open(kind, tool, options=Options(on_report=reports.append))
    seen = await harness.inspect()

    assert [task.id for task in seen.parked] == list(ids)
    assert (seen.start, seen.inflight, seen.orphaned) == ((), (), ())
    assert sorted(seen.unreadable) == list(ids)
    assert "KeyError" in seen.unreadable[inflight]
    assert "planned" in seen.unreadable[start]
    assert [(report.task_id, report.method) for report in reports] == [(id, None) for id in ids]
    assert all("script" in str(report) for report in reports)

    root = await harness.root()
    other = await root.commit(lambda tx: tx.task(tool, Planned()))
    behind = await root.commit(lambda tx: tx.task(tool, Planned(), after=[background]))
    child = await root.fork("start")
    there = await child.commit(lambda tx: tx.task(kind, Begun("new")))
    errors = await both(root.drive(), harness.drive())

    for error in errors:
        assert isinstance(error, TaskParkedError)
        assert error.tasks == (inflight, start, behind)
    assert await child.drive() == "idle"
    assert (await _status(harness, other), kind.calls) == ("done", [there])
    assert len(reports) == 3
    assert isinstance(await outcome(harness.resume_task(start)), UnknownTaskError)


@on_loop
async def test_a_kind_that_reads_it_lets_it_run(world: World) -> None:
    """TASKS-1, TASKS-2: and it is a loss of the task no more than before."""
    inflight, start, background = await _stored(world)
    harness = await world.open(NextScript())
    assert isinstance(await outcome(harness.drive()), TaskParkedError)
    good = Script()

    harness.task_kinds.replace(good)

    assert await harness.drive() == "idle"
    assert await harness.wait_for_task(background)
    assert sorted(good.calls) == [
        ("execute", start),
        ("execute", background),
        ("recover", inflight),
    ]
    assert (await harness.inspect()).unreadable == {}


@on_loop
async def test_a_waiter_is_told_when_a_kind_arrives_that_cannot_read(world: World) -> None:
    """TASKS-5: what was waited for in the background is parked only once its kind is there."""
    _, _, background = await _stored(world)
    reports: list[FaultReport] = []
    tool = Tool()
    harness = await world.open(tool, options=Options(on_report=reports.append))
    assert (await harness.inspect()).unreadable == {}
    harness.task_kinds.register(NextScript())
    root = await harness.root()
    await root.commit(lambda tx: tx.task(tool, Planned(), after=[background]))

    assert isinstance(await outcome(root.drive()), TaskParkedError)
    assert len((await harness.inspect()).unreadable) == len(reports) == 3


@on_loop
async def test_a_mark_ends_what_cannot_be_read(world: World) -> None:
    """TASKS-3: no abort of the kind could be called with it."""
    inflight, start, background = await _stored(world)
    kind = NextScript()
    harness = await world.open(kind)
    root = await harness.root()
    waiting = asyncio.ensure_future(outcome(root.drive()))
    await settle_down(harness)

    assert await root.abort() == 2
    assert await root.drive() == "idle"
    await harness.abort_task(background)
    assert await harness.wait_for_task(background)

    assert isinstance(await waiting, TaskParkedError)
    for id in (inflight, start, background):
        task = await harness.get_task(id)
        assert task is not None
        assert task.status == "faulted"
        assert "script" in str(task.state["error"])
        assert task.state.get("note") == (None if id == inflight else "kept")
    assert kind.calls == []
    await harness.close()


@on_loop
async def test_a_shutdown_ends_what_cannot_be_read(world: World) -> None:
    """TASKS-3: also what was never driven."""
    ids = await _stored(world)
    harness = await world.open(NextScript())
    await harness.shutdown()

    again = await world.open()

    assert [await _status(again, id) for id in ids] == ["faulted"] * 3


@on_loop
async def test_a_stored_mark_ends_it_when_it_is_served(world: World) -> None:
    """TASKS-3: opening starts nothing, driving settles."""
    inflight, start, _ = await _stored(world)
    unserved = await world.open(NextScript())
    await unserved.abort_task(inflight)
    await unserved.abort_task(start)
    assert await _status(unserved, start) == "planned"
    await unserved.close()
    again = await world.open(NextScript())
    assert await _status(again, start) == "planned"

    assert await (await again.root()).drive() == "idle"

    assert [await _status(again, id) for id in (inflight, start)] == ["faulted"] * 2


@on_loop
async def test_replace_refuses_a_kind_that_cannot_read_what_is_live(world: World) -> None:
    """TASKS-1."""
    await _stored(world)
    harness = await world.open(Script())
    first = (await harness.inspect()).inflight[0].id

    with pytest.raises(KindError, match=rf"task {first} .*running") as refused:
        harness.task_kinds.replace(NextScript())

    assert refused.value.rule == "TASKS-1"
    assert type(harness.task_kinds["script"]) is Script
    assert await harness.drive() == "idle"
    await harness.close()


@on_loop
async def test_a_status_in_another_role_is_not_the_same_status(world: World) -> None:
    """TASKS-2: what was to be begun would be taken for begun."""
    _, start, background = await _stored(world)
    again = Roles()
    # The first variant is always in role start, so another one stands before it.
    again.states = {Begun_: "start", **Roles.states}  # type: ignore[misc]
    harness = await world.open(again)

    assert sorted((await harness.inspect()).unreadable) == [start, background]
    assert "role" in (await harness.inspect()).unreadable[start]


class Begun_(TaskState, frozen=True, tag="begun"):  # noqa: N801 - a second one of that name
    """Where the roles of `Roles` begin."""


@on_loop
async def test_inspecting_a_storage_says_the_same(world: World) -> None:
    ids = await _stored(world)
    kinds = Registry[RunnableKind]("task", lambda kind: None)
    kinds.register(NextScript())
    storage = world.store.open("a", read_only=True)

    found = inspect_storage(storage, kinds)

    assert tuple(task.id for task in found.parked) == ids
    assert sorted(found.unreadable) == list(ids)
    assert inspect_storage(storage).unreadable == {}
    storage.close()


@on_loop
async def test_what_a_commit_under_way_makes_is_read_by_the_new_kind(held: World) -> None:
    """TASKS-2: the kind is replaced while its predecessor's task is on its way to the disk."""
    assert held.gate is not None
    harness = await held.open(Script())
    root = await harness.root()
    await root.drive()
    held.gate.shut()
    making = asyncio.ensure_future(root.commit(lambda tx: tx.task(Script(), Planned())))
    await held.gate.arrival()
    kind = NextScript()

    harness.task_kinds.replace(kind)
    held.gate.open()
    id = await making

    assert isinstance(await outcome(root.drive()), TaskParkedError)
    assert list((await harness.inspect()).unreadable) == [id]
    assert kind.calls == []


def test_a_stored_end_of_the_harness_is_readable() -> None:
    """KIND-2: the ends that the harness gives are none of the kind's, and no problem of it."""
    task = Stored(
        Seq(2), Seq(1), "script", "orphaned", "terminal", {"status": "orphaned"}, (), False, False
    )

    assert NextScript().read_problem(task) is None


@on_loop
async def test_a_listener_that_ends_the_program_at_open_leaves_the_storage(world: World) -> None:
    def listen(report: FaultReport) -> None:
        raise KeyboardInterrupt

    harness = await world.open(Script())
    root = await harness.root()
    await root.commit(lambda tx: tx.task(Script(), Planned()))
    await harness.close()
    storage = world.store.open("a")

    with pytest.raises(KeyboardInterrupt):
        await Harness.open(storage, tasks=[NextScript()], options=Options(on_report=listen))

    again = await Harness.open(storage, tasks=[Script()])
    assert await (await again.root()).drive() == "idle"
    await again.close()
