"""SQL-1: the settings of every connection, the bounds of the log, and the end of every read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Final

import apsw
import pytest

from pico_sqlite import SqliteStore
from pico_sqlite.connection import WAL_BYTES_MAX
from pico_sqlite.storage import SqliteStorage
from pico_store.address import Seq
from pico_store.batch import Batch
from pico_store.errors import (
    CommitUncertainError,
    StorageFaultedError,
    StoreDamagedError,
    UnknownConversationError,
)
from pico_store.query import EntryQuery, ListQuery, ValueQuery
from pico_store.storage import Durability
from tests.backends.sqlite.scene import (
    ROOT,
    ROOT_BATCH,
    batches,
    fill,
    noting,
    rewindable,
    setting,
)

_LEVELS: Final[dict[Durability, int]] = {"process": 0, "ordered": 1, "power": 2}
_SETTINGS: Final = {
    "journal_mode": "wal",
    "busy_timeout": 1_234,
    "journal_size_limit": WAL_BYTES_MAX,
    "wal_autocheckpoint": 1_000,
    "cache_size": -8_192,
    "trusted_schema": 0,
}


@contextmanager
def _connections() -> Iterator[list[apsw.Connection]]:
    """Collect the connections that are opened within the block."""
    found: list[apsw.Connection] = []
    apsw.connection_hooks.append(found.append)
    try:
        yield found
    finally:
        apsw.connection_hooks.remove(found.append)


def _settings(db: apsw.Connection) -> dict[str, object]:
    return {name: db.pragma(name) for name in _SETTINGS}


@pytest.mark.parametrize("durability", _LEVELS)
def test_every_connection_has_the_settings(path: str, durability: Durability) -> None:
    with _connections() as opened:
        store = SqliteStore(path, durability=durability, busy_ms=1_234)
        storage = store.create("a")
        storage.commit(ROOT_BATCH)
        # Reads inside one another, so that each has a connection of its own.
        exports = [storage.export() for _ in range(3)]
        for items in exports:
            next(items)
        for items in exports:
            items.close()  # type: ignore[attr-defined]  # it is a generator

        writer, *readers = opened
        assert len(readers) == 3
        for db in opened:
            assert _settings(db) == _SETTINGS
        assert writer.pragma("synchronous") == _LEVELS[durability]
        for db in readers:
            assert db.pragma("query_only") == 1
            with pytest.raises(apsw.ReadOnlyError):
                db.execute("DELETE FROM sessions")
        store.close()


def test_a_backup_reads_with_the_settings(path: str) -> None:
    seen: dict[str, object] = {}

    def look(cursor: apsw.Cursor, sql: str, bindings: object) -> bool:
        # The last one: opening has one of its own, before the settings are made.
        if sql == "BEGIN":
            seen.update(_settings(cursor.connection))
        return True

    with closing(SqliteStore(path, busy_ms=1_234)) as store:
        store.create("a").commit(ROOT_BATCH)

        def watch(db: apsw.Connection) -> None:
            db.exec_trace = look

        apsw.connection_hooks.append(watch)
        try:
            store.backup(f"{path}.backup")
        finally:
            apsw.connection_hooks.remove(watch)

    assert seen == _SETTINGS


def test_a_new_connection_after_a_failed_rollback_has_the_settings_too(path: str) -> None:
    def refuse(cursor: apsw.Cursor, sql: str, bindings: object) -> bool:
        if sql == "COMMIT":
            raise apsw.FullError("no room")
        if sql == "ROLLBACK":
            raise apsw.IOError("no disk")
        return True

    with closing(SqliteStore(path, durability="power", busy_ms=1_234)) as store:
        storage, other = store.create("a"), store.create("b")
        storage.commit(ROOT_BATCH)
        with _connections() as opened:
            store._writer.db.exec_trace = refuse

            with pytest.raises(CommitUncertainError):
                storage.commit(setting(1))

        (writer,) = opened
        assert writer is store._writer.db
        assert _settings(writer) == _SETTINGS
        assert writer.pragma("synchronous") == 2
        with pytest.raises(StorageFaultedError):
            storage.commit(setting(1))
        # The other session's rows still know the connection that is gone.
        other.commit(ROOT_BATCH)
        assert other.last_seq == 1
        storage.close()
        assert store.open("a").last_seq == 1


def _levels(store: SqliteStore, commits: list[Callable[[], object]]) -> list[str]:
    """Return what was set and ended on the writing connection, in order."""
    seen: list[str] = []

    def trace(cursor: apsw.Cursor, sql: str, bindings: object) -> bool:
        if sql == "COMMIT" or "synchronous" in sql:
            seen.append(sql.rpartition(" ")[2])
        return True

    store._writer.db.exec_trace = trace
    for commit in commits:
        commit()
    store._writer.db.exec_trace = None
    return seen


def test_power_syncs_main_commits_and_not_scratch(path: str) -> None:
    with closing(SqliteStore(path, durability="power")) as store:
        storage = store.create("a")
        fill(storage)

        def commit(name: str) -> Callable[[], object]:
            return lambda: storage.commit(batches(storage.last_seq)[name])

        order = ("state", "one append", "one append", "deletion", "scratch")
        seen = _levels(store, [commit(name) for name in order])

        # A level holds until another is set, and the history ended with a main commit, in FULL.
        expected = ["COMMIT", "NORMAL", "COMMIT", "COMMIT", "FULL", "COMMIT", "NORMAL", "COMMIT"]
        assert seen == expected


def _log_bytes(path: str) -> int:
    return os.stat(f"{path}-wal").st_size if os.path.exists(f"{path}-wal") else 0


def _empty_log(path: str) -> bool:
    """Empty the log from outside; tell whether nobody was reading from it."""
    with closing(apsw.Connection(path)) as db:
        ((busy, _, _),) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    assert busy or _log_bytes(path) == 0
    return not busy


def test_the_log_is_bounded_over_many_commits(
    path: str, store: SqliteStore, storage: SqliteStorage
) -> None:
    batch: Batch = setting("x" * 20_000)
    sizes = set()
    for number in range(1_500):
        storage.commit(batch)
        if number % 50 == 0:
            storage.scan_entries(EntryQuery(conversation_id=ROOT))
        sizes.add(_log_bytes(path))

    assert 3 * max(sizes) < 1_500 * 20_000
    assert max(sizes) < 8 << 20
    store.close()
    assert not os.path.exists(f"{path}-wal")


def test_a_log_that_a_reader_held_up_is_cut_back(path: str, storage: SqliteStorage) -> None:
    batch: Batch = setting("x" * 200_000)
    items = storage.export()
    next(items)
    while _log_bytes(path) < WAL_BYTES_MAX + (8 << 20):
        storage.commit(batch)
    del items

    for _ in range(3):
        storage.commit(batch)

    assert _log_bytes(path) <= WAL_BYTES_MAX


def test_close_empties_the_log_although_others_have_the_file_open(
    path: str, store: SqliteStore, storage: SqliteStorage
) -> None:
    with closing(SqliteStore(path)) as other:
        assert [session.id for session in other.sessions()] == ["a"]
        assert _log_bytes(path) > 0

        store.close()

        assert _log_bytes(path) == 0
        assert len(other.sessions()) == 1


_READS: Final[dict[str, Callable[[SqliteStorage], object]]] = {
    "a page": lambda s: s.scan_entries(EntryQuery(conversation_id=ROOT, limit=1)),
    "a page of values": lambda s: s.scan_values(ValueQuery(scope=rewindable(None), limit=1)),
    "a page of a list": lambda s: s.read_list(rewindable(None), ListQuery(limit=1)),
    "the last number": lambda s: s.last_seq,
    "the first item of an export": lambda s: next(s.export()),
    "an export": lambda s: list(s.export()),
}


@pytest.mark.parametrize("name", _READS)
def test_no_read_transaction_outlives_a_call(name: str, path: str, storage: SqliteStorage) -> None:
    for key in ("a", "b", "c"):
        storage.commit(setting(1, key))
        storage.commit(noting(storage))
    _READS[name](storage)

    assert _empty_log(path)


def test_an_export_holds_its_state_until_it_is_given_up(path: str, storage: SqliteStorage) -> None:
    items = storage.export()
    next(items)
    storage.commit(setting(1))
    assert not _empty_log(path)

    del items

    assert _empty_log(path)


def test_a_refused_read_ends_its_transaction(path: str, storage: SqliteStorage) -> None:
    storage.commit(setting(1))

    with pytest.raises(UnknownConversationError):
        storage.scan_entries(EntryQuery(conversation_id=Seq(99)))

    assert _empty_log(path)


def test_a_damaged_read_ends_its_transaction(path: str, storage: SqliteStorage) -> None:
    storage.commit(noting(storage))
    with closing(apsw.Connection(path)) as db:
        db.execute("UPDATE records SET checksum = checksum + 1 WHERE role = 3")

    for read in (
        lambda: storage.scan_entries(EntryQuery(conversation_id=ROOT)),
        lambda: list(storage.export()),
    ):
        with pytest.raises(StoreDamagedError, match="entry 2"):
            read()
        assert _empty_log(path)


def test_an_interrupted_read_ends_its_transaction(path: str, store: SqliteStore) -> None:
    storage = store.create("a")
    fill(storage)
    left = 0

    def interrupt(cursor: apsw.Cursor, sql: str, bindings: object) -> bool:
        nonlocal left
        left -= 1
        if left == 0:
            raise KeyboardInterrupt
        return True

    interrupted = 0
    # An iterator that is dropped has no caller whom an interruption could reach.
    reads = {name: read for name, read in _READS.items() if "first item" not in name}
    for name, read in reads.items():
        for statement in range(1, 1_000):
            storage.commit(setting(statement))
            # The one that ends the transaction may be interrupted too: another connection then
            # takes the place of the one that cannot be used again.
            for db in store._readers._idle:
                db.exec_trace = interrupt
            left = statement
            try:
                read(storage)
            except KeyboardInterrupt:
                interrupted += 1
            else:
                if left > 0:
                    break
            left = 0
            assert _empty_log(path), f"{name}, interrupted at statement {statement}"

    assert interrupted > 40
