"""A session of a million entries beside one of ten thousand: time of calls, memory of an open."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import NamedTuple, TypeAlias

from pico_bench.case import Numbers, Setting
from pico_bench.large import SESSION, make_session, session_url
from pico_bench.resident import private_bytes
from pico_bench.turns import ROOT
from pico_store.address import Seq
from pico_store.backends import find_backend, open_store
from pico_store.batch import MainBatch
from pico_store.query import EntryQuery
from pico_store.records import Conversation, ForkPoint
from pico_store.storage import Storage, Store

PAGE_ENTRIES = 50


def make(setting: Setting) -> Numbers:
    """Make both sessions, unless they are kept already."""
    for entries in (setting.few_entries, setting.entries):
        make_session(setting.kept, entries)
    return {}


def calls(setting: Setting) -> Numbers:
    """Measure each call on both sessions in turn, in microseconds at the median."""
    urls = [session_url(setting.kept, n) for n in (setting.few_entries, setting.entries)]
    numbers = _beside("open", setting.calls, *(_Open(url) for url in urls))
    with ExitStack() as stack:
        opened = [_open(url, stack) for url in urls]
        for name, kind in (("page", _Page), ("head", _Head), ("fork", _Fork)):
            numbers |= _beside(name, setting.calls, *(kind(one) for one in opened))
    return numbers


def growth(setting: Setting) -> Numbers:
    """Measure the private memory that opening the large session takes, in bytes."""
    url = session_url(setting.kept, setting.entries)
    find_backend("sqlite")
    before = private_bytes()
    store = open_store(url, create=False)
    storage = store.open(SESSION)
    assert storage.last_seq > setting.entries
    after = private_bytes()
    store.close()
    return {"bytes": max(after - before, 0)}


class _Time(NamedTuple):
    wall: float
    cpu: float


_Call: TypeAlias = Callable[[], _Time]


def _timed(call: Callable[[], object]) -> _Time:
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return _Time(time.perf_counter() - wall, time.process_time() - cpu)


def _beside(name: str, count: int, few: _Call, many: _Call) -> Numbers:
    """Call both in turn, each as often first as second, so that other load hits both alike.

    The ratio is the greater of that by the clock and that of CPU time: waiting for a disk would
    hide work in the one, and waiting that grows would not be seen in the other.
    """
    times: tuple[list[_Time], list[_Time]] = ([], [])
    for _ in range(max(count // 10, 2)):
        few()
        many()
    for round_ in range(count):
        for which in (0, 1) if round_ % 2 else (1, 0):
            times[which].append((many if which else few)())
    numbers: Numbers = {}
    ratios = []
    for kind in range(2):
        few_us, many_us = (
            statistics.median(time[kind] for time in measured) * 1e6 for measured in times
        )
        clock = _Time._fields[kind]
        numbers |= {f"{name}_few_{clock}_us": few_us, f"{name}_many_{clock}_us": many_us}
        ratios.append(many_us / few_us)
    return numbers | {name: max(ratios)}


class _Opened(NamedTuple):
    storage: Storage
    newest: Seq
    """The last entry before the forks."""


def _open(url: str, stack: ExitStack) -> _Opened:
    store = open_store(url, create=False)
    stack.callback(store.close)
    storage = store.open(SESSION)
    before = Seq(storage.last_seq + 1)
    query = EntryQuery(conversation_id=ROOT, before=before, limit=PAGE_ENTRIES)
    page = storage.scan_entries(query)
    assert len(page.items) == PAGE_ENTRIES
    assert storage.newest_head(ROOT, storage.last_seq) is not None
    return _Opened(storage, page.items[0].id)


class _Open:
    def __init__(self, url: str) -> None:
        self._url = url

    def __call__(self) -> _Time:
        opened: list[tuple[Store, Storage]] = []
        taken = _timed(lambda: opened.append(self._open()))
        store, storage = opened[0]
        assert storage.last_seq > 0
        store.close()
        return taken

    def _open(self) -> tuple[Store, Storage]:
        store = open_store(self._url, create=False)
        return store, store.open(SESSION)


class _Page:
    def __init__(self, opened: _Opened) -> None:
        self._storage = opened.storage

    def __call__(self) -> _Time:
        before = Seq(self._storage.last_seq + 1)
        query = EntryQuery(conversation_id=ROOT, before=before, limit=PAGE_ENTRIES)
        return _timed(lambda: self._storage.scan_entries(query))


class _Head:
    def __init__(self, opened: _Opened) -> None:
        self._storage = opened.storage

    def __call__(self) -> _Time:
        last = self._storage.last_seq
        return _timed(lambda: self._storage.newest_head(ROOT, last))


class _Fork:
    def __init__(self, opened: _Opened) -> None:
        self._storage, self._newest = opened

    def __call__(self) -> _Time:
        id = Seq(self._storage.last_seq + 1)
        batch = MainBatch((Conversation(id=id, parent=ForkPoint(ROOT, self._newest)),))
        return _timed(lambda: self._storage.commit(batch))
