"""Where attacks keep their stores, and how they open them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from fuzz.script import SESSION
from pico_store.backends import open_store
from pico_store.errors import UnknownSessionError
from pico_store.storage import Durability, Storage, Store

_FAST: Final = "/dev/shm"
_ROOT: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

LEVELS: Final[tuple[Durability, ...]] = ("power", "ordered", "process")
FILE_BACKENDS: Final = ("sqlite", "jsonl", "lmdb")


@contextmanager
def folder() -> Iterator[str]:
    """Give an empty folder, in memory where there is such a place: syncs are free there."""
    where = _FAST if os.access(_FAST, os.W_OK | os.X_OK) else None
    made = tempfile.mkdtemp(prefix="pico-fuzz-", dir=where)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def store_at(
    backend: str, path: str, durability: Durability = "ordered", *, create: bool = True
) -> Store:
    """Open the store at a path."""
    return open_store(f"{backend}:{path}?durability={durability}", create=create)


def environment() -> dict[str, str]:
    """Return the environment in which another interpreter finds these modules."""
    return {**os.environ, "PYTHONPATH": _ROOT}


def open_session(store: Store) -> Storage:
    """Open the session of a script; create it if it is not there."""
    try:
        return store.open(SESSION)
    except UnknownSessionError:
        return store.create(SESSION)


def files_of(path: str) -> dict[str, bytes]:
    """Return the files at a path, by their name below the folder that it is in."""
    start = os.path.dirname(path)
    found: dict[str, bytes] = {}
    if os.path.isfile(path):
        for name in sorted(os.listdir(start)):
            if os.path.join(start, name).startswith(path):
                found[name] = _content(os.path.join(start, name))
        return found
    for parent, _, names in os.walk(path):
        for name in sorted(names):
            place = os.path.join(parent, name)
            found[os.path.relpath(place, start)] = _content(place)
    return found


def put_files(start: str, files: dict[str, bytes]) -> None:
    """Write files below a folder."""
    for name, content in files.items():
        place = os.path.join(start, name)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "wb") as file:
            file.write(content)


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
