"""What is whole of each session of a damaged store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial

from pico_jsonl.folder import is_ours, place_in, session_folders
from pico_jsonl.lines import BadLineError, check_seal, convert, parse_object
from pico_jsonl.opening import Place, load_what_is_whole
from pico_jsonl.replay import check_header
from pico_memory.snapshot import snapshot
from pico_store.address import Seq
from pico_store.errors import PicoError, StoreDamagedError
from pico_store.records import BatchRange
from pico_store.remnant import EVERY_NUMBER
from pico_store.salvage import Readable
from pico_store.snapshot import SnapshotHeader, SnapshotItem
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
        try:
            loaded, lost = load_what_is_whole(place)
        except StoreDamagedError as error:
            if next(_first_items(place), None) is None:
                raise
            return _readable_in_part(place, str(error))
    except PicoError as error:
        return Readable(name, None, (Problem(name, folder, str(error)),))

    def items() -> Iterator[SnapshotItem]:
        return iter(snapshot(loaded.state).items())

    return Readable(name, items, tuple(Problem(name, *found) for found in lost))


def _readable_in_part(place: Place, problem: str) -> Readable:
    """Return what is left where the log's own snapshot is damaged: its items before the bad line.

    Which records follow nobody can tell; nor is scratch taken that builds on them.
    """
    what = "what is behind it, and scratch since then, is left out"
    left_out = (Problem(place.session, place.main, f"{problem}; {what}"),)
    return Readable(place.session, partial(_first_items, place), left_out, EVERY_NUMBER)


def _first_items(place: Place) -> Iterator[SnapshotItem]:
    """Yield the items of the snapshot that a log begins with, up to its first bad line."""
    crc = position = 0
    with open(place.main, "rb") as lines:
        for count, line in enumerate(lines):
            if count == 0:
                check_header(line, place.main, place.session)
            try:
                crc = check_seal(line, crc)
                items, position = _items_of(line, position) if count else ([], 0)
            except BadLineError:
                return
            if count and not items:
                return
            yield from items


def _items_of(line: bytes, position: int) -> tuple[list[SnapshotItem], int]:
    """Return the items of a line, and the last number of the batches so far."""
    match parse_object(line):
        case {"snapshot": header}:
            return [convert(header, SnapshotHeader)], position
        case {"items": items}:
            return list(convert(items, tuple[SnapshotItem, ...])), position
        case {"batches": numbers}:
            counts = iter(convert(numbers, tuple[int, ...]))
            found: list[SnapshotItem] = []
            for skipped, count in zip(counts, counts, strict=False):
                first = position + skipped + 1
                position = first + count - 1
                found.append(BatchRange(Seq(first), Seq(position)))
            return found, position
    return [], position
