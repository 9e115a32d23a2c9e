"""A seeded event loop with virtual time, which chooses what runs next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from heapq import heappop, heappush
from random import Random
from typing import Any, Protocol, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class SimulationError(AssertionError):
    """A simulated run went wrong in a way that no schedule may bring about."""


class DeadlockError(SimulationError):
    """Something waits, nothing can run, and no timer will change that."""


class EndlessError(SimulationError):
    """The run took more steps than it was allowed: something goes on for ever."""


class HaltedError(Exception):
    """The loop was halted from within, as a process is that dies."""


class Choices(Protocol):
    """Decides what runs next."""

    def pick(self, ready: int) -> int:
        """Return which of so many ready callbacks runs; index 0 became ready first."""
        ...

    def timer_first(self) -> bool:
        """Tell whether the next timer fires although callbacks are ready (a slow processor)."""
        ...


class RandomChoices:
    """Chooses at random; the same seed chooses the same."""

    def __init__(self, seed: int, *, preemption: float = 1.0, slow: float = 0.0) -> None:
        """Make a chooser.

        Args:
            seed: What all choices follow from.
            preemption: How often, of 1, the order of becoming ready is left.
            slow: How often, of 1, a timer fires before what is ready.
        """
        self._random = Random(seed).random
        self._preemption = preemption
        self._slow = slow

    def pick(self, ready: int) -> int:
        if self._preemption < 1.0 and self._random() >= self._preemption:
            return 0
        return int(self._random() * ready)

    def timer_first(self) -> bool:
        return self._slow > 0.0 and self._random() < self._slow


class DelayChoices:
    """Runs callbacks in the order of becoming ready, but for chosen steps that delay the first."""

    def __init__(self, delays: frozenset[int]) -> None:
        """Make a chooser.

        Args:
            delays: The steps, from 0, at which the callback whose turn it is has to wait.
        """
        self._delays = delays
        self._step = -1

    def pick(self, ready: int) -> int:
        self._step += 1
        return 1 if self._step in self._delays and ready > 1 else 0

    def timer_first(self) -> bool:
        return False


class SimulatedLoop(asyncio.AbstractEventLoop):
    """An event loop without threads, files and sockets, whose time passes only when nothing runs.

    Guarantees:
        The same choices run the same callbacks in the same order. What would need the outside
        world raises ``NotImplementedError``.

    Source: reliability, simulation; issue 4.
    """

    def __init__(self, choices: Choices, *, start: float = 0.0, steps_max: int = 50_000) -> None:
        """Make a loop.

        Args:
            choices: Decides what runs next.
            start: The virtual time to begin with, in seconds.
            steps_max: After so many steps the run counts as endless.
        """
        self._choices = choices
        self._now = start
        self._ready: list[asyncio.Handle] = []
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._numbered = 0
        self._steps_left = steps_max
        self._closed = False
        self.halted = False
        self.trace: list[str] | None = None
        """One line for each step, where somebody wants it."""
        self.on_idle: Callable[[], None] | None = None
        """Told whenever nothing is ready, before time passes."""
        self.on_unhandled: Callable[[str], None] | None = None
        """Told of exceptions that nobody handled."""

    # --- Running ---

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run until a coroutine is through, and return what it returns.

        Raises:
            HaltedError: `halt` was called.
            DeadlockError: It waits for something that will not come.
            EndlessError: It took too many steps.
        """
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            task = self.create_task(main)
            while not task.done():
                if self.halted:
                    raise HaltedError
                handle = self._next()
                if handle is not None:
                    handle._run()
            result: T = task.result()
            return result
        finally:
            asyncio._set_running_loop(before)

    def _next(self) -> asyncio.Handle | None:
        """Return what runs next; ``None``: nothing this time."""
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heappop(timers)
        ready = self._ready
        self._steps_left -= 1
        if self._steps_left < 0:
            raise EndlessError("the run does not end")
        if not ready and self.on_idle is not None:
            self.on_idle()
            if self.halted:
                return None
        handle: asyncio.Handle
        if timers and (not ready or self._choices.timer_first()):
            when, _, handle = heappop(timers)
            self._now = max(self._now, when)
        elif ready:
            handle = ready.pop(self._choices.pick(len(ready)) if len(ready) > 1 else 0)
        else:
            raise DeadlockError(f"deadlock; waiting: {', '.join(self._waiting())}")
        if handle._cancelled:
            return None
        if self.trace is not None:
            self.trace.append(f"{self._now * 1000:9.2f} {_label(handle)}")
        return handle

    def _waiting(self) -> list[str]:
        return [task.get_name() for task in self._tasks if not task.done()]

    def halt(self) -> None:
        """Run nothing more."""
        self.halted = True

    def close(self) -> None:
        """Drop everything that has not run, as the death of a process does."""
        self.halted = self._closed = True
        self._ready.clear()
        self._timers.clear()
        before = asyncio._get_running_loop()
        # What the unwinding asks of its loop must not fail; none of it will run.
        asyncio._set_running_loop(self)
        try:
            for task in self._tasks:
                # Nobody is left who could be told of it.
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                if not task.done():
                    _drop(task)
        finally:
            asyncio._set_running_loop(before)
        self._tasks.clear()
        self._ready.clear()

    # --- What asyncio asks of a loop ---

    def time(self) -> float:
        return self._now

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self._closed

    def is_closed(self) -> bool:
        return self._closed

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._numbered += 1
        heappush(self._timers, (when, self._numbered, handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Nothing: a cancelled timer is thrown away when its time comes."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Any,
        *,
        name: str | None = None,
        context: Context | None = None,
        **_: Any,
    ) -> asyncio.Task[Any]:
        # Names that asyncio gives count over the whole process, and so differ between two runs.
        named = name or f"{len(self._tasks)}:{coro.__qualname__}"
        task = asyncio.Task(coro, loop=self, name=named, context=context)
        self._tasks.append(task)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.halted or self.on_unhandled is None:
            return
        error = context.get("exception")
        self.on_unhandled(f"{context.get('message')}: {type(error).__name__}: {error}")


def _drop(task: asyncio.Task[Any]) -> None:
    coroutine = task.get_coro()
    try:
        if coroutine is not None:
            coroutine.close()
    except (RuntimeError, ValueError):
        # It awaits within a ``finally``, or is what runs right now; a dead process runs neither.
        pass


def _label(handle: asyncio.Handle) -> str:
    callback = handle._callback  # type: ignore[attr-defined]
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return owner.get_name()
    function = getattr(callback, "func", callback)
    return str(getattr(function, "__qualname__", type(function).__name__))
