"""Compression: smaller, read back alike, and never in the way of a file that has none."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing

import apsw
import pytest

import pico_store.compression
from pico_sqlite import SqliteStore, repack
from pico_sqlite.storage import SqliteStorage
from pico_store.address import Seq
from pico_store.backends import open_store
from pico_store.batch import ListAppend, MainBatch, PatchTask, SettleTask, ValueSet
from pico_store.compression import COMPRESSED, dictionary_of
from pico_store.digest import digest
from pico_store.errors import MissingDriverError, StoreDamagedError, StoreUrlError
from pico_store.query import EntryQuery
from pico_store.records import JsonValue
from tests.backends.sqlite.scene import (
    ROOT,
    ROOT_BATCH,
    entry,
    fill,
    noting,
    rewindable,
    setting,
    sticky,
    task,
)

TEXT = "the quick brown fox jumps over the lazy dog while it rains in the harbour"
TABLES = ("records", "current_values", "value_versions", "list_elements")


def _message(number: int) -> JsonValue:
    """Return a payload that is like the others, and has something of its own."""
    words = TEXT.split()
    text = " ".join(words[(number * step) % len(words)] for step in range(1, 30))
    return {"role": "assistant", "content": [{"type": "text", "text": f"{number}: {text}"}]}


def _write(storage: SqliteStorage, count: int) -> None:
    """Put such payloads into every table that has some."""
    for number in range(count):
        storage.commit(
            MainBatch(
                (
                    ListAppend(sticky("list"), _message(number)),
                    ValueSet(sticky(f"value {number % 7}"), _message(number)),
                    ValueSet(rewindable("version"), _message(number)),
                    entry(storage.last_seq + 4, data=_message(number)),
                )
            )
        )


def _bodies(path: str, table: str) -> list[bytes]:
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute(f"SELECT body FROM {table} WHERE body IS NOT NULL").fetchall()
    return [row[0] for row in rows]


def _dictionaries(path: str) -> list[int]:
    with closing(sqlite3.connect(path)) as db:
        tables = db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'dictionaries'").fetchall()
        rows = db.execute("SELECT number FROM dictionaries ORDER BY 1") if tables else ()
        return [row[0] for row in rows]


def _size(path: str) -> int:
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("PRAGMA page_count").fetchone()[0])


def test_a_compressed_file_reads_like_any_other(path: str) -> None:
    marks = []
    for compress in (False, True):
        place = f"{path}-{compress}"
        with closing(SqliteStore(place, compress=compress)) as store:
            storage = store.create("a")
            fill(storage)
            _write(storage, 100)
            marks.append(digest(storage.export()))
            store.vacuum()
            marks.append(digest(storage.export()))
            _write(storage, 50)
            marks.append(digest(storage.export()))
            assert store.verify().problems == ()
            store.load("b", storage.export())
            marks.append(digest(store.open("b").export()))
        # The option is about what is written; whoever opens the file reads it.
        with closing(SqliteStore(place)) as store:
            marks.append(digest(store.open("a").export()))

    assert marks[:5] == marks[5:]
    assert 2 * _size(f"{path}-True") < _size(f"{path}-False")


def test_every_table_is_compressed_by_commits_loads_and_vacuum(path: str) -> None:
    with closing(SqliteStore(path)) as store:
        plain = store.create("plain")
        plain.commit(ROOT_BATCH)
        _write(plain, 40)
    for table in TABLES:
        assert not [body for body in _bodies(path, table) if body[0] in COMPRESSED]
    with closing(SqliteStore(path, compress=True)) as store:
        storage = store.create("commits")
        storage.commit(ROOT_BATCH)
        _write(storage, 40)
        store.load("loads", store.open("plain", read_only=True).export())
        for table in TABLES:
            counts = [sum(body[0] in COMPRESSED for body in _bodies(path, table))]
            assert counts[0] * 3 == 2 * len(_bodies(path, table)), table
        assert _dictionaries(path) == []

        store.vacuum()

        assert _dictionaries(path) == [1]
        for table in TABLES:
            assert {dictionary_of(body) for body in _bodies(path, table)} == {1}


def test_a_task_is_changed_whether_compressed_or_not(path: str) -> None:
    on: dict[str, JsonValue] = {"status": "on", "note": TEXT * 3}
    done: dict[str, JsonValue] = {"status": "done", "note": TEXT * 3}
    seen = []
    for compress in (False, True):
        with closing(SqliteStore(f"{path}-{compress}", compress=compress)) as store:
            storage = store.create("a")
            storage.commit(ROOT_BATCH)
            storage.commit(MainBatch((task(2), task(3))))
            storage.commit(MainBatch((PatchTask(Seq(2), "on", "inflight", on),)))
            storage.commit(MainBatch((PatchTask(Seq(2), abort=True),)))
            seen.append(storage.get_tasks([Seq(2)])[Seq(2)])
            storage.commit(MainBatch((SettleTask(Seq(2), "done", done),)))
            store.vacuum()
            seen.append(storage.get_tasks([Seq(2)])[Seq(2)])

    assert seen[:2] == seen[2:]


def test_another_dictionary_comes_when_the_file_has_grown(path: str) -> None:
    with closing(SqliteStore(path, compress=True)) as store:
        storage = store.create("a")
        storage.commit(ROOT_BATCH)
        store.vacuum()
        assert _dictionaries(path) == [], "of so little none can be trained"
        _write(storage, 60)
        store.vacuum()
        store.vacuum()
        assert _dictionaries(path) == [1]
        _write(storage, 200)
        before = digest(storage.export())

        store.vacuum()

        assert _dictionaries(path) == [1, 2], "the old one may be in use elsewhere"
        assert {dictionary_of(body) for body in _bodies(path, "list_elements")} == {2}
        assert digest(storage.export()) == before
        store.backup(f"{path}-copy")
    with closing(SqliteStore(f"{path}-copy")) as copy:
        assert digest(copy.open("a").export()) == before


def test_who_does_not_know_the_newest_dictionary_reads_and_writes(path: str) -> None:
    with (
        closing(SqliteStore(path, compress=True)) as store,
        closing(SqliteStore(path, compress=True)) as other,
    ):
        storage = store.create("a")
        storage.commit(ROOT_BATCH)
        _write(storage, 60)
        second = other.create("b")
        second.commit(ROOT_BATCH)
        _write(second, 2)
        store.vacuum()
        _write(second, 2)

        reader = other.open("a", read_only=True)
        assert list(reader.export()) == list(storage.export())
        assert list(store.open("b", read_only=True).export()) == list(second.export())


def test_a_vacuum_without_the_option_leaves_what_is_compressed(path: str) -> None:
    with closing(SqliteStore(path, compress=True)) as store:
        storage = store.create("a")
        storage.commit(ROOT_BATCH)
        _write(storage, 60)
        store.vacuum()
    before = [_bodies(path, table) for table in TABLES]
    with closing(SqliteStore(path)) as store:
        store.vacuum()

    assert [_bodies(path, table) for table in TABLES] == before


def test_a_vacuum_goes_on_after_each_part(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(SqliteStore(path)) as store:
        storage = store.create("a")
        fill(storage)
        _write(storage, 30)
        before = digest(storage.export())
    monkeypatch.setattr(repack, "_BYTES_A_TRANSACTION", 1)
    with closing(SqliteStore(path, compress=True)) as store:
        store.vacuum()

        for table in ("value_versions", "list_elements"):
            long = [body for body in _bodies(path, table) if len(body) > 48]
            assert all(body[0] in COMPRESSED for body in long), table
        assert digest(store.open("a").export()) == before


def test_a_vacuum_that_is_interrupted_leaves_a_whole_file(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(SqliteStore(path, compress=True)) as store:
        storage = store.create("a")
        fill(storage)
        _write(storage, 60)
        before = digest(storage.export())
        real, parts = repack._repack_part, 0

        def interrupted(*arguments: object) -> object:
            nonlocal parts
            parts += 1
            if parts == 3:
                raise KeyboardInterrupt
            return real(*arguments)  # type: ignore[arg-type]

        with monkeypatch.context() as patch:
            patch.setattr(repack, "_repack_part", interrupted)
            with pytest.raises(KeyboardInterrupt):
                store.vacuum()

        assert _dictionaries(path) == [1]
        assert digest(storage.export()) == before
        storage.commit(noting(storage, data=_message(1)))
        store.vacuum()
        long = [body for body in _bodies(path, "list_elements") if len(body) > 48]
        assert {dictionary_of(body) for body in long} == {1}
        assert store.verify().problems == ()


def test_a_page_decodes_no_more_with_compression(path: str) -> None:
    with closing(SqliteStore(path, compress=True)) as store:
        storage = store.create("a")
        storage.commit(ROOT_BATCH)
        _write(storage, 100)
        rows = storage.counters.rows_decoded

        storage.scan_entries(EntryQuery(conversation_id=ROOT, limit=5))

        assert storage.counters.rows_decoded - rows <= 6


@pytest.mark.parametrize("table", TABLES)
def test_vacuum_seals_nothing_that_is_damaged(path: str, table: str) -> None:
    with closing(SqliteStore(path)) as store:
        storage = store.create("a")
        storage.commit(ROOT_BATCH)
        _write(storage, 20)
    with closing(apsw.Connection(path)) as db:
        key = "rowid" if table == "records" else "seq"
        sql = f"SELECT {key}, body FROM {table} WHERE body IS NOT NULL LIMIT 1"
        rows: list[tuple[int, bytes]] = db.execute(sql).fetchall()  # type: ignore[assignment]
        number, body = rows[0]
        damaged = body[:30] + b"?" + body[31:]
        db.execute(f"UPDATE {table} SET body = ? WHERE {key} = ?", (damaged, number))
    with closing(SqliteStore(path, compress=True)) as store:
        with pytest.raises(StoreDamagedError, match="damaged"):
            store.vacuum()
        assert len(store.verify().problems) == 1
    assert damaged in _bodies(path, table)


def test_damage_of_a_dictionary_is_found(path: str) -> None:
    with closing(SqliteStore(path, compress=True)) as store:
        storage = store.create("a")
        storage.commit(ROOT_BATCH)
        _write(storage, 60)
        store.vacuum()
    for change, problem in (
        ("UPDATE dictionaries SET payloads = payloads + 1", "dictionary 1 is damaged"),
        ("UPDATE dictionaries SET body = zeroblob(length(body))", "dictionary 1 is damaged"),
        ("UPDATE dictionaries SET body = CAST(body AS TEXT)", "damaged"),
        ("UPDATE dictionaries SET number = 2", "dictionary (1|2) is (gone|damaged)"),
        ("DELETE FROM dictionaries", "dictionary 1 is gone"),
        ("DROP TABLE dictionaries", "dictionary 1 is gone"),
    ):
        place = f"{path}-damaged"
        shutil.copy(path, place)
        with closing(apsw.Connection(place)) as db:
            db.execute(change)
        with closing(SqliteStore(place)) as store:
            with pytest.raises(StoreDamagedError, match=problem):
                list(store.open("a", read_only=True).export())
            assert store.verify().problems


def test_without_the_library_only_compressed_files_are_refused(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(SqliteStore(path, compress=True)) as store:
        storage = store.create("a")
        storage.commit(ROOT_BATCH)
        storage.commit(noting(storage, data=_message(1)))
    monkeypatch.setattr(pico_store.compression, "zstandard", None)

    with pytest.raises(MissingDriverError, match=r"pico-store\[zstd\]"):
        SqliteStore(f"{path}-none", compress=True)
    with closing(SqliteStore(path)) as store:
        reader = store.open("a", read_only=True)
        assert len(reader.get_conversations([ROOT])) == 1
        with pytest.raises(MissingDriverError, match="zstandard"):
            reader.scan_entries(EntryQuery(conversation_id=ROOT))
        # Not a report of damage.
        with pytest.raises(MissingDriverError, match="zstandard"):
            store.verify()
    with closing(SqliteStore(f"{path}-plain")) as store:
        store.create("a").commit(ROOT_BATCH)


def test_scratch_and_short_payloads_stay_as_they_are(path: str) -> None:
    with closing(SqliteStore(path, compress=True)) as store:
        storage = store.create("a")
        fill(storage)
        storage.commit(setting("short"))
        store.vacuum()
    for table in (*TABLES, "scratch"):
        assert not [body for body in _bodies(path, table) if body[0] in COMPRESSED]


def test_the_url_says_what_is_compressed(path: str) -> None:
    url = f"sqlite:{path}?durability=process&compression=zstd"
    with closing(open_store(url)) as store:
        assert store.url == url
    with pytest.raises(StoreUrlError, match="allowed: none, zstd"):
        open_store(f"sqlite:{path}?compression=gzip")
    with closing(open_store(f"sqlite:{path}?compression=none")) as store:
        assert store.url == f"sqlite:{path}"


@pytest.mark.parametrize(
    "change", ["DELETE FROM dictionaries", "UPDATE dictionaries SET payloads = 'x'"]
)
def test_vacuum_says_that_the_dictionaries_are_damaged(path: str, change: str) -> None:
    with closing(SqliteStore(path, compress=True)) as store:
        storage = store.create("a")
        storage.commit(ROOT_BATCH)
        _write(storage, 60)
        store.vacuum()
    with closing(apsw.Connection(path)) as db:
        db.execute(change)

    with (
        closing(SqliteStore(path, compress=True)) as store,
        pytest.raises(StoreDamagedError, match="dictionaries are gone or damaged"),
    ):
        store.vacuum()
