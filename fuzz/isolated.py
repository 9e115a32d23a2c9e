"""Running something in a process of its own, which a damaged map may end."""

from __future__ import annotations

import faulthandler
import os
import signal
import traceback
from collections.abc import Callable
from typing import Final, NamedTuple

SECONDS_MAX: Final = 30


class Ended(NamedTuple):
    """How a process came to its end, and what it had said by then."""

    lines: list[str]
    signal: int
    """0: it ended by itself."""

    @property
    def how(self) -> str:
        """In words."""
        if self.signal == signal.SIGALRM:
            return f"did not end within {SECONDS_MAX} s"
        return f"was ended by signal {self.signal}" if self.signal else "ended"


def isolated(call: Callable[[Callable[[str], None]], None]) -> Ended:
    """Run a function in a forked process and return what it said.

    Args:
        call: Is given a function that says a line; an exception is said as a line too.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _run(call, writing)
    os.close(writing)
    with open(reading, encoding="utf-8", errors="replace") as file:
        lines = file.read().split("\0")[:-1]
    _, status = os.waitpid(pid, 0)
    return Ended(lines, os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0)


def _run(call: Callable[[Callable[[str], None]], None], writing: int) -> None:
    def say(line: str) -> None:
        text = line.replace("\0", "?").encode("utf-8", "replace") + b"\0"
        while text:
            text = text[os.write(writing, text) :]

    try:
        # What a library or the interpreter says of its end is no news.
        faulthandler.disable()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        # A damaged map may also lead round in circles.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(SECONDS_MAX)
        call(say)
    except BaseException:  # noqa: BLE001 - the process ends here, whatever it is
        say(f"an unexpected error\n{traceback.format_exc()}")
    finally:
        os._exit(0)
