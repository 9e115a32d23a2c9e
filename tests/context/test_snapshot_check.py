"""What is loaded is an export: anything else is refused, by every backend alike."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import msgspec
import pytest

from pico_memory.load import load
from pico_memory.snapshot import snapshot
from pico_sqlite import SqliteStore
from pico_store.address import ConversationAddress, ScratchAddress, Seq, SessionAddress
from pico_store.backends import open_store
from pico_store.batch import DeleteConversation, MainBatch
from pico_store.codec import decode_item, encode_item
from pico_store.errors import RefusedError
from pico_store.number_set import NumberSet
from pico_store.records import Conversation, Entry, ForkPoint
from pico_store.snapshot import DeletedConversation, SnapshotItem
from pico_store.snapshot_check import check_snapshot
from pico_store.strict_json import pack
from tests.backends.memory.scene import history

ITEMS = history()
_ODD: tuple[object, ...] = (
    *(None, True, 0, -1, 1, 2, 5, 9, 13, 14, 15, 16, 19, 20, 22, 23, 2**21, 2**53, 2**64, 1.0),
    *("", "x", "start", "terminal", "list", "value", "\ud800", "z" * 1_025, b"x", object()),
    *([], [1], (), (1,), ("user",), {}, {"status": "ready"}, msgspec.UNSET),
    *(ForkPoint(Seq(1), Seq(13)), ForkPoint(Seq(9), Seq(2)), Conversation(Seq(1))),
    *(SessionAddress("q"), ConversationAddress(Seq(1), "q"), ConversationAddress(Seq(9), "q")),
    *(ConversationAddress(Seq(1), "v", rewind=True), ScratchAddress(Seq(14), "q")),
)


def _changed(index: int, item: SnapshotItem) -> list[SnapshotItem]:
    return [*ITEMS[:index], item, *ITEMS[index + 1 :]]


def _mutations() -> Iterator[list[SnapshotItem]]:
    for index, item in enumerate(ITEMS):
        yield [*ITEMS[:index], *ITEMS[index + 1 :]]
        yield [*ITEMS[: index + 1], *ITEMS[index:]]
        yield ITEMS[:index]
        if index:
            yield [*ITEMS[: index - 1], item, ITEMS[index - 1], *ITEMS[index + 1 :]]
        for name in item.__struct_fields__:
            part = getattr(item, name)
            for odd in _ODD:
                yield _changed(index, msgspec.structs.replace(item, **{name: odd}))
                for inner in getattr(part, "__struct_fields__", ()):
                    other = msgspec.structs.replace(part, **{inner: odd})
                    yield _changed(index, msgspec.structs.replace(item, **{name: other}))


def _passes(items: list[SnapshotItem]) -> bool:
    try:
        return list(check_snapshot(items)) == items
    except RefusedError:
        return False


def _is_of_the_form(items: list[SnapshotItem]) -> bool:
    """Tell whether payloads, which are checked where they are stored, can be stored."""
    try:
        for item in items:
            for name in ("value", "data"):
                value = getattr(item, name, None)
                pack(None if value is msgspec.UNSET else value, "")
        return all(decode_item(encode_item(item)) == item for item in items)
    except RefusedError:
        return False


def test_what_passes_is_what_a_backend_keeps_whole() -> None:
    """The memory backend's loader, which looks at everything itself, is the judge."""
    passed = 0
    for items in _mutations():
        if not _passes(items) or not _is_of_the_form(items):
            continue
        passed += 1
        assert list(snapshot(load(items)).items()) == items

    assert passed > 100


def test_what_passes_is_kept_whole_in_a_file(tmp_path: object) -> None:
    store = SqliteStore(f"{tmp_path}/a.db", durability="process")
    found = (items for items in _mutations() if _passes(items) and _is_of_the_form(items))
    for items in islice(found, 0, None, 20):
        store.load("a", items)

        assert list(store.open("a", read_only=True).export()) == items
        assert store.verify().problems == ()
        store.delete("a")
    store.close()


def test_a_deleted_fork_may_have_left_from_what_is_gone() -> None:
    """Its own fork leaves from further back, and shows nothing of where it left."""
    storage = open_store("memory:").create("a")
    one, note = Seq(1), Seq(2)
    storage.commit(MainBatch((Conversation(one), Entry(note, one, "note"))))
    middle = Conversation(Seq(3), ForkPoint(one, note))
    storage.commit(MainBatch((middle, Entry(Seq(4), Seq(3), "note"))))
    storage.commit(MainBatch((Conversation(Seq(5), ForkPoint(Seq(3), Seq(4))),)))
    storage.commit(MainBatch((Conversation(Seq(6), ForkPoint(Seq(5), note)),)))
    storage.commit(MainBatch((DeleteConversation(Seq(5)), DeleteConversation(Seq(3)))))
    items = list(storage.export())

    assert [item.through for item in items if isinstance(item, DeletedConversation)] == [2, 2]
    assert list(check_snapshot(items)) == items


@pytest.mark.parametrize(
    ("first", "last", "count"),
    [(1, 1, 1), (1, 4_095, 2), (2, 4_095, 1), (4_095, 4_096, 2), (4_097, 2**52, 0), (1, 2**53, 4)],
)
def test_numbers_of_a_range_are_counted(first: int, last: int, count: int) -> None:
    numbers = NumberSet()
    for number in (1, 4_095, 4_096, 2**53 - 1):
        assert numbers.add(number)
        assert not numbers.add(number)

    assert numbers.count(first, last) == count
    assert len(numbers) == 4
    assert 4_096 in numbers
    assert 4_097 not in numbers
