"""Commits that wait for a disk or a network: carried out on a thread of the session's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol, TypeVar

import msgspec

from pico_store.batch import Batch, ListAppend, MainBatch, MainWrite, StateWrite, ValueSet
from pico_store.records import Entry, Replace

R = TypeVar("R")
W = TypeVar("W", MainWrite, StateWrite)

_FIXED = frozenset((str, int, float, bool, type(None)))


class Away(Protocol):
    """Runs elsewhere what may wait: one call after the other, in their order."""

    def __call__(self, work: Callable[[], R], /) -> asyncio.Future[R]:
        """Begin a call and return at once; what is returned is never cancelled."""
        ...


class CommitThread:
    """One thread, made when it is first needed; it ends with `end`, or with the process."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)

    def __call__(self, work: Callable[[], R], /) -> asyncio.Future[R]:
        loop = asyncio.get_running_loop()
        result: asyncio.Future[R] = loop.create_future()
        self._executor.submit(_work_off, loop, work, result)
        return result

    def end(self) -> None:
        """Let the thread go once its work is done; does not wait for it."""
        self._executor.shutdown(wait=False)


def _work_off(
    loop: asyncio.AbstractEventLoop, work: Callable[[], R], result: asyncio.Future[R]
) -> None:
    try:
        tell = partial(_set_result, result, work())
    except BaseException as error:  # noqa: BLE001 - handed on whole
        tell = partial(_set_error, result, error)
    try:
        loop.call_soon_threadsafe(tell)
    except RuntimeError:
        # The loop was closed before, and nobody waits any more.
        pass


def _set_result(result: asyncio.Future[R], value: R) -> None:
    if not result.done():
        result.set_result(value)


def _set_error(result: asyncio.Future[R], error: BaseException) -> None:
    if not result.done():
        result.set_exception(error)


def own_copy(batch: Batch) -> Batch:
    """Return a batch whose values nobody else holds.

    A task's state is fresh already: it was made from a record.
    """
    if isinstance(batch, MainBatch):
        return MainBatch(tuple(_own_write(write) for write in batch.writes))
    writes = tuple(_own_write(write) for write in batch.writes)
    return msgspec.structs.replace(batch, writes=writes)


def _own_write(write: W) -> W:
    if isinstance(write, (ValueSet, ListAppend)):
        return msgspec.structs.replace(write, value=_own(write.value))
    if isinstance(write, Entry):
        edits = write.edits and tuple(
            msgspec.structs.replace(edit, messages=_own(edit.messages))
            if isinstance(edit, Replace)
            else edit
            for edit in write.edits
        )
        return msgspec.structs.replace(
            write, data=_own(write.data), model=_own(write.model), edits=edits
        )
    return write


def _own(value: R) -> R:
    """Copy what can change; what is no JSON stays what it is, for the storage to refuse."""
    try:
        return _copied(value)
    except RecursionError:
        # Too deep, or cyclic: the storage refuses it.
        return value


def _copied(value: R) -> R:
    # What cannot change is told apart here: a call for each of many small values would hold the
    # event loop for as long as their commit takes.
    if type(value) is dict:
        return {  # type: ignore[return-value]
            key: item if type(item) in _FIXED else _copied(item)
            for key, item in value.items()  # type: ignore[attr-defined]
        }
    if type(value) is list:
        return [item if type(item) in _FIXED else _copied(item) for item in value]  # type: ignore[return-value,attr-defined]
    return value
