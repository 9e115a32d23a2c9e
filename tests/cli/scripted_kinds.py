"""Task kinds for the command line's tests: what a task does is what its state says."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from typing import ClassVar

from pico_harness import TaskKind, TaskOf, TaskRuntime, TaskState
from pico_store.records import TaskRole


class Planned(TaskState, frozen=True):
    act: str = "settle"


class Running(TaskState, frozen=True):
    act: str


class Done(TaskState, frozen=True):
    by: str


States = Planned | Running | Done


class Renamed(TaskState, frozen=True, tag="planned"):
    """What a later release calls planned, with another name for its field."""

    action: str = "settle"


class Step(TaskKind[States]):
    """Settles, raises, waits for ever or ends its own process in the middle."""

    name = "step"
    states: ClassVar[Mapping[type[TaskState], TaskRole]] = {
        Planned: "start",
        Running: "inflight",
        Done: "terminal",
    }

    async def execute(self, task: TaskOf[States], runtime: TaskRuntime) -> None:
        assert isinstance(task.state, Planned)
        act = task.state.act
        if act == "raise":
            raise ValueError("planted\non two lines")
        await runtime.commit(lambda tx: tx.patch(task.id, Running(act)))
        await self._act(act)
        await runtime.commit(lambda tx: tx.settle(task.id, Done("execute")))

    async def recover(self, task: TaskOf[States], runtime: TaskRuntime) -> None:
        assert isinstance(task.state, Running)
        if task.state.act.endswith(" always"):
            await self._act(task.state.act)
        await runtime.commit(lambda tx: tx.settle(task.id, Done("recover")))

    async def abort(self, task: TaskOf[States], runtime: TaskRuntime) -> None:
        await runtime.commit(lambda tx: tx.settle(task.id, Done("abort")))

    async def _act(self, act: str) -> None:
        if act.startswith("hang"):
            print("hanging", flush=True)
            await asyncio.Event().wait()
        if act.startswith("die"):
            os.kill(os.getpid(), signal.SIGKILL)


class Mended(Step):
    """The same kind once its author has found out what killed its process."""

    async def recover(self, task: TaskOf[States], runtime: TaskRuntime) -> None:
        await runtime.commit(lambda tx: tx.settle(task.id, Done("recover")))


class Other(Step):
    name = "other"


class Demanding(Step):
    name = "demanding"

    def __init__(self, need: int) -> None:
        self.need = need


step = Step()
both = [step, Other]
twice = [step, Step]
nothing = 3


class MovedOn(Step):
    """A later release of `Step`."""

    states: ClassVar[Mapping[type[TaskState], TaskRole]] = {
        Renamed: "start",
        Running: "inflight",
        Done: "terminal",
    }


moved_on = [MovedOn()]
