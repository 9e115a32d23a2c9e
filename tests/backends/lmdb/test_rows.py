"""The rows: MessagePack that any library reads, and a checksum behind it."""

from __future__ import annotations

import msgpack  # type: ignore[import-untyped]
import msgspec
import pytest

from pico_lmdb import LmdbStore
from pico_lmdb.layout import (
    ADDRESSES,
    BATCHES,
    CONVERSATIONS,
    LISTS,
    RECORDS,
    TREES,
    VERSIONS,
)
from pico_lmdb.plan import BOUNDARIES_A_ROW
from pico_lmdb.rows import decode_record, pack, seal, unseal
from pico_lmdb.snapshot import Snapshot
from pico_lmdb.storage import LmdbStorage
from pico_store.query import BatchQuery
from pico_store.records import JsonValue
from pico_store.storage import Counters
from pico_store.strict_json import unpack
from tests.backends.lmdb.scene import fill, noting

VALUES: list[JsonValue] = [
    {"a": [1, -1, 2**64 - 1, -(2**63), 1.5, -0.0, 5e-324, None, True, "é\0🙂"]},
    "x" * 70_000,
    list(range(70_000)),
    {str(n): n for n in range(20)},
]
# In these, a key that begins so leads somewhere and holds nothing that is sealed.
UNSEALED = {CONVERSATIONS: b"poc", LISTS: b""}


def _sealed_rows(store: LmdbStore) -> list[tuple[int, bytes, bytes]]:
    found = []
    with Snapshot(store._environment, Counters(), "") as snapshot:
        for tree in (RECORDS, CONVERSATIONS, ADDRESSES, VERSIONS, LISTS, BATCHES):
            for key, stored in snapshot.between(tree, b"\0", b"\xff" * 4):
                if stored:
                    found.append((tree, key, stored))
    return found


def test_every_row_is_read_by_another_library(store: LmdbStore) -> None:
    storage = store.create("a")
    fill(storage)
    for _ in range(BOUNDARIES_A_ROW):
        storage.commit(noting(storage))
    rows = _sealed_rows(store)

    assert {tree for tree, _, _ in rows} == {
        *(RECORDS, CONVERSATIONS, ADDRESSES, VERSIONS, LISTS, BATCHES),
    }
    for tree, key, stored in rows:
        row = unseal(tree, key, stored)
        assert row is not None, f"{TREES[tree - 1]!r} {key!r} has another checksum"
        if row:
            # A list's marker holds nothing else than its checksum.
            assert msgpack.unpackb(row, strict_map_key=False) == msgspec.msgpack.decode(row)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_what_one_library_packs_the_other_reads(value: JsonValue) -> None:
    assert msgpack.unpackb(pack(value)) == value
    assert unpack(msgpack.packb(value)) == value
    assert repr(unpack(msgpack.packb(value))) == repr(value)


def test_a_row_of_another_library_is_a_record() -> None:
    row = decode_record(msgpack.packb([0, 1, 2, None, None, None, {"data": [1]}]))

    assert row.conversation == 1
    assert unpack(bytes(row.body)) == {"data": [1]}


def test_a_row_is_that_of_its_tree_and_key_alone() -> None:
    stored = seal(RECORDS, b"key", b"row")

    assert unseal(RECORDS, b"key", stored) == b"row"
    assert unseal(LISTS, b"key", stored) is None
    assert unseal(RECORDS, b"kez", stored) is None
    for at in range(len(stored)):
        flipped = stored[:at] + bytes([stored[at] ^ 1]) + stored[at + 1 :]
        assert unseal(RECORDS, b"key", flipped) is None


def test_boundaries_go_on_from_row_to_row(storage: LmdbStorage) -> None:
    for _ in range(3 * BOUNDARIES_A_ROW):
        storage.commit(noting(storage))
    firsts = list(range(1, storage.last_seq + 1))

    found = [batch.first for batch in storage.scan_batches(BatchQuery(limit=1_000)).items]
    assert found == firsts
    for at in (1, BOUNDARIES_A_ROW, BOUNDARIES_A_ROW + 1, 2 * BOUNDARIES_A_ROW, firsts[-1]):
        page = storage.scan_batches(BatchQuery(after=at, limit=3))  # type: ignore[arg-type]
        assert [batch.first for batch in page.items] == firsts[at : at + 3]
        page = storage.scan_batches(BatchQuery(before=at, limit=3))  # type: ignore[arg-type]
        assert [batch.first for batch in page.items] == firsts[:at][-2:-5:-1]
