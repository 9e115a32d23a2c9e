"""Several writers of one file: threads, handles and processes, and waits that run out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Barrier, Thread
from typing import Final

import apsw
import pytest

from pico_memory import MemoryStore
from pico_sqlite import SqliteStore
from pico_sqlite.storage import SqliteStorage
from pico_store.address import Seq
from pico_store.batch import MainBatch
from pico_store.digest import digest
from pico_store.errors import StoreBusyError
from pico_store.query import BatchQuery, EntryQuery
from pico_store.records import BatchRange, Entry
from pico_store.storage import Durability
from tests.backends.sqlite.processes import worker
from tests.backends.sqlite.scene import (
    HISTORY,
    LAST,
    ROOT,
    ROOT_BATCH,
    batches,
    entry,
    exported,
    fill,
    noting,
)

_LEVELS: Final[tuple[Durability, ...]] = ("ordered", "power")


def _in_threads(acts: list[Callable[[], None]]) -> None:
    """Run all at once; raise what one of them raised."""
    barrier = Barrier(len(acts))
    errors: list[BaseException] = []

    def run(act: Callable[[], None]) -> None:
        barrier.wait()
        try:
            act()
        except BaseException as error:  # noqa: BLE001 - raised below, in the test's thread
            errors.append(error)

    threads = [Thread(target=run, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def _assert_no_gap(storage: SqliteStorage, last: int) -> None:
    """Assert that the session is one batch a number, from the first to the last."""
    assert storage.last_seq == last
    batches = storage.scan_batches(BatchQuery(limit=10_000)).items
    assert batches == [BatchRange(Seq(n), Seq(n)) for n in range(1, last + 1)]
    entries = storage.scan_entries(EntryQuery(conversation_id=ROOT, limit=10_000)).items
    assert [entry.id for entry in entries] == list(range(2, last + 1))


@pytest.mark.parametrize("durability", _LEVELS)
def test_threads_and_a_process_commit_to_one_file(path: str, durability: Durability) -> None:
    count = 60
    with worker(path, "other") as process:
        process.ask("create")
        with closing(SqliteStore(path, durability=durability)) as store:
            storages = [store.create(str(number)) for number in range(8)]

            def act(storage: SqliteStorage) -> Callable[[], None]:
                def commit() -> None:
                    storage.commit(ROOT_BATCH)
                    for _ in range(count):
                        storage.commit(noting(storage))

                return commit

            process.send(f"commit {8 * count}")
            _in_threads([act(storage) for storage in storages])

            assert process.hear() == str(1 + 8 * count)
            for storage in storages:
                _assert_no_gap(storage, 1 + count)
            _assert_no_gap(store.open("other", read_only=True), 1 + 8 * count)
            assert store.verify().problems == ()


def test_threads_read_whole_batches_while_another_commits(storage: SqliteStorage) -> None:
    """Two entries a batch: an even number of them, in a page and in an export."""
    torn: list[int] = []
    done = False

    def commit() -> None:
        nonlocal done
        for n in range(1, 400, 2):
            storage.commit(MainBatch((entry(n + 1), entry(n + 2))))
        done = True

    def read() -> None:
        while not done:
            page = storage.scan_entries(EntryQuery(conversation_id=ROOT, limit=10_000))
            exported = sum(isinstance(item, Entry) for item in storage.export())
            torn.extend(size for size in (len(page.items), exported) if size % 2)

    _in_threads([commit, read, read])

    assert torn == []
    assert storage.last_seq == 401


@contextmanager
def _writer_elsewhere(path: str) -> Iterator[apsw.Connection]:
    """Hold the lock that a writer needs."""
    with closing(apsw.Connection(path)) as db:
        db.execute("BEGIN IMMEDIATE")
        yield db


@pytest.mark.parametrize("durability", _LEVELS)
@pytest.mark.parametrize("name", ["state", "records", "scratch", "one append", "first scratch"])
def test_a_wait_that_runs_out_is_a_refusal_of_the_moment(
    path: str, name: str, durability: Durability
) -> None:
    with closing(SqliteStore(path, durability=durability, busy_ms=20)) as store:
        storage = store.create("a")
        fill(storage)
        before = list(storage.export())
        with _writer_elsewhere(path):
            for _ in range(2):
                with pytest.raises(StoreBusyError, match="another writer"):
                    storage.commit(batches(LAST)[name])
            # Reads wait for nobody.
            assert storage.last_seq == LAST
            assert list(storage.export()) == before

        storage.commit(batches(LAST)[name])

        assert storage.last_seq == LAST + len(batches(LAST)[name].writes)
        assert list(storage.export()) == exported(path)


def test_whatever_writes_gives_up_when_the_wait_runs_out(path: str, tmp_path: Path) -> None:
    with closing(SqliteStore(path, busy_ms=20)) as store:
        storage = store.create("a")
        fill(storage)
        items = list(storage.export())
        storage.close()
        acts: dict[str, Callable[[], object]] = {
            "create": lambda: store.create("b"),
            "open": lambda: store.open("a"),
            "delete": lambda: store.delete("a"),
            "load": lambda: store.load("c", items),
            "vacuum": store.vacuum,
        }
        with _writer_elsewhere(path):
            for name, act in acts.items():
                with pytest.raises(StoreBusyError, match=name):
                    act()
            assert [session.id for session in store.sessions()] == ["a"]
            assert list(store.open("a", read_only=True).export()) == items
            assert store.verify().problems == ()
            # A backup only reads.
            store.backup(str(tmp_path / "backup.db"))

        for act in acts.values():
            act()


def test_a_handle_that_cannot_be_given_back_holds_nothing(path: str) -> None:
    with closing(SqliteStore(path, busy_ms=20)) as store, closing(SqliteStore(path)) as other:
        storage = store.create("a")
        with _writer_elsewhere(path):
            storage.close()
        assert other.sessions()[0].owner is not None

        assert other.open("a").epoch == 2


def test_processes_that_make_files_at_once_all_succeed(tmp_path: Path) -> None:
    """Eight processes on twenty fresh files: the first writes and the switches to the log race."""
    starting, start = os.pipe()
    children = {}
    for number in range(8):
        child = os.fork()
        if child == 0:
            failed = 1
            try:
                os.close(start)
                os.read(starting, 1)
                for file in range(20):
                    with closing(SqliteStore(str(tmp_path / f"{file}.db"))) as store:
                        store.create(str(number)).commit(ROOT_BATCH)
                failed = 0
            finally:
                os._exit(failed)
        children[number] = child
    os.close(starting)
    os.close(start)
    ended = {number: os.waitpid(child, 0)[1] for number, child in children.items()}

    assert ended == dict.fromkeys(range(8), 0)
    for file in range(20):
        with closing(SqliteStore(str(tmp_path / f"{file}.db"), create=False)) as store:
            assert [(s.id, s.last_seq) for s in store.sessions()] == [(str(n), 1) for n in range(8)]
            assert store.verify().problems == ()


def test_two_handles_in_one_process_do_what_memory_does(path: str) -> None:
    """Both write in turns, each a session of its own, and read the other's."""
    memory = MemoryStore(lambda: 0)
    with closing(SqliteStore(path)) as first, closing(SqliteStore(path)) as second:
        storages = {"a": first.create("a"), "b": second.create("b")}
        readers = {
            "a": second.open("a", read_only=True),
            "b": first.open("b", read_only=True),
        }
        expected = {name: memory.create(name) for name in storages}
        order = ("state", "scratch", "first scratch", "deletion", "records")
        for step in range(len(HISTORY) + len(order)):
            for name, storage in storages.items():
                batch = (
                    HISTORY[step]
                    if step < len(HISTORY)
                    else batches(storage.last_seq)[order[step - len(HISTORY)]]
                )
                storage.commit(batch)
                expected[name].commit(batch)
                items = list(expected[name].export())
                assert list(storage.export()) == items
                assert list(readers[name].export()) == items
        assert digest(storages["a"].export()) == digest(storages["b"].export())


