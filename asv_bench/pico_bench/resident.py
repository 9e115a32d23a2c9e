"""How much memory of its own this process holds, as the kernel counts it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_STATUS: Final = Path("/proc/self/status")


def private_bytes() -> int:
    """Return the resident bytes that no file backs.

    Raises:
        OSError: The kernel has no `/proc/self/status`.
    """
    for line in _STATUS.read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == "RssAnon":
            return int(rest.split()[0]) * 1024
    raise OSError(f"{_STATUS} says nothing of RssAnon; measure this figure on Linux")
