"""Task kinds whose methods are given, and places where these wait for the test."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import ClassVar, TypeAlias

from pico_harness import TaskKind, TaskOf, TaskRuntime, TaskState
from pico_store.address import Seq
from pico_store.records import TaskRole


class Planned(TaskState, frozen=True):
    """Not begun."""

    note: str = ""
    tasks: Sequence[Seq] = ()


class Running(TaskState, frozen=True):
    """In flight."""

    note: str = ""


class Done(TaskState, frozen=True):
    """Ended well."""

    note: str = ""


class Failed(TaskState, frozen=True):
    """Ended ill."""

    note: str = ""


class Aborted(TaskState, frozen=True):
    """Ended because it was asked to."""

    note: str = ""


State: TypeAlias = Planned | Running | Done | Failed | Aborted
Task: TypeAlias = TaskOf[State]
Method: TypeAlias = Callable[[Task, TaskRuntime], Awaitable[None]]


async def begin(task: Task, runtime: TaskRuntime) -> None:
    """Put a task in flight."""
    await runtime.commit(lambda tx: tx.patch(task.id, Running()))


async def finish(task: Task, runtime: TaskRuntime) -> None:
    """Settle a task as done."""
    await runtime.commit(lambda tx: tx.settle(task.id, Done()))


async def run_through(task: Task, runtime: TaskRuntime) -> None:
    """Put a task in flight and settle it."""
    await begin(task, runtime)
    await finish(task, runtime)


async def recovered(task: Task, runtime: TaskRuntime) -> None:
    """Settle a task that was in flight."""
    await runtime.commit(lambda tx: tx.settle(task.id, Done("recovered")))


async def give_up(task: Task, runtime: TaskRuntime) -> None:
    """Settle a task as aborted."""
    await runtime.commit(lambda tx: tx.settle(task.id, Aborted()))


async def hang(task: Task, runtime: TaskRuntime) -> None:
    """Put a task in flight and wait for ever."""
    await begin(task, runtime)
    await asyncio.get_running_loop().create_future()


class Script(TaskKind[State]):
    """A kind whose methods are given; it remembers each call."""

    name = "script"
    states: ClassVar[Mapping[type[TaskState], TaskRole]] = {
        Planned: "start",
        Running: "inflight",
        Done: "terminal",
        Failed: "terminal",
        Aborted: "terminal",
    }

    def __init__(
        self,
        execute: Method = run_through,
        *,
        recover: Method = recovered,
        abort: Method = give_up,
    ) -> None:
        self._methods = {"execute": execute, "recover": recover, "abort": abort}
        self.calls: list[tuple[str, Seq]] = []

    async def execute(self, task: Task, runtime: TaskRuntime) -> None:
        await self._call("execute", task, runtime)

    async def recover(self, task: Task, runtime: TaskRuntime) -> None:
        await self._call("recover", task, runtime)

    async def abort(self, task: Task, runtime: TaskRuntime) -> None:
        await self._call("abort", task, runtime)

    async def _call(self, method: str, task: Task, runtime: TaskRuntime) -> None:
        self.calls.append((method, task.id))
        await self._methods[method](task, runtime)


class Tool(Script):
    """A second kind, for what depends on others."""

    name = "tool"


class Joiner(Script):
    """A third kind."""

    name = "joiner"


class Stop:
    """A place where a method waits until the test lets it go on."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.left = asyncio.Event()
        self.cancelled = 0

    async def wait(self) -> None:
        """Wait here; being cancelled ends it."""
        self.reached.set()
        await self.left.wait()

    async def wait_through(self) -> None:
        """Wait here, whatever cancels it."""
        self.reached.set()
        while not self.left.is_set():
            try:
                await self.left.wait()
            except asyncio.CancelledError:
                self.cancelled += 1

    def go(self) -> None:
        """Let on what waits here."""
        self.left.set()


def through(stop: Stop) -> Method:
    """Return a method that puts a task in flight, waits at a stop, and settles it as done."""

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        await begin(task, runtime)
        await stop.wait()
        await finish(task, runtime)

    return execute
