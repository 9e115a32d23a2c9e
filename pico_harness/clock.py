"""The time that tasks see; it decides no order and no ownership."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time."""

    def now(self) -> int:
        """Return the Unix time in milliseconds."""
        ...


class SystemClock:
    """The clock of this machine."""

    def now(self) -> int:
        return time.time_ns() // 1_000_000
