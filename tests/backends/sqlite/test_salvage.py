"""Of a damaged file exactly the damaged rows are lost, and what refers to them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeGuard

import apsw
import pytest

from pico_sqlite import SqliteStore
from pico_store.backends import open_store
from pico_store.digest import digest
from pico_store.records import BatchRange, Conversation, Entry, Task
from pico_store.remnant import Remnant
from pico_store.salvage import Outcome, salvage
from pico_store.snapshot import (
    AddressPolicy,
    DeletedConversation,
    ListItem,
    ListMarker,
    SnapshotItem,
    ValueVersion,
)
from pico_store.storage import Store
from tests.backends.sqlite.scene import LAST, ROOT_BATCH, exported, fill

_LOW = (1 << 20) - 1
_NUMBERS = {
    "records": "id",
    "conversations": "id",
    "current_values": "seq",
    "value_versions": "seq",
    "list_elements": "seq",
    "list_markers": "seq",
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("whole") / "a.db")
    with closing(SqliteStore(path)) as store:
        fill(store.create("a"))
        store.create("b").commit(ROOT_BATCH)
    return path


def number_of(item: SnapshotItem) -> int:
    match item:
        case Conversation() | Entry() | Task() | ListItem():
            return item.id
        case DeletedConversation():
            return item.conversation.id
        case ValueVersion() | ListMarker():
            return item.seq
    return 0


def is_sticky(item: SnapshotItem) -> TypeGuard[ValueVersion]:
    return isinstance(item, ValueVersion) and not getattr(item.address, "rewind", True)


def without(items: list[SnapshotItem], number: int) -> str:
    """Return the digest of what has to be left where a row is lost.

    A sticky value's row is what tells the policy of its address.
    """
    gone = [item.address for item in items if number_of(item) == number and is_sticky(item)]
    left = [
        item
        for item in items
        if number_of(item) != number
        and not (isinstance(item, AddressPolicy) and item.shape == "value" and item.address in gone)
    ]
    return digest(Remnant(lambda: iter(left), {number}).items(lambda where, what: None))


def saved(path: str, store: Store) -> dict[str, Outcome]:
    with closing(SqliteStore(path)) as damaged:
        return {found.session: found for found in salvage(damaged, store, lambda name: None)}


def numbers(db: apsw.Connection, sql: str) -> list[int]:
    return [int(str(row[0])) for row in db.execute(sql).fetchall()]


def damages(path: str) -> Iterator[tuple[str, str, str, int]]:
    """Yield table, rowid or key condition, what is set, and the number of each row's record."""
    with closing(apsw.Connection(path)) as db:
        for table, column in _NUMBERS.items():
            for key in numbers(db, f"SELECT {column} FROM {table}"):
                number = key & _LOW
                yield (
                    table,
                    f"{column} = {key}",
                    "checksum = (checksum | 4) - (checksum & 4)",
                    number,
                )
                if table not in ("conversations", "list_markers"):
                    sql = f"SELECT body FROM {table} WHERE {column} = {key} AND body NOT NULL"
                    for (body,) in db.execute(sql).fetchall():
                        assert isinstance(body, bytes)
                        other = body[:-1] + bytes([body[-1] ^ 1])
                        yield table, f"{column} = {key}", f"body = x'{other.hex()}'", number


def test_exactly_the_damaged_row_is_lost(whole: str, tmp_path: Path) -> None:
    items = exported(whole)
    path = str(tmp_path / "a.db")
    count = 0
    for table, where, change, number in damages(whole):
        shutil.copy(whole, path)
        with closing(apsw.Connection(path)) as db:
            db.execute(f"UPDATE {table} SET {change} WHERE {where} AND checksum NOT NULL")
            if not db.changes():
                continue
        before = Path(path).read_bytes()
        is_shown = number in map(number_of, items)

        with closing(open_store("memory:")) as store:
            found = saved(path, store)

        assert not found["b"].left_out or table == "conversations"
        lost = found["a"]
        named = [problem.where for problem in lost.left_out]
        if not found["b"].left_out:
            assert len(named) == 1, (table, where, named)
            assert named[0].endswith(f" {number}"), (table, where, named)
        if is_shown and lost.left_out:
            assert lost.digest == without(items, number), (table, where, change)
            count += 1
        assert Path(path).read_bytes() == before
    assert count > 40


@pytest.mark.parametrize("table", ["kinds", "lists", "extents", "sessions", "scratch"])
def test_rows_that_others_depend_on(whole: str, tmp_path: Path, table: str) -> None:
    path = str(tmp_path / "a.db")
    with closing(apsw.Connection(whole)) as db:
        rows = numbers(db, f"SELECT rowid FROM {table}")
    for row in rows:
        shutil.copy(whole, path)
        with closing(apsw.Connection(path)) as db:
            db.execute(
                f"UPDATE {table} SET checksum = (checksum | 4) - (checksum & 4) WHERE rowid = {row}"
            )

        with closing(open_store("memory:")) as store:
            found = saved(path, store)

        assert set(found) == {"a", "b"}
        assert any(one.left_out for one in found.values()), row
        whole_ones = [one for one in found.values() if not one.left_out]
        assert all(one.items for one in whole_ones)


def test_a_policy_of_a_lost_list_takes_its_elements(whole: str, tmp_path: Path) -> None:
    path = str(tmp_path / "a.db")
    shutil.copy(whole, path)
    with closing(apsw.Connection(path)) as db:
        number = numbers(db, "SELECT min(list) FROM lists WHERE rewind = 0")[0]
        db.execute(f"UPDATE lists SET namespace = 'other' WHERE list = {number}")
        rows = numbers(db, f"SELECT seq FROM list_elements WHERE list = {number}")

    with closing(open_store("memory:")) as store:
        lost = saved(path, store)["a"]
        assert lost.items, lost
        left = list(store.open("a").export())

    named = {problem.where: problem.what for problem in lost.left_out}
    assert named == {
        f"list {number}": "its checksum differs",
        **{f"list element {seq}": f"its list, {number}, is lost" for seq in rows},
    }
    gone = [item for item in exported(whole) if item not in left]
    assert {type(item) for item in gone} == {AddressPolicy, ListItem}
    assert [item for item in left if isinstance(item, BatchRange)][-1].last == LAST
