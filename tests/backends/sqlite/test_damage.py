"""A flipped bit is never read as data, and is found by `verify` wherever it is.

The exception is listed below: a column that no checksum covers.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import apsw
import pytest

from pico_sqlite import SqliteStore
from pico_store.address import ScratchAddress, Seq
from pico_store.batch import MainBatch
from pico_store.errors import PicoError, StoreDamagedError
from pico_store.query import EntryQuery, ListQuery, TaskQuery, ValueQuery
from pico_store.records import Entry, Page
from pico_store.storage import Storage
from tests.backends.sqlite.scene import (
    LAST,
    ROOT,
    ROOT_BATCH,
    TASK,
    fill,
    noting,
    rewindable,
    scratch,
    sticky,
)

# Who has a session open: one that is no owner, or a dead one, holds nobody up.
UNCOVERED: Final = frozenset((("sessions", "owner"),))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with something in every column."""
    path = str(tmp_path_factory.mktemp("whole") / "a.db")
    with closing(SqliteStore(path)) as store:
        storage = store.create("a")
        fill(storage)
        special = Entry(
            id=Seq(LAST + 1),
            conversation_id=ROOT,
            kind="user",
            key="k",
            by_task_id=TASK,
            head=Seq(LAST + 1),
        )
        storage.commit(MainBatch((special,)))
        store.create("b").commit(ROOT_BATCH)
    return path


def _flipped(value: object) -> Iterator[tuple[str, str, object]]:
    """Yield damaged forms of a value: which, the SQL that stores it, and what is bound to it."""
    match value:
        case int():
            yield "lowest bit", "?", value ^ 1
            yield "third bit", "?", value ^ 4
        case bytes() if value:
            middle = len(value) // 2
            other = value[:middle] + bytes([value[middle] ^ 1]) + value[middle + 1 :]
            yield "a bit", "?", other
            # The lowest bit of a column's type in the row's header parts blob and text.
            yield "its type", "CAST(? AS TEXT)", value
            yield "its type, and no text", "CAST(? AS TEXT)", value + b"\xff"
        case str() if value:
            text = value.encode()
            for name, bit in (("a low bit", 1), ("the high bit", 128)):
                yield name, "CAST(? AS TEXT)", text[:-1] + bytes([text[-1] ^ bit])


def _damages(path: str) -> list[tuple[str, str, str, str, tuple[object, ...]]]:
    """Return damages of each column of each table: table, column, which, statement, values."""
    found = []
    with closing(apsw.Connection(path)) as db:
        tables = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        for (table,) in tables:
            columns = db.execute(f"PRAGMA table_info({table})").fetchall()
            names = [str(column[1]) for column in columns]
            keys = [str(column[1]) for column in columns if column[5]]
            for name in names:
                rows = db.execute(
                    f"SELECT * FROM {table} WHERE {name} IS NOT NULL AND {name} != '' LIMIT 1"
                ).fetchall()
                for row in rows:
                    values = dict(zip(names, row, strict=True))
                    where = " AND ".join(f"{key} IS ?" for key in keys)
                    for which, form, value in _flipped(values[name]):
                        sql = f"UPDATE {table} SET {name} = {form} WHERE {where}"
                        bound = (value, *(values[key] for key in keys))
                        found.append((str(table), name, which, sql, bound))
    return found


def _damaged(whole: str, path: str, sql: str, values: tuple[object, ...] = ()) -> bool:
    """Make a damaged copy; tell whether the damage is possible."""
    for end in ("", "-wal", "-shm"):
        if os.path.exists(path + end):
            os.unlink(path + end)
    shutil.copy(whole, path)
    with closing(apsw.Connection(path)) as db:
        try:
            db.execute(sql, values)
        except apsw.ConstraintError:
            return False
        assert db.changes() >= 1
    return True


def _read_all(storage: Storage) -> list[str]:
    conversations = storage.get_conversations([Seq(n) for n in range(LAST + 2)])
    found: list[object] = list(storage.export())
    found += storage.scan_tasks(TaskQuery()).items
    for id in conversations:
        found += storage.scan_entries(EntryQuery(conversation_id=id)).items
        for address in (rewindable(None, id), sticky(None, id), scratch(None)):
            found += storage.scan_values(ValueQuery(scope=address)).items
            found += storage.read_list(address, ListQuery()).items
    return [repr(item) for item in found]


def test_a_flipped_bit_of_any_column_is_found(whole: str, path: str) -> None:
    with closing(SqliteStore(whole)) as store:
        expected = _read_all(store.open("a", read_only=True))
    damages = _damages(whole)
    tried = set()
    unseen = set()
    wrong = set()
    for table, column, which, sql, values in damages:
        if not _damaged(whole, path, sql, values):
            continue
        tried.add((table, column))
        with closing(SqliteStore(path)) as store:
            # It reports, whatever it meets.
            reported = bool(store.verify().problems)
            try:
                same = _read_all(store.open("a", read_only=True)) == expected
            except PicoError:
                same = True
        if not reported:
            unseen.add((table, column))
            if not same:
                wrong.add((table, column, which))

    assert len(tried) > 45
    assert unseen <= UNCOVERED
    assert {(table, column) for table, column, _ in wrong} <= UNCOVERED


