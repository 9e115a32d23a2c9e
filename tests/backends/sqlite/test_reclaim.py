"""Giving room back, and copies of a file that is in use."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from threading import Thread

import apsw
import pytest

from pico_conformance.rules.everything import assert_same, everything
from pico_sqlite import SqliteStore
from pico_sqlite.storage import SqliteStorage
from pico_store.address import Seq
from pico_store.batch import DeleteConversation, ListAppend, MainBatch, SettleTask, ValueSet
from pico_store.digest import digest
from pico_store.errors import StoreFullError, StoreIOError
from pico_store.records import Conversation, Entry, ForkPoint
from pico_store.snapshot import ValueVersion
from tests.backends.sqlite.scene import (
    CHILD,
    LAST,
    ROOT_BATCH,
    SIBLING,
    batches,
    entry,
    exported,
    fill,
    noting,
    rewindable,
    setting,
    sticky,
    task,
)


def _count(path: str) -> dict[str, int]:
    """Return how many rows each table has."""
    with closing(apsw.Connection(path)) as db:
        names = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        counts = {}
        for (name,) in names:
            ((count,),) = db.execute(f"SELECT count(*) FROM {name}").fetchall()
            assert isinstance(count, int)
            counts[str(name)] = count
    return counts


def test_vacuum_drops_what_nothing_shows_and_changes_nothing(
    path: str, store: SqliteStore, storage: SqliteStorage
) -> None:
    gone, fork = Seq(2), Seq(7)
    storage.commit(
        MainBatch(
            (
                Conversation(id=gone),
                ValueSet(rewindable("k", gone), "kept"),
                ValueSet(sticky("k", gone), "lost"),
                ListAppend(rewindable(None, gone), "kept"),
                entry(6, gone, data="kept"),
                Conversation(id=fork, parent=ForkPoint(gone, Seq(6))),
                task(8, gone),
                entry(9, gone, data="lost" * 10_000),
            )
        )
    )
    storage.commit(MainBatch((SettleTask(Seq(8), "done", {"status": "done"}),)))
    storage.commit(
        MainBatch(
            (
                ValueSet(rewindable("k", gone), "lost"),
                ListAppend(rewindable(None, gone), "lost"),
                ListAppend(sticky(None, gone), "lost"),
                DeleteConversation(gone),
            )
        )
    )
    seen, before = everything(storage), digest(storage.export())
    rows = _count(path)

    report = store.vacuum()

    # The task, an entry, two values, two list elements and the sticky list.
    assert report.records_dropped == 7
    assert report.bytes_before - report.bytes_after > 30_000
    assert_same(seen, everything(storage), "vacuum")
    assert digest(storage.export()) == before
    assert exported(path) == list(storage.export())
    left = _count(path)
    dropped = {name: rows[name] - left[name] for name in rows if rows[name] != left[name]}
    assert dropped == {
        "records": 2,
        "current_values": 1,
        "value_versions": 1,
        "list_elements": 2,
        "lists": 1,
    }
    assert store.vacuum().records_dropped == 0
    assert store.verify().problems == ()


def test_vacuum_keeps_where_batches_begin(
    path: str, store: SqliteStore, storage: SqliteStorage
) -> None:
    """The rows that are dropped are also the boundaries of their batches."""
    storage.commit(MainBatch((Conversation(id=Seq(2)),)))
    for number in range(3, 6):
        storage.commit(MainBatch((Entry(id=Seq(number), conversation_id=Seq(2), kind="x"),)))
    storage.commit(MainBatch((DeleteConversation(Seq(2)),)))
    items = list(storage.export())

    store.vacuum()

    assert list(storage.export()) == exported(path) == items
    assert storage.last_seq == 6
    assert storage.commit(noting(storage)).first == 7


def test_a_commit_after_vacuum_is_seen_by_others(path: str, store: SqliteStore) -> None:
    """A statement of the vacuum that nobody finished kept the next commit open."""
    storage = store.create("a")
    fill(storage)
    store.vacuum()

    for number in range(3):
        # The first one in a statement of its own, the second in a transaction.
        storage.commit(batches(LAST)["one append"])
        assert exported(path)[0].last_seq == LAST + 2 * number + 1  # type: ignore[union-attr]
        storage.commit(noting(storage))

        assert exported(path) == list(storage.export())
        assert exported(path)[0].last_seq == LAST + 2 * number + 2  # type: ignore[union-attr]
    with closing(SqliteStore(path)) as other:
        other.create("b").commit(ROOT_BATCH)


def test_every_handle_goes_on_after_a_vacuum(path: str, store: SqliteStore) -> None:
    storage = store.create("a")
    fill(storage)
    storage.commit(MainBatch((DeleteConversation(CHILD), DeleteConversation(SIBLING))))
    reader = store.open("a", read_only=True)
    with closing(SqliteStore(path)) as other:
        elsewhere = other.create("b")
        fill(elsewhere)

        store.vacuum()
        other.vacuum()

        storage.commit(batches(storage.last_seq)["records"])
        elsewhere.commit(batches(elsewhere.last_seq)["records"])
        assert list(reader.export()) == list(storage.export())
        assert store.verify().problems == ()


def test_a_deleted_session_leaves_no_row(path: str, store: SqliteStore) -> None:
    store.create("keep").commit(ROOT_BATCH)
    before = _count(path)
    for _ in range(2):
        storage = store.create("a")
        fill(storage)
        storage.commit(batches(LAST)["first scratch"])
        storage.close()

        store.delete("a")

        # The place of its extent is not given again.
        assert _count(path) == {**before, "extents": before["extents"] + 1}
        assert store.verify().problems == ()


def test_a_backup_while_a_thread_commits_is_one_state(
    path: str, store: SqliteStore, storage: SqliteStorage, tmp_path: Path
) -> None:
    """Two values of each commit are equal in every state."""
    done = False
    storage.commit(setting("x" * 4_000_000, "big"))

    def commit() -> None:
        number = 0
        while not done:
            number += 1
            writes = (ValueSet(sticky(key), number) for key in ("a", "b"))
            storage.commit(MainBatch((*writes, entry(storage.last_seq + 3))))

    thread = Thread(target=commit)
    thread.start()
    try:
        backups = [str(tmp_path / f"{number}.db") for number in range(5)]
        for backup in backups:
            store.backup(backup)
    finally:
        done = True
        thread.join()

    last = []
    for backup in backups:
        items = exported(backup)
        values = [item.value for item in items if isinstance(item, ValueVersion)]
        assert len({str(value) for value in values} - {"x" * 4_000_000}) <= 1
        last.append(items[0].last_seq)  # type: ignore[union-attr]
        with closing(SqliteStore(backup)) as copy:
            assert copy.verify().problems == ()
            # Nobody owns what nobody has opened.
            assert [session.owner for session in copy.sessions()] == [None]
            reopened = copy.open("a")
            reopened.commit(noting(reopened))
    assert last == sorted(last)
    assert storage.last_seq >= last[-1]


def test_a_backup_leaves_nothing_where_it_fails(
    path: str, store: SqliteStore, storage: SqliteStorage, tmp_path: Path
) -> None:
    storage.commit(noting(storage))
    before = sorted(os.listdir(tmp_path))
    target = str(tmp_path / "backup.db")

    def fail(cursor: apsw.Cursor, sql: str, bindings: object) -> bool:
        if "owner = NULL" in sql:
            raise apsw.FullError("no room")
        return True

    def watch(db: apsw.Connection) -> None:
        db.exec_trace = fail

    apsw.connection_hooks.append(watch)
    try:
        with pytest.raises(StoreFullError, match="backup"):
            store.backup(target)
    finally:
        apsw.connection_hooks.remove(watch)

    assert sorted(os.listdir(tmp_path)) == before
    store.backup(target)
    assert exported(target) == list(storage.export())


_BACKING_UP = """
import sys
import apsw
from pico_store.backends import open_store
def stay(cursor, sql, bindings):
    if "owner = NULL" in sql:
        print("copied", flush=True)
        sys.stdin.read()
    return True
def watch(db):
    db.exec_trace = stay
apsw.connection_hooks.append(watch)
open_store(sys.argv[1]).backup(sys.argv[2])
"""


def test_half_a_backup_is_not_taken_for_a_store(
    path: str, storage: SqliteStorage, tmp_path: Path
) -> None:
    """SQLite makes an empty file of it, which would be a store without sessions."""
    storage.commit(noting(storage))
    target = str(tmp_path / "backup.db")
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", _BACKING_UP, f"sqlite:{path}", target]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"copied\n"
        process.kill()

    assert not os.path.exists(target)


def test_a_backup_overwrites_nothing(path: str, store: SqliteStore, tmp_path: Path) -> None:
    for name in ("a.db", "folder", "none/b.db"):
        os.makedirs(tmp_path / "folder", exist_ok=True)
        with pytest.raises(StoreIOError, match="name a new file"):
            store.backup(str(tmp_path / name))

    assert store.sessions() == []
