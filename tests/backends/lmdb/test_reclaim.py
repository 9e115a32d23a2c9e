"""Vacuum, backup, deletion and loading: room given back, and nothing half done."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

import pico_lmdb.rebuild
from pico_lmdb import LmdbStore, load, reclaim
from pico_lmdb.engine import Transaction
from pico_lmdb.layout import CONVERSATIONS, MAIN, SESSION, TREES, of_session
from pico_lmdb.rebuild import rebuild
from pico_lmdb.rows import SessionRow
from pico_lmdb.snapshot import Snapshot
from pico_lmdb.storage import LmdbStorage
from pico_lmdb.store import new_number, put_session
from pico_store.address import ConversationAddress, Seq
from pico_store.backends import open_store
from pico_store.batch import DeleteConversation, ListAppend, MainBatch, SettleTask, ValueSet
from pico_store.digest import digest
from pico_store.errors import (
    InvalidBatchError,
    RefusedError,
    StoreDamagedError,
    StoreIOError,
    UnknownSessionError,
)
from pico_store.query import ConversationQuery
from pico_store.records import Conversation, Entry, ForkPoint
from pico_store.snapshot import SnapshotItem
from pico_store.storage import Counters
from tests.backends.lmdb.processes import worker
from tests.backends.lmdb.scene import ROOT, ROOT_BATCH, entry, exported, fill, noting, setting, task

HOUSEKEEPING = (b"!format", b"!sessions", *TREES)


def _rows(store: LmdbStore) -> dict[tuple[int, bytes], bytes]:
    """Return every row but those that a store has without sessions."""
    found = {}
    with Snapshot(store._environment, Counters(), "") as snapshot:
        for tree in range(len(TREES) + 1):
            for key, row in snapshot.between(tree, b"\0", b"\xff" * 8):
                if tree != MAIN or key not in HOUSEKEEPING:
                    found[tree, key] = row
    return found


def _size(path: str) -> int:
    return os.stat(f"{path}/data.mdb").st_size


def _child(storage: LmdbStorage, entries: int) -> Seq:
    """Make a conversation with everything in it, and return its id."""
    child = Seq(storage.last_seq + 1)
    storage.commit(MainBatch((Conversation(id=child), task(child + 1, child))))
    for _ in range(entries):
        first = Seq(storage.last_seq + 1)
        key = str(first)
        storage.commit(
            MainBatch(
                (
                    ValueSet(ConversationAddress(child, "r", key, rewind=True), "x" * 100),
                    ListAppend(ConversationAddress(child, "l", rewind=True), "x" * 100),
                    ListAppend(ConversationAddress(child, "l", key), "x" * 100),
                    ValueSet(ConversationAddress(child, "s", key), "x" * 100),
                    Entry(Seq(first + 4), child, "note", key=key, head=Seq(first + 4)),
                )
            )
        )
    storage.commit(MainBatch((SettleTask(Seq(child + 1), "done", {"status": "done"}),)))
    return child


def test_vacuum_leaves_no_row_of_what_nobody_inherits(store: LmdbStore) -> None:
    whole, other = store.create("a"), store.create("b")
    for storage in (whole, other):
        storage.commit(ROOT_BATCH)
    child = _child(whole, 20)
    whole.commit(MainBatch((DeleteConversation(child),)))
    other.commit(noting(other))
    mark = digest(whole.export())
    before = len(_rows(store))

    report = store.vacuum()

    assert report.records_dropped == before - len(_rows(store)) > 200
    assert digest(whole.export()) == mark
    left = {tree for tree, _ in _rows(store)}
    assert left.isdisjoint({3, 4, 5, 7, 8, 9}), "an index, a value or a list is left"
    assert store.vacuum().records_dropped == 0
    whole.commit(noting(whole))
    assert store.verify().problems == ()


def test_vacuum_keeps_what_a_fork_inherits(store: LmdbStore, storage: LmdbStorage) -> None:
    child = _child(storage, 10)
    at = Seq(child + 2 + 5 * 5 - 1)
    storage.commit(MainBatch((Conversation(Seq(storage.last_seq + 1), ForkPoint(child, at)),)))
    storage.commit(MainBatch((DeleteConversation(child),)))
    mark = digest(storage.export())

    assert store.vacuum().records_dropped > 0

    assert digest(storage.export()) == mark
    assert store.verify().problems == ()
    assert store.vacuum().records_dropped == 0


def test_vacuum_leaves_no_link_to_what_it_drops(store: LmdbStore, storage: LmdbStorage) -> None:
    """The owner is live, or was dropped by an earlier vacuum."""
    storage.commit(MainBatch((task(2), Conversation(Seq(3), owner=Seq(2)))))
    storage.commit(MainBatch((DeleteConversation(Seq(3)),)))
    middle, owned = Seq(6), Seq(8)
    storage.commit(
        MainBatch(
            (
                entry(5),
                Conversation(middle),
                task(7, middle),
                Conversation(owned, owner=Seq(7)),
                entry(9, owned),
                Conversation(Seq(10), ForkPoint(owned, Seq(9))),
                SettleTask(Seq(7), "done", {"status": "done"}),
            )
        )
    )
    for gone in (middle, Seq(10)):
        storage.commit(MainBatch((DeleteConversation(gone),)))
        mark = digest(storage.export())
        store.vacuum()
        for source in (ROOT, middle):
            query = ConversationQuery(owner_conversation=source)
            assert storage.scan_conversations(query).items == []
        assert digest(storage.export()) == mark
        assert store.verify().problems == ()

    assert {key[:1] for tree, key in _rows(store) if tree == CONVERSATIONS} == {b"r"}


def test_vacuum_gives_the_room_back_and_goes_on(path: str, store: LmdbStore) -> None:
    kept, gone = store.create("a"), store.create("b")
    fill(kept)
    gone.commit(ROOT_BATCH)
    for _ in range(40):
        gone.commit(noting(gone, data="x" * 100_000))
    gone.close()
    store.delete("b")
    before = list(kept.export())

    report = store.vacuum()

    assert report.bytes_before > 4_000_000
    assert report.bytes_after == _size(path) < 200_000
    assert list(kept.export()) == before
    kept.commit(noting(kept))
    store.close()
    assert len(exported(path)) == len(before) + 2
    assert sorted(os.listdir(path)) == ["data.mdb", "format", "lock.mdb"]


def test_vacuum_removes_what_a_killed_vacuum_left(path: str) -> None:
    with closing(LmdbStore(path)) as store:
        store.create("a").commit(ROOT_BATCH)
        Path(path, "vacuum-1").write_bytes(bytes(1_000_000))

        store.vacuum()

        assert sorted(os.listdir(path)) == ["data.mdb", "format", "lock.mdb"]


def test_vacuum_beside_another_process_drops_rows_and_leaves_the_file(path: str) -> None:
    with closing(LmdbStore(path)) as store, worker(path) as other:
        storage = store.create("a")
        storage.commit(ROOT_BATCH)
        child = _child(storage, 10)
        storage.commit(MainBatch((DeleteConversation(child),)))
        other.ask(f"create b {1 << 20}")
        inode = os.stat(f"{path}/data.mdb").st_ino

        assert store.vacuum().records_dropped > 0
        assert os.stat(f"{path}/data.mdb").st_ino == inode
        other.ask("commit 3 10")
        other.kill()
        store.vacuum()

        assert os.stat(f"{path}/data.mdb").st_ino != inode
        assert [info.last_seq for info in store.sessions()] == [storage.last_seq, 4]


def test_vacuum_waits_for_reads_and_they_for_it(store: LmdbStore) -> None:
    storage = store.create("a")
    fill(storage)
    expected = list(storage.export())
    done = threading.Event()
    errors: list[BaseException] = []

    def read() -> None:
        try:
            while not done.is_set():
                assert list(storage.export()) == expected
        except BaseException as error:  # noqa: BLE001 - asserted on below
            errors.append(error)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        store.vacuum()
    done.set()
    for thread in threads:
        thread.join()

    assert errors == []


def test_a_vacuum_takes_a_map_that_another_process_has_grown(path: str) -> None:
    with closing(LmdbStore(path, durability="process", map_bytes=1 << 20)) as store:
        store.create("a").commit(ROOT_BATCH)
        with worker(path) as other:
            other.ask("create b 1048576")
            assert other.ask("commit 30 100000") == "31"
            other.kill()
        act = partial(rebuild, store._environment, store._writer, compress=False)
        done = threading.Thread(target=act, daemon=True)
        done.start()
        done.join(60)

        assert not done.is_alive()
        assert [info.last_seq for info in store.sessions()] == [1, 31]


def test_a_vacuum_that_fails_leaves_the_file(
    path: str, store: LmdbStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = store.create("a")
    fill(storage)
    before = list(storage.export())

    def fail(source: str, target: str) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", fail)
        with pytest.raises(StoreIOError, match="No space left"):
            store.vacuum()

    assert sorted(os.listdir(path)) == ["data.mdb", "format", "lock.mdb"]
    assert list(storage.export()) == before
    storage.commit(noting(storage))


@pytest.mark.parametrize("failure", [OSError(24, "Too many open files"), KeyboardInterrupt()])
def test_what_is_committed_after_a_vacuum_that_failed_late_is_in_the_new_file(
    path: str, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    def fail(folder: str) -> None:
        raise failure

    with closing(LmdbStore(path)) as store:
        storage = store.create("a")
        fill(storage)
        with monkeypatch.context() as patch:
            patch.setattr(pico_lmdb.rebuild, "sync_folder", fail)
            with pytest.raises((StoreIOError, KeyboardInterrupt)):
                store.vacuum()
        storage.commit(noting(storage))
        last = storage.last_seq

    with closing(LmdbStore(path)) as store:
        assert store.open("a").last_seq == last


def test_no_commit_reaches_a_file_that_an_interrupted_vacuum_replaced(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = os.rename

    def replace(source: str, target: str) -> None:
        rename(source, target)
        raise KeyboardInterrupt

    with closing(LmdbStore(path)) as store:
        storage = store.create("a")
        fill(storage)
        with monkeypatch.context() as patch:
            patch.setattr(os, "rename", replace)
            with pytest.raises(KeyboardInterrupt):
                store.vacuum()
        storage.commit(noting(storage))
        last = storage.last_seq

    with closing(LmdbStore(path)) as store:
        assert store.open("a").last_seq == last


# --- Deletion and loading ---


def test_a_deleted_session_leaves_no_row(store: LmdbStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reclaim, "_ROWS_A_TRANSACTION", 3)
    fill(store.create("a"))
    before = _rows(store)
    gone = store.create("b")
    fill(gone)
    gone.close()

    store.delete("b")

    assert _rows(store) == before
    with pytest.raises(UnknownSessionError):
        store.open("b")


def test_what_a_deletion_left_is_dropped_by_vacuum(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(LmdbStore(path)) as store:
        fill(store.create("b"))
        store.close()
    with closing(LmdbStore(path)) as store:
        with monkeypatch.context() as patch:
            # As if the process had ended right after the session was gone.
            patch.setattr("pico_lmdb.store.purge", lambda *arguments: None)
            store.delete("b")
        assert store.sessions() == []
        assert len(_rows(store)) > 10

        store.vacuum()

        assert _rows(store) == {}


@pytest.mark.parametrize("bytes_a_transaction", [1, 500, 4 << 20])
def test_a_load_is_the_same_in_one_transaction_and_in_many(
    store: LmdbStore, monkeypatch: pytest.MonkeyPatch, bytes_a_transaction: int
) -> None:
    monkeypatch.setattr(load, "_BYTES_A_TRANSACTION", bytes_a_transaction)
    storage = store.create("a")
    fill(storage)
    items = list(storage.export())

    store.load("b", items)

    copy = store.open("b")
    assert list(copy.export()) == items
    for target in (storage, copy):
        target.commit(noting(target, data="x" * 10))
    assert digest(copy.export()) == digest(storage.export())
    assert store.verify().problems == ()


def test_a_load_that_fails_leaves_no_row(
    store: LmdbStore, storage: LmdbStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "_BYTES_A_TRANSACTION", 1)
    source = open_store("memory:").create("a")
    for batch in (ROOT_BATCH, noting(storage)):
        source.commit(batch)
    before = _rows(store)

    def broken() -> Iterator[SnapshotItem]:
        yield from list(source.export())[:-1]
        assert [info.id for info in store.sessions()] == ["a"], "half a session is shown"
        raise InvalidBatchError("DUR-11", "items[9]", "made up")

    with pytest.raises(RefusedError, match="made up"):
        store.load("b", broken())

    assert _rows(store) == before
    assert [info.id for info in store.sessions()] == ["a"]


def test_a_load_from_the_same_store_sees_one_state(store: LmdbStore, storage: LmdbStorage) -> None:
    storage.commit(noting(storage))
    store._environment.engine.set_mapsize(1 << 20)
    for _ in range(9):
        storage.commit(noting(storage, data="x" * 300_000))

    store.load("b", storage.export())

    assert digest(store.open("b").export()) == digest(storage.export())


# --- Backup ---


def test_a_backup_has_no_owner_and_is_a_store(path: str, store: LmdbStore) -> None:
    storage = store.create("a")
    fill(storage)

    store.backup(f"{path}-copy")

    assert exported(f"{path}-copy") == list(storage.export())
    with closing(LmdbStore(f"{path}-copy")) as copy:
        assert copy.sessions()[0].owner is None
        copy.open("a").commit(noting(storage))
    assert store.sessions()[0].owner is not None


def test_a_backup_of_a_damaged_session_says_so_and_leaves_nothing(
    path: str, store: LmdbStore, tmp_path: Path
) -> None:
    fill(store.create("a"))
    key = of_session(SESSION, 1)

    def damage(transaction: Transaction) -> None:
        row = transaction.get(key)
        assert row is not None
        transaction.put(key, b"\xff" + row[1:])

    store._writer.update("test", damage, sync=False)

    with pytest.raises(StoreDamagedError, match="session 1 is damaged"):
        store.backup(str(tmp_path / "backup"))
    assert not (tmp_path / "backup").exists()


def test_many_sessions_of_long_names_can_be_backed_up(store: LmdbStore, tmp_path: Path) -> None:
    def make(transaction: Transaction) -> None:
        for number in range(20_000):
            name = f"{number:05}" + "x" * 1_000
            put_session(transaction, new_number(transaction), SessionRow(name, 1, "y" * 200))

    store._writer.update("test", make, sync=False)

    store.backup(str(tmp_path / "backup"))

    with closing(LmdbStore(str(tmp_path / "backup"), create=False)) as copy:
        assert {info.owner for info in copy.sessions()} == {None}


def test_a_backup_that_fails_leaves_nothing(
    path: str, store: LmdbStore, storage: LmdbStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: str) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(reclaim, "write_format", fail)
        with pytest.raises(StoreIOError, match="No space left"):
            store.backup(f"{path}-copy")
    Path(f"{path}-file").write_bytes(b"mine")
    for taken in (path, f"{path}-file"):
        with pytest.raises(StoreIOError, match="exists"):
            store.backup(taken)
    with pytest.raises(StoreIOError, match="No such file"):
        store.backup(f"{path}-none/copy")

    assert not os.path.exists(f"{path}-copy")
    assert Path(f"{path}-file").read_bytes() == b"mine"
    storage.commit(setting(1))
    assert storage.get_conversations([ROOT])
