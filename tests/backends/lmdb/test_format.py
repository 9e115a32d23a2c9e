"""A reader in plain LMDB that knows no more than docs/reference/format-lmdb.md."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from hashlib import blake2b
from pathlib import Path
from typing import Any
from zlib import crc32

import lmdb
import msgpack  # type: ignore[import-untyped]
import pytest
from msgspec import UNSET

from pico_lmdb import LmdbStore
from pico_store.address import Address, ConversationAddress, ScratchAddress, SessionAddress
from pico_store.records import BatchRange, Conversation, Entry, Task
from pico_store.snapshot import (
    DeletedConversation,
    ListItem,
    ListMarker,
    SnapshotItem,
    ValueVersion,
)
from tests.backends.lmdb.scene import ROOT_BATCH, fill, noting

TREES = (
    *("", "records", "transcripts", "tasks", "heads", "keys", "conversations", "addresses"),
    *("versions", "lists", "batches"),
)


@pytest.fixture
def items(path: str) -> list[SnapshotItem]:
    """The second session of a folder, which has rows of batches that are full."""
    with closing(LmdbStore(path, durability="process")) as store:
        store.create("first").commit(ROOT_BATCH)
        storage = store.create("tea")
        fill(storage)
        for _ in range(70):
            storage.commit(noting(storage))
        return list(storage.export())


class Reader:
    """What the page says, in code."""

    def __init__(self, path: str) -> None:
        self.engine = lmdb.open(path, max_dbs=16, readonly=True)
        self.trees = [self.engine.open_db(name.encode()) if name else None for name in TREES]
        with self.engine.begin() as transaction:
            self.s = bytes(transaction.get(b"Ntea", b""))
        self.kinds = {
            int.from_bytes(key[5:], "big"): row[0] for key, row in self.rows(0, b"K" + self.s)
        }

    def stored(self, tree: int, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values as they are stored."""
        with self.engine.begin() as transaction:
            for key, value in transaction.cursor(self.trees[tree]):
                if bytes(key).startswith(prefix):
                    yield bytes(key), bytes(value)

    def rows(self, tree: int, prefix: bytes) -> Iterator[tuple[bytes, Any]]:
        """Yield keys and rows, each compared with its checksum."""
        for key, value in self.stored(tree, prefix):
            row, sums = value[:-4], value[-4:]
            assert crc32(key + row, tree).to_bytes(4, "big") == sums
            yield key, msgpack.unpackb(row, strict_map_key=False) if row else UNSET


def number(key: bytes, at: int) -> int:
    return int.from_bytes(key[at : at + 8], "big")


def named(key: bytes, at: int, rest: bytes | None) -> tuple[str, str, str | None]:
    """Return the shape, namespace and key of an address."""
    name = key[at:] if rest is None else key[at:495] + rest
    parts = name.replace(b"\0\xff", b"\xc0").partition(b"\0")
    namespace = parts[0][1:].replace(b"\xc0", b"\0").decode()
    return chr(name[0]), namespace, parts[2][1:].decode() if parts[2] else None


def addressed(address: Address) -> tuple[int, str, str | None]:
    match address:
        case ConversationAddress():
            return address.conversation, address.namespace, address.key
        case SessionAddress():
            return 0, address.namespace, address.key
        case ScratchAddress():
            return -address.task, address.namespace, address.key


def test_the_folder_says_what_it_is(path: str, items: list[SnapshotItem]) -> None:
    text = Path(path, "format").read_text()

    assert json.loads(text) == {"format": "pico-lmdb", "version": 1}
    assert text.endswith("}\n")


def test_records_can_be_read(path: str, items: list[SnapshotItem]) -> None:
    reader = Reader(path)
    entries: dict[int, object] = {}
    tasks: dict[int, object] = {}
    for tree, prefix, at in ((1, reader.s, 4), (0, b"L" + reader.s, 5)):
        for key, (what, conversation, kind, *columns) in reader.rows(tree, prefix):
            found = entries if what == 0 else tasks
            found[number(key, at)] = (conversation, reader.kinds[kind], *columns)

    roles = ("start", "inflight", "terminal")
    for item in items:
        match item:
            case Entry():
                body = {} if item.data is UNSET else {"data": item.data}
                columns = (item.kind, item.key, item.by_task_id, item.head, body)
                assert entries[item.id] == (item.conversation_id, *columns)
            case Task():
                flags = 1 * item.background + 2 * item.turn + 4 * item.abort
                columns = (item.status, roles.index(item.role), flags, list(item.after))
                assert tasks[item.id] == (item.conversation_id, item.kind, *columns, item.state)
    assert len(tasks) == sum(isinstance(item, Task) for item in items)


