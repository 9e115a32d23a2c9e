"""All that a session shows, as texts that can be compared exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from pico_conformance.rule import Lab
from pico_store.address import Address, ConversationAddress, Seq
from pico_store.errors import RefusedError
from pico_store.query import (
    BatchQuery,
    ConversationQuery,
    EntryQuery,
    ListQuery,
    TaskQuery,
    ValueQuery,
)
from pico_store.records import At, Page
from pico_store.snapshot import AddressPolicy, ListItem, ListMarker, SnapshotItem, ValueVersion
from pico_store.storage import Storage

T = TypeVar("T")


Q = TypeVar("Q", bound=msgspec.Struct)

_encode = msgspec.json.Encoder().encode
# More than any session here has, but for the one that starts near the last number there is.
_IDS_MAX = 2_000
_NAMESPACES = ("s", "v", "l", "gone")


def exact(value: object) -> str:
    """Return a text that differs wherever two results do: ``1``, ``1.0`` and ``true`` included."""
    if isinstance(value, frozenset):
        value = sorted(value)
    return _encode(value).decode()


def walk(read: Callable[[Q], Page[T]], query: Q) -> list[T]:
    """Return the items of all pages, ascending."""
    found: list[T] = []
    after = 0
    while True:
        page = read(query)
        found += page.items
        if page.next is None:
            return found
        assert page.next > after, f"after {after}, next is {page.next}: the walk would never end"
        after = page.next
        query = msgspec.structs.replace(query, after=page.next)


def now_and_reopened(lab: Lab) -> Iterator[Storage]:
    """Yield the lab's storage, then the same session opened anew."""
    yield lab.storage
    yield lab.reopen()


def everything(storage: Storage) -> dict[str, str]:
    """Return every result that the reads of a small session give, by the read that gave it."""
    seen: dict[str, str] = {}

    def note(label: str, read: Callable[[], object]) -> None:
        try:
            seen[label] = exact(read())
        except RefusedError as error:
            seen[label] = f"refused by {error.clause}"

    items = list(storage.export())
    note("last_seq", lambda: storage.last_seq)
    for index, item in enumerate(items):
        seen[f"export[{index}]"] = exact(item)
    note("entry_kinds", storage.entry_kinds)
    note("scan_batches", lambda: walk(storage.scan_batches, BatchQuery(limit=7)))
    ids = [Seq(id) for id in range(min(storage.last_seq, _IDS_MAX) + 3)]
    note("get_conversations", lambda: list(storage.get_conversations(ids).values()))
    note("get_entries", lambda: list(storage.get_entries(ids).values()))
    note("get_tasks", lambda: list(storage.get_tasks(ids).values()))
    note("scan_conversations", lambda: walk(storage.scan_conversations, ConversationQuery(limit=3)))
    note("scan_tasks", lambda: walk(storage.scan_tasks, TaskQuery(limit=3)))
    for live in (True, False):
        note(f"scan_tasks live={live}", lambda live=live: storage.scan_tasks(TaskQuery(live=live)))  # type: ignore[misc]
        note(
            f"scan_tasks abort={live}",
            lambda live=live: storage.scan_tasks(TaskQuery(abort=live)),  # type: ignore[misc]
        )
    for conversation in storage.get_conversations(ids):
        for label, read in _conversation_reads(storage, conversation):
            note(f"conversation {conversation}: {label}", read)
    for address, is_list in _addresses(items, storage.get_conversations(ids)):
        for label, read in _address_reads(storage, address, is_list=is_list):
            note(f"{exact(address)}: {label}", read)
    return seen


def assert_same(before: dict[str, str], after: dict[str, str], what: str) -> None:
    """Assert that two sights of everything are equal; the message names the first difference."""
    for label in [*before, *(label for label in after if label not in before)]:
        old, new = before.get(label, "nothing"), after.get(label, "nothing")
        assert old == new, f"{what} changed {label}: {old} became {new}"


