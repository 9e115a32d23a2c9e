"""How much memory of its own this process holds, as the kernel counts it."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path
from typing import Final

# The figures of /proc/self/status are rounded by some pages a core; these are counted when read.
_PAGES: Final = Path("/proc/self/smaps_rollup")
_PRIVATE: Final = ("Private_Clean", "Private_Dirty")


def private_bytes() -> int:
    """Return the resident bytes that are this process's alone: what would be free without it.

    What the process has freed is given back before, or an allocation would be hidden in it.

    Raises:
        OSError: The kernel does not tell.
    """
    _give_back()
    found = 0
    for line in _PAGES.read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in _PRIVATE:
            found += int(rest.split()[0]) * 1024
    if not found:
        raise OSError(f"{_PAGES} does not count private pages; measure this figure on Linux")
    return found


def _give_back() -> None:
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    # Only the GNU library has it; elsewhere the measure is a little too kind.
    if trim is not None:
        trim(0)
