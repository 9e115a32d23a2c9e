"""Of a damaged folder exactly the damaged rows are lost, and what refers to them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import lmdb
import pytest

from pico_lmdb import LmdbStore
from pico_lmdb.layout import (
    ADDRESSES,
    CONVERSATIONS,
    LISTS,
    MAIN,
    RECORD,
    RECORDS,
    TREES,
    VERSIONS,
    is_sealed,
)
from pico_lmdb.rows import CurrentRow, decode_address
from pico_store.address import Seq
from pico_store.backends import open_store
from pico_store.batch import MainBatch
from pico_store.digest import digest
from pico_store.records import Conversation, Entry, Task
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
from tests.backends.lmdb.scene import ROOT, ROOT_BATCH, TASK, exported, fill, noting

_RECORDS = (RECORDS, VERSIONS, LISTS)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "a"
    with closing(LmdbStore(str(path))) as store:
        storage = store.create("a")
        fill(storage)
        storage.commit(noting(storage))
        by_tasks = [
            Entry(id=Seq(storage.last_seq + n), conversation_id=ROOT, kind="k", by_task_id=task)
            for n, task in ((1, TASK), (2, Seq(7)))
        ]
        storage.commit(MainBatch(tuple(by_tasks)))
        store.create("b").commit(ROOT_BATCH)
    return path


def rows(path: Path) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield tree, key and what is stored of every row that has a checksum."""
    with lmdb.open(str(path), max_dbs=20) as environment, environment.begin() as reading:
        for tree, name in enumerate((None, *TREES)):
            database = environment.open_db(name, reading, create=False)
            for key, stored in reading.cursor(database):
                if is_sealed(tree, key) and not (tree == MAIN and key in TREES):
                    yield tree, key, stored


def damage(path: Path, tree: int, key: bytes, stored: bytes) -> None:
    """Flip a bit of a row, of its payload if it has any."""
    at = max(len(stored) - 5, 0)
    flipped = stored[:at] + bytes([stored[at] ^ 1]) + stored[at + 1 :]
    with lmdb.open(str(path), max_dbs=20) as environment, environment.begin(write=True) as writing:
        name = None if tree == MAIN else TREES[tree - 1]
        writing.put(key, flipped, db=environment.open_db(name, writing, create=False))


def number_of(item: SnapshotItem) -> int:
    match item:
        case Conversation() | Entry() | Task() | ListItem():
            return item.id
        case DeletedConversation():
            return item.conversation.id
        case ValueVersion() | ListMarker():
            return item.seq
    return 0


def without(items: list[SnapshotItem], number: int, *, policy: bool) -> str:
    """Return the digest of what has to be left where the row of a number is lost.

    Args:
        items: What there was.
        number: What is lost.
        policy: Whether the row is also what tells of the policy of its address.
    """
    gone = [item.address for item in items if isinstance(item, ValueVersion) and item.seq == number]
    left = [
        item
        for item in items
        if number_of(item) != number
        and not (policy and isinstance(item, AddressPolicy) and item.address in gone)
    ]
    return digest(Remnant(lambda: iter(left), {number}).items(lambda where, what: None))


def saved(path: Path, store: Store) -> dict[str, Outcome]:
    with closing(LmdbStore(str(path))) as damaged:
        return {found.session: found for found in salvage(damaged, store, lambda name: None)}


def lost_number(tree: int, key: bytes, stored: bytes) -> int:
    """Return the number of the one record that a row holds; 0: it is no record's."""
    if tree in _RECORDS or (tree == CONVERSATIONS and key.startswith(RECORD)):
        return int.from_bytes(key[-8:], "big")
    if tree == MAIN and key[:1] == b"L":
        return int.from_bytes(key[-8:], "big")
    if tree == ADDRESSES:
        row = decode_address(stored[:-4])
        return row.seq if isinstance(row, CurrentRow) else 0
    return 0


def test_exactly_the_damaged_row_is_lost(whole: Path, tmp_path: Path) -> None:
    items = exported(str(whole))
    unharmed = digest(items)
    exact = indexes = 0
    for count, (tree, key, stored) in enumerate(list(rows(whole))):
        path = tmp_path / str(count)
        shutil.copytree(whole, path)
        damage(path, tree, key, stored)
        before = (path / "data.mdb").read_bytes()

        with closing(open_store("memory:")) as store:
            found = saved(path, store)

        where = (tree, key)
        assert set(found) == {"a", "b"}, where
        session = int.from_bytes(key[1:5] if tree in (MAIN, CONVERSATIONS) else key[:4], "big")
        harmed, other = (found["b"], found["a"]) if session == 2 else (found["a"], found["b"])
        assert not other.left_out, where
        assert harmed.items, (where, harmed)
        number = lost_number(tree, key, stored)
        if session == 1 and number:
            policy = tree == ADDRESSES
            assert harmed.digest == without(items, number, policy=policy), (where, harmed)
            assert [problem.what for problem in harmed.left_out] == ["its checksum differs"]
            exact += 1
        elif session == 1 and tree not in (MAIN, ADDRESSES, TREES.index(b"batches") + 1):
            # An index leads to records, and says nothing.
            assert harmed.digest == unharmed, (where, harmed)
            assert not harmed.left_out
            indexes += 1
        else:
            assert harmed.left_out, where
        assert (path / "data.mdb").read_bytes() == before
        shutil.rmtree(path)
    assert exact >= 10
    assert indexes >= 10


def test_a_damaged_key_hides_no_other_row(whole: Path, tmp_path: Path) -> None:
    data = (whole / "data.mdb").read_bytes()
    unharmed = {number_of(item) for item in exported(str(whole))}
    keys = {key for tree, key, _ in rows(whole) if tree == RECORDS and len(key) == 12}
    flips = 0
    for key in sorted(keys):
        # Beyond all others, below all others, and among them.
        for at, bit in ((3, 64), (3, 1), (11, 128), (11, 1)):
            other = key[:at] + bytes([key[at] ^ bit]) + key[at + 1 :]
            path = tmp_path / f"{key.hex()} {at} {bit}"
            shutil.copytree(whole, path)
            damaged = data.replace(b"\x0c\0" + key, b"\x0c\0" + other)
            assert damaged != data
            (path / "data.mdb").write_bytes(damaged)

            with closing(open_store("memory:")) as store:
                found = saved(path, store)["a"]
                left = {number_of(item) for item in store.open("a").export()}

            number = int.from_bytes(key[-8:], "big")
            assert left >= unharmed - {number}, (key, at, bit, found)
            if key not in (min(keys), max(keys)):
                assert found.left_out, (key, at, bit)
            shutil.rmtree(path)
            flips += 1
    assert flips > 10
