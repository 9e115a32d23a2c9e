"""What is whole of each session of a damaged store."""

from __future__ import annotations

import os
from collections.abc import Iterator

from pico_jsonl.folder import is_ours, place_in, session_folders
from pico_jsonl.opening import load_what_is_whole
from pico_memory.snapshot import snapshot
from pico_store.errors import PicoError
from pico_store.salvage import Readable
from pico_store.snapshot import SnapshotItem
from pico_store.storage import Problem


def salvage_store(path: str) -> Iterator[Readable]:
    """Yield the sessions of a store by the names of their folders; change nothing."""
    for folder in session_folders(path):
        if is_ours(folder):
            yield _readable(folder)


def _readable(folder: str) -> Readable:
    name = os.path.basename(folder)
    try:
        place = place_in(folder)
        if place is None:
            return Readable(name, None, (Problem(name, folder, "its main log is not there"),))
        name = place.session
        loaded, lost = load_what_is_whole(place)
    except PicoError as error:
        return Readable(name, None, (Problem(name, folder, str(error)),))

    def items() -> Iterator[SnapshotItem]:
        return iter(snapshot(loaded.state).items())

    return Readable(name, items, tuple(Problem(name, *found) for found in lost))
