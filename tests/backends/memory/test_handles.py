"""Stores, ownership and handles of the memory backend."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread

import pytest

from pico_memory import MemoryStore, backend
from pico_memory.storage import MemoryStorage
from pico_store.address import Seq, SessionAddress
from pico_store.batch import MainBatch, ValueSet
from pico_store.errors import (
    InvalidBatchError,
    OwnershipLostError,
    PicoError,
    SessionOwnedError,
    StorageClosedError,
    StoreUnusableError,
    StoreUrlError,
    UnknownSessionError,
    UnsupportedError,
)
from pico_store.query import ConversationQuery
from pico_store.records import Conversation

WRITE_ROOT = MainBatch((Conversation(id=Seq(1)),))
WRITE = MainBatch((ValueSet(SessionAddress("s"), 1),))


def test_every_store_is_its_own() -> None:
    first, second = backend.open("", {}, True), backend.open("", {}, True)

    first.create("a")

    assert [session.id for session in first.sessions()] == ["a"]
    assert second.sessions() == []


def test_memory_has_no_path() -> None:
    with pytest.raises(StoreUrlError, match="allowed: memory: alone"):
        backend.open("a.db", {}, True)


def test_no_memory_is_there_before_it_is_made() -> None:
    with pytest.raises(StoreUnusableError):
        backend.open("", {}, False)


def test_memory_has_nothing_to_back_up(store: MemoryStore) -> None:
    with pytest.raises(UnsupportedError):
        store.backup("a.db")


def test_a_handle_that_is_dropped_owns_nothing(store: MemoryStore) -> None:
    dropped = store.create("b")
    dropped.commit(WRITE_ROOT)

    del dropped

    assert store.sessions()[0].owner is None
    assert store.open("b").epoch == 2


def test_an_id_that_is_no_text_is_refused_everywhere(store: MemoryStore) -> None:
    with pytest.raises(InvalidBatchError):
        store.open(3)  # type: ignore[arg-type]
    with pytest.raises(InvalidBatchError):
        store.delete(3)  # type: ignore[arg-type]


def test_a_second_owner_is_refused_by_name(store: MemoryStore, storage: MemoryStorage) -> None:
    with pytest.raises(
        SessionOwnedError, match=r"process \d+ on .* since 2023-11-14 22:13:20 UTC; close it there"
    ):
        store.open("a")
    with pytest.raises(SessionOwnedError):
        store.delete("a")

    storage.commit(WRITE)

    (session,) = store.sessions()
    assert session.epoch == storage.epoch == 1
    assert session.owner is not None


def test_a_reader_takes_no_ownership(store: MemoryStore, storage: MemoryStorage) -> None:
    reader = store.open("a", read_only=True)

    storage.commit(WRITE)

    assert reader.last_seq == storage.last_seq
    with pytest.raises(UnsupportedError):
        reader.commit(WRITE)
    reader.close()
    with pytest.raises(SessionOwnedError):
        store.open("a")


def test_a_fenced_handle_reads_and_never_commits(
    store: MemoryStore, storage: MemoryStorage
) -> None:
    owner = store.open("a", take_over=True)

    with pytest.raises(OwnershipLostError):
        storage.commit(WRITE)
    owner.commit(WRITE)
    assert storage.last_seq == owner.last_seq

    owner.close()
    with pytest.raises(OwnershipLostError):
        storage.commit(WRITE)


def test_a_fenced_handle_gives_back_only_what_is_its_own(
    store: MemoryStore, storage: MemoryStorage
) -> None:
    owner = store.open("a", take_over=True)

    storage.close()

    with pytest.raises(SessionOwnedError):
        store.open("a")
    owner.close()
    assert store.open("a").epoch == 3


def test_nothing_of_the_fenced_slips_in(store: MemoryStore, storage: MemoryStorage) -> None:
    errors: list[PicoError] = []
    started = [False]

    def commit_until_refused() -> None:
        while True:
            try:
                storage.commit(WRITE)
            except PicoError as error:
                errors.append(error)
                return
            started[0] = True

    thread = Thread(target=commit_until_refused)
    thread.start()
    while not started[0]:
        pass
    owner = store.open("a", take_over=True)
    before = owner.last_seq
    thread.join()

    assert [type(error) for error in errors] == [OwnershipLostError]
    assert owner.last_seq == before > 1


@pytest.mark.parametrize(
    "call",
    [
        lambda storage: storage.commit(WRITE),
        lambda storage: storage.last_seq,
        lambda storage: storage.get_entries(()),
        lambda storage: storage.scan_conversations(ConversationQuery()),
        lambda storage: storage.export(),
    ],
)
def test_a_closed_handle_refuses(
    store: MemoryStore, storage: MemoryStorage, call: Callable[[MemoryStorage], object]
) -> None:
    storage.close()
    storage.close()

    with pytest.raises(StorageClosedError):
        call(storage)
    assert store.sessions()[0].owner is None


def test_an_export_keeps_its_state_to_the_end(store: MemoryStore, storage: MemoryStorage) -> None:
    expected = list(storage.export())
    export = storage.export()
    items = [next(export)]

    storage.commit(MainBatch((Conversation(id=Seq(2)),)))
    storage.close()
    items += export

    assert items == expected
    assert len(list(store.open("a").export())) > len(expected)


def test_closing_the_store_closes_its_handles(store: MemoryStore, storage: MemoryStorage) -> None:
    store.close()
    store.close()

    with pytest.raises(StorageClosedError):
        storage.commit(WRITE)
    with pytest.raises(StorageClosedError):
        store.create("")


def test_a_deleted_session_is_gone_and_its_id_is_free(
    store: MemoryStore, storage: MemoryStorage
) -> None:
    storage.close()

    store.delete("a")

    with pytest.raises(UnknownSessionError):
        store.open("a")
    assert store.create("a").last_seq == 0
