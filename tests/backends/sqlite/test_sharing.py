"""Commits with `power` share transactions, and each has the outcome that is its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from threading import Event, Semaphore, Thread

import apsw
import pytest

from pico_sqlite import SqliteStore
from pico_sqlite.storage import SqliteStorage
from pico_store.address import Seq
from pico_store.batch import DeleteConversation, MainBatch
from pico_store.check import CheckedBatch
from pico_store.errors import (
    CommitUncertainError,
    InvalidBatchError,
    LimitExceededError,
    OwnershipLostError,
    PicoError,
    StorageFaultedError,
    StoreBusyError,
    StoreFullError,
    StoreIOError,
)
from pico_store.records import BatchRange
from tests.backends.sqlite.scene import LAST, ROOT_BATCH, batches, exported, fill, noting

COUNT = 16
NAMES = [f"{number:02}" for number in range(COUNT)]


class _Queue(deque[object]):
    """Tells of everything that comes into it."""

    def __init__(self, came: Semaphore, change: Callable[[int, object], None]) -> None:
        super().__init__()
        self._came = came
        self._change = change
        self._count = 0

    def append(self, request: object) -> None:
        self._count += 1
        self._change(self._count, request)
        super().append(request)
        self._came.release()


@pytest.fixture
def store(path: str) -> Iterator[SqliteStore]:
    store = SqliteStore(path, durability="power", busy_ms=20)
    yield store
    store.close()


@pytest.fixture
def storages(store: SqliteStore) -> list[SqliteStorage]:
    found = [store.create(name) for name in NAMES]
    for storage in found:
        storage.commit(ROOT_BATCH)
    return found


def commit_together(
    store: SqliteStore,
    acts: list[Callable[[], BatchRange]],
    change: Callable[[int, object], None] = lambda count, request: None,
    *,
    give_up: int = 0,
) -> list[BatchRange | BaseException]:
    """Run commits whose requests all wait before the first is written; return each's outcome.

    Those that give up have done so before the first is written.
    """
    outcomes: list[BatchRange | BaseException] = [BatchRange(Seq(1), Seq(1))] * len(acts)
    came, ended = Semaphore(0), Semaphore(0)
    store._writer.shared._waiting = _Queue(came, change)  # type: ignore[assignment]

    def run(index: int, act: Callable[[], BatchRange]) -> None:
        try:
            outcomes[index] = act()
        except BaseException as error:  # noqa: BLE001 - it is the outcome
            outcomes[index] = error
        ended.release()

    threads = [Thread(target=run, args=(index, act)) for index, act in enumerate(acts)]
    # The lock of the writing connection: whoever leads waits for it before it looks at the queue.
    with store._writer.lock:
        for thread in threads:
            thread.start()
        for _ in threads:
            came.acquire()
        for _ in range(give_up):
            ended.acquire()
    for thread in threads:
        thread.join()
    return outcomes


def noting_in(storages: list[SqliteStorage]) -> list[Callable[[], BatchRange]]:
    """Return commits of one entry to each session."""

    def act(storage: SqliteStorage) -> Callable[[], BatchRange]:
        return lambda: storage.commit(noting(storage))

    return [act(storage) for storage in storages]


def test_commits_at_once_share_a_transaction(
    path: str, store: SqliteStore, storages: list[SqliteStorage]
) -> None:
    before = store.transactions

    outcomes = commit_together(store, noting_in(storages))

    assert outcomes == [BatchRange(Seq(2), Seq(2))] * COUNT
    assert store.transactions == before + 1
    commit_together(store, noting_in(storages))
    assert store.transactions == before + 2
    for storage, name in zip(storages, NAMES, strict=True):
        assert storage.last_seq == 3
        assert list(storage.export()) == exported(path, name)


def test_commits_one_by_one_share_nothing(
    store: SqliteStore, storages: list[SqliteStorage]
) -> None:
    before = store.transactions

    for act in noting_in(storages):
        act()

    assert store.transactions == before + COUNT


def test_every_kind_of_commit_can_share(path: str, store: SqliteStore) -> None:
    kinds = batches(LAST)
    storages = {name: store.create(name) for name in kinds}
    for storage in storages.values():
        fill(storage)
    before = store.transactions

    def act(name: str) -> Callable[[], BatchRange]:
        return lambda: storages[name].commit(kinds[name])

    outcomes = commit_together(store, [act(name) for name in kinds])

    assert store.transactions == before + 1
    for (name, batch), outcome in zip(kinds.items(), outcomes, strict=True):
        task = getattr(batch, "task", None)
        assert outcome == BatchRange(Seq(LAST + 1), Seq(LAST + len(batch.writes)), task)
        assert list(storages[name].export()) == exported(path, name)


def test_a_fenced_commit_leaves_the_others_of_its_group(
    path: str, store: SqliteStore, storages: list[SqliteStorage]
) -> None:
    with closing(SqliteStore(path)) as other:
        taken = [other.open(name, take_over=True) for name in (NAMES[0], NAMES[7], NAMES[15])]
        before = store.transactions

        outcomes = commit_together(store, noting_in(storages))

        assert store.transactions == before + 1
        for storage in taken:
            assert storage.last_seq == 1
            assert storage.commit(noting(storage)) == BatchRange(Seq(2), Seq(2))
    for index, (storage, outcome) in enumerate(zip(storages, outcomes, strict=True)):
        if index in (0, 7, 15):
            assert isinstance(outcome, OwnershipLostError)
            with pytest.raises(OwnershipLostError):
                storage.commit(noting(storage))
        else:
            assert outcome == BatchRange(Seq(2), Seq(2))
            storage.commit(noting(storage))
        assert list(storage.export()) == exported(path, NAMES[index])


def test_a_commit_that_fails_when_it_is_half_written_leaves_the_others(
    path: str, store: SqliteStore, storages: list[SqliteStorage]
) -> None:
    rows = storages[3]._rows
    write = rows.write

    def write_and_fail(checked: CheckedBatch) -> None:
        write(checked)
        raise LimitExceededError("TASK-4", "task", "too old")

    rows.write = write_and_fail  # type: ignore[method-assign]
    outcomes = commit_together(store, noting_in(storages))

    assert isinstance(outcomes[3], LimitExceededError)
    assert [storage.last_seq for storage in storages] == [1 if n == 3 else 2 for n in range(COUNT)]
    for name, storage in zip(NAMES, storages, strict=True):
        assert list(storage.export()) == exported(path, name)
    assert storages[3].commit(noting(storages[3])) == BatchRange(Seq(2), Seq(2))


def test_a_refused_commit_is_no_part_of_a_group(
    store: SqliteStore, storages: list[SqliteStorage]
) -> None:
    acts = noting_in(storages)

    with pytest.raises(InvalidBatchError):
        storages[0].commit(MainBatch((DeleteConversation(Seq(1)),)))
    outcomes = commit_together(store, acts)

    assert outcomes == [BatchRange(Seq(2), Seq(2))] * COUNT


@pytest.mark.parametrize(
    ("at", "failure", "expected"),
    [
        ("BEGIN IMMEDIATE", apsw.IOError("no disk"), StoreIOError),
        ("SAVEPOINT one", apsw.FullError("no room"), StoreFullError),
        ("INSERT INTO records", apsw.FullError("no room"), StoreFullError),
        ("INSERT INTO records", apsw.IOError("no disk"), StoreIOError),
        ("COMMIT", apsw.FullError("no room"), StoreFullError),
        ("COMMIT", apsw.IOError("no disk"), CommitUncertainError),
    ],
    ids=str,
)
def test_a_failed_group_is_absent_and_everybody_is_told(
    path: str,
    store: SqliteStore,
    storages: list[SqliteStorage],
    at: str,
    failure: Exception,
    expected: type[PicoError],
) -> None:
    left = 5 if at.startswith(("INSERT", "SAVEPOINT")) else 1

    def fail(cursor: apsw.Cursor, sql: str, bindings: object) -> bool:
        nonlocal left
        left -= sql.startswith(at)
        if left == 0:
            left = -1
            raise failure
        return True

    store._writer.db.exec_trace = fail
    outcomes = commit_together(store, noting_in(storages))
    store._writer.db.exec_trace = None

    assert {type(outcome) for outcome in outcomes} == {expected}
    assert [len(exported(path, name)) for name in NAMES] == [3] * COUNT
    if expected is CommitUncertainError:
        for name, storage in zip(NAMES, storages, strict=True):
            with pytest.raises(StorageFaultedError, match="no disk"):
                storage.commit(noting(storage))
            storage.close()
            storages[NAMES.index(name)] = store.open(name)
    assert commit_together(store, noting_in(storages)) == [BatchRange(Seq(2), Seq(2))] * COUNT


@pytest.mark.parametrize("at", ["BEGIN IMMEDIATE", "INSERT INTO records", "COMMIT"])
def test_an_interrupted_leader_interrupts_nobody_else(
    path: str, store: SqliteStore, storages: list[SqliteStorage], at: str
) -> None:
    left = 1

    def interrupt(cursor: apsw.Cursor, sql: str, bindings: object) -> bool:
        nonlocal left
        left -= sql.startswith(at)
        if left == 0:
            left = -1
            raise KeyboardInterrupt
        return True

    store._writer.db.exec_trace = interrupt
    outcomes = commit_together(store, noting_in(storages))
    store._writer.db.exec_trace = None

    kinds = [type(outcome) for outcome in outcomes]
    assert kinds.count(KeyboardInterrupt) == 1
    # It did not come to its end, so that the others know that nothing happened.
    assert kinds.count(StoreBusyError) == COUNT - 1
    for storage, name in zip(storages, NAMES, strict=True):
        assert list(storage.export()) == exported(path, name)
        assert storage.last_seq == 1
    assert commit_together(store, noting_in(storages)) == [BatchRange(Seq(2), Seq(2))] * COUNT


class _InterruptedEvent(Event):
    """What a thread waits on that is interrupted."""

    def wait(self, timeout: float | None = None) -> bool:
        raise KeyboardInterrupt


def test_an_interrupted_wait_withdraws_its_commit(
    store: SqliteStore, storages: list[SqliteStorage]
) -> None:
    """Its number is not taken, and the others of the group are written."""

    def interrupt_the_fifth(count: int, request: object) -> None:
        if count == 5:
            request.done = _InterruptedEvent()  # type: ignore[attr-defined]

    before = store.transactions

    outcomes = commit_together(store, noting_in(storages), interrupt_the_fifth, give_up=1)

    kinds = [type(outcome) for outcome in outcomes]
    assert kinds.count(KeyboardInterrupt) == 1
    assert kinds.count(BatchRange) == COUNT - 1
    assert store.transactions == before + 1
    loser = storages[kinds.index(KeyboardInterrupt)]
    assert loser.last_seq == 1
    assert loser.commit(noting(loser)) == BatchRange(Seq(2), Seq(2))
