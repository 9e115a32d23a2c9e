"""How a session of a million entries opens on LMDB: time by the clock, and private memory."""

from __future__ import annotations

import statistics
import time

from pico_bench.case import Numbers, Setting
from pico_bench.large import SESSION, make_lmdb_session
from pico_bench.resident import private_bytes
from pico_store.backends import find_backend, open_store

_OPENS = 50


def make(setting: Setting) -> Numbers:
    """Make the large session, unless it is kept already."""
    make_lmdb_session(setting.kept, setting.entries)
    return {}


def large_lmdb(setting: Setting) -> Numbers:
    """Measure the memory that the first open of the process takes, and the time of later ones."""
    url = make_lmdb_session(setting.kept, setting.entries)
    find_backend("lmdb")
    before = private_bytes()
    store = open_store(url, create=False)
    assert store.open(SESSION).last_seq > setting.entries
    grown = private_bytes() - before
    store.close()
    return {"bytes": max(grown, 0), "ms": statistics.median(_open(url) for _ in range(_OPENS))}


def _open(url: str) -> float:
    start = time.perf_counter()
    store = open_store(url, create=False)
    store.open(SESSION)
    spent = time.perf_counter() - start
    store.close()
    return spent * 1e3
