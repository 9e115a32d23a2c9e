"""The JSONL backend beside a raw loop that appends lines, and how a large session opens."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from pico_bench.case import Numbers, Setting
from pico_bench.large import SESSION, make_jsonl_session
from pico_bench.raw import RawCommit, dictionary_loop, raw_commits
from pico_bench.resident import private_bytes
from pico_bench.turns_case import interface, surviving, timed
from pico_store.backends import find_backend, open_store
from pico_store.batch import Batch


class _Commit(NamedTuple):
    batch: Batch
    raw: RawCommit


def raw(setting: Setting) -> Numbers:
    """Measure one `write` of one line a commit, into one file, and bare dictionaries after it."""
    flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND
    fd = os.open(Path(setting.folder, "raw.jsonl"), flags, 0o600)
    numbers = timed(setting, _raw_loop(fd), _both)
    os.close(fd)
    return numbers


def _raw_loop(fd: int) -> Callable[[_Commit], None]:
    encode = msgspec.json.Encoder().encode
    index = dictionary_loop()
    write = os.write

    def commit(commit: _Commit) -> None:
        batch, raw = commit
        write(fd, b'{"first":%d,%b\n' % (raw[0] - len(raw[2]) + 1, encode(batch)[1:]))
        index(raw)

    return commit


def _both(first: int, batches: list[Batch]) -> Iterable[_Commit]:
    return map(_Commit, batches, raw_commits(first, batches))


def turns(setting: Setting) -> Numbers:
    """Measure JSONL through the interface, and what its files weigh, closed and vacuumed."""
    folder = f"{setting.folder}/turns"
    numbers = interface(f"jsonl:{folder}?durability=process", setting)
    numbers["disk"] = _weight(folder)
    store = open_store(f"jsonl:{folder}?durability=process")
    store.vacuum()
    store.close()
    numbers["vacuumed"] = _weight(folder)
    numbers["surviving"] = surviving(setting)
    return numbers


def _weight(folder: str) -> int:
    return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())


def make(setting: Setting) -> Numbers:
    """Make the large session, unless it is kept already."""
    make_jsonl_session(setting.kept, setting.entries)
    return {}


def large(setting: Setting) -> Numbers:
    """Measure an open of the large session: seconds of CPU time and by the clock, and memory."""
    url = make_jsonl_session(setting.kept, setting.entries)
    find_backend("jsonl")
    before, spent, start = private_bytes(), time.process_time(), time.perf_counter()
    store = open_store(url, create=False)
    storage = store.open(SESSION)
    numbers = {"seconds": time.perf_counter() - start, "cpu": time.process_time() - spent}
    assert storage.last_seq > setting.entries
    numbers["bytes"] = max(private_bytes() - before, 0)
    store.close()
    return numbers
