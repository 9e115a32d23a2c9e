"""Reads beside commits, copies, counters, deep chains of forks, and the view of the checks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from threading import Thread

import pytest

from pico_conformance.rules.everything import everything
from pico_memory import MemoryStore
from pico_memory.storage import MemoryStorage
from pico_memory.view import MemoryView
from pico_store.address import ConversationAddress, ScratchAddress, Seq, SessionAddress, Shape
from pico_store.batch import (
    DeleteConversation,
    ListAppend,
    ListClear,
    ListRemove,
    MainBatch,
    MainWrite,
    ScratchBatch,
    SettleTask,
    ValueDelete,
    ValueSet,
)
from pico_store.query import EntryQuery, ListQuery, ValueQuery
from pico_store.records import Conversation, Entry, ForkPoint, JsonObject, JsonValue, Task, Version
from pico_store.snapshot import ValueVersion
from pico_store.view import StorageView
from tests.backends.memory.scene import batches, history, opened, rewindable, sticky

LEVELS = 1_000
SHAPES: tuple[Shape, ...] = ("value", "list")


@pytest.fixture
def _hasty_threads() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_hasty_threads")
def test_readers_see_whole_batches(storage: MemoryStorage) -> None:
    """Both values of a batch, or neither, in a page and in an export."""
    torn: list[object] = []
    sights = [0, 0]
    done = False

    def scan() -> None:
        while not done:
            items = storage.scan_values(ValueQuery(scope=SessionAddress("s"))).items
            sights[0] += 1
            if len({item.value for item in items}) > 1:
                torn.append(items)

    def export() -> None:
        while not done:
            values = [item.value for item in storage.export() if isinstance(item, ValueVersion)]
            sights[1] += 1
            if len(set(values)) > 1:
                torn.append(values)

    threads = [Thread(target=scan), Thread(target=export)]
    for thread in threads:
        thread.start()
    number = 0
    while number < 2_000 or min(sights) < 50:
        number += 1
        keys = ("a", "b", "c", "d")
        storage.commit(MainBatch(tuple(ValueSet(SessionAddress("s", key), number) for key in keys)))
    done = True
    for thread in threads:
        thread.join()

    assert not torn


def test_what_was_passed_in_may_change_afterwards(storage: MemoryStorage) -> None:
    value: JsonObject = {"a": [1]}
    state: JsonObject = {"status": "ready"}
    after: list[Seq] = []
    writes: list[MainWrite] = [
        ValueSet(SessionAddress("s"), value),
        Entry(id=Seq(3), conversation_id=Seq(1), kind="note", data=value, model=[value]),
        Task(
            id=Seq(4),
            conversation_id=Seq(1),
            kind="k",
            status="ready",
            role="start",
            state=state,
            after=after,  # type: ignore[arg-type]  # a list is let pass
        ),
    ]
    storage.commit(MainBatch(tuple(writes)))
    before = everything(storage)

    value["a"] = 2
    state["more"] = 1
    after.append(Seq(9))
    writes.clear()

    assert everything(storage) == before


def test_what_a_read_returned_may_change(storage: MemoryStorage) -> None:
    address = SessionAddress("s")
    value: JsonValue = {"a": [1]}
    storage.commit(MainBatch((ValueSet(address, value), ListAppend(address, value))))
    before = everything(storage)

    for found in (storage.get_value(address), storage.read_list(address, ListQuery()).items[0]):
        assert found is not None
        assert isinstance(found.value, dict)
        found.value["a"] = 2
    for item in storage.export():
        if isinstance(item, ValueVersion):
            assert isinstance(item.value, dict)
            item.value.clear()

    assert everything(storage) == before


def test_counters_tell_probes_from_payloads(storage: MemoryStorage) -> None:
    entries = (Entry(id=Seq(n), conversation_id=Seq(1), kind="note") for n in range(2, 12))
    storage.commit(MainBatch(tuple(entries)))
    counters = storage.counters
    assert (counters.commits, counters.queries, counters.rows_decoded) == (2, 0, 0)

    storage.scan_entries(EntryQuery(conversation_id=Seq(1), limit=3))
    assert (counters.queries, counters.rows_decoded) == (1, 3)
    storage.get_value(SessionAddress("s"))
    storage.entry_kinds()
    assert (counters.queries, counters.rows_decoded) == (3, 3)


def test_a_thousand_forks_deep(storage: MemoryStorage) -> None:
    storage.commit(
        MainBatch(
            (
                ValueSet(rewindable("k"), "root"),
                ListAppend(rewindable(None), "root"),
                Entry(id=Seq(4), conversation_id=Seq(1), kind="note", head=Seq(4)),
            )
        )
    )
    leaf = Seq(1)
    for _ in range(LEVELS):
        id = storage.last_seq + 1
        parent = ForkPoint(leaf, Seq(id - 1))
        leaf = Seq(id)
        entry = Entry(id=Seq(id + 1), conversation_id=leaf, kind="note")
        storage.commit(MainBatch((Conversation(id=leaf, parent=parent), entry)))
    before = storage.counters.queries

    page = storage.scan_entries(EntryQuery(conversation_id=leaf, limit=10_000))

    assert len(page.items) == LEVELS + 1
    assert storage.counters.queries - before <= LEVELS + 1
    assert storage.get_value(rewindable("k", leaf)) == Version(Seq(2), "root")
    assert len(storage.scan_values(ValueQuery(scope=rewindable(None, leaf))).items) == 1
    assert [item.id for item in storage.read_list(rewindable(None, leaf), ListQuery()).items] == [3]
    head = storage.newest_head(leaf, storage.last_seq)
    assert head is not None
    assert head.id == 4

    storage.commit(MainBatch((ListRemove(rewindable(None, leaf), Seq(3)),)))
    assert storage.read_list(rewindable(None, leaf), ListQuery()).items == []
    assert len(storage.read_list(rewindable(None), ListQuery()).items) == 1

    # Everything between the root and the leaf goes, and the leaf keeps what it inherits.
    middle = [id for id in storage.get_conversations(range(2, leaf)) if id != leaf]  # type: ignore[arg-type]
    storage.commit(MainBatch(tuple(DeleteConversation(id) for id in middle)))
    page = storage.scan_entries(EntryQuery(conversation_id=leaf, limit=10_000))
    assert len(page.items) == LEVELS + 1
    assert len(storage.get_entries([entry.id for entry in page.items])) == LEVELS + 1


def test_vacuum_drops_what_nothing_shows(store: MemoryStore, storage: MemoryStorage) -> None:
    kept, lost = Seq(3), Seq(5)
    storage.commit(
        MainBatch(
            (
                Conversation(id=Seq(2)),
                Entry(id=kept, conversation_id=Seq(2), kind="note", data="kept"),
                Conversation(id=Seq(4), parent=ForkPoint(Seq(2), kept)),
                Entry(id=lost, conversation_id=Seq(2), kind="lost", data="lost"),
                ValueSet(sticky("k", Seq(2)), "lost"),
            )
        )
    )
    storage.commit(MainBatch((DeleteConversation(Seq(2)),)))
    before = everything(storage)

    report = store.vacuum()

    assert report.records_dropped == 2
    assert report.bytes_after < report.bytes_before
    assert everything(storage) == before
    assert list(storage.get_entries([kept, lost])) == [kept]
    assert storage.entry_kinds() == {"lost", "note"}
    assert store.vacuum().records_dropped == 0
    storage.commit(MainBatch((DeleteConversation(Seq(4)),)))
    assert store.vacuum().records_dropped == 3
    assert storage.get_entries([kept]) == {}


def test_settled_scratch_is_gone(storage: MemoryStorage) -> None:
    task, address = Seq(2), ScratchAddress(Seq(2), "s")
    new = Task(
        id=task,
        conversation_id=Seq(1),
        kind="k",
        status="s",
        role="start",
        state={"status": "s"},
    )
    storage.commit(MainBatch((new,)))
    storage.commit(ScratchBatch(task, (ListAppend(address, 1), ValueSet(address, 1))))

    storage.commit(MainBatch((SettleTask(task, "s", {"status": "s"}),)))

    assert storage._resident.view.state.scratch == {}


def test_the_view_answers_as_the_reads_do() -> None:
    for batch in (None, *batches().values()):
        storage = opened(history())
        if batch is not None:
            storage.commit(batch)
        with_fork = Conversation(
            id=Seq(storage.last_seq + 1), parent=ForkPoint(Seq(1), Seq(13)), owner=Seq(15)
        )
        list_of_fork = rewindable(None, with_fork.id)
        hidden = ListClear(list_of_fork) if batch else ListRemove(list_of_fork, Seq(4))
        storage.commit(MainBatch((with_fork, hidden, ValueDelete(rewindable("k", with_fork.id)))))

        _assert_equal_views(storage, storage._resident.view)


def _assert_equal_views(storage: MemoryStorage, view: MemoryView) -> None:
    slow = StorageView(storage)
    numbers = [Seq(number) for number in range(storage.last_seq + 2)]
    live = list(storage.get_conversations(numbers))
    assert view.last_seq == slow.last_seq
    for number in numbers:
        assert view.conversation(number) == slow.conversation(number)
        assert view.task(number) == slow.task(number)
    for conversation in live:
        assert view.live_tasks(conversation) == slow.live_tasks(conversation)
        assert view.owned_conversations(conversation) == slow.owned_conversations(conversation)
        shown = [id for id in numbers if id and slow.entry_visible(conversation, id)]
        assert shown == [id for id in numbers if id and view.entry_visible(conversation, id)]
        for at in numbers[1:]:
            assert view.head_boundary(conversation, at) == slow.head_boundary(conversation, at)
        for key in (None, "old", "new", "gone", "never", "full"):
            for make in (sticky, rewindable):
                address = make(key, conversation)
                for shape in SHAPES:
                    assert view.rewind_policy(address, shape) == slow.rewind_policy(address, shape)
                _assert_equal_elements(view, slow, address, numbers, shown)


def _assert_equal_elements(
    view: MemoryView,
    slow: StorageView,
    address: ConversationAddress,
    numbers: list[Seq],
    shown: list[Seq],
) -> None:
    for at in (None, *(shown if address.rewind else ())):
        for element in numbers[1:]:
            expected = slow.element_visible(address, element, at)
            assert view.element_visible(address, element, at) is expected
