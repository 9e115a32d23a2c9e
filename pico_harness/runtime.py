"""What a kind's method is given: the right to write in its task's name, and what it may ask."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TypeVar

from pico_harness.arguments import check_milliseconds
from pico_harness.call import Call, Invocation, calling
from pico_harness.conversation import ConversationHandle, Conversations, read_config
from pico_harness.driver import Driver
from pico_harness.errors import CallCancelledError
from pico_harness.handles import ListHandle, ValueHandle
from pico_harness.kinds import TaskState, TaskType
from pico_harness.reads import SessionReads
from pico_harness.state import ListOf, Value
from pico_harness.tx import ScratchTx, Tx
from pico_store.address import Seq

T = TypeVar("T")
S = TypeVar("S", bound=TaskState)


class TaskRuntime(SessionReads):
    """The capability of one invocation.

    Guarantees:
        Once the task is settled or marked, or the method returned, nothing can be written with it.

    Source: design §5.2.
    """

    def __init__(
        self, driver: Driver, conversations: Conversations, invocation: Invocation
    ) -> None:
        super().__init__(driver)
        self._conversations = conversations
        self._invocation = invocation
        self.task_id = invocation.task_id
        self.conversation_id = invocation.conversation_id

    # These two are no coroutine functions, so that one that nobody awaits is noticed; the body of a
    # coroutine that is never awaited does not even begin.

    def commit(
        self, plan: Callable[[Tx], T], *, call: Call | None = None
    ) -> Coroutine[object, object, T]:
        """Build and commit one batch in the task's name, bound to its conversation.

        Args:
            plan: A plain function. It may read, write and compute; it may not await.
            call: A call derived from the invocation's own, if not the current one.

        Raises:
            TaskCancelledError: The task carries the abort mark; let the method return.
            StaleInvocationError: The task is settled, or the method returned.
        """
        self._invocation.unawaited += 1
        return self._commit(plan, call)

    async def _commit(self, plan: Callable[[Tx], T], call: Call | None) -> T:
        self._invocation.unawaited -= 1
        return await self._driver.commit(
            plan,
            calling(call),
            conversation=self.conversation_id,
            bound=self._invocation,
        )

    def scratch(
        self, plan: Callable[[ScratchTx], T], *, call: Call | None = None
    ) -> Coroutine[object, object, T]:
        """Build and commit one batch of the task's scratch; raises as `commit` does."""
        self._invocation.unawaited += 1
        return self._scratch(plan, call)

    async def _scratch(self, plan: Callable[[ScratchTx], T], call: Call | None) -> T:
        self._invocation.unawaited -= 1
        called = calling(call)
        return await self._driver.scratch(plan, called, bound=self._invocation)

    def now(self) -> int:
        """Return the Unix time in milliseconds by the session's clock."""
        return self._driver.clock.now()

    async def sleep(self, until_ms: int, *, call: Call | None = None) -> None:
        """Wait until the session's clock shows a time; not at all if that is past.

        Args:
            until_ms: Unix time in milliseconds.
            call: A call derived from the invocation's own, if not the current one.

        Raises:
            CallCancelledError: The call was cancelled.
            ArgumentError: It is no number, or more than 2^53-1.
        """
        check_milliseconds(until_ms, "until_ms")
        called = calling(call)
        while (left := until_ms - self._driver.clock.now()) > 0:
            await self._pause(left, called)

    async def _pause(self, milliseconds: int, call: Call) -> None:
        woken: asyncio.Future[None] = self._driver.loop.create_future()
        timer = self._driver.loop.call_later(milliseconds / 1000, _wake, woken)
        remove = call.cancellation.on_cancel(lambda: _wake(woken))
        try:
            await woken
        finally:
            timer.cancel()
            remove()
        if call.cancellation.requested:
            raise CallCancelledError(f"cancelled while sleeping: {call.cancellation.reason}")

    async def config(
        self, kind: TaskType[S], *, call: Call | None = None
    ) -> dict[str, object | None]:
        """Return the values that a kind declares, as they are in the task's conversation."""
        await self._driver.reading(call)
        return read_config(self._driver, kind, self.conversation_id)

    async def conversation(self, id: Seq, *, call: Call | None = None) -> ConversationHandle | None:
        """Return a handle of a conversation, or ``None``; what it writes is in the task's name."""
        await self._driver.reading(call)
        return self._conversations.find(id, self._invocation)

    async def abort_task(self, id: Seq, *, call: Call | None = None) -> bool:
        """Mark another live task; False where it is terminal already, which is no error here."""
        return await self.commit(lambda tx: tx.abort_task(id), call=call)

    async def wait_for_task(
        self, id: Seq, budget_ms: float | None = None, *, call: Call | None = None
    ) -> bool:
        """Wait until another task is terminal; False if the budget ran out before (TASKS-6).

        Raises:
            WaitCycleError: That task waits for this one.
            UnknownTaskError: There is no such task.
        """
        called = calling(call)
        return await self._driver.wait_for_task(id, budget_ms, called)

    def value(self, name: Value[T]) -> ValueHandle[T]:
        """Return one value of the task's conversation, or of the session."""
        return ValueHandle(self._driver, name, self.conversation_id, self._invocation)

    def list(self, name: ListOf[T]) -> ListHandle[T]:
        """Return one list of the task's conversation, or of the session."""
        return ListHandle(self._driver, name, self.conversation_id, self._invocation)


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
