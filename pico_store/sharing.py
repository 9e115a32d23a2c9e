"""Commits of several threads that one of them writes together, whoever is interrupted meanwhile.

The commits that arrive while another is written wait in a queue. The first of them leads next: it
writes for all that wait, in one transaction with one wait for the disk, while the others sleep.
An interruption, such as Ctrl-C, may reach any of these threads at any point; what it may not do is
leave another one asleep, or let it take for durable what is not.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import islice, pairwise
from typing import Final, Generic, TypeVar

from pico_store.errors import PicoError

_SHARED_MAX: Final = 128
"""Commits that are written together at most, so that no transaction grows without bound."""

R = TypeVar("R", bound="Request")


class Signal:
    """What one thread sleeps on until another sets it, as often as it likes.

    Not an `Event`: one whose setting is interrupted keeps its lock, and who sets it again to mend
    that, waits for ever.
    """

    __slots__ = ("_lock", "_set")

    def __init__(self) -> None:
        self._set = False
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Wake the thread that waits, now or later."""
        self._set = True
        with suppress(RuntimeError):
            # It is free already where it was set before.
            self._lock.release()

    def wait(self) -> None:
        """Sleep until it is set."""
        while not self._set:
            self._lock.acquire()


class Request:
    """One commit that waits to be written, and what became of it; subclasses say what to write."""

    __slots__ = ("done", "error", "group", "leaves", "next", "taken")

    def __init__(self) -> None:
        self.error: BaseException | None = None
        """Why it was not written; found out by who wrote the group."""
        self.done = Signal()
        """Set when it is written, or when its thread is to lead."""
        self.taken = False
        self.group: tuple[Request, ...] = ()
        """Those that its thread writes for, itself included, once it leads."""
        self.next: Request | None = None
        """Whom its thread wakes, once it is awake itself."""
        self.leaves = False
        """Whether its thread was interrupted, and nobody may rely on it."""


class SharedCommits(Generic[R]):
    """Writes the commits of several threads together.

    Guarantees:
        Every commit is written in the order of arrival, or told why it was not. No thread sleeps
        for longer than the group that it is in takes, whichever thread is interrupted where.
    """

    def __init__(
        self,
        alone: Callable[[Callable[[], None]], None],
        write: Callable[[tuple[R, ...]], None],
        interrupted: Callable[[BaseException, tuple[R, ...]], PicoError | None],
    ) -> None:
        """Make a queue without commits.

        Args:
            alone: Calls a function, and keeps every other writer of the process away meanwhile.
            write: Makes a group durable, within `alone`. An error that is one commit's alone
                is left in its request; what is raised is the error of all.
            interrupted: Says what became of a group whose writing was interrupted, perhaps before
                ``write`` began: the error of all that wait, or ``None`` if they are durable.
        """
        self._alone = alone
        self._write = write
        self._interrupted = interrupted
        self._queue = threading.Lock()
        self._waiting: deque[R] = deque()
        self._leader: R | None = None

    @property
    def waiting(self) -> int:
        """How many commits wait to be taken."""
        return len(self._waiting)

    def commit(self, request: R) -> None:
        """Have a commit written, by this thread or by another.

        Raises:
            BaseException: What kept it from being written, or an interruption of this thread. In
                that case others may have written it: see what the file holds.
        """
        try:
            self._commit(request)
        finally:
            # An interruption that comes in between must not break the chain.
            try:
                _wake_next(request)
            except BaseException:
                _wake_next(request)
                raise
        if request.error is not None:
            raise request.error

    def _commit(self, request: R) -> None:
        try:
            with self._queue:
                self._waiting.append(request)
                if self._leader is None:
                    self._leader = request
            if self._leader is not request:
                request.done.wait()
            if self._leader is request:
                self._lead(request)
        except BaseException:
            request.leaves = True
            self._leave(request)
            raise

    def _lead(self, leader: R) -> None:
        """Write for all that wait, then hand the lead to the first that came meanwhile."""
        try:
            self._alone(lambda: self._write(self._take(leader)))
        except BaseException as error:
            told: BaseException | None = error
            if not isinstance(error, PicoError):
                told = self._interrupted(error, _group(leader))
            elif not leader.group:
                # The writer was not to be had, and all that wait have waited for it.
                self._take(leader)
            for request in leader.group:
                request.error = request.error or told
            if told is not error:
                raise
        self._finish(leader)

    def _take(self, leader: R) -> tuple[R, ...]:
        with self._queue:
            leader.group = group = tuple(islice(self._waiting, _SHARED_MAX))
            for request in group:
                request.taken = True
                self._waiting.popleft()
        return group

    def _finish(self, leader: R) -> None:
        """Let those go on that were written for, then whoever is next."""
        # Each wakes the next one. Woken all at once, they would only wait for one another again:
        # one thread at a time runs Python.
        group = leader.group
        for one, other in pairwise(group):
            one.next = other
        if group:
            group[0].done.set()
        with self._queue:
            # Where taking them was interrupted, some of them still stand in the queue.
            while self._waiting and self._waiting[0] in leader.group:
                self._waiting.popleft()
            self._leader = self._waiting[0] if self._waiting else None
            if self._leader is not None:
                self._leader.done.set()

    def _leave(self, request: R) -> None:
        """Withdraw a commit whose thread was interrupted, or wait until others have written it."""
        with self._queue:
            if request in self._waiting and not request.taken:
                self._waiting.remove(request)
        if self._leader is request:
            self._finish(request)
            return
        with self._queue:
            # Where handing over was interrupted, the next one may not have been woken.
            if self._leader is not None:
                self._leader.done.set()
        if request.taken:
            request.done.wait()


def _group(leader: R) -> tuple[R, ...]:
    return leader.group  # type: ignore[return-value]


def _wake_next(request: Request) -> None:
    """Wake the next of a group, and who comes after those that were interrupted."""
    following = request.next
    while following is not None:
        following.done.set()
        following = following.next if following.leaves else None
