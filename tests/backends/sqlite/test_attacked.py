"""Faults that an attack found in the writing of SQLite, each by its smallest reproduction."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from pico_sqlite import SqliteStore
from pico_sqlite.storage import SqliteStorage
from pico_sqlite.writer import Writer
from pico_store.address import ScratchAddress, Seq, SessionAddress
from pico_store.batch import ListAppend, MainBatch, ScratchBatch, ValueSet
from pico_store.errors import (
    InvalidQueryError,
    LimitExceededError,
    StorageClosedError,
    UnknownSessionError,
)
from pico_store.query import BatchQuery, ConversationQuery, ListQuery, TaskQuery
from pico_store.records import BatchRange, Conversation
from pico_store.snapshot import SnapshotHeader
from tests.backends.sqlite.scene import ROOT, ROOT_BATCH, noting, setting, task


def test_a_frame_of_a_task_that_is_too_old_goes_to_no_other_stream(path: str) -> None:
    """Its distance does not fit: it would stand in the stream behind, and break the file."""
    last = 2**20 - 2
    with closing(SqliteStore(path, durability="process")) as store:
        header = SnapshotHeader(Seq(last), ())
        store.load("a", [header, Conversation(ROOT), BatchRange(Seq(1), Seq(last))])
        storage = store.open("a")
        storage.commit(MainBatch((task(last + 1),)))
        # The extents of 4,096 sessions lie between the task's and the next one.
        with store._writer.transaction("test") as db:
            db.execute("INSERT INTO extents VALUES(4096, 9999, 0, 0)")
        storage.commit(MainBatch(tuple(ValueSet(SessionAddress("s"), i) for i in range(2))))
        frame = ScratchBatch(Seq(last + 1), (ListAppend(ScratchAddress(Seq(last + 1), "f"), 1),))

        for _ in range(2):
            with pytest.raises(LimitExceededError, match="settle it"):
                storage.commit(frame)

        storage.commit(setting(1))
        storage.close()
        store.open("a").close()


def test_what_a_callers_iterator_raises_is_no_damage(storage: SqliteStorage) -> None:
    def ids() -> Iterator[Seq]:
        yield ROOT
        raise KeyError("the caller's own")

    for read in (storage.get_entries, storage.get_tasks, storage.get_conversations):
        with pytest.raises(KeyError, match="the caller's own"):
            read(ids())


def test_a_query_of_another_kind_is_refused(storage: SqliteStorage) -> None:
    with pytest.raises(InvalidQueryError):
        storage.scan_conversations(BatchQuery())  # type: ignore[arg-type]
    with pytest.raises(InvalidQueryError):
        storage.read_list(SessionAddress("s"), TaskQuery())  # type: ignore[arg-type]
    with pytest.raises(InvalidQueryError):
        storage.scan_batches(ConversationQuery())  # type: ignore[arg-type]


def test_a_handle_of_a_deleted_session_says_so(store: SqliteStore, storage: SqliteStorage) -> None:
    store.open("a", take_over=True).close()
    store.delete("a")
    with pytest.raises(Exception):  # noqa: B017, PT011 - which it is, another test says
        storage.commit(setting(1))

    with pytest.raises(UnknownSessionError, match="deleted"):
        storage.read_list(SessionAddress("s"), ListQuery())


def test_a_commit_that_meets_a_close_leaves_the_handle_closed(
    store: SqliteStore, storage: SqliteStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = Writer.write

    def closing_first(writer: Writer, *arguments: object) -> None:
        store.close()
        begin(writer, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Writer, "write", closing_first)
    with pytest.raises(StorageClosedError):
        storage.commit(noting(storage))

    with pytest.raises(StorageClosedError):
        storage.entry_kinds()


def test_a_vacuum_does_not_wait_for_an_export(path: str) -> None:
    """While it holds every commit of the store up."""
    with closing(SqliteStore(path, busy_ms=3_600_000)) as store:
        store.create("a").commit(ROOT_BATCH)
        items = store.open("a", read_only=True).export()
        next(items)
        thread = threading.Thread(target=store.vacuum, daemon=True)
        thread.start()
        thread.join(20)

        assert not thread.is_alive()
        items.close()  # type: ignore[attr-defined]  # it is a generator


def test_readers_that_never_pause_do_not_let_the_log_grow(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a wait for them it would hold more than was written: pages are written again."""
    monkeypatch.setattr("pico_sqlite.writer._LOG_WAIT_MS", 2_000)
    commits, payload = 6_000, "x" * 20_000
    done = False

    def read() -> None:
        while not done:
            storage.scan_batches(BatchQuery(limit=2_000))

    with closing(SqliteStore(path, durability="process")) as store:
        storage = store.create("a")
        storage.commit(ROOT_BATCH)
        readers = [threading.Thread(target=read) for _ in range(3)]
        for reader in readers:
            reader.start()
        try:
            for _ in range(commits):
                storage.commit(noting(storage, data=payload))
            size = os.stat(f"{path}-wal").st_size
        finally:
            done = True
            for reader in readers:
                reader.join()

    assert size < commits * len(payload)