@pytest.mark.parametrize("column", ["checksum", "body", "kind", "conversation", "head", "by_task"])
def test_a_damaged_entry_is_named_by_every_read_of_it(whole: str, path: str, column: str) -> None:
    key = "(SELECT max(id) FROM records WHERE role = 3 AND id < 1 << 20)"
    change = "zeroblob(length(body))" if column == "body" else f"{column} - 1"
    assert _damaged(whole, path, f"UPDATE records SET {column} = {change} WHERE id = {key}")

    with closing(SqliteStore(path)) as store:
        storage = store.open("a")
        named = f"session 'a': entry {LAST + 1} is damaged" if column != "kind" else "verify"
        for read in (
            lambda: storage.get_entries([Seq(LAST + 1)]),
            lambda: list(storage.export()),
        ):
            with pytest.raises(StoreDamagedError, match=named):
                read()
        (problem, *_) = store.verify().problems
        assert str(LAST + 1) in problem.where + problem.what


def test_damage_beside_a_page_harms_nothing(path: str) -> None:
    with closing(SqliteStore(path)) as store:
        storage = store.create("a")
        storage.commit(ROOT_BATCH)
        for _ in range(5):
            storage.commit(noting(storage))
        with closing(apsw.Connection(path)) as db:
            db.execute("UPDATE records SET body = x'00' WHERE id IN (2, 5)")

        window = EntryQuery(conversation_id=ROOT, after=Seq(2), before=Seq(5))
        assert [entry.id for entry in storage.scan_entries(window).items] == [3, 4]
        assert list(storage.get_entries([Seq(6)])) == [6]
        storage.commit(noting(storage))
        with pytest.raises(StoreDamagedError, match="entry 5"):
            storage.scan_entries(EntryQuery(conversation_id=ROOT, after=Seq(3)))


@pytest.mark.parametrize("table", ["records", "list_elements", "scratch", "value_versions"])
def test_verify_reports_a_body_that_became_text(whole: str, path: str, table: str) -> None:
    """Concatenation makes a text of a blob, here one that is not UTF-8."""
    assert _damaged(whole, path, f"UPDATE {table} SET body = body || x'00ff' WHERE body NOTNULL")

    with closing(SqliteStore(path)) as store:
        problems = store.verify().problems
        with pytest.raises(StoreDamagedError, match="run pico verify"):
            list(store.open("a", read_only=True).export())

    assert len(problems) > 1
    assert any("utf-8" in problem.what for problem in problems)


def test_verify_names_every_damaged_row(whole: str, path: str) -> None:
    assert _damaged(whole, path, "UPDATE records SET checksum = checksum + 1")

    with closing(SqliteStore(path)) as store:
        problems = [problem for problem in store.verify().problems if problem.session == "a"]

    with closing(apsw.Connection(whole)) as db:
        ((count,),) = db.execute("SELECT count(*) FROM records WHERE role NOTNULL").fetchall()
    assert len(problems) == count
    assert {"entry", "task"} == {problem.where.split()[0] for problem in problems}


def test_verify_finds_a_page_that_is_no_page(whole: str, path: str) -> None:
    shutil.copy(whole, path)
    with closing(apsw.Connection(path)) as db:
        sql = "SELECT rootpage FROM sqlite_schema WHERE name = 'entry_head'"
        ((page,),) = db.execute(sql).fetchall()
        size = db.pragma("page_size")
        assert isinstance(page, int)
        assert isinstance(size, int)
    with open(path, "r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)

    with closing(SqliteStore(path)) as store:
        (problem, *_) = store.verify().problems

    assert problem.where == "file"


@pytest.mark.parametrize("owner", ["substr(owner, 2)", "CAST(x'7bff7d' AS TEXT)"])
def test_a_damaged_owner_record_holds_nobody_up(whole: str, path: str, owner: str) -> None:
    with closing(SqliteStore(whole)) as store:
        held = store.open("b")
        assert _damaged(whole, path, f"UPDATE sessions SET owner = {owner}")
        held.close()

    with closing(SqliteStore(path)) as store:
        assert [session.owner for session in store.sessions()] == [None, None]
        storage = store.open("b")
        storage.commit(noting(storage))


def test_a_whole_store_has_no_problems(whole: str, tmp_path: Path) -> None:
    with closing(SqliteStore(whole)) as store:
        report = store.verify()
        storage = store.open("a", read_only=True)
        items = list(storage.export())
        task = ScratchAddress(TASK, "s")
        page: Page[object] = storage.read_list(task, ListQuery())  # type: ignore[assignment]

    assert report.problems == ()
    assert report.records > len(items) // 2
    assert page.items
