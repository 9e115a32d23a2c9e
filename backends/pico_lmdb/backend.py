"""What the LMDB backend declares about itself, and its options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pico_lmdb.environment import BUSY_MS_DEFAULT
from pico_lmdb.store import LmdbStore
from pico_store.backends import Backend, Promises
from pico_store.errors import StoreUrlError
from pico_store.storage import Durability, Store

_LEVELS: Final[tuple[Durability, ...]] = ("power", "ordered", "process")
_BUSY_MS_MAX: Final = 3_600_000


def open_url_path(path: str, options: Mapping[str, str], create: bool) -> Store:  # noqa: FBT001
    """Open the store of a URL's path and options.

    Raises:
        StoreUrlError: An option's value is not allowed; the message says what is.
    """
    level = options.get("durability", "ordered")
    for durability in _LEVELS:
        if durability == level:
            break
    else:
        problem = f"durability={level!r:.40}; allowed: {', '.join(_LEVELS)}"
        raise StoreUrlError("URL-3", "durability", problem)
    busy = options.get("busy_ms", str(BUSY_MS_DEFAULT))
    if not (busy.isascii() and busy.isdigit() and len(busy) < 9 and int(busy) <= _BUSY_MS_MAX):
        problem = f"busy_ms={busy!r:.40}; allowed: 0 to {_BUSY_MS_MAX}"
        raise StoreUrlError("URL-3", "busy_ms", problem)
    compression = options.get("compression", "none")
    if compression not in ("none", "zstd"):
        problem = f"compression={compression!r:.40}; allowed: none, zstd"
        raise StoreUrlError("URL-3", "compression", problem)
    return LmdbStore(
        path,
        create=create,
        durability=durability,
        busy_ms=int(busy),
        compress=compression == "zstd",
    )


backend: Final = Backend(
    name="lmdb",
    scheme="lmdb",
    promises=Promises(durability=_LEVELS, many_sessions=True, multi_process=True),
    options={
        "durability": "ordered (default), power or process: what survives a power cut",
        "compression": "none (default) or zstd: new payloads are made smaller, all by pico vacuum",
        "busy_ms": f"how long a commit waits for other writers; default {BUSY_MS_DEFAULT}",
    },
    open=open_url_path,
)
