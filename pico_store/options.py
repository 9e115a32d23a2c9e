"""The options that backends have in common: what a URL may say of them, and what each means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pico_store.errors import StoreUrlError
from pico_store.storage import Durability

LEVELS: Final[tuple[Durability, ...]] = ("power", "ordered", "process")
BUSY_MS_DEFAULT: Final = 10_000
_BUSY_MS_MAX: Final = 3_600_000
_COMPRESSIONS: Final = ("none", "zstd")

DURABILITY: Final = "ordered (default), power or process: what survives a power cut"
BUSY_MS: Final = f"how long a commit waits for other writers; default {BUSY_MS_DEFAULT}"
COMPRESSION: Final = "none (default) or zstd: new payloads are made smaller, all by pico vacuum"


def durability_of(options: Mapping[str, str]) -> Durability:
    """Return the level that the option ``durability`` chooses (SPEC.md, DUR-1).

    Raises:
        StoreUrlError: It is none; the message says what is allowed.
    """
    given = options.get("durability", "ordered")
    for level in LEVELS:
        if level == given:
            return level
    raise _refusal("durability", given, ", ".join(LEVELS))


def busy_ms_of(options: Mapping[str, str]) -> int:
    """Return how many milliseconds a commit waits for other writers: 0 to an hour.

    Raises:
        StoreUrlError: It is no such number; the message says what is allowed.
    """
    given = options.get("busy_ms", str(BUSY_MS_DEFAULT))
    if given.isascii() and given.isdigit() and len(given) < 9 and int(given) <= _BUSY_MS_MAX:
        return int(given)
    raise _refusal("busy_ms", given, f"0 to {_BUSY_MS_MAX}")


def compresses(options: Mapping[str, str]) -> bool:
    """Return whether new payloads are to be compressed.

    Raises:
        StoreUrlError: The option ``compression`` names no way; the message says what is allowed.
    """
    given = options.get("compression", "none")
    if given in _COMPRESSIONS:
        return given == "zstd"
    raise _refusal("compression", given, ", ".join(_COMPRESSIONS))


def _refusal(name: str, given: str, allowed: str) -> StoreUrlError:
    return StoreUrlError("URL-3", "", f"{name}={given!r:.40}; allowed: {allowed}")
