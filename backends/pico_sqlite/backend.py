"""What the SQLite backend declares about itself, and its options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pico_sqlite.store import SqliteStore
from pico_store.backends import Backend, Promises
from pico_store.options import (
    BUSY_MS,
    COMPRESSION,
    DURABILITY,
    LEVELS,
    busy_ms_of,
    compresses,
    durability_of,
)
from pico_store.storage import Store


def open_url_path(path: str, options: Mapping[str, str], create: bool) -> Store:  # noqa: FBT001
    """Open the store of a URL's path and options.

    Raises:
        StoreUrlError: An option's value is not allowed; the message says what is.
    """
    return SqliteStore(
        path,
        create=create,
        durability=durability_of(options),
        busy_ms=busy_ms_of(options),
        compress=compresses(options),
    )


backend: Final = Backend(
    name="sqlite",
    scheme="sqlite",
    promises=Promises(durability=LEVELS, many_sessions=True, multi_process=True),
    options={"durability": DURABILITY, "compression": COMPRESSION, "busy_ms": BUSY_MS},
    open=open_url_path,
)
