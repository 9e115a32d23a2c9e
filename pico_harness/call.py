"""Who is calling: cancellation and the identity of an invocation, carried along by asyncio."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Literal, TypeAlias

from msgspec import Struct, field

from pico_harness.arguments import check_callable, check_instance
from pico_harness.errors import ArgumentError
from pico_store.address import Seq

_LOG = logging.getLogger("pico_harness")

Method: TypeAlias = Literal["execute", "recover", "abort"]
"""What the driver calls of a task's kind."""


class AbandonedError(asyncio.CancelledError):
    """An invocation was cancelled, and nobody asked its session for that."""


class Cancellation:
    """A request to stop that is made once, with a reason.

    Callbacks run in the thread and at the moment of `cancel`, in the order of their registration;
    they must be short; what they raise is logged.
    """

    __slots__ = ("_callbacks", "reason")

    def __init__(self) -> None:
        self.reason: str | None = None
        self._callbacks: dict[object, Callable[[], object]] = {}

    @property
    def requested(self) -> bool:
        """Whether `cancel` was called."""
        return self.reason is not None

    def cancel(self, reason: str) -> bool:
        """Request it; the first call alone has an effect, and returns True."""
        # The reason is what says that it was requested: ``None`` would be told to everybody, and
        # leave it as it was.
        check_instance(reason, str, "reason", "a str that says why")
        if self.reason is not None:
            return False
        self.reason = reason
        callbacks = list(self._callbacks.values())
        self._callbacks.clear()
        for callback in callbacks:
            try:
                callback()
            except (Exception, asyncio.CancelledError):  # noqa: BLE001 - logged whole
                # Others wait to be told as well.
                _LOG.exception("a callback of a cancellation raised")
        return True

    def on_cancel(self, callback: Callable[[], object]) -> Callable[[], object]:
        """Call back when it is requested, at once if it was; returns what takes that back."""
        check_callable(callback, "callback", "a function without arguments")
        if self.reason is not None:
            callback()
            return _nothing
        token = object()
        self._callbacks[token] = callback
        return partial(self._callbacks.pop, token, None)


def _nothing() -> None:
    """Take back what was done already."""


class _Unending(Cancellation):
    """The cancellation of the host, which every session of the process shares."""

    __slots__ = ()

    def cancel(self, reason: str) -> bool:
        problem = "the host's call, which everything outside of an invocation shares"
        raise ArgumentError("call", f"{problem}; allowed: current_call().cancellable()")


class Invocation(Struct, eq=False):
    """One call of a kind's method for one task; compared by identity, never by content."""

    task_id: Seq
    conversation_id: Seq
    kind: str
    method: Method
    first_epoch: int
    """The task's status epoch when it was reserved."""
    home: object = None
    """What tells the invocations of one session from those of another."""
    again: bool = False
    """Whether an earlier process may have been lost in the middle of this task."""
    cancellation: Cancellation = field(default_factory=Cancellation)
    runner: asyncio.Task[None] | None = None
    """The asyncio task that runs the method; ``None`` until it was dispatched."""
    begun: bool = False
    """Whether the method was handed to the event loop."""
    unawaited: int = 0
    """How many operations its runtime was asked for that have not begun."""


class Call(Struct, frozen=True):
    """What goes along with a call: when to give it up, and which invocation makes it."""

    cancellation: Cancellation = field(default_factory=Cancellation)
    invocation: Invocation | None = None
    """Set by the driver; ``None`` for the host."""

    def cancellable(self) -> Call:
        """Return a call that can be cancelled by itself and is cancelled with this one."""
        child = Call(Cancellation(), self.invocation)
        if isinstance(self.cancellation, _Unending):
            # It would keep a callback of every child for as long as the process lives.
            return child
        # A parent that outlives many children would keep a callback of each; whoever makes many
        # short ones under one parent cancels each when done, which takes its callback back.
        remove = self.cancellation.on_cancel(
            lambda: child.cancellation.cancel(self.cancellation.reason or "cancelled")
        )
        child.cancellation.on_cancel(remove)
        return child


HOST = Call(_Unending())
"""The call of everything that runs outside an invocation; it cannot be cancelled."""

_CURRENT: ContextVar[Call] = ContextVar("pico_call", default=HOST)


def current_call() -> Call:
    """Return the call that the running code belongs to."""
    return _CURRENT.get()


def calling(call: Call | None) -> Call:
    """Return a call that was given, or the current one.

    Raises:
        ArgumentError: Something else was given.
    """
    if call is None:
        return _CURRENT.get()
    check_instance(call, Call, "call", "a Call, such as current_call().cancellable(), or None")
    check_instance(call.cancellation, Cancellation, "call.cancellation", "a Cancellation")
    return call


def enter_call(call: Call) -> None:
    """Make a call the current one, here and in every asyncio task made from here."""
    _CURRENT.set(call)
