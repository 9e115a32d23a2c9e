"""Commits that fail, wait, or share a transaction."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from random import Random
from types import FrameType
from typing import Final

import lmdb
import pytest

from pico_lmdb import LmdbStore
from pico_lmdb.engine import Transaction
from pico_lmdb.storage import LmdbStorage
from pico_store.address import ConversationAddress, Seq
from pico_store.batch import Batch, ListAppend, ListRemove, MainBatch, ScratchBatch, ValueSet
from pico_store.errors import (
    CommitUncertainError,
    OwnershipLostError,
    StorageClosedError,
    StorageFaultedError,
    StoreBusyError,
    StoreFullError,
)
from pico_store.query import ListQuery
from pico_store.storage import Durability
from tests.backends.lmdb.processes import worker
from tests.backends.lmdb.scene import ROOT, ROOT_BATCH, TASK, fill, noting, scratch, setting

LEVELS: Final[tuple[Durability, ...]] = ("power", "ordered", "process")
FRAME: Final = ScratchBatch(TASK, (ListAppend(scratch(), 1),))
SCRATCH: Final = ScratchBatch(TASK, (ListAppend(scratch(), 1), ValueSet(scratch("k"), 2)))


class _Faulty:
    """A transaction whose act of a name raises."""

    def __init__(self, transaction: Transaction, name: str, error: BaseException) -> None:
        self._transaction = transaction
        self._name = name
        self._error = error

    def __getattr__(self, name: str) -> object:
        found = getattr(self._transaction, name)
        if name != self._name:
            return found

        def fail(*arguments: object) -> None:
            if name == "commit":
                self._transaction.abort()
            raise self._error

        return fail


@contextmanager
def _failing(store: LmdbStore, act: str, error: BaseException) -> Iterator[None]:
    """Let an act of every write transaction raise within the block."""
    shared = store._environment
    real = shared.begin_once
    shared.begin_once = lambda: _Faulty(real(), act, error)  # type: ignore[assignment,return-value]
    try:
        yield
    finally:
        # A failure may have opened the file anew.
        shared._use(shared.engine)


def _disk_error(code: int) -> lmdb.Error:
    error = lmdb.Error("mdb_txn_commit: a made-up failure")
    error.code = code  # type: ignore[misc]
    return error


def _batches(storage: LmdbStorage) -> dict[str, Batch]:
    return {"main": noting(storage), "frame": FRAME, "scratch": SCRATCH}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", ["main", "frame", "scratch"])
@pytest.mark.parametrize("act", ["put", "commit"])
def test_where_there_is_no_room_nothing_happened(
    path: str, level: Durability, name: str, act: str
) -> None:
    with closing(LmdbStore(path, durability=level)) as store:
        storage = store.create("a")
        fill(storage)
        before = list(storage.export())
        for code in (28, 27, 122):
            with _failing(store, act, _disk_error(code)), pytest.raises(StoreFullError):
                storage.commit(_batches(storage)[name])

            assert list(storage.export()) == before
        last = storage.last_seq
        assert storage.commit(_batches(storage)[name]).first == last + 1


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", ["main", "frame", "scratch"])
def test_after_any_other_failure_of_a_commit_the_handle_is_faulted(
    path: str, level: Durability, name: str
) -> None:
    with closing(LmdbStore(path, durability=level)) as store:
        storage, other = store.create("a"), store.create("b")
        fill(storage)
        last = storage.last_seq
        with _failing(store, "commit", _disk_error(22)), pytest.raises(CommitUncertainError):
            storage.commit(_batches(storage)[name])

        with pytest.raises(StorageFaultedError, match="made-up"):
            storage.commit(_batches(other)[name])
        other.commit(ROOT_BATCH)
        storage.close()
        assert store.open("a").last_seq == last


@pytest.mark.parametrize("level", LEVELS)
def test_a_page_written_in_part_is_certain_where_nothing_is_synced(
    path: str, level: Durability
) -> None:
    with closing(LmdbStore(path, durability=level)) as store:
        storage = store.create("a")
        storage.commit(ROOT_BATCH)
        expected = StoreFullError if level == "process" else CommitUncertainError
        with _failing(store, "commit", _disk_error(5)), pytest.raises(expected):
            storage.commit(noting(storage))


def test_a_failed_sync_faults_all_that_waited_for_it(path: str) -> None:
    with closing(LmdbStore(path, durability="power")) as store:
        storage = store.create("a")
        storage.commit(ROOT_BATCH)
        shared = store._environment
        engine = shared.engine

        class Broken:
            def sync(self, force: bool) -> None:  # noqa: FBT001 - LMDB's own
                raise _disk_error(5)

            def __getattr__(self, name: str) -> object:
                return getattr(engine, name)

        shared.engine = Broken()  # type: ignore[assignment]
        with pytest.raises(CommitUncertainError):
            storage.commit(noting(storage))
        shared.engine = engine

        with pytest.raises(StorageFaultedError):
            storage.entry_kinds()
        storage.close()
        assert store.open("a").last_seq == 2


@pytest.mark.parametrize("name", ["main", "frame", "scratch"])
@pytest.mark.parametrize("act", ["get", "put", "commit"])
def test_an_interrupted_commit_leaves_the_old_or_the_new(
    store: LmdbStore, name: str, act: str
) -> None:
    storage = store.create("a")
    fill(storage)
    before = list(storage.export())

    with _failing(store, act, KeyboardInterrupt()), pytest.raises(KeyboardInterrupt):
        storage.commit(_batches(storage)[name])

    assert list(storage.export()) == before
    last = storage.last_seq
    assert storage.commit(_batches(storage)[name]).first == last + 1


def _raise(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _go_on(storage: LmdbStorage, act: str, seconds: float) -> None:
    """Read or commit until an alarm ends it."""
    signal.setitimer(signal.ITIMER_REAL, seconds)
    while True:
        if act == "read":
            storage.get_entries([Seq(1)])
        else:
            storage.commit(_batches(storage)[act])


@pytest.mark.parametrize("act", ["read", "frame", "main"])
def test_an_interrupt_at_any_moment_leaves_no_lock_and_no_read(path: str, act: str) -> None:
    before = signal.signal(signal.SIGALRM, _raise)
    random, store = Random(1), LmdbStore(path, durability="process", busy_ms=0)
    try:
        storage = store.create("a")
        fill(storage)
        for _ in range(1_000):
            with pytest.raises(KeyboardInterrupt):
                _go_on(storage, act, random.uniform(0.00005, 0.0005))
        store.vacuum()
        storage.commit(_batches(storage)["main"])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    closing_it = threading.Thread(target=store.close, daemon=True)
    closing_it.start()
    closing_it.join(20)
    assert not closing_it.is_alive()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", ["main", "frame", "scratch"])
def test_a_wait_that_runs_out_is_busy_and_nothing_happened(
    path: str, level: Durability, name: str
) -> None:
    with closing(LmdbStore(path, durability=level, busy_ms=1)) as store:
        storage = store.create("a")
        fill(storage)
        last = storage.last_seq
        with store._environment.lock, pytest.raises(StoreBusyError, match="for 1 ms; try again"):
            storage.commit(_batches(storage)[name])

        assert storage.last_seq == last
        assert storage.commit(_batches(storage)[name]).first == last + 1


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", ["main", "frame", "scratch"])
def test_a_process_that_is_stopped_while_it_writes_is_waited_for_in_vain(
    path: str, level: Durability, name: str
) -> None:
    with closing(LmdbStore(path, durability=level, busy_ms=20)) as store, worker(path) as other:
        storage = store.create("a")
        fill(storage)
        before = list(storage.export())
        other.ask("open a")
        assert other.ask("stall") == "stalled"

        with pytest.raises(StoreBusyError, match=r"another process .* 20 ms; try again"):
            storage.commit(_batches(storage)[name])
        with pytest.raises(StoreBusyError):
            store.create("b")
        assert list(storage.export()) == before, "reading needs nobody's turn"

        other.kill()
        last = storage.last_seq
        assert storage.commit(_batches(storage)[name]).first == last + 1


def test_an_open_waits_no_longer_either(path: str, storage: LmdbStorage) -> None:
    with worker(path) as other:
        other.ask("open a")
        other.ask("stall")
        with worker(path) as third:
            assert third.ask("open a 20").startswith("StoreBusyError")
            other.kill()
            assert third.ask("open a 20") == "1"


def test_nobody_asks_to_be_alone_out_of_turn(path: str) -> None:
    with closing(LmdbStore(path, durability="process", busy_ms=20)) as store:
        with worker(path) as other:
            store.create("a").commit(ROOT_BATCH)
            other.ask("open a")
            other.ask("stall")
            # Nobody uses the folder now, as far as that can be seen.
            other.ask("leave")
            before = os.stat(f"{path}/data.mdb").st_ino

            with pytest.raises(StoreBusyError):
                store.vacuum()

            assert os.stat(f"{path}/data.mdb").st_ino == before
        store.vacuum()
        assert os.stat(f"{path}/data.mdb").st_ino != before


def test_an_open_waits_for_a_vacuum_no_longer_than_asked(path: str, storage: LmdbStorage) -> None:
    with worker(path) as other:
        storage._environment.presence.try_alone()
        assert other.ask("open a 20").startswith("StoreBusyError")
        storage._environment.presence.among_others()
        assert other.ask("open a 20") == "1"


def test_the_turn_of_a_killed_process_is_not_inherited(path: str, store: LmdbStore) -> None:
    storage = store.create("a")
    storage.commit(ROOT_BATCH)
    with worker(path) as other:
        other.ask("open a")
        child = int(other.ask("fork"))
        try:
            other.ask("stall")
            other.kill()
            assert storage.commit(noting(storage)).first == 2
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_commit_after_the_end_locks_no_file(path: str, storage: LmdbStorage) -> None:
    shared = storage._environment
    shared.close()
    with pytest.raises(StorageClosedError):
        shared.take_turn_at_once()
    with pytest.raises(StorageClosedError):
        shared.take_turn(0)
    shared.give_turn_back()
    with pytest.raises(StorageClosedError):
        storage.commit(setting(1))


def test_commits_at_once_share_transactions(path: str) -> None:
    sessions, commits = 8, 40
    with closing(LmdbStore(path, durability="power")) as store:
        storages = [store.create(str(number)) for number in range(sessions)]
        barrier = threading.Barrier(sessions)

        def commit(storage: LmdbStorage) -> None:
            barrier.wait()
            storage.commit(ROOT_BATCH)
            for _ in range(commits - 1):
                storage.commit(noting(storage))

        threads = [threading.Thread(target=commit, args=(storage,)) for storage in storages]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert [info.last_seq for info in store.sessions()] == [commits] * sessions
        assert store.transactions <= sessions * commits * 3 // 4
        assert store.verify().problems == ()


def test_one_lost_session_of_a_group_harms_no_other(path: str) -> None:
    with closing(LmdbStore(path, durability="power")) as store:
        lost, kept = store.create("a"), store.create("b")
        lost.commit(ROOT_BATCH)
        kept.commit(ROOT_BATCH)
        store.open("a", take_over=True)
        errors: list[BaseException] = []

        def commit(storage: LmdbStorage) -> Callable[[], None]:
            def act() -> None:
                try:
                    storage.commit(noting(storage))
                except OwnershipLostError as error:
                    errors.append(error)

            return act

        threads = [threading.Thread(target=commit(storage)) for storage in (lost, kept)]
        with store._environment.lock:
            for thread in threads:
                thread.start()
        for thread in threads:
            thread.join()

        assert len(errors) == 1
        assert [info.last_seq for info in store.sessions()] == [1, 2]


def test_a_batch_of_more_lists_and_values_than_are_remembered(storage: LmdbStorage) -> None:
    lists = [ConversationAddress(ROOT, "l", str(number), rewind=True) for number in range(4_500)]
    storage.commit(
        MainBatch(
            (
                *(ListAppend(address, 1) for address in lists),
                *(ListAppend(address, 2) for address in lists),
                *(
                    ValueSet(ConversationAddress(ROOT, "v", str(n), rewind=True), n)
                    for n in range(9)
                ),
            )
        )
    )

    for address in (lists[0], lists[2_000], lists[-1]):
        found = storage.read_list(address, ListQuery()).items
        assert [element.value for element in found] == [1, 2]


def test_an_element_of_the_same_batch_leaves_no_row(store: LmdbStore, storage: LmdbStorage) -> None:
    address = ConversationAddress(ROOT, "inbox")
    storage.commit(MainBatch((ListAppend(address, 1), ListRemove(address, Seq(2)))))
    shared = store._environment
    lists = shared.trees[9]
    with shared.engine.begin() as transaction:
        assert transaction.stat(lists)["entries"] == 0

    assert storage.read_list(address, ListQuery()).items == []
