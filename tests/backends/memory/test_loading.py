"""Loading an export: all of it, or a refusal that leaves no session."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec
import pytest

from pico_conformance.rules.everything import assert_same, everything
from pico_memory import MemoryStore
from pico_memory.load import load
from pico_store.address import ConversationAddress, ScratchAddress, Seq, SessionAddress
from pico_store.batch import Batch
from pico_store.errors import RefusedError, SessionExistsError
from pico_store.records import BatchRange, Conversation, Entry, ForkPoint, Task
from pico_store.snapshot import (
    AddressPolicy,
    DeletedConversation,
    ListItem,
    ListMarker,
    SnapshotHeader,
    SnapshotItem,
    ValueVersion,
)
from tests.backends.memory.scene import batches, history, opened

ITEMS = history()


@pytest.mark.parametrize("batch", batches().values(), ids=batches())
def test_a_loaded_session_is_the_same_and_goes_on_alike(batch: Batch, store: MemoryStore) -> None:
    storage = opened(ITEMS)
    storage.commit(batch)

    store.load("b", storage.export())

    loaded = store.open("b")
    assert_same(everything(storage), everything(loaded), "a load")


def test_a_session_that_exists_is_not_loaded_over(store: MemoryStore) -> None:
    store.load("a", ITEMS)

    with pytest.raises(SessionExistsError):
        store.load("a", ITEMS[:1])

    assert list(store.open("a").export()) == ITEMS


def _first(kind: type[SnapshotItem]) -> int:
    return next(index for index, item in enumerate(ITEMS) if type(item) is kind)


def _changed(kind: type[SnapshotItem], **changes: object) -> list[SnapshotItem]:
    """Return the items with the first of a kind changed."""
    items, index = list(ITEMS), _first(kind)
    items[index] = msgspec.structs.replace(items[index], **changes)
    return items


def _without(kind: type[SnapshotItem]) -> list[SnapshotItem]:
    """Return the items without the first of a kind."""
    items = list(ITEMS)
    del items[_first(kind)]
    return items


def _with(item: SnapshotItem) -> list[SnapshotItem]:
    """Return the items with one more at the end of its section."""
    last = max(index for index, other in enumerate(ITEMS) if type(other) is type(item))
    return [*ITEMS[: last + 1], item, *ITEMS[last + 1 :]]


# Number 25 is in a batch, but no item has it: it settled a task.
FREE = Seq(25)
MISTAKES: dict[str, Callable[[], list[SnapshotItem]]] = {
    "none; allowed: at least the header": list,
    "items[0]: Conversation here": lambda: ITEMS[1:],
    "items[1]: not after the item before it": lambda: [ITEMS[0], *ITEMS],
    "items[6]: Entry here": lambda: [*ITEMS[:5], ITEMS[7], *ITEMS[5:]],
    "items[2]: not after the item before it": lambda: [*ITEMS[:2], *ITEMS[1:]],
    "str; allowed: the items of": lambda: [*ITEMS, "item"],  # type: ignore[list-item]
    "number 23; allowed: 1 to 20": lambda: _changed(SnapshotHeader, last_seq=20),
    "kind 'user'; allowed: those of": lambda: _changed(SnapshotHeader, entry_kinds=()),
    "conversation 16 first; allowed: the root": lambda: _without(Conversation),
    "number 13 of conversation 9": lambda: _changed(Entry, conversation_id=Seq(9)),
    "head 14; allowed": lambda: _changed(Entry, head=Seq(14)),
    "19 forks at 18, which": lambda: [
        item for item in ITEMS if not (isinstance(item, Entry) and item.id == 18)
    ],
    "task of conversation 9": lambda: _changed(Task, conversation_id=Seq(9)),
    "state without status 'other'": lambda: _changed(Task, status="other"),
    "owns set": lambda: _changed(Task, owns=(Seq(16),)),
    "25 has owner 13, which is no task": lambda: _with(Conversation(id=FREE, owner=Seq(13))),
    "parent 9; allowed": lambda: _with(Conversation(id=FREE, parent=ForkPoint(Seq(9), Seq(10)))),
    "part of a list without its policy": lambda: _without(AddressPolicy),
    "second version": lambda: _with(ValueVersion(FREE, SessionAddress("s", "old"), 1)),
    "scratch of task 17": lambda: _with(ListItem(FREE, ScratchAddress(Seq(17), "s"), 1)),
    "number 2 a second time": lambda: _changed(ListItem, id=Seq(2)),
    "marker in a list that keeps no history": lambda: [
        *ITEMS[: _first(BatchRange)],
        ListMarker(FREE, ConversationAddress(Seq(1), "s")),
        *ITEMS[_first(BatchRange) :],
    ],
    "number 1 is in no batch": lambda: _without(BatchRange),
    "batch 2 to 20; allowed": lambda: [
        *ITEMS[: _first(BatchRange)],
        BatchRange(Seq(1), Seq(4)),
        *_changed(BatchRange, first=Seq(2))[_first(BatchRange) :],
    ],
    "deleted conversation 25 through 9": lambda: [
        *ITEMS[: _first(Entry)],
        DeletedConversation(Conversation(id=FREE), Seq(9)),
        *ITEMS[_first(Entry) :],
    ],
}


@pytest.mark.parametrize("problem", MISTAKES)
def test_what_does_not_fit_is_refused_whole(problem: str, store: MemoryStore) -> None:
    with pytest.raises(RefusedError, match=re.escape(problem)):
        load(MISTAKES[problem]())
    with pytest.raises(RefusedError):
        store.load("a", MISTAKES[problem]())

    assert store.sessions() == []
