"""The workload "turns" on raw loops and through the full interface: CPU time and bytes on disk."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from pico_bench.case import Numbers, Setting
from pico_bench.raw import dictionary_loop, raw_commits, sqlite_loop
from pico_bench.raw_lmdb import lmdb_loop
from pico_bench.turns import COMMITS_A_TURN, Turns, Weight, opening
from pico_store.backends import open_store
from pico_store.batch import Batch

C = TypeVar("C")
WARM_UP = 20
"""Turns before the timed ones, so that statements are prepared and kinds known."""


def sqlite(setting: Setting) -> Numbers:
    """Measure SQLite through the interface, and what its files weigh when closed."""
    numbers = interface(f"sqlite:{setting.folder}/turns.db", setting)
    numbers["disk"] = sum(path.stat().st_size for path in Path(setting.folder).iterdir())
    numbers["surviving"] = surviving(setting)
    return numbers


def lmdb(setting: Setting) -> Numbers:
    """Measure LMDB through the interface, and what its data file weighs when closed."""
    numbers = interface(f"lmdb:{setting.folder}/turns?durability=process", setting)
    # The other file is the table of readers: as large with any data, and made anew at will.
    numbers["disk"] = Path(setting.folder, "turns", "data.mdb").stat().st_size
    numbers["surviving"] = surviving(setting)
    return numbers


def memory(setting: Setting) -> Numbers:
    """Measure the memory backend through the interface."""
    return interface("memory:", setting)


def raw_sqlite(setting: Setting) -> Numbers:
    """Measure the tight loop over rows."""
    commit, close = sqlite_loop(Path(setting.folder))
    numbers = timed(setting, commit, raw_commits)
    close()
    return numbers


def raw_lmdb(setting: Setting) -> Numbers:
    """Measure the tight loop over LMDB's rows."""
    commit, close = lmdb_loop(Path(setting.folder))
    numbers = timed(setting, commit, raw_commits)
    close()
    return numbers


def raw_memory(setting: Setting) -> Numbers:
    """Measure bare dictionaries."""
    return timed(setting, dictionary_loop(), raw_commits)


def interface(url: str, setting: Setting) -> Numbers:
    """Measure a backend through the interface, and close its store."""
    store = open_store(url)
    storage = store.create("turns")
    storage.commit(opening())
    numbers = timed(setting, storage.commit, lambda first, batches: batches)
    store.close()
    return numbers


def surviving(setting: Setting) -> int:
    """Return the bytes of what was measured that must survive."""
    weight, load = Weight(), Turns(setting.seed)
    for _ in range(setting.turns + WARM_UP):
        first = load.last + 1
        weight.add(first, load.turn())
    return weight.surviving


def timed(
    setting: Setting,
    commit: Callable[[C], object],
    prepare: Callable[[int, list[Batch]], Iterable[C]],
) -> Numbers:
    """Return the CPU microseconds a commit, system time and checkpoints included."""
    load = Turns(setting.seed)
    spent = 0.0
    clock = time.process_time
    for turn in range(-WARM_UP, setting.turns):
        first = load.last + 1
        commits = list(prepare(first, load.turn()))
        if turn == 0:
            gc.collect()
            gc.freeze()
            spent = 0.0
        start = clock()
        for one in commits:
            commit(one)
        spent += clock() - start
    return {"cpu_us": spent / (setting.turns * COMMITS_A_TURN) * 1e6}
