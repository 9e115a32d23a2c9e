"""Commits that wait for a disk or a network: carried out on a thread of the session's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol, TypeVar

R = TypeVar("R")


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
