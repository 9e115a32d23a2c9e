"""The commit line: operations of one session, one at a time, in the order of their admission."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from pico_harness.call import HOST, Call
from pico_harness.errors import CallCancelledError, NestedOperationError, WrongLoopError
from pico_store.batch import Batch
from pico_store.errors import PicoError, RefusedError, RetryableError
from pico_store.records import BatchRange

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Carrier: TypeAlias = Callable[[Batch], "asyncio.Future[BatchRange]"]
"""Commits a batch somewhere else and returns at once; what it returns is never cancelled."""


OPERATIONS_A_TURN: Final = 32
"""With every so many operations the event loop gets a turn; too rarely for a turn to show in what a
short commit costs."""
SECONDS_A_TURN: Final = 0.001
"""And with every operation after which the ones since the last turn have taken longer."""


class Operation(Protocol[T_co]):
    """What runs on the line. All three run without another operation in between."""

    def prepare(self) -> Batch | None:
        """Check and build; what is raised here rejects the operation, and nothing happened."""
        ...

    def applied(self, written: BatchRange | None) -> T_co:
        """Bring what is kept in memory up to date after the batch became durable.

        It must not raise: the commit can no more be taken back.
        """
        ...

    def left(self) -> None:
        """Do what must not happen on the line: start and signal invocations, resolve waiters."""
        ...


@dataclass(eq=False, slots=True)
class _Waiting(Generic[T]):
    """An operation in the queue."""

    operation: Operation[T]
    call: Call
    context: Context
    """Whose variables the builder sees."""
    result: asyncio.Future[T]
    started: bool = False
    dropped: bool = False


class Line:
    """Runs operations one at a time.

    Where commits are short (no ``carrier``), an operation runs inside the call that asks for it,
    without a queue: nothing can come between, because nothing in it awaits. Where a commit waits
    for a disk, operations queue; builders still run on the event loop's thread, and the commit
    alone is carried elsewhere. Either way the event loop gets a turn after so many operations, or
    so much time that they took, or a caller that does nothing but commit could keep all else from
    running.

    Guarantees:
        Operations are admitted in the order in which they were asked for. Cancellation is looked at
        before queueing and when the operation is reached; a commit that began is attempted once and
        finished, whatever happens to who waits for it.

    Source: LINE-3 to LINE-5; architecture, ``plan`` is a plain function.
    """

    def __init__(
        self,
        commit: Callable[[Batch], BatchRange],
        carrier: Carrier | None,
        on_lost: Callable[[BaseException], None],
    ) -> None:
        """Make a line.

        Args:
            commit: Commits a batch here and now.
            carrier: Commits a batch elsewhere; ``None`` if ``commit`` never waits.
            on_lost: Told of a commit whose outcome is not known; no operation runs after it, for
                whoever is told makes ``prepare`` refuse.
        """
        self._commit = commit
        self._carrier = carrier
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._queue: deque[_Waiting[object]] = deque()
        self._busy = False
        self._inside = False
        self._left_in_turn = OPERATIONS_A_TURN
        self._now = self._loop.time
        self._held = 0.0

    @property
    def idle(self) -> bool:
        """Whether no operation is running or waiting."""
        return not (self._busy or self._queue or self._inside)

    def check_outside(self) -> None:
        """Refuse what a builder may not do, and what another thread or loop may not.

        Raises:
            NestedOperationError: The caller is a builder, or is called by one.
            WrongLoopError: The caller does not run on the event loop that the line was made on.
        """
        if asyncio._get_running_loop() is not self._loop:
            problem = "used outside the event loop on which the session was opened"
            raise WrongLoopError(f"{problem}; allowed: there, or open the session again here")
        if self._inside:
            problem = "an operation of the line started within a builder"
            raise NestedOperationError("LINE-4", f"{problem}; allowed: before or after the commit")

    def run(self, operation: Operation[T], call: Call) -> Awaitable[T]:
        """Run an operation and return what it makes.

        Raises:
            CallCancelledError: The call was cancelled before the operation was reached.
            NestedOperationError: At once; see `check_outside`.
        """
        self.check_outside()
        run = self._run_here if self._carrier is None else self._run_queued
        return self._with_turn(run(operation, call)) if self.is_turn_due() else run(operation, call)

    def is_turn_due(self) -> bool:
        """Count one operation, or one read, and tell whether the event loop gets a turn with it."""
        self._left_in_turn -= 1
        if self._left_in_turn:
            return False
        self._left_in_turn = OPERATIONS_A_TURN
        return True

    async def _run_here(self, operation: Operation[T], call: Call) -> T:
        if call.cancellation.reason is not None:
            _check_call(call)
        began = self._now()
        result = self.run_now(operation)
        operation.left()
        self._held += self._now() - began
        if self._held > SECONDS_A_TURN:
            self._held = 0.0
            self._left_in_turn = OPERATIONS_A_TURN
            await asyncio.sleep(0)
        return result

    async def _with_turn(self, running: Awaitable[T]) -> T:
        """Await an operation and give the event loop a turn, in case it waited for nothing.

        After it, so that the next one that was asked for is the next one done; who is cancelled
        meanwhile gets its cancellation in place of the result, as it would behind a disk.
        """
        try:
            result = await running
        except Exception:
            # Whoever goes on asking for what is refused holds the loop up no less.
            await asyncio.sleep(0)
            raise
        await asyncio.sleep(0)
        return result

    def run_now(self, operation: Operation[T]) -> T:
        """Run an operation whose commits do not wait; `Operation.left` is left to the caller."""
        # As `_prepare`, whose call would be one more for every commit.
        self._inside = True
        try:
            batch = operation.prepare()
        finally:
            self._inside = False
        if batch is None:
            return self._apply(operation, None)
        try:
            written = self._commit(batch)
        except BaseException as error:
            self._failed(error)
            raise
        return self._apply(operation, written)

    def _apply(self, operation: Operation[T], written: BatchRange | None) -> T:
        """Let an operation take over its commit; if it fails, memory and storage differ."""
        try:
            return operation.applied(written)
        except BaseException as error:
            # Nothing written, a read that failed has changed nothing; whatever else it was has.
            if written is not None or not isinstance(error, PicoError):
                self._on_lost(error)
            raise

    def post(self, operation: Operation[None], on_failure: Callable[[BaseException], None]) -> None:
        """Run an operation that nobody waits for.

        Args:
            operation: What to run.
            on_failure: Told what its preparation or its commit raised.
        """
        self.check_outside()
        if self._carrier is None:
            try:
                self.run_now(operation)
            except Exception as error:  # noqa: BLE001 - handed on whole
                on_failure(error)
            else:
                operation.left()
            return
        result: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        result.add_done_callback(partial(_tell, on_failure))
        self._queue.append(_Waiting(operation, HOST, copy_context(), result))  # type: ignore[arg-type]
        self._advance()

    def _prepare(self, operation: Operation[T]) -> Batch | None:
        self._inside = True
        try:
            return operation.prepare()
        finally:
            self._inside = False

    def _failed(self, error: BaseException) -> None:
        """Tell of a lost commit; a refusal and a failure that can be retried lose nothing."""
        if not isinstance(error, (RefusedError, RetryableError)):
            self._on_lost(error)

    # --- Where commits wait ---

    async def _run_queued(self, operation: Operation[T], call: Call) -> T:
        _check_call(call)
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        waiting = _Waiting(operation, call, copy_context(), result)
        self._queue.append(waiting)  # type: ignore[arg-type]
        self._advance()
        try:
            return await asyncio.shield(result)
        except asyncio.CancelledError:
            if not waiting.started:
                waiting.dropped = True
                raise
            await _finished(result)
            raise

    def _advance(self) -> None:
        """Run what waits, until a commit is under way or nothing is left."""
        while self._queue and not self._busy and not self._inside:
            waiting = self._queue.popleft()
            if waiting.dropped:
                continue
            waiting.started = True
            try:
                _check_call(waiting.call)
                batch = waiting.context.run(self._prepare, waiting.operation)
            except BaseException as error:
                _reject(waiting.result, error)
                if isinstance(error, (KeyboardInterrupt, SystemExit)):
                    # It ends the loop's run, after which somebody may run the loop on.
                    self._loop.call_soon(self._advance)
                    raise
                continue
            if batch is None:
                self._complete(waiting, None)
            else:
                self._carry(waiting, batch)

    def _carry(self, waiting: _Waiting[object], batch: Batch) -> None:
        assert self._carrier is not None
        self._busy = True
        try:
            carried = self._carrier(batch)
        except BaseException as error:
            self._busy = False
            # Such as: no more threads. Whether some of it began is not known.
            self._failed(error)
            _reject(waiting.result, error)
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                self._loop.call_soon(self._advance)
                raise
        else:
            carried.add_done_callback(partial(self._carried, waiting))

    def _carried(self, waiting: _Waiting[object], carried: asyncio.Future[BatchRange]) -> None:
        self._busy = False
        error: BaseException | None
        if carried.cancelled():
            error = asyncio.CancelledError("the carrier of a commit was cancelled")
        else:
            error = carried.exception()
        if error is None:
            self._complete(waiting, carried.result())
        else:
            self._failed(error)
            _reject(waiting.result, error)
        self._advance()

    def _complete(self, waiting: _Waiting[object], written: BatchRange | None) -> None:
        self._inside = True
        try:
            result = self._apply(waiting.operation, written)
        except BaseException as error:
            _reject(waiting.result, error)
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                self._loop.call_soon(self._advance)
                raise
            return
        finally:
            self._inside = False
        if not waiting.result.done():
            waiting.result.set_result(result)
        try:
            waiting.operation.left()
        except (KeyboardInterrupt, SystemExit):
            self._loop.call_soon(self._advance)
            raise


def _check_call(call: Call) -> None:
    if call.cancellation.reason is not None:
        raise CallCancelledError(f"cancelled before it began: {call.cancellation.reason}")


def _reject(result: asyncio.Future[object], error: BaseException) -> None:
    if result.done():
        return
    if isinstance(error, StopIteration):
        # A future cannot carry it.
        wrapped = RuntimeError("the builder raised StopIteration")
        wrapped.__cause__ = error
        error = wrapped
    result.set_exception(error)


def _tell(on_failure: Callable[[BaseException], None], result: asyncio.Future[None]) -> None:
    error = result.exception()
    if error is not None:
        on_failure(error)


async def _finished(result: asyncio.Future[T]) -> None:
    """Wait until an operation that began is through, however often the waiter is cancelled."""
    while not result.done():
        try:
            await asyncio.wait([result])
        except asyncio.CancelledError:
            continue
    if not result.cancelled():
        result.exception()
