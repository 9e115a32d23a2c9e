"""Fact 13: what a reader or a method does to what it was given changes nothing that is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, ClassVar

from pico_harness import Faulted, Options, TaskKind, TaskOf, TaskRuntime, TaskState
from pico_store.records import TaskRole
from tests.harness.scripted import Planned, Script
from tests.harness.worlds import World, on_loop, settle_down


class Loose(TaskState, frozen=True):
    """Holds any JSON, which no conversion copies."""

    held: Any


class Ended(TaskState, frozen=True):
    """Ended well."""


class Changes(TaskKind[Loose | Ended]):
    """Changes the state that it is given in place, and breaks its contract."""

    name = "changes"
    states: ClassVar[Mapping[type[TaskState], TaskRole]] = {Loose: "start", Ended: "terminal"}

    async def execute(self, task: TaskOf[Loose | Ended], runtime: TaskRuntime) -> None:
        assert isinstance(task.state, Loose)
        task.state.held["list"].append(2)
        task.state.held["more"] = 3

    recover = abort = execute


@on_loop
async def test_a_method_changes_only_a_copy_of_its_state(world: World) -> None:
    kind = Changes()
    harness = await world.open(kind, options=Options(on_task_fault="task"))
    root = await harness.root()
    id = await root.commit(lambda tx: tx.task(kind, Loose({"list": [1]})))

    await root.drive()

    task = await harness.get_task(kind, id)
    assert task is not None
    assert isinstance(task.state, Faulted)
    assert task.state.fields == {"held": {"list": [1]}}


@on_loop
async def test_an_inspection_is_a_copy(world: World) -> None:
    kind = Script()
    harness = await world.open(kind)
    root = await harness.root()
    await root.commit(lambda tx: tx.task(kind, Planned("kept")))
    harness.task_kinds.in_use = lambda name: False
    harness.task_kinds.remove(kind.name)
    (found,) = (await harness.inspect()).orphaned

    found.state["note"] = "changed"
    await root.drive()

    (again,) = (await harness.get_tasks([found.id])).values()
    assert again.status == "orphaned"
    assert again.state["note"] == "kept"
    await asyncio.wait_for(settle_down(harness), 10)
