"""What the JSONL backend declares about itself, and its options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pico_jsonl.store import JsonlStore
from pico_store.backends import Backend, Promises
from pico_store.errors import StoreUrlError
from pico_store.options import DURABILITY, LEVELS, durability_of
from pico_store.storage import Store


def open_url_path(path: str, options: Mapping[str, str], create: bool) -> Store:  # noqa: FBT001
    """Open the store of a URL's path and options.

    Raises:
        StoreUrlError: An option's value is not allowed, or there is no path.
    """
    if not path:
        raise StoreUrlError("URL-1", "jsonl:", "no path; allowed: jsonl:FOLDER")
    return JsonlStore(path, create=create, durability=durability_of(options))


backend: Final = Backend(
    name="jsonl",
    scheme="jsonl",
    promises=Promises(durability=LEVELS, many_sessions=True, multi_process=True),
    options={"durability": DURABILITY},
    open=open_url_path,
)
