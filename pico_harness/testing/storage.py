"""A storage that can pause, fail and die at any commit, over any other."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Literal, NoReturn, TypeAlias, TypeVar

from pico_store.address import Seq
from pico_store.batch import Batch
from pico_store.errors import CommitUncertainError, StorageFaultedError, StoreBusyError
from pico_store.records import BatchRange
from pico_store.storage import Counters, OpenReport, Storage

R = TypeVar("R")

Fault: TypeAlias = Literal[
    "retry", "uncertain_before", "uncertain_after", "crash_before", "crash_after"
]
"""What happens at a commit: refused for now, of unknown outcome, or the process dies; before or
after the batch became durable."""

_READS = (
    "entry_kinds",
    "export",
    "get_conversations",
    "get_entries",
    "get_tasks",
    "get_value",
    "newest_head",
    "read_list",
    "rewind_policy",
    "scan_batches",
    "scan_conversations",
    "scan_entries",
    "scan_tasks",
    "scan_values",
)


class CrashError(BaseException):
    """The simulated process died; whoever catches it is dead all the same."""


class SimulatedStorage:
    """A `Storage` in front of another, with faults at chosen commits.

    Guarantees:
        Without a fault it does what the other does. After a crash it writes nothing more, whoever
        asks.
    """

    def __init__(
        self,
        inner: Storage,
        *,
        faults: Mapping[int, Fault],
        on_commit: Callable[[Batch, BatchRange], None],
        on_fault: Callable[[Fault, Batch], None],
        on_close: Callable[[], None],
    ) -> None:
        """Wrap a storage.

        Args:
            inner: What really holds the session.
            faults: What happens at the n-th commit from here on, counted from 0.
            on_commit: Told of every batch that became durable.
            on_fault: Told of every fault, before it shows.
            on_close: Told when the session is given back.
        """
        self._inner = inner
        self._faults = faults
        self._on_commit = on_commit
        self._on_fault = on_fault
        self._on_close = on_close
        self._commits = 0
        self.dead = False
        # Bound once: a call of a delegate for each read would be most of what a read costs.
        for name in _READS:
            setattr(self, name, getattr(inner, name))

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(name)

    @property
    def session_id(self) -> str:
        return self._inner.session_id

    @property
    def last_seq(self) -> Seq:
        return self._inner.last_seq

    @property
    def epoch(self) -> int:
        return self._inner.epoch

    @property
    def read_only(self) -> bool:
        return self._inner.read_only

    @property
    def commit_waits(self) -> bool:
        return False

    @property
    def counters(self) -> Counters:
        return self._inner.counters

    @property
    def open_report(self) -> OpenReport:
        return self._inner.open_report

    def commit(self, batch: Batch, *, expected_first: Seq | None = None) -> BatchRange:
        if self.dead:
            raise CrashError
        fault = self._faults.get(self._commits)
        self._commits += 1
        if fault is None:
            written = self._inner.commit(batch, expected_first=expected_first)
            self._on_commit(batch, written)
            return written
        if fault in ("uncertain_after", "crash_after"):
            self._on_commit(batch, self._inner.commit(batch, expected_first=expected_first))
        self._on_fault(fault, batch)
        if fault == "retry":
            raise StoreBusyError("simulated: somebody else writes")
        self.dead = fault.startswith("crash")
        if self.dead:
            raise CrashError
        for name in (*_READS, "commit"):
            setattr(self, name, _faulted)
        raise CommitUncertainError("simulated: the outcome is not known")

    def close(self) -> None:
        if not self.dead:
            self._on_close()
            self._inner.close()


def _faulted(*_: object, **__: object) -> NoReturn:
    raise StorageFaultedError("simulated: a commit ended uncertain; reopen the session")


class SimulatedAway:
    """Carries commits on the loop: each becomes durable, and is reported, after random delays.

    It is what `Options.away` takes; calls run one after the other, in their order.
    """

    def __init__(self, random: Random, *, delay_ms: float = 5.0) -> None:
        """Make a carrier for the running loop.

        Args:
            random: Where delays come from.
            delay_ms: The longest of each delay.
        """
        self._random = random
        self._delay = delay_ms / 1000
        self._queue: deque[Callable[[], None]] = deque()
        self._busy = False

    def __call__(self, work: Callable[[], R], /) -> asyncio.Future[R]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        self._queue.append(partial(self._run, work, future))
        self._next()
        return future

    def _next(self) -> None:
        if self._queue and not self._busy:
            self._busy = True
            self._later(self._queue.popleft())

    def _later(self, callback: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        chance = self._random.random()
        if chance < 0.4:
            loop.call_soon(callback)
        else:
            loop.call_later(self._delay * chance, callback)

    def _run(self, work: Callable[[], R], future: asyncio.Future[R]) -> None:
        try:
            result = work()
        except CrashError:
            return
        except Exception as error:  # noqa: BLE001 - handed on whole
            self._later(partial(self._done, partial(future.set_exception, error)))
        else:
            self._later(partial(self._done, partial(future.set_result, result)))

    def _done(self, tell: Callable[[], None]) -> None:
        self._busy = False
        tell()
        self._next()
