"""LMDB-1: the map grows by itself, and readers hold nothing up."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Final

import pytest

from pico_lmdb import LmdbStore, environment, writer
from pico_lmdb.storage import LmdbStorage
from pico_store.address import Seq
from pico_store.batch import MainBatch
from pico_store.digest import digest
from pico_store.errors import (
    PicoError,
    StoreBusyError,
    StoreDamagedError,
    StoreFullError,
    UnknownConversationError,
)
from pico_store.query import EntryQuery, ListQuery, ValueQuery
from pico_store.records import Entry
from pico_store.storage import Durability
from tests.backends.lmdb.processes import worker
from tests.backends.lmdb.scene import ROOT, ROOT_BATCH, entry, fill, noting, rewindable, setting

MIB: Final = 1 << 20


def _map_bytes(store: LmdbStore) -> int:
    return int(store._environment.engine.info()["map_size"])


def test_a_map_of_one_mib_takes_a_hundred(path: str) -> None:
    with closing(LmdbStore(path, durability="process", map_bytes=MIB)) as store:
        storage = store.create("a")
        storage.commit(ROOT_BATCH)
        assert _map_bytes(store) == MIB
        for _ in range(100):
            storage.commit(noting(storage, data="x" * MIB))

        assert _map_bytes(store) > 100 * MIB
        assert storage.last_seq == 101
        for found in storage.scan_entries(EntryQuery(conversation_id=ROOT)).items:
            assert found.data == "x" * MIB


def test_a_batch_larger_than_the_map_is_taken(path: str) -> None:
    with closing(LmdbStore(path, map_bytes=MIB)) as store:
        storage = store.create("a")
        storage.commit(ROOT_BATCH)
        storage.commit(MainBatch(tuple(entry(n, data="x" * MIB) for n in range(2, 22))))

        assert len(storage.scan_entries(EntryQuery(conversation_id=ROOT)).items) == 20


@pytest.mark.parametrize("durability", ["process", "power"])
def test_the_map_grows_while_threads_read_and_write(path: str, durability: str) -> None:
    with closing(
        LmdbStore(path, durability=durability, map_bytes=MIB)  # type: ignore[arg-type]
    ) as store:
        writers = [store.create(str(number)) for number in range(3)]
        for storage in writers:
            storage.commit(ROOT_BATCH)
        done = threading.Event()
        errors: list[BaseException] = []

        def run(act: Callable[[], None]) -> threading.Thread:
            def guarded() -> None:
                try:
                    act()
                except BaseException as error:  # noqa: BLE001 - asserted on below
                    errors.append(error)

            thread = threading.Thread(target=guarded)
            thread.start()
            return thread

        def write(storage: LmdbStorage) -> Callable[[], None]:
            def commit() -> None:
                for _ in range(40):
                    storage.commit(noting(storage, data="x" * 100_000))

            return commit

        def read() -> None:
            while not done.is_set():
                for storage in writers:
                    page = storage.scan_entries(EntryQuery(conversation_id=ROOT, limit=1_000))
                    assert len(page.items) == page.read_at - 1

        reading = [run(read) for _ in range(2)]
        for thread in [run(write(storage)) for storage in writers]:
            thread.join()
        done.set()
        for thread in reading:
            thread.join()

        assert errors == []
        assert _map_bytes(store) >= 16 * MIB
        assert [info.last_seq for info in store.sessions()] == [41, 41, 41]


def test_another_process_adopts_the_size_and_the_other_way_round(path: str) -> None:
    with (
        closing(LmdbStore(path, durability="process", map_bytes=MIB)) as store,
        worker(path) as other,
        worker(path) as reader,
    ):
        storage = store.create("a")
        storage.commit(ROOT_BATCH)
        assert other.ask(f"create b {MIB}") == "1"
        assert reader.ask("open a") == "1"
        for _ in range(5):
            for _ in range(20):
                storage.commit(noting(storage, data="x" * 100_000))
            assert reader.ask("count") == str(storage.last_seq - 1)
            other.ask("commit 20 100000")
            assert other.ask("count") == str(storage.last_seq - 1)

        assert _map_bytes(store) >= 20 * MIB
        assert store.verify().problems == ()


def test_a_map_that_cannot_grow_is_a_full_store(
    store: LmdbStore, storage: LmdbStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = store._environment
    shared.engine.set_mapsize(MIB)
    with monkeypatch.context() as patch:
        patch.setattr(shared, "grow_map", lambda: shared._set_map(1 << 62))
        with pytest.raises(StoreFullError):
            storage.commit(noting(storage, data="x" * MIB))

    storage.commit(noting(storage, data="x" * MIB))
    assert storage.last_seq == 2


# --- Readers ---


def _open_reads(store: LmdbStore) -> int:
    """Return how many places for readers hold a state, in any process."""
    lines = store._environment.engine.readers().splitlines()[1:]
    return sum(not line.endswith("-") for line in lines)


_READS: Final[dict[str, Callable[[LmdbStorage], object]]] = {
    "a page": lambda s: s.scan_entries(EntryQuery(conversation_id=ROOT, limit=1)),
    "a page of values": lambda s: s.scan_values(ValueQuery(scope=rewindable(None), limit=1)),
    "a page of a list": lambda s: s.read_list(rewindable(None), ListQuery(limit=1)),
    "the first item of an export": lambda s: next(s.export()),
    "an export": lambda s: list(s.export()),
    "a commit": lambda s: s.commit(noting(s)),
}


@pytest.mark.parametrize("name", _READS)
def test_no_read_transaction_outlives_a_call(name: str, store: LmdbStore) -> None:
    storage = store.create("a")
    fill(storage)

    _READS[name](storage)

    assert _open_reads(store) == 0


def test_a_refused_and_a_damaged_read_end_their_transactions(
    store: LmdbStore, storage: LmdbStorage
) -> None:
    storage.commit(noting(storage))
    with pytest.raises(UnknownConversationError):
        storage.scan_entries(EntryQuery(conversation_id=Seq(99)))
    assert _open_reads(store) == 0
    shared = store._environment
    with shared.engine.begin(write=True, db=shared.trees[1]) as transaction:
        ((key, row),) = transaction.cursor()
        transaction.put(key, bytes(row[:-1]) + b"?")

    for read in (
        lambda: storage.scan_entries(EntryQuery(conversation_id=ROOT)),
        lambda: list(storage.export()),
    ):
        with pytest.raises(StoreDamagedError, match="2 is damaged"):
            read()
        assert _open_reads(store) == 0


def test_an_export_that_is_begun_holds_its_state_and_no_pages(
    store: LmdbStore, storage: LmdbStorage
) -> None:
    storage.commit(noting(storage, data="x" * (8 << 20)))
    before = digest(storage.export())
    items = storage.export()
    first = next(items)
    for _ in range(50):
        storage.commit(setting("y" * 500_000))
    pages = store._environment.engine.info()["last_pgno"]

    assert pages * 4_096 < 16 << 20, "the pages of replaced values were not used again"
    assert digest([first, *items]) == before


def test_the_places_of_killed_readers_are_cleared_at_open(path: str) -> None:
    with closing(LmdbStore(path)) as store:
        store.create("a").commit(ROOT_BATCH)
    with worker(path) as reader, worker(path) as bystander:
        bystander.ask("hold 1")
        reader.ask("hold 20")
        reader.kill()

        with closing(LmdbStore(path)) as store:
            assert _open_reads(store) == 1, "that of the process that lives"


def test_the_places_of_killed_readers_are_cleared_when_there_is_none_left(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "READERS_MAX", 4)
    with closing(LmdbStore(path)) as store, worker(path) as reader:
        storage = store.create("a")
        storage.commit(ROOT_BATCH)
        reader.ask("hold 3")
        other = store._environment.begin_read()
        with pytest.raises(StoreBusyError, match="try again"):
            store.sessions()
        reader.kill()

        assert storage.scan_entries(EntryQuery(conversation_id=ROOT)).items == []

        store._environment.end_read(other)


@pytest.mark.parametrize("durability", ["process", "ordered", "power"])
def test_a_writer_clears_the_places_of_killed_readers(
    path: str, durability: Durability, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session may be written for weeks without anybody else opening the store."""
    monkeypatch.setattr(writer, "LOOK_EVERY", 50)
    with closing(LmdbStore(path, durability=durability)) as store:
        storage = store.create("a")
        storage.commit(ROOT_BATCH)
        with worker(path) as reader:
            reader.ask("hold 3")
            reader.kill()

        for _ in range(300):
            storage.commit(setting("x" * 20_000, "key"))

        assert _open_reads(store) == 0
    assert os.stat(f"{path}/data.mdb").st_size < 4 * MIB, "what 300 commits freed was not used"


def test_free_pages_are_used_again(path: str, store: LmdbStore, storage: LmdbStorage) -> None:
    for number in range(600):
        storage.commit(setting("x" * 50_000, "key"))
        if number % 10 == 0:
            storage.scan_entries(EntryQuery(conversation_id=ROOT))

    assert os.stat(f"{path}/data.mdb").st_size < 1 << 20


def test_threads_that_commit_see_one_another(store: LmdbStore) -> None:
    storages = [store.create(str(number)) for number in range(4)]

    def commit(storage: LmdbStorage) -> None:
        storage.commit(ROOT_BATCH)
        for _ in range(100):
            storage.commit(MainBatch((Entry(Seq(storage.last_seq + 1), ROOT, "note"),)))

    threads = [threading.Thread(target=commit, args=(storage,)) for storage in storages]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [info.last_seq for info in store.sessions()] == [101] * 4
    assert issubclass(StoreBusyError, PicoError)