def test_the_switch_to_the_log_is_tried_again_while_there_is_time(path: str) -> None:
    """SQLite does not wait in every case where two connections switch at once."""
    left = 3

    def refuse(cursor: apsw.Cursor, sql: str, bindings: object) -> bool:
        nonlocal left
        if "journal_mode" in sql and left:
            left -= 1
            raise apsw.BusyError("another switches")
        return True

    def watch(db: apsw.Connection) -> None:
        db.exec_trace = refuse

    apsw.connection_hooks.append(watch)
    try:
        with pytest.raises(StoreBusyError, match="open"):
            SqliteStore(path, busy_ms=0)
        assert left == 2
        with closing(SqliteStore(path)) as store:
            store.create("a").commit(ROOT_BATCH)
        assert left == 0
    finally:
        apsw.connection_hooks.remove(watch)


@pytest.mark.parametrize("statement", ["FROM sqlite_schema", "application_id", "user_version"])
@pytest.mark.parametrize("is_switched", [False, True], ids=["empty", "log"])
def test_a_store_made_between_two_looks_at_its_tables_is_no_foreign_file(
    path: str, *, statement: str, is_switched: bool
) -> None:
    """What one open sees of a file is of one instant, whatever another does meanwhile."""
    if is_switched:
        with closing(apsw.Connection(path)) as db:
            db.pragma("journal_mode", "wal")
    met: list[str] = []

    def make_the_store(_cursor: apsw.Cursor, sql: str, _bindings: object) -> bool:
        if statement in sql and not met:
            met.append(sql)
            apsw.connection_hooks.remove(watch)
            with suppress(StoreBusyError), closing(SqliteStore(path, busy_ms=0)) as other:
                other.create("other")
        return True

    def watch(db: apsw.Connection) -> None:
        db.exec_trace = make_the_store

    apsw.connection_hooks.append(watch)
    try:
        with closing(SqliteStore(path)) as store:
            store.create("a")
            assert "a" in [session.id for session in store.sessions()]
    finally:
        if watch in apsw.connection_hooks:
            apsw.connection_hooks.remove(watch)

    assert met
