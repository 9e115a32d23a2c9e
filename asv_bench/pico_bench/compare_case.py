"""What one backend takes: time a commit, bytes on disk, and opening a large session."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

from pico_bench.case import Numbers, Setting
from pico_bench.large import SESSION, items
from pico_bench.resident import private_bytes
from pico_bench.turns import COMMITS_A_TURN, ROOT, Turns, opening
from pico_bench.turns_case import WARM_UP, surviving
from pico_store.backends import find_backend, open_store
from pico_store.query import EntryQuery

_PAGE_ENTRIES = 50
_CALLS = 20


def turns(setting: Setting) -> Numbers:
    """Measure a commit of the workload, by CPU and by the clock, and the closed store's size."""
    store = open_store(setting.url.format(path=os.path.join(setting.folder, "store")))
    storage = store.create("turns")
    storage.commit(opening())
    load = Turns(setting.seed)
    cpu = wall = 0.0
    for turn in range(-WARM_UP, setting.turns):
        batches = load.turn()
        before = time.process_time(), time.perf_counter()
        for batch in batches:
            storage.commit(batch)
        if turn >= 0:
            cpu += time.process_time() - before[0]
            wall += time.perf_counter() - before[1]
    store.close()
    commits = setting.turns * COMMITS_A_TURN
    numbers = {"cpu_us": cpu / commits * 1e6, "wall_us": wall / commits * 1e6}
    if (disk := _size(setting.folder)) > 0:
        numbers |= {"disk": float(disk), "disk_ratio": disk / surviving(setting)}
    return numbers


def make(setting: Setting) -> Numbers:
    """Make a large session where the next case opens it."""
    Path(setting.kept).mkdir(parents=True, exist_ok=True)
    store = open_store(_kept(setting))
    store.load(SESSION, items(setting.entries))
    store.close()
    return {}


def large(setting: Setting) -> Numbers:
    """Measure an open for writing, the memory that it takes, and a page of the newest entries."""
    # Importing the driver is no part of opening.
    find_backend(setting.url.partition(":")[0])
    before = private_bytes()
    start = time.perf_counter()
    store = open_store(_kept(setting))
    if SESSION not in [info.id for info in store.sessions()]:
        # Nothing is kept from one process to the next: what it takes is what it holds.
        store.load(SESSION, items(setting.entries))
        storage, opened = store.open(SESSION), 0.0
    else:
        storage = store.open(SESSION)
        opened = time.perf_counter() - start
    grown = private_bytes() - before
    query = EntryQuery(conversation_id=ROOT, before=storage.last_seq, limit=_PAGE_ENTRIES)
    pages = []
    for _ in range(_CALLS):
        start = time.perf_counter()
        storage.scan_entries(query)
        pages.append(time.perf_counter() - start)
    store.close()
    numbers = {"mib": grown / (1 << 20), "page_ms": statistics.median(pages) * 1e3}
    return numbers | ({"open_ms": opened * 1e3} if opened else {})


def _kept(setting: Setting) -> str:
    return setting.url.format(path=os.path.join(setting.kept, "store"))


def _size(folder: str) -> int:
    found = 0
    for path, _, names in os.walk(folder):
        # LMDB's table of readers is as large with any data, and made anew at will.
        found += sum(os.stat(os.path.join(path, n)).st_size for n in names if n != "lock.mdb")
    return found
