"""Building a session's state from the items of an export."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeAlias

from msgspec import UNSET

from pico_memory.build import Builder
from pico_memory.rows import Body
from pico_memory.scope import ListState, RewindList
from pico_memory.snapshot import policy_order
from pico_memory.state import SessionState
from pico_store.address import Address, ConversationAddress, ScratchAddress, Seq
from pico_store.entry_body import pack_entry
from pico_store.errors import RefusedError
from pico_store.limits import SEQ_MAX
from pico_store.names import check_name
from pico_store.records import BatchRange, Conversation, Entry, Task
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
from pico_store.strict_json import pack

_CLAUSE = "DUR-11"


def load(
    items: Iterable[SnapshotItem], keep: Callable[[bytes], Body] | None = None
) -> SessionState:
    """Return the state whose export is ``items``.

    Args:
        items: In canonical order.
        keep: What the rows get for each packed payload, if not the payload itself.

    Raises:
        RefusedError: The items are not in canonical order or do not fit together; ``path`` names
            the first that does not.
    """
    loader = _Loader(_itself if keep is None else keep)
    index = -1
    for index, item in enumerate(items):
        try:
            loader.add(item)
        except RefusedError as error:
            path = f"items[{index}]" + (f".{error.path}" if error.path else "")
            raise type(error)(error.clause, path, error.problem) from error.__cause__
    if index < 0:
        raise RefusedError(_CLAUSE, "items", "none; allowed: at least the header")
    return loader.finish()


def _itself(packed: bytes) -> Body:
    return packed


def _refuse(problem: str) -> NoReturn:
    raise RefusedError(_CLAUSE, "", problem)


class _Loader:
    """Takes the items one by one, each section's by its own method."""

    def __init__(self, keep: Callable[[bytes], Body]) -> None:
        self._build = Builder()
        self._state = self._build.state
        self._keep = keep
        self._rank = -1
        self._order: tuple[object, ...] | int = 0
        self._numbers: set[Seq] = set()
        self._reaches: dict[Seq, Seq] = {}
        self._batches: list[BatchRange] = []

    def add(self, item: SnapshotItem) -> None:
        """Take the next item."""
        section = _SECTIONS.get(type(item))
        if section is None:
            _refuse(f"{type(item).__name__}; allowed: the items of pico_store.snapshot")
        rank, order, take = section
        key = order(item)
        if rank < self._rank or (rank and self._rank < 0):
            _refuse(f"{type(item).__name__} here; allowed: the order of DUR-10")
        if rank == self._rank and not self._order < key:
            _refuse("not after the item before it; allowed: ascending order within a section")
        self._rank, self._order = rank, key
        take(self, item)

    def finish(self) -> SessionState:
        """Return the state, once all links between the items hold."""
        state = self._state
        for record in state.conversations.values():
            self._check_links(record)
        for id, reach in self._reaches.items():
            if state.cap(id) != reach:
                problem = f"deleted conversation {id} through {reach}; its forks: {state.cap(id)}"
                raise RefusedError(_CLAUSE, "items", problem)
        starts = [batch.first for batch in self._batches]
        for number in self._numbers:
            index = bisect_right(starts, number) - 1
            if index < 0 or number > self._batches[index].last:
                problem = f"number {number} is in no batch; allowed: every number in one"
                raise RefusedError(_CLAUSE, "items", problem)
        return state

    def _check_links(self, record: Conversation) -> None:
        state, problem = self._state, None
        parent, owner = record.parent, record.owner
        if parent is not None and not state.shows(parent.conversation_id, parent.at):
            problem = f"forks at {parent.at}, which conversation {parent.conversation_id} lacks"
        if owner is not None:
            if owner in state.facts:
                self._build.own(record)
            else:
                problem = f"has owner {owner}, which is no task"
        if problem is not None:
            raise RefusedError(_CLAUSE, "items", f"conversation {record.id} {problem}")

    def _claim(self, number: object) -> Seq:
        """Return a number that only one item may have."""
        if type(number) is not int or not 0 < number <= self._state.last_seq:
            _refuse(f"number {shown(number)}; allowed: 1 to {self._state.last_seq}, the last one")
        seq = Seq(number)
        if seq in self._numbers:
            _refuse(f"number {seq} a second time; allowed: each once")
        self._numbers.add(seq)
        return seq

    def _check_reach(self, conversation: Seq, number: Seq) -> None:
        """Refuse what is of no conversation, or beyond what of a deleted one is inherited."""
        if conversation not in self._state.conversations:
            reach = self._reaches.get(conversation, 0)
            if number > reach:
                _refuse(f"number {number} of conversation {conversation}, kept through {reach}")

    # --- Records ---

    def header(self, item: SnapshotHeader) -> None:
        if type(item.last_seq) is not int or not 0 <= item.last_seq <= SEQ_MAX:
            _refuse(f"lastSeq {shown(item.last_seq)}; allowed: 0 to 2^53-1")
        for kind in item.entry_kinds:
            check_name(kind, "entryKinds")
        if list(item.entry_kinds) != sorted(set(item.entry_kinds)):
            _refuse("entry kinds out of order; allowed: each once, by code point")
        self._build.header(item)

    def conversation(self, item: Conversation) -> None:
        self._check_record(item)
        self._build.conversation(item)

    def deleted(self, item: DeletedConversation) -> None:
        self._check_record(item.conversation)
        self._build.deleted(item.conversation)
        self._reaches[item.conversation.id] = item.through

    def _check_record(self, record: Conversation) -> None:
        id, parent = self._claim(record.id), record.parent
        known = self._state.conversations
        if not known and not self._state.deleted and (id != 1 or parent or record.owner):
            _refuse(f"conversation {id} first; allowed: the root, 1, without parent and owner")
        if (
            parent is not None
            and parent.conversation_id not in known
            and parent.conversation_id not in self._reaches
        ):
            _refuse(f"parent {parent.conversation_id}; allowed: an earlier conversation")

    def entry(self, item: Entry) -> None:
        id = self._claim(item.id)
        self._check_reach(item.conversation_id, id)
        if item.kind not in self._state.kinds:
            _refuse(f"kind {shown(item.kind)}; allowed: those of the header")
        if item.key is not None:
            check_name(item.key, "key", empty=True)
        if item.head is not None and not 0 < item.head <= id:
            _refuse(f"head {item.head}; allowed: this entry or an earlier one")
        self._build.entry(item, self._keep(pack_entry(item)))

    def task(self, item: Task) -> None:
        self._claim(item.id)
        if item.conversation_id not in self._state.conversations:
            _refuse(f"task of conversation {item.conversation_id}; allowed: a live one")
        check_name(item.kind, "kind")
        check_name(item.status, "status")
        if type(item.state) is not dict or item.state.get("status") != item.status:
            _refuse(f"state without status {shown(item.status)}; allowed: the task's status in it")
        if item.role not in ("start", "inflight", "terminal"):
            _refuse(f"role {shown(item.role)}; allowed: start, inflight, terminal")
        if item.owns:
            _refuse("owns set; allowed: never, it follows from the conversations' owners")
        self._build.task(item, self._keep(pack(item.state, "state")))

    # --- Values and lists ---

    def policy(self, item: AddressPolicy) -> None:
        address = item.address
        if address.conversation not in self._state.conversations:
            _refuse(f"policy in conversation {address.conversation}; allowed: a live one")
        self._check_address(address)
        if item.shape not in ("value", "list"):
            _refuse(f"shape {shown(item.shape)}; allowed: value, list")
        self._build.policy(item)

    def version(self, item: ValueVersion) -> None:
        seq, address = self._claim(item.seq), item.address
        body = None if item.value is UNSET else self._keep(pack(item.value, "value"))
        self._check_address(address)
        scope = self._state.scope(address)
        cell = None if scope is None else scope.cell(address.namespace, address.key)
        if isinstance(address, ConversationAddress) and address.rewind:
            self._check_reach(address.conversation, seq)
            if type(cell) is not list and (cell or address.conversation not in self._reaches):
                _refuse("a version without its policy; allowed: the policy before it")
        else:
            placeholder = (0, None) if isinstance(address, ConversationAddress) else None
            if body is None or cell != placeholder:
                _refuse("tombstone, second version or no policy; allowed: the current value alone")
        self._build.version(item, body)

    def element(self, item: ListItem) -> None:
        self._check_list(item.address, self._claim(item.id))
        self._build.element(item, self._keep(pack(item.value, "value")))

    def marker(self, item: ListMarker) -> None:
        seq = self._claim(item.seq)
        found = self._check_list(item.address, seq)
        if not isinstance(found, RewindList) and (found is not None or not item.address.rewind):
            _refuse("marker in a list that keeps no history; allowed: rewindable lists")
        if item.element is not None and (
            (found is not None and item.element in found.removed) or not 0 < item.element < seq
        ):
            _refuse(f"removal of {item.element}; allowed: an earlier element, once")
        self._build.marker(item)

    def _check_list(self, address: Address, number: Seq) -> ListState | None:
        """Return what is there of a list that a part with a number belongs to."""
        self._check_address(address)
        scope = self._state.scope(address)
        found = None if scope is None else scope.lists.get((address.namespace, address.key))
        if isinstance(address, ConversationAddress):
            self._check_reach(address.conversation, number)
            inherited = address.rewind and address.conversation in self._reaches
            if found is None and not inherited:
                _refuse("part of a list without its policy; allowed: the policy before it")
            if found is not None and isinstance(found, RewindList) is not address.rewind:
                _refuse("part of a list of another policy; allowed: the policy before it")
        return found

    def _check_address(self, address: Address) -> None:
        check_name(address.namespace, "address.namespace")
        if address.key is not None:
            check_name(address.key, "address.key", empty=True)
        if isinstance(address, ScratchAddress):
            self._check_scratch(address.task)

    # --- Batches ---

    def batch(self, item: BatchRange) -> None:
        before = self._batches[-1].last if self._batches else 0
        if not before < item.first <= item.last <= self._state.last_seq:
            _refuse(f"batch {item.first} to {item.last}; allowed: behind {before}, in order")
        if item.task is not None:
            self._check_scratch(item.task)
        self._build.batch(item)
        self._batches.append(item)

    def _check_scratch(self, task: Seq) -> None:
        facts = self._state.facts.get(task)
        if facts is None or not facts.live:
            _refuse(f"scratch of task {task}; allowed: a live task")


_Section: TypeAlias = "tuple[int, Callable[[Any], Any], Callable[[_Loader, Any], None]]"
_SECTIONS: dict[type, _Section] = {
    SnapshotHeader: (0, lambda item: 0, _Loader.header),
    Conversation: (1, lambda item: item.id, _Loader.conversation),
    DeletedConversation: (1, lambda item: item.conversation.id, _Loader.deleted),
    Entry: (2, lambda item: item.id, _Loader.entry),
    Task: (3, lambda item: item.id, _Loader.task),
    AddressPolicy: (4, policy_order, _Loader.policy),
    ValueVersion: (5, lambda item: item.seq, _Loader.version),
    ListItem: (6, lambda item: item.id, _Loader.element),
    ListMarker: (7, lambda item: item.seq, _Loader.marker),
    BatchRange: (8, lambda item: item.first, _Loader.batch),
}
