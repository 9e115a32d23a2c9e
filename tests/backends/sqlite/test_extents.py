"""A session's numbers beyond one extent, up to the last number there is."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import Final

import apsw
import pytest
from msgspec.structs import replace

from pico_conformance.rules.everything import assert_same, exact
from pico_memory import MemoryStore
from pico_sqlite import SqliteStore
from pico_sqlite.numbers import EXTENT_BITS, Numbers
from pico_store.address import Address, ConversationAddress, ScratchAddress, Seq, SessionAddress
from pico_store.batch import (
    Batch,
    ListAppend,
    ListClear,
    ListRemove,
    MainBatch,
    PatchTask,
    ScratchBatch,
    SettleTask,
    ValueDelete,
    ValueSet,
)
from pico_store.errors import InvalidBatchError
from pico_store.limits import SEQ_MAX
from pico_store.query import (
    BatchQuery,
    ConversationQuery,
    EntryQuery,
    ListQuery,
    TaskQuery,
    ValueQuery,
)
from pico_store.records import BatchRange, Conversation, Entry, ForkPoint
from pico_store.snapshot import SnapshotHeader, SnapshotItem
from pico_store.storage import Storage
from tests.backends.sqlite.scene import ROOT, entry, exported, rewindable, sticky, task

EXTENT: Final = 1 << EXTENT_BITS
# A border between the first two extents, one far up where an extent lies alone, and the end.
STARTS: Final = {"first": EXTENT - 7, "far": 5 * EXTENT - 7, "last": SEQ_MAX - 60}


def _start(last: int) -> list[SnapshotItem]:
    """Return a session that wrote its root, and then much that is gone, up to an entry."""
    return [
        SnapshotHeader(Seq(last), ("note",)),
        Conversation(id=ROOT),
        entry(last),
        BatchRange(ROOT, ROOT),
        BatchRange(Seq(last), Seq(last)),
    ]


def _batches(n: int) -> list[Batch]:
    """Return batches after number ``n`` that cross a border six or so numbers later."""
    tool, fork = Seq(n + 4), Seq(n + 6)
    in_scratch = ScratchAddress(tool, "s")
    return [
        MainBatch((ValueSet(rewindable("k"), 1), ListAppend(rewindable(None), "first"))),
        MainBatch((entry(n + 3), task(tool))),
        ScratchBatch(tool, (ListAppend(in_scratch, "first"),)),
        MainBatch(
            (
                Conversation(id=fork, parent=ForkPoint(ROOT, Seq(n + 3)), owner=tool),
                ValueSet(rewindable("k", fork), 2),
                ListAppend(rewindable(None, fork), "second"),
                ListAppend(sticky(None), "only"),
                Entry(
                    id=Seq(n + 10),
                    conversation_id=fork,
                    kind="note",
                    key="k",
                    by_task_id=tool,
                    head=Seq(n + 3),
                ),
            )
        ),
        ScratchBatch(tool, (ListAppend(in_scratch, "second"),)),
        ScratchBatch(
            tool,
            (
                ValueSet(ScratchAddress(tool, "s", "k"), 3),
                ListAppend(in_scratch, "third"),
                ListRemove(in_scratch, Seq(n + 5)),
            ),
        ),
        MainBatch(
            (
                ValueDelete(rewindable("k", fork)),
                ListRemove(rewindable(None, fork), Seq(n + 2)),
                ListClear(sticky(None)),
                PatchTask(tool, abort=True),
                entry(n + 19),
            )
        ),
        MainBatch((Conversation(id=Seq(n + 20), parent=ForkPoint(fork, Seq(n + 10))),)),
        MainBatch((SettleTask(tool, "done", {"status": "done"}),)),
    ]


def _sight(storage: Storage, n: int) -> dict[str, str]:
    """Return what reads around the border give, forwards and backwards, in pages of three."""
    seen: dict[str, object] = {
        "last_seq": storage.last_seq,
        "head": storage.newest_head(Seq(n + 6), Seq(SEQ_MAX))
        if storage.get_conversations([Seq(n + 6)])
        else None,
    }
    ids = [ROOT, *(Seq(number) for number in range(n - 2, min(n + 30, SEQ_MAX) + 1))]
    seen["entries"] = list(storage.get_entries(ids).values())
    seen["tasks"] = list(storage.get_tasks(ids).values())
    conversations = storage.get_conversations(ids)
    seen["conversations"] = list(conversations.values())
    windows: list[tuple[Seq | None, Seq | None]] = [
        (None, None),
        (None, Seq(SEQ_MAX)),
        (Seq(n + 3), None),
        (None, Seq(n + 8)),
        (Seq(n + 1), Seq(n + 12)),
        (Seq(EXTENT * 4), None),
    ]
    for after, before in windows:
        for limit in (3, 100):
            page = partial(replace, after=after, before=before, limit=limit)

            name = f"{after} to {before}, {limit}"
            seen[f"batches {name}"] = storage.scan_batches(page(BatchQuery()))
            seen[f"forks {name}"] = storage.scan_conversations(page(ConversationQuery()))
            for live in (None, True, False):
                seen[f"tasks {live} {name}"] = storage.scan_tasks(page(TaskQuery(live=live)))
            for id in conversations:
                entries = page(EntryQuery(conversation_id=id))
                seen[f"entries of {id} {name}"] = storage.scan_entries(entries)
                addresses: list[Address] = [rewindable(None, id), sticky(None, id)]
                for address in (*addresses, ScratchAddress(Seq(n + 4), "s")):
                    found = storage.read_list(address, page(ListQuery()))
                    seen[f"list {address} {name}"] = found
    for id in conversations:
        for scope in (ConversationAddress(id, "v"), ScratchAddress(Seq(n + 4), "s")):
            seen[f"values {scope}"] = storage.scan_values(ValueQuery(scope=scope))
        seen[f"value {id}"] = storage.get_value(rewindable("k", id))
    seen["at"] = storage.get_value(rewindable("k"), Seq(n))
    return {name: exact(value) for name, value in seen.items()}


@pytest.mark.parametrize("name", STARTS)
def test_a_session_crosses_a_border_as_memory_does(name: str, path: str) -> None:
    n = STARTS[name]
    memory = MemoryStore(lambda: 0)
    memory.load("a", _start(n))
    expected = memory.open("a")
    with closing(SqliteStore(path)) as store:
        store.load("a", _start(n))
        storage = store.open("a")
        # Two handles that read, of which one was there before the border.
        before = store.open("a", read_only=True)

        for number, batch in enumerate(_batches(n)):
            assert storage.commit(batch) == expected.commit(batch)
            after = store.open("a", read_only=True)
            for handle in (storage, before, after):
                assert_same(_sight(expected, n), _sight(handle, n), f"batch {number}")
                assert list(handle.export()) == list(expected.export())
            if number % 3 == 2:
                storage.close()
                storage = store.open("a")
        assert store.verify().problems == ()
        items = list(storage.export())
        store.load("b", items)
        assert exported(path, "b") == items


def test_the_last_number_is_given_out_and_none_after_it(path: str) -> None:
    with closing(SqliteStore(path)) as store:
        store.load("a", _start(SEQ_MAX - 2))
        storage = store.open("a")

        with pytest.raises(InvalidBatchError, match="SEQ-2"):
            storage.commit(MainBatch(tuple(entry(SEQ_MAX - 1 + n) for n in range(3))))
        storage.commit(MainBatch((entry(SEQ_MAX - 1), entry(SEQ_MAX))))

        assert storage.last_seq == SEQ_MAX
        with pytest.raises(InvalidBatchError, match="SEQ-2"):
            storage.commit(MainBatch((ValueSet(SessionAddress("s"), 1),)))
        newest = EntryQuery(conversation_id=ROOT, before=Seq(SEQ_MAX + 1), limit=2)
        assert [found.id for found in storage.scan_entries(newest).items] == [SEQ_MAX, SEQ_MAX - 1]
        assert exported(path) == list(storage.export())


def test_extents_of_two_sessions_interleave(path: str) -> None:
    """Sessions that cross borders in turns have keys between one another's, and do not mix."""
    memory = MemoryStore(lambda: 0)
    starts = {"a": EXTENT - 7, "b": 2 * EXTENT - 7}
    with closing(SqliteStore(path)) as store:
        handles: list[tuple[Storage, Storage, int]] = []
        for name, n in starts.items():
            for target in (store, memory):
                target.load(name, _start(n))
            handles.append((store.open(name), memory.open(name), n))
        for step in range(len(_batches(0))):
            for storage, expected, n in handles:
                storage.commit(_batches(n)[step])
                expected.commit(_batches(n)[step])
                assert_same(_sight(expected, n), _sight(storage, n), f"step {step}")

        with closing(apsw.Connection(path)) as db:
            order = db.execute("SELECT session, high FROM extents ORDER BY base").fetchall()
        assert [high for _, high in order] == [0, 0, 1, 1, 2]
        assert [session for session, _ in order] == [1, 2, 2, 1, 2]
        for storage, expected, _ in handles:
            assert list(storage.export()) == list(expected.export())
            storage.close()
        store.delete("a")
        assert exported(path, "b") == list(handles[1][1].export())
        assert store.verify().problems == ()


def test_numbers_and_keys_say_the_same_in_order() -> None:
    numbers = Numbers([(0, 3), (2, 4), (7, 9)])
    used = [Seq((high << EXTENT_BITS) + low) for high in (0, 2, 7) for low in (0, 1, EXTENT - 1)]

    keys = [numbers.key(seq) for seq in used]

    assert keys == sorted(keys)
    assert [numbers.seq(key) for key in keys] == used
    assert [numbers.find(seq) for seq in used] == keys
    assert numbers.find(Seq(EXTENT)) == -1
    for bound in (*used, *(seq + 1 for seq in used), EXTENT * 5, SEQ_MAX):
        below = [key for seq, key in zip(used, keys, strict=True) if seq <= bound]
        above = [key for seq, key in zip(used, keys, strict=True) if seq >= bound]
        assert [key for key in keys if key <= numbers.through(bound)] == below
        assert [key for key in keys if key >= numbers.at_least(bound)] == above
        inside = [
            key
            for key in keys
            for first, last in numbers.ranges(bound, SEQ_MAX, newest_first=False)
            if first <= key <= last
        ]
        assert inside == above
