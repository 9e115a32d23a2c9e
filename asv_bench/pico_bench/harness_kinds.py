"""The task kinds that the harness is measured with: they do nothing but commit."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import ClassVar

from pico_harness.kinds import TaskOf, TaskState
from pico_harness.runtime import TaskRuntime
from pico_harness.task_kind import TaskKind
from pico_store.records import TaskRole


class Planned(TaskState, frozen=True):
    """Not begun."""

    number: int


class Running(TaskState, frozen=True):
    """Begun."""

    number: int


class Done(TaskState, frozen=True):
    """Ended by itself."""

    number: int


class Aborted(TaskState, frozen=True):
    """Ended by somebody else."""

    number: int


class Brief(TaskKind[Planned | Running | Done | Aborted]):
    """Begins and ends: two commits, after the one that creates it."""

    name = "brief"
    states: ClassVar[Mapping[type[TaskState], TaskRole]] = {
        Planned: "start",
        Running: "inflight",
        Done: "terminal",
        Aborted: "terminal",
    }

    async def execute(
        self, task: TaskOf[Planned | Running | Done | Aborted], runtime: TaskRuntime
    ) -> None:
        await runtime.commit(lambda tx: tx.patch(task.id, Running(task.state.number)))
        await runtime.commit(lambda tx: tx.settle(task.id, Done(task.state.number)))

    async def recover(
        self, task: TaskOf[Planned | Running | Done | Aborted], runtime: TaskRuntime
    ) -> None:
        await runtime.commit(lambda tx: tx.settle(task.id, Done(task.state.number)))

    async def abort(
        self, task: TaskOf[Planned | Running | Done | Aborted], runtime: TaskRuntime
    ) -> None:
        await runtime.commit(lambda tx: tx.settle(task.id, Aborted(task.state.number)))


class Endless(Brief):
    """Begins, and then waits until the session closes."""

    name = "endless"

    async def execute(
        self, task: TaskOf[Planned | Running | Done | Aborted], runtime: TaskRuntime
    ) -> None:
        await runtime.commit(lambda tx: tx.patch(task.id, Running(task.state.number)))
        await asyncio.get_running_loop().create_future()


BRIEF = Brief()
ENDLESS = Endless()
