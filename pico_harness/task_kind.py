"""Task kinds: a declaration with the behaviour that the driver calls."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar, cast

from pico_harness.call import Method
from pico_harness.errors import KindError
from pico_harness.kinds import TaskDeclaration, TaskOf, TaskState, TaskType, check_declaration
from pico_harness.runtime import TaskRuntime
from pico_store.records import Task

S = TypeVar("S", bound=TaskState)


class RunnableKind(TaskDeclaration, ABC):
    """A kind that the driver can run, whatever its states."""

    @abstractmethod
    async def invoke(self, method: Method, task: Task, runtime: TaskRuntime) -> None:
        """Run one method for a stored task."""


def check_runnable(kind: TaskDeclaration) -> None:
    """Refuse a kind that is not well formed, and one that only declares tasks.

    Raises:
        KindError: See `check_declaration`.
    """
    check_declaration(kind)
    if not isinstance(kind, RunnableKind):
        problem = f"kind {kind.name!r} ({type(kind).__name__}) has no methods"
        raise KindError("TASKS-1", f"{problem}; allowed: an instance of TaskKind")


class TaskKind(TaskType[S], RunnableKind, Generic[S]):
    """What a kind of tasks does.

    The whole contract, for ``execute`` and ``recover``: commit a status of role ``inflight`` before
    any effect outside; wait for the world, never within a builder; commit a change of status, or
    settle, before returning. ``abort`` settles before it returns, from what is stored alone.

    Source: design §5.2, §5.3, §6.3.
    """

    @abstractmethod
    async def execute(self, task: TaskOf[S], runtime: TaskRuntime) -> None:
        """Run a task in role ``start``, once all that it is after is terminal.

        A crash before the first commit runs it again from the top.
        """

    @abstractmethod
    async def recover(self, task: TaskOf[S], runtime: TaskRuntime) -> None:
        """Go on with a task in role ``inflight``, whose effects may or may not have happened."""

    @abstractmethod
    async def abort(self, task: TaskOf[S], runtime: TaskRuntime) -> None:
        """Clean up after a task that carries the abort mark, and settle it.

        It may run again after a crash. It creates no tasks and no conversations.
        """

    async def invoke(self, method: Method, task: Task, runtime: TaskRuntime) -> None:
        # A live task is in none of the ends that the harness gives.
        typed = cast(TaskOf[S], self.read(task))
        match method:
            case "execute":
                await self.execute(typed, runtime)
            case "recover":
                await self.recover(typed, runtime)
            case "abort":
                await self.abort(typed, runtime)
