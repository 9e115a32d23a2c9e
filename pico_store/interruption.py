"""Signals that end a command: remembered, and raised again where a finaliser swallowed them.

An interpreter that runs a finaliser or a weak reference's callback has nobody to hand an exception
to: it tells it to `sys.unraisablehook` and goes on. What a signal's handler raises there is lost,
so that the command would go on as if nobody had asked it to end.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType
from typing import Final

_AGAIN_S: Final = 0.005
"""Seconds from an exception that was swallowed to the next try."""


class _Watch:
    """What is known of the signals of the block that watches them."""

    __slots__ = ("before", "number")

    def __init__(self) -> None:
        self.number = 0
        self.before: Callable[[sys.UnraisableHookArgs], object] = sys.__unraisablehook__


_watch: Final = _Watch()


def came() -> int:
    """Return the newest signal that asked for the end in a block of `raised_again`; 0: none did."""
    return _watch.number


def interrupt(number: int, frame: FrameType | None) -> None:
    """Remember a signal and raise what ends the command; it is a handler.

    Raises:
        KeyboardInterrupt: It was Ctrl-C.
        SystemExit: It was another one; the code is 128 and the signal's number.
    """
    _watch.number = number
    _raise()


@contextmanager
def raised_again() -> Iterator[None]:
    """Remember Ctrl-C in the block, and raise it until somebody can notice it.

    So is what `interrupt` raises for other signals. Within another such block, and in threads other
    than the main one, which gets the signals, this does nothing.
    """
    if current_thread() is not main_thread() or sys.unraisablehook is _swallowed:
        yield
        return
    _watch.before = sys.unraisablehook
    alarm = signal.signal(signal.SIGALRM, _once_more)
    sys.unraisablehook = _swallowed
    # Where Ctrl-C is ignored, or somebody else's to handle, it stays so.
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_usual:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        if is_usual:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = _watch.before
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, alarm)
        _watch.number = 0


def _raise() -> None:
    if _watch.number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + _watch.number)


def _swallowed(lost: sys.UnraisableHookArgs) -> None:
    """Try again soon; what is raised from here would be swallowed just as well."""
    if _watch.number and issubclass(lost.exc_type, (KeyboardInterrupt, SystemExit)):
        # One that is under way already is not put off, however many are swallowed until then.
        if not signal.getitimer(signal.ITIMER_REAL)[0]:
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
    else:
        _watch.before(lost)


def _once_more(number: int, frame: FrameType | None) -> None:
    if frame is not None and frame.f_code is _swallowed.__code__:
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
    else:
        _raise()
