"""A reader in plain SQLite that knows no more than docs/reference/format-sqlite.md."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from zlib import crc32

import msgpack  # type: ignore[import-untyped]
import pytest

from pico_sqlite import SqliteStore
from pico_store.address import ConversationAddress, ScratchAddress, Seq
from pico_store.records import Conversation, Entry, Task
from pico_store.snapshot import (
    DeletedConversation,
    ListItem,
    ListMarker,
    SnapshotHeader,
    SnapshotItem,
    ValueVersion,
)
from tests.backends.sqlite.scene import LAST, ROOT_BATCH, batches, fill
from tests.packaging.repository import ROOT as REPOSITORY

PAGE = REPOSITORY / "docs" / "reference" / "format-sqlite.md"
EXTENT = 1 << 20


@pytest.fixture
def items(path: str) -> list[SnapshotItem]:
    """The second session of a file, so that keys and numbers differ."""
    with closing(SqliteStore(path)) as store:
        store.create("first").commit(ROOT_BATCH)
        storage = store.create("tea")
        fill(storage)
        storage.commit(batches(LAST)["first scratch"])
        return list(storage.export())


class _Reader:
    """What the page says, in code."""

    def __init__(self, path: str) -> None:
        self.db = sqlite3.connect(path)
        sql = "SELECT session, epoch, checksum FROM sessions WHERE name = 'tea'"
        ((self.session, epoch, stored),) = self.rows(sql)
        assert _checksum(["tea", epoch]) == stored
        self.highs = {}
        sql = "SELECT base, high, checksum FROM extents WHERE session = ?"
        for base, high, stored in self.rows(sql, self.session):
            assert _checksum([base, self.session, high]) == stored
            self.highs[base] = high
        self.kinds = {}
        for kind, name, entries, stored in self.rows(
            "SELECT kind, name, entries, checksum FROM kinds"
        ):
            assert _checksum([name, entries]) == stored
            self.kinds[kind] = name

    def rows(self, sql: str, *values: object) -> list[Any]:
        return self.db.execute(sql, values).fetchall()

    def of_session(self, table: str, columns: str, key: str = "id") -> Iterator[Any]:
        for base in sorted(self.highs):
            first = base * EXTENT
            sql = f"SELECT {columns} FROM {table} WHERE abs({key}) BETWEEN ? AND ? ORDER BY {key}"
            yield from self.rows(sql, first, first + EXTENT - 1)

    def number(self, key: int | None) -> int | None:
        if key is None:
            return None
        number = (int(self.highs[abs(key) >> 20]) << 20) + abs(key) % EXTENT
        return number if key >= 0 else -number


def _checksum(columns: list[object]) -> int:
    return crc32(msgpack.packb(columns)) - 2**31


def _size(first: int, stored: int) -> int:
    size = stored >> 16
    assert stored == size << 16 | (first * 257 + size) % 65521
    return size


def _key(stored: str) -> str | None:
    return stored[1:] if stored else None


def test_the_file_says_what_it_is(path: str, items: list[SnapshotItem]) -> None:
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA application_id").fetchone() == (0x7069636F,)
        assert db.execute("PRAGMA user_version").fetchone() == (1,)
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_the_statements_of_the_page_run(path: str, items: list[SnapshotItem]) -> None:
    records, frames = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    reader = _Reader(path)

    numbers = [row[0] for row in reader.rows(records)]
    elements = [(reader.number(row[0]), row[1]) for row in reader.rows(frames)]

    known = {item.id for item in items if isinstance(item, Entry | Task)}
    assert known <= set(numbers)
    assert numbers == sorted(numbers)
    expected = [
        (item.id, item.address.namespace)
        for item in items
        if isinstance(item, ListItem) and isinstance(item.address, ScratchAddress)
    ]
    assert elements == expected
    assert len(elements) == 4


def test_conversations_can_be_read(path: str, items: list[SnapshotItem]) -> None:
    reader = _Reader(path)
    found = {}
    columns = "id, parent, at, owner, through, checksum"
    for *keys, through, stored in reader.of_session("conversations", columns):
        numbers = [reader.number(key) for key in keys]
        assert _checksum([*numbers, through]) == stored
        if through is None or through > 0:
            found[numbers[0]] = (*numbers[1:], through)

    expected = {}
    for item in items:
        if isinstance(item, Conversation | DeletedConversation):
            deleted = isinstance(item, DeletedConversation)
            record = item.conversation if isinstance(item, DeletedConversation) else item
            parent = record.parent
            fork = (parent.conversation_id, parent.at) if parent else (None, None)
            through = item.through if isinstance(item, DeletedConversation) else None
            assert deleted is (through is not None)
            expected[record.id] = (*fork, record.owner, through)
    assert found == expected


def test_entries_and_tasks_can_be_read(path: str, items: list[SnapshotItem]) -> None:
    reader = _Reader(path)
    entries: dict[int | None, object] = {}
    tasks: dict[int | None, object] = {}
    columns = (
        "id, role, conversation, kind, key, by_task, head, status, flags, after, body, checksum"
    )
    for row in reader.of_session("records", columns):
        id, role, conversation, kind, key, by_task, head, status, flags, after, body, stored = row
        if role is None:
            continue
        start = [reader.number(id), reader.number(conversation), reader.kinds[kind]]
        if role == 3:
            rest = [key, reader.number(by_task), reader.number(head)]
            entries[start[0]] = (*start[1:], *rest, msgpack.unpackb(body))
        else:
            rest = [status, role, flags & 7, after]
            previous = tuple(msgpack.unpackb(after)) if after else ()
            tasks[start[0]] = (*start[1:], status, role, previous, msgpack.unpackb(body))
        assert _checksum([*start, *rest, body]) == stored

    roles = ("start", "inflight", "terminal")
    for item in items:
        match item:
            case Entry():
                names = (item.conversation_id, item.kind, item.key)
                links = (item.by_task_id, item.head)
                assert entries[item.id] == (
                    *names,
                    *links,
                    {} if item.kind == "user" else {"data": None},
                )
            case Task():
                role = roles.index(item.role)
                place = (item.conversation_id, item.kind, item.status, role)
                assert tasks[item.id] == (*place, item.after, item.state)
    # Of a deleted conversation that nothing shows there may be more.
    assert len(tasks) == sum(isinstance(item, Task) for item in items)


@pytest.mark.parametrize("table", ["current_values", "value_versions"])
def test_values_can_be_read(path: str, items: list[SnapshotItem], table: str) -> None:
    reader = _Reader(path)
    found = {}
    columns = "scope, namespace, key, seq, body, checksum"
    for scope, namespace, key, seq, body, stored in reader.of_session(table, columns, "scope"):
        number = reader.number(scope)
        assert _checksum([seq, number, namespace, key, body]) == stored
        if body is not None or table == "value_versions":
            value = () if body is None else (msgpack.unpackb(body),)
            found[seq] = (number, namespace, _key(key), *value)

    expected = {}
    for item in items:
        if not isinstance(item, ValueVersion):
            continue
        address, owner = item.address, 0
        rewind = False
        if isinstance(address, ConversationAddress):
            owner, rewind = address.conversation, address.rewind
        elif isinstance(address, ScratchAddress):
            owner = -address.task
        if rewind is (table == "value_versions"):
            expected[item.seq] = (owner, address.namespace, address.key, item.value)
    assert found == expected
    assert len(found) > 1


def test_lists_can_be_read(path: str, items: list[SnapshotItem]) -> None:
    reader = _Reader(path)
    elements, markers = {}, {}
    columns = "list, scope, namespace, key, rewind, checksum"
    for number, scope, namespace, key, rewind, sums in reader.of_session("lists", columns, "scope"):
        assert _checksum([reader.number(scope), namespace, key, rewind]) == sums
        name = (reader.number(scope), namespace, _key(key))
        sql = "SELECT seq, body, checksum FROM list_elements WHERE list = ?"
        for seq, body, stored in reader.rows(sql, number):
            assert _checksum([seq, number, body]) == stored
            elements[seq] = (*name, msgpack.unpackb(body))
        sql = "SELECT seq, element, checksum FROM list_markers WHERE list = ?"
        for seq, element, stored in reader.rows(sql, number):
            assert _checksum([seq, element, number]) == stored
            markers[seq] = (*name, element)

    expected = {}
    for item in items:
        if isinstance(item, ListItem) and not isinstance(item.address, ScratchAddress):
            address = item.address
            owner = address.conversation if isinstance(address, ConversationAddress) else 0
            expected[item.id] = (owner, address.namespace, address.key, item.value)
    assert elements == expected
    assert markers == {
        item.seq: (
            item.address.conversation,
            item.address.namespace,
            item.address.key,
            item.element or 0,
        )
        for item in items
        if isinstance(item, ListMarker)
    }


def test_scratch_and_the_last_number_can_be_read(path: str, items: list[SnapshotItem]) -> None:
    reader = _Reader(path)
    last = max(
        first + _size(first, writes) - 1
        for id, writes in reader.of_session("records", "id, writes")
        if writes is not None and (first := reader.number(id)) is not None
    )
    sql = (
        "SELECT f.task, s.id, s.writes, s.namespace, s.key, s.checksum, s.body FROM scratch f "
        "JOIN scratch s ON s.id >> 32 = f.id >> 32 WHERE f.task NOTNULL"
    )
    for task, id, writes, namespace, key, stored, body in reader.rows(sql):
        number = reader.number(task + id % 2**32)
        assert number is not None
        last = max(last, number)
        start = crc32(msgpack.packb([reader.number(task), writes, namespace, key]))
        start ^= (number ^ number >> 32) & 0xFFFFFFFF
        assert crc32(body or b"", start) - 2**31 == stored

    header = items[0]
    assert isinstance(header, SnapshotHeader)
    assert Seq(last) == header.last_seq
