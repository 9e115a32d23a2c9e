"""Commits that wait for the disk: one session by itself, and sixteen at once on the same file."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from random import Random
from threading import Barrier
from typing import Final

from pico_bench.case import Numbers, Setting
from pico_bench.text import cut, prose
from pico_bench.turns import ROOT, opening
from pico_store.address import Seq
from pico_store.backends import open_store
from pico_store.batch import MainBatch
from pico_store.records import Entry
from pico_store.storage import Storage

SESSIONS: Final = 16


def one(setting: Setting) -> Numbers:
    """Measure one session."""
    return _measure("sqlite", setting, 1)


def many(setting: Setting) -> Numbers:
    """Measure sixteen sessions, each committed to by a thread of its own."""
    return _measure("sqlite", setting, SESSIONS)


def lmdb_one(setting: Setting) -> Numbers:
    """Measure one session on LMDB."""
    return _measure("lmdb", setting, 1)


def lmdb_many(setting: Setting) -> Numbers:
    """Measure sixteen sessions on LMDB."""
    return _measure("lmdb", setting, SESSIONS)


def _measure(scheme: str, setting: Setting, sessions: int) -> Numbers:
    store = open_store(f"{scheme}:{setting.folder}/power.store?durability=power")
    storages = [store.create(f"session {number}") for number in range(sessions)]
    for storage in storages:
        storage.commit(opening())
    batches = [_batches(number, setting.commits) for number in range(sessions)]
    gate = Barrier(sessions + 1)

    def commit_all(storage: Storage, mine: list[MainBatch]) -> None:
        gate.wait()
        for batch in mine:
            storage.commit(batch)

    with ThreadPoolExecutor(sessions) as pool:
        running = [
            pool.submit(commit_all, storage, mine)
            for storage, mine in zip(storages, batches, strict=True)
        ]
        gate.wait()
        start = time.perf_counter()
        for future in running:
            future.result()
        spent = time.perf_counter() - start
    store.close()
    return {"commits_per_second": sessions * setting.commits / spent}


def _batches(seed: int, count: int) -> list[MainBatch]:
    """Return commits of one entry with 200 characters each."""
    random = Random(seed)
    return [
        MainBatch(
            (
                Entry(
                    id=Seq(ROOT + 1 + number),
                    conversation_id=ROOT,
                    kind="user",
                    model=[{"role": "user", "content": cut(random, prose(), 200)}],
                ),
            )
        )
        for number in range(count)
    ]
