"""Where a session's sequence ends, from the ends of its files alone."""

from __future__ import annotations

import os
from typing import Final

import msgspec
from msgspec import Raw, Struct

from pico_jsonl.control import MARK
from pico_jsonl.lines import SnapshotEnd
from pico_jsonl.opening import Place
from pico_jsonl.replay import check_header
from pico_jsonl.scratch import scratch_path, scratch_tasks
from pico_store.address import Seq
from pico_store.errors import StoreDamagedError, StoreUnusableError

_BLOCK: Final = 65_536


class _Tail(Struct):
    first: int = 0
    writes: tuple[Raw, ...] = ()
    end: SnapshotEnd | None = None


def last_number(place: Place, control: dict[int, int]) -> Seq:
    """Return the greatest number that a session gave, without reading all of it.

    A scratch file whose last number is beyond the main log's belongs to a live task: a settlement
    would have a greater number yet, in the main log. A task whose own number is beyond it does not
    exist.

    Raises:
        StoreUnusableError: The end of the main log is damaged, or is no log of this session.
    """
    main = _last_of(place.main, place.session)
    last = max(main, control[MARK])
    for task in scratch_tasks(place.folder):
        if task <= main:
            try:
                last = max(last, _last_of(scratch_path(place.folder, task), place.session, task))
            except (FileNotFoundError, StoreUnusableError):
                # Settled meanwhile, or of a task whose file does not count any more.
                continue
    return Seq(last)


def _last_of(path: str, session: str, task: Seq | None = None) -> int:
    with open(path, "rb") as file:
        header = file.readline()
        check_header(header, path, session, task)
        line = _last_line(file.fileno(), len(header))
    if not line:
        return 0
    try:
        tail = msgspec.json.decode(line, type=_Tail)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        problem = f"{path}: the last line: {error}; run pico verify, restore a backup"
        raise StoreDamagedError(problem) from error
    return tail.end.last_seq if tail.end is not None else tail.first + len(tail.writes) - 1


def _last_line(fd: int, start: int) -> bytes:
    """Return the last complete line behind an offset; empty: there is none."""
    stop = os.fstat(fd).st_size
    size = _BLOCK
    while True:
        # The whole stretch again, of twice the length: a line may have 256 MiB.
        begin = max(stop - size, start)
        text = os.pread(fd, stop - begin, begin)
        end = text.rfind(b"\n")
        before = text.rfind(b"\n", 0, end) if end >= 0 else -1
        if begin == start or before >= 0:
            return text[before + 1 : end] if end >= 0 else b""
        size *= 2