@contextmanager
def untouched(lab: Lab, clause: str) -> Iterator[None]:
    """Assert that the block is refused by the clause and that every read is as it was before."""
    global _last_sight
    storage, last_seq = lab.storage, lab.storage.last_seq
    if _last_sight is None or _last_sight[0] is not storage or _last_sight[1] != last_seq:
        _last_sight = (storage, last_seq, everything(storage))
    with lab.refused(clause):
        yield
    assert_same(_last_sight[2], everything(storage), f"a refusal ({clause})")


# Many refusals in a row start from one state, and each ends by proving that it is still there. So
# the sight before the first of them is that before the others too.
_last_sight: tuple[Storage, Seq, dict[str, str]] | None = None


def _conversation_reads(
    storage: Storage, conversation: Seq
) -> Iterator[tuple[str, Callable[[], object]]]:
    entries = EntryQuery(conversation_id=conversation, limit=3)
    yield "entries", lambda: walk(storage.scan_entries, entries)
    newest = EntryQuery(conversation_id=conversation, before=Seq(2**53 - 1), limit=2)
    yield "newest entries", lambda: storage.scan_entries(newest)
    for kind in sorted(storage.entry_kinds()):
        of_kind = EntryQuery(conversation_id=conversation, kind=kind)
        yield f"entries of {kind}", lambda of_kind=of_kind: storage.scan_entries(of_kind)  # type: ignore[misc]
    yield "head", lambda: storage.newest_head(conversation, Seq(max(1, storage.last_seq)))
    forks = ConversationQuery(parent=conversation)
    yield "forks", lambda: storage.scan_conversations(forks)
    owned = ConversationQuery(owner_conversation=conversation)
    yield "owned", lambda: storage.scan_conversations(owned)
    live = TaskQuery(conversation_ids=(conversation,), live=True)
    yield "live tasks", lambda: storage.scan_tasks(live)
    for namespace in _NAMESPACES:
        values = ValueQuery(scope=ConversationAddress(conversation, namespace))
        yield f"values of {namespace}", lambda values=values: storage.scan_values(values)  # type: ignore[misc]


def _addresses(
    items: list[SnapshotItem], conversations: Iterable[Seq]
) -> list[tuple[Address, bool]]:
    """Return the addresses that an export names, in every live conversation, each once."""
    found: dict[tuple[Address, bool], None] = {}
    live = list(conversations)
    for item in items:
        if not isinstance(item, AddressPolicy | ValueVersion | ListItem | ListMarker):
            continue
        is_list = isinstance(item, ListItem | ListMarker)
        if isinstance(item, AddressPolicy):
            is_list = item.shape == "list"
        found[item.address, is_list] = None
        if isinstance(item.address, ConversationAddress):
            for id in live:
                address = msgspec.structs.replace(item.address, conversation=id)
                found[address, is_list] = None
    return list(found)


def _address_reads(
    storage: Storage, address: Address, *, is_list: bool
) -> Iterator[tuple[str, Callable[[], object]]]:
    places: list[At | None] = [None]
    if isinstance(address, ConversationAddress):
        shape = "list" if is_list else "value"
        yield f"policy of {shape}", lambda: storage.rewind_policy(address, shape)  # type: ignore[arg-type]
        if address.rewind:
            query = EntryQuery(conversation_id=address.conversation)
            try:
                entries = walk(storage.scan_entries, query)
            except RefusedError:
                entries = []
            # The ends and what lies between; more of them would only repeat the answers.
            places += ["start", *(entry.id for entry in (*entries[:1], *entries[-2:]))]
    for at in places:
        if is_list:
            yield f"list at {at}", lambda at=at: storage.read_list(address, ListQuery(at=at))  # type: ignore[misc]
        else:
            yield f"value at {at}", lambda at=at: storage.get_value(address, at)  # type: ignore[misc]
