"""The checks of a snapshot before it becomes a session, shared by all backends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from pico_store.address import Address, ConversationAddress, ScratchAddress, Seq, SessionAddress
from pico_store.errors import InvalidBatchError
from pico_store.limits import SEQ_MAX
from pico_store.names import check_name
from pico_store.records import BatchRange, Conversation, Entry, Task
from pico_store.rules import ROOT
from pico_store.shown import shown
from pico_store.snapshot import (
    AddressPolicy,
    DeletedConversation,
    ListItem,
    ListMarker,
    SnapshotHeader,
    SnapshotItem,
    ValueVersion,
)

_SECTIONS: Final[dict[type, int]] = {
    SnapshotHeader: 0,
    Conversation: 1,
    DeletedConversation: 1,
    Entry: 2,
    Task: 3,
    AddressPolicy: 4,
    ValueVersion: 5,
    ListItem: 6,
    ListMarker: 7,
    BatchRange: 8,
}


def check_snapshot(items: Iterable[SnapshotItem]) -> Iterator[SnapshotItem]:
    """Yield the items again, each after making sure that it may stand where it does.

    Checked are the order, the numbers, and that what an item refers to came before it or may come.
    Payloads are left to `strict_json.pack`, which a backend calls to store them.

    Raises:
        RefusedError: An item breaks the order or does not fit to those before it; its index is in
            the path.

    Source: SPEC.md, DUR-11.
    """
    checker = _Checker()
    index = -1
    for index, item in enumerate(items):
        checker.check(item, f"items[{index}]")
        yield item
    checker.finish(f"items[{index + 1}]")


class _Checker:
    def __init__(self) -> None:
        self._section = -1
        self._previous: tuple[object, ...] = ()
        self._last_seq = 0
        self._batch_end = 0
        self._conversations: dict[Seq, Conversation] = {}
        self._deleted: set[Seq] = set()
        self._live_tasks: set[Seq] = set()

    def check(self, item: SnapshotItem, path: str) -> None:
        section = _SECTIONS.get(type(item))
        if section is None:
            raise InvalidBatchError(
                "DUR-11", path, f"{type(item).__name__}; allowed: snapshot items"
            )
        if (section == 0) is not (self._section == -1):
            raise InvalidBatchError("DUR-11", path, "one header comes first, and only there")
        order = _order(item)
        if section < self._section or (section == self._section and order <= self._previous):
            problem = f"{type(item).__name__} {order} out of canonical order"
            raise InvalidBatchError("DUR-11", path, problem)
        self._section, self._previous = section, order
        self._check_item(item, path)

    def finish(self, path: str) -> None:
        if self._section == -1:
            raise InvalidBatchError("DUR-11", path, "ends without a header")
        if self._batch_end != self._last_seq:
            problem = f"batches end at {self._batch_end}, the header says {self._last_seq}"
            raise InvalidBatchError("DUR-11", path, problem)
        if self._last_seq and ROOT not in self._conversations:
            raise InvalidBatchError("SEQ-3", path, "ends without conversation 1, the root")

    def _check_item(self, item: SnapshotItem, path: str) -> None:
        match item:
            case SnapshotHeader():
                if type(item.last_seq) is not int or not 0 <= item.last_seq <= SEQ_MAX:
                    raise InvalidBatchError("SEQ-2", f"{path}.lastSeq", f"{shown(item.last_seq)}")
                self._last_seq = item.last_seq
                for kind in item.entry_kinds:
                    check_name(kind, f"{path}.entryKinds")
            case Conversation():
                self._check_conversation(item, path)
            case DeletedConversation():
                self._check_conversation(item.conversation, f"{path}.conversation")
                self._number(item.through, f"{path}.through")
                self._deleted.add(item.conversation.id)
            case Entry():
                self._number(item.id, f"{path}.id")
                self._known(item.conversation_id, f"{path}.conversationId")
                check_name(item.kind, f"{path}.kind")
                if item.head is not None:
                    self._number(item.head, f"{path}.head")
            case Task():
                self._number(item.id, f"{path}.id")
                self._known(item.conversation_id, f"{path}.conversationId")
                check_name(item.kind, f"{path}.kind")
                check_name(item.status, f"{path}.status")
                if item.role != "terminal":
                    self._live_tasks.add(item.id)
            case AddressPolicy():
                self._check_address(item.address, f"{path}.address")
            case ValueVersion():
                self._number(item.seq, f"{path}.seq")
                self._check_address(item.address, f"{path}.address")
            case ListItem():
                self._number(item.id, f"{path}.id")
                self._check_address(item.address, f"{path}.address")
            case ListMarker():
                self._number(item.seq, f"{path}.seq")
                self._check_address(item.address, f"{path}.address")
            case BatchRange():
                self._check_batch(item, path)

    def _check_conversation(self, item: Conversation, path: str) -> None:
        self._number(item.id, f"{path}.id")
        if item.parent is not None:
            self._known(item.parent.conversation_id, f"{path}.parent")
            self._number(item.parent.at, f"{path}.parent.at")
        if item.owner is not None:
            self._number(item.owner, f"{path}.owner")
        self._conversations[item.id] = item

    def _check_batch(self, item: BatchRange, path: str) -> None:
        self._number(item.first, f"{path}.first")
        self._number(item.last, f"{path}.last")
        if item.first <= self._batch_end or item.last < item.first:
            problem = f"{item.first} to {item.last} after a batch that ends at {self._batch_end}"
            raise InvalidBatchError("SEQ-9", path, problem)
        if item.task is not None and item.task not in self._live_tasks:
            problem = f"scratch of task {item.task}, which is not a live task of the snapshot"
            raise InvalidBatchError("TASK-4", f"{path}.task", problem)
        self._batch_end = item.last

    def _check_address(self, address: Address, path: str) -> None:
        check_name(address.namespace, f"{path}.namespace")
        if address.key is not None:
            check_name(address.key, f"{path}.key", empty=True)
        if isinstance(address, ConversationAddress):
            self._known(address.conversation, f"{path}.conversation")
            if address.conversation in self._deleted and not address.rewind:
                raise InvalidBatchError("DEL-2", path, "sticky state of a deleted conversation")
        elif isinstance(address, ScratchAddress):
            if address.task not in self._live_tasks:
                problem = f"scratch of task {address.task}, which is not a live task"
                raise InvalidBatchError("TASK-4", f"{path}.task", problem)
        elif not isinstance(address, SessionAddress):
            raise InvalidBatchError("VAL-1", path, f"{type(address).__name__}; not an address")

    def _known(self, conversation: Seq, path: str) -> None:
        if conversation not in self._conversations:
            problem = f"conversation {shown(conversation)} is not in the snapshot before this item"
            raise InvalidBatchError("DUR-11", path, problem)

    def _number(self, value: object, path: str) -> None:
        if type(value) is not int or not 0 < value <= self._last_seq:
            problem = f"{shown(value)}; allowed: 1 to {self._last_seq}, the header's last number"
            raise InvalidBatchError("SEQ-2", path, problem)


def _order(item: SnapshotItem) -> tuple[int | str | bool, ...]:
    match item:
        case SnapshotHeader():
            return (0,)
        case DeletedConversation():
            return (item.conversation.id,)
        case AddressPolicy():
            address = item.address
            key = (address.key is not None, address.key or "")
            return (address.conversation, item.shape, address.namespace, *key)
        case ValueVersion() | ListMarker():
            return (item.seq,)
        case BatchRange():
            return (item.first,)
    return (item.id,)
