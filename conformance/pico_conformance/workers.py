"""Worker processes that end with the process that started them, and leave no folder behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing import active_children, get_context, parent_process
from threading import Thread, current_thread, main_thread
from types import FrameType
from typing import ParamSpec, TypeVar

from pico_store.interruption import came, interrupt, raised_again

P = ParamSpec("P")
T = TypeVar("T")

_life = ExitStack()
"""What a worker keeps until its end."""


class Workers:
    """Processes that wait for calls."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def submit(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Let one of them make a call as soon as it is free."""
        # The type checker takes the two uses of `P` for different ones.
        return self._pool.submit(_call, call, *args, **kwargs)  # type: ignore[arg-type]


@contextmanager
def open_workers(jobs: int) -> Iterator[Workers]:
    """Give fresh interpreters; what they do is stopped if the block fails.

    Nothing of this process's handles and threads is in the workers. They leave Ctrl-C, which a
    terminal sends to all of them, to this process.
    """
    others = set(active_children())
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_begin)
    try:
        yield Workers(pool)
    except BaseException:
        for worker in set(active_children()) - others:
            worker.terminate()
        pool.shutdown(cancel_futures=True)
        raise
    pool.shutdown()


@contextmanager
def unwound_by_sigterm() -> Iterator[None]:
    """Make SIGTERM raise `SystemExit` in the block, so that it closes what it opened."""
    if current_thread() is not main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _unwind)
    try:
        with raised_again():
            yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _unwind(number: int, frame: FrameType | None) -> None:
    # Once: another one must not end what the first one made the block clean up.
    signal.signal(number, _stay)
    interrupt(number, frame)


def _stay(number: int, frame: FrameType | None) -> None:
    """Do nothing; a signal that is ignored instead would be ignored by rules' processes too."""


def _begin() -> None:
    signal.signal(signal.SIGINT, _stay)
    signal.signal(signal.SIGTERM, _unwind)
    _life.enter_context(raised_again())
    Thread(target=_follow_parent, daemon=True).start()


def _call(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    try:
        result = call(*args, **kwargs)
        if came():
            raise SystemExit
    except SystemExit:
        # The pool would hand it over as the call's result, and the worker would wait on.
        os._exit(1)
    return result


def _follow_parent() -> None:
    """End this process after its parent, which may have been killed."""
    parent = parent_process()
    assert parent is not None, "a worker has a parent"
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