def test_conversations_and_indexes_can_be_read(path: str, items: list[SnapshotItem]) -> None:
    reader = Reader(path)
    found = {number(key, 5): row for key, row in reader.rows(6, b"r" + reader.s)}
    shown = [(number(k, 4), number(k, 12)) for k, _ in reader.stored(2, reader.s)]

    for item in items:
        if isinstance(item, Conversation | DeletedConversation):
            deleted = isinstance(item, DeletedConversation)
            record = item.conversation if isinstance(item, DeletedConversation) else item
            through = item.through if isinstance(item, DeletedConversation) else None
            parent = record.parent
            fork = [parent.conversation_id, parent.at] if parent else [None, None]
            assert found[record.id] == [*fork, record.owner, through], deleted
        elif isinstance(item, Entry):
            place = (item.conversation_id, item.id)
            assert place in shown
            packed = reader.s + b"".join(part.to_bytes(8, "big") for part in place)
            assert (packed in dict(reader.stored(4, reader.s))) is (item.head is not None)
            if item.key is not None:
                text = f"{len(item.kind)} {item.kind}{item.key}".encode()
                digest = blake2b(text, digest_size=8).digest()
                assert packed[:12] + digest + packed[12:] in dict(reader.stored(5, reader.s))


def test_state_can_be_read(path: str, items: list[SnapshotItem]) -> None:
    reader = Reader(path)
    values: dict[int, object] = {}
    elements: dict[int, object] = {}
    markers: dict[int, object] = {}
    owners: dict[tuple[int, int], tuple[int, str, str | None]] = {}
    for key, (what, rest, first, *more) in reader.rows(7, reader.s):
        shape, *name = named(key, 12, rest)
        place = (number(key, 4), *name)
        assert (shape == "l") is (what == 3)
        if what == 0:
            values[first] = (place, *more)
        elif what > 1:
            owners[what, first] = place  # type: ignore[assignment]
    for key, value in reader.rows(8, reader.s):
        values[number(key, 12)] = (owners[2, number(key, 4)], value)
    for key, value in reader.stored(9, reader.s):
        place = owners[3, number(key, 4)]
        assert crc32(key + value[:-4], 9).to_bytes(4, "big") == value[-4:]
        if key[12] == 1:
            elements[number(key, 13)] = (place, msgpack.unpackb(value[:-4]))
        else:
            assert len(value) == 4
            markers[number(key, 21)] = (place, number(key, 13) or None)
    for key, row in reader.rows(0, b"X" + reader.s):
        task = -number(key, 5)
        if key[13] == 0:
            _, *name = named(key, 14, row[1])
            values[row[2]] = ((task, *name), row[3])
        elif len(row) == 4:
            elements[number(key, 14)] = ((task, row[1], row[2]), row[3])

    for item in items:
        match item:
            case ValueVersion():
                assert values.pop(item.seq) == (addressed(item.address), item.value)
            case ListItem():
                assert elements.pop(item.id) == (addressed(item.address), item.value)
            case ListMarker():
                assert markers.pop(item.seq) == (addressed(item.address), item.element)
    assert (values, elements, markers) == ({}, {}, {})


def test_batches_and_the_last_number_can_be_read(path: str, items: list[SnapshotItem]) -> None:
    reader = Reader(path)
    ((_, (last, first, boundaries)),) = reader.rows(0, b"B" + reader.s)
    rows = [(number(key, 4), row) for key, row in reader.rows(10, reader.s)]
    assert rows, "no row of boundaries is full yet"
    found = []
    for at, pairs in [*rows, (first, boundaries)]:
        for gap, writes in zip(pairs[::2], pairs[1::2], strict=True):
            at += gap
            found.append((at, at + writes - 1))
            at += writes

    batches = [item for item in items if isinstance(item, BatchRange)]
    assert found == [(item.first, item.last) for item in batches if item.task is None]
    sizes = {number(k, 14): row[0] for k, row in reader.rows(0, b"X" + reader.s) if k[13] == 1}
    expected = {item.first: item.last - item.first + 1 for item in batches if item.task is not None}
    assert {seq: size for seq, size in sizes.items() if size} == expected
    assert max([last, *sizes]) == batches[-1].last
