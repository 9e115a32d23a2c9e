"""The checks of a snapshot before it becomes a session, shared by all backends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NoReturn, TypeAlias

from msgspec import UNSET

from pico_store.address import Address, ConversationAddress, ScratchAddress, Seq, SessionAddress
from pico_store.errors import InvalidBatchError
from pico_store.limits import BATCH_WRITES_MAX, SEQ_MAX
from pico_store.names import check_name
from pico_store.number_set import NumberSet
from pico_store.records import BatchRange, Conversation, Entry, ForkPoint, Task
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
from pico_store.snapshot_links import Links

_Place: TypeAlias = tuple[int, str, str | None]
_ADDRESSES: Final = (SessionAddress, ConversationAddress, ScratchAddress)
_ROLES: Final = ("start", "inflight", "terminal")


def check_snapshot(items: Iterable[SnapshotItem]) -> Iterator[SnapshotItem]:
    """Yield the items again, each after making sure that it may stand where it does.

    Checked are the order, the types, the numbers, and how the items fit together: what one refers
    to, policies, reaches, batches. Payloads are left to `strict_json.pack` and
    `entry_body.pack_entry`, which a backend calls to store them. What is remembered meanwhile are
    conversations, addresses, and a bit for each number.

    Raises:
        InvalidBatchError: An item breaks the order or does not fit to those before it; its index
            is in the path.
        LimitExceededError: A name in it is too long.

    Source: SPEC.md, DUR-10 and DUR-11.
    """
    if not isinstance(items, Iterable):
        raise InvalidBatchError("DUR-11", "items", f"{shown(items)}; allowed: snapshot items")
    checker = _Checker()
    index = -1
    for index, item in enumerate(items):
        checker.check(item, f"items[{index}]")
        yield item
    checker.finish(f"items[{index + 1}]")


class _Checker:
    """Takes the items one by one, each section's by its own method."""

    def __init__(self) -> None:
        self._path = ""
        self._section = -1
        self._previous: tuple[object, ...] = ()
        self._last_seq = 0
        self._kinds: frozenset[str] = frozenset()
        self._links = Links()
        self._live_tasks: set[Seq] = set()
        self._used = NumberSet()
        self._policies: dict[tuple[str, _Place], bool] = {}
        """Whether an address of a conversation is rewindable, by shape."""
        self._unwritten: set[tuple[str, _Place]] = set()
        """Rewindable addresses whose first write, which is kept for ever, has not come."""
        self._current: set[tuple[type, _Place]] = set()
        """Addresses without history whose value came."""
        self._removed: set[tuple[_Place, Seq]] = set()
        self._scratch: dict[Seq, Seq] = {}
        """The task of each number that scratch has."""
        self._batch_end = 0
        self._in_batches = 0

    def check(self, item: SnapshotItem, path: str) -> None:
        self._path = path
        section = _SECTIONS.get(type(item))
        if section is None:
            self._refuse("DUR-11", "", f"{type(item).__name__}; allowed: snapshot items")
        rank, order, take = section
        if (rank == 0) is not (self._section == -1):
            self._refuse("DUR-11", "", "one header comes first, and only there")
        if rank < self._section:
            self._refuse("DUR-11", "", f"{type(item).__name__} out of canonical order")
        # Types first: only numbers and texts have an order.
        take(self, item)
        place = order(item)
        if rank == self._section and place <= self._previous:
            problem = f"{type(item).__name__} {shown(place)} out of canonical order"
            self._refuse("DUR-11", "", problem)
        self._section, self._previous = rank, place

    def finish(self, path: str) -> None:
        self._path = path
        if self._section == -1:
            self._refuse("DUR-11", "", "ends without a header")
        if self._batch_end != self._last_seq:
            problem = f"batches end at {self._batch_end}, the header says {self._last_seq}"
            self._refuse("DUR-11", "", problem)
        if self._in_batches != len(self._used):
            problem = "ends, and there are numbers in no batch; allowed: every number in one"
            self._refuse("SEQ-9", "", problem)
        if self._unwritten:
            shape, (conversation, namespace, key) = min(self._unwritten, key=repr)
            where = f"{shape} {namespace!r:.60} {key!r:.60} of conversation {conversation}"
            self._refuse("VAL-1", "", f"the rewindable {where} has a policy and no write")
        if problem := self._links.problem():
            self._refuse("DUR-11", "", problem)

    def _refuse(self, clause: str, part: str, problem: str) -> NoReturn:
        path = f"{self._path}.{part}" if part else self._path
        raise InvalidBatchError(clause, path, problem)

    # --- Records ---

    def header(self, item: SnapshotHeader) -> None:
        if type(item.last_seq) is not int or not 0 <= item.last_seq <= SEQ_MAX:
            self._refuse("SEQ-2", "lastSeq", f"{shown(item.last_seq)}; allowed: 0 to 2^53-1")
        self._last_seq = item.last_seq
        if type(item.entry_kinds) not in (tuple, list):
            self._refuse("DUR-10", "entryKinds", f"{shown(item.entry_kinds)}; allowed: a tuple")
        for kind in item.entry_kinds:
            check_name(kind, f"{self._path}.entryKinds")
        self._kinds = frozenset(item.entry_kinds)
        if list(item.entry_kinds) != sorted(self._kinds):
            problem = "out of order; allowed: each once, by code point"
            self._refuse("DUR-10", "entryKinds", problem)

    def conversation(self, item: Conversation, through: int | None = None) -> None:
        id = self._claim(item.id, "id")
        self._claim_root(item)
        if item.parent is not None:
            if type(item.parent) is not ForkPoint:
                self._refuse("FORK-1", "parent", f"{shown(item.parent)}; allowed: a ForkPoint")
            self._known(item.parent.conversation_id, "parent")
            if not self._number(item.parent.at, "parent.at") < id:
                self._refuse("FORK-1", "parent.at", f"{item.parent.at}; allowed: below {id}")
        if item.owner is not None:
            self._number(item.owner, "owner")
        self._links.conversation(item, through)

    def _claim_root(self, item: Conversation) -> None:
        if not self._links.conversations and (item.id != 1 or item.parent or item.owner):
            problem = "first; allowed: the root, 1, without parent and owner"
            self._refuse("SEQ-3", "", f"conversation {item.id} {problem}")

    def deleted(self, item: DeletedConversation) -> None:
        if type(item.conversation) is not Conversation:
            problem = f"{shown(item.conversation)}; allowed: a Conversation"
            self._refuse("DUR-10", "conversation", problem)
        self.conversation(item.conversation, self._number(item.through, "through"))

    def entry(self, item: Entry) -> None:
        id = self._claim(item.id, "id")
        self._within(item.conversation_id, id, "conversationId")
        check_name(item.kind, f"{self._path}.kind")
        if item.kind not in self._kinds:
            self._refuse("PAGE-10", "kind", f"{shown(item.kind)}; allowed: those of the header")
        if item.key is not None:
            check_name(item.key, f"{self._path}.key", empty=True)
        if item.by_task_id is not None:
            self._number(item.by_task_id, "byTaskId")
        if item.head is not None and self._number(item.head, "head") > id:
            self._refuse("ENT-2", "head", f"{item.head}; allowed: this entry or an earlier one")
        self._links.entry(id, item.conversation_id)

    def task(self, item: Task) -> None:
        id = self._claim(item.id, "id")
        self._live(item.conversation_id, "conversationId")
        check_name(item.kind, f"{self._path}.kind")
        check_name(item.status, f"{self._path}.status")
        if type(item.role) is not str or item.role not in _ROLES:
            self._refuse("TASK-2", "role", f"{shown(item.role)}; allowed: {', '.join(_ROLES)}")
        state: object = item.state
        if type(state) is not dict or state.get("status") != item.status:
            problem = f"without status {shown(item.status)}; allowed: the task's status in it"
            self._refuse("TASK-2", "state", problem)
        for name in ("background", "turn", "abort"):
            if type(getattr(item, name)) is not bool:
                problem = f"{shown(getattr(item, name))}; allowed: True or False"
                self._refuse("TASK-1", name, problem)
        if type(item.after) not in (tuple, list):
            self._refuse("TASK-1", "after", f"{shown(item.after)}; allowed: a tuple of task ids")
        for number in item.after:
            self._number(number, "after")
        if type(item.owns) not in (tuple, list) or item.owns:
            problem = f"{shown(item.owns)}; allowed: empty, it follows from the owners"
            self._refuse("TASK-5", "owns", problem)
        self._links.task(id)
        if item.role != "terminal":
            self._live_tasks.add(id)

    # --- Values and lists ---

    def policy(self, item: AddressPolicy) -> None:
        place = self._check_address(item.address)
        if type(item.address) is not ConversationAddress:
            self._refuse("VAL-1", "address", "without a policy; allowed: a conversation's")
        self._live(item.address.conversation, "address.conversation")
        if type(item.shape) is not str or item.shape not in ("value", "list"):
            self._refuse("VAL-9", "shape", f"{shown(item.shape)}; allowed: value, list")
        self._policies[item.shape, place] = item.address.rewind
        if item.address.rewind:
            self._unwritten.add((item.shape, place))

    def version(self, item: ValueVersion) -> None:
        seq = self._claim(item.seq, "seq")
        place = self._check_address(item.address)
        if self._has_history(item.address, place, "value", seq):
            return
        if item.value is UNSET:
            self._refuse("VAL-8", "value", "absent; allowed: only where there is a history")
        if (type(item.address), place) in self._current:
            self._refuse("VAL-8", "address", "a second value; allowed: the current one alone")
        self._current.add((type(item.address), place))

    def element(self, item: ListItem) -> None:
        id = self._claim(item.id, "id")
        place = self._check_address(item.address)
        self._has_history(item.address, place, "list", id)

    def marker(self, item: ListMarker) -> None:
        seq = self._claim(item.seq, "seq")
        place = self._check_address(item.address)
        if not self._has_history(item.address, place, "list", seq):
            self._refuse("VAL-8", "address", "a list without history; allowed: a rewindable one")
        if item.element is None:
            return
        element = self._number(item.element, "element")
        if element >= seq or element not in self._used or (place, element) in self._removed:
            problem = f"{element}; allowed: an earlier element, once"
            self._refuse("VAL-5", "element", problem)
        self._removed.add((place, element))

    def _has_history(self, address: Address, place: _Place, shape: str, seq: Seq) -> bool:
        """Tell whether an address is rewindable, after checking that it may have this number."""
        if type(address) is ScratchAddress:
            self._scratch[seq] = address.task
        if type(address) is not ConversationAddress:
            return False
        self._within(address.conversation, seq, "address.conversation")
        if self._links.is_live(address.conversation):
            policy = self._policies.get((shape, place))
            if policy is not address.rewind:
                problem = f"{address.rewind}; allowed: {policy}, by the policy before it"
                self._refuse("VAL-1", "address.rewind", problem)
        elif not address.rewind:
            self._refuse("DEL-2", "address", "sticky state of a deleted conversation")
        self._unwritten.discard((shape, place))
        return address.rewind

    def _check_address(self, address: Address) -> _Place:
        """Return where an address is, after checking its parts."""
        if type(address) not in _ADDRESSES:
            self._refuse("VAL-1", "address", f"{shown(address)}; allowed: an address")
        check_name(address.namespace, f"{self._path}.address.namespace")
        if address.key is not None:
            check_name(address.key, f"{self._path}.address.key", empty=True)
        scope = 0
        if type(address) is ConversationAddress:
            scope = address.conversation
            self._known(scope, "address.conversation")
            if type(address.rewind) is not bool:
                problem = f"{shown(address.rewind)}; allowed: True or False"
                self._refuse("VAL-1", "address.rewind", problem)
        elif type(address) is ScratchAddress:
            scope = address.task
            self._check_live_task(scope, "address.task")
        return (scope, address.namespace, address.key)

    # --- Batches ---

    def batch(self, item: BatchRange) -> None:
        first, last = self._number(item.first, "first"), self._number(item.last, "last")
        if first <= self._batch_end or last < first:
            problem = f"{first} to {last} after a batch that ends at {self._batch_end}"
            self._refuse("SEQ-9", "", problem)
        if item.task is not None:
            self._check_live_task(item.task, "task")
            if last - first >= BATCH_WRITES_MAX:
                problem = f"{last}; allowed: at most {BATCH_WRITES_MAX:,} writes of scratch"
                self._refuse("JSON-5", "last", problem)
        count = self._used.count(first, last)
        self._in_batches += count
        of_scratch = self._scratch_between(first, last, item.task)
        if of_scratch != (0 if item.task is None else count):
            problem = f"{first} to {last}: numbers of main writes and of scratch, or of two tasks"
            self._refuse("SEQ-7", "", problem)
        self._batch_end = last

    def _scratch_between(self, first: Seq, last: Seq, task: Seq | None) -> int:
        """Return how many numbers are a task's scratch, or with no task anybody's."""
        scratch = self._scratch
        numbers: Iterable[int] = range(first, last + 1)
        if last - first > len(scratch):
            numbers = (number for number in scratch if first <= number <= last)
        found = [scratch[Seq(number)] for number in numbers if number in scratch]
        return len(found) if task is None else found.count(task)

    def _check_live_task(self, task: Seq, part: str) -> None:
        if type(task) is not int or task not in self._live_tasks:
            problem = f"scratch of task {shown(task)}, which is not a live task of the snapshot"
            self._refuse("TASK-4", part, problem)

    # --- Numbers ---

    def _number(self, value: object, part: str) -> Seq:
        if type(value) is not int or not 0 < value <= self._last_seq:
            problem = f"{shown(value)}; allowed: 1 to {self._last_seq}, the header's last number"
            self._refuse("SEQ-2", part, problem)
        return Seq(value)

    def _claim(self, value: object, part: str) -> Seq:
        """Return a number that only one item may have."""
        number = self._number(value, part)
        if not self._used.add(number):
            self._refuse("SEQ-1", part, f"{number} a second time; allowed: each number once")
        return number

    def _known(self, conversation: object, part: str) -> None:
        if type(conversation) is not int or conversation not in self._links.conversations:
            problem = f"conversation {shown(conversation)} is not in the snapshot before this item"
            self._refuse("DUR-11", part, problem)

    def _live(self, conversation: Seq, part: str) -> None:
        self._known(conversation, part)
        if not self._links.is_live(conversation):
            self._refuse("DEL-2", part, f"conversation {conversation} is deleted")

    def _within(self, conversation: Seq, number: Seq, part: str) -> None:
        """Refuse what is older than its conversation, or beyond what is left of a deleted one."""
        self._known(conversation, part)
        through = self._links.reach(conversation)
        if number <= conversation or number > through:
            problem = f"conversation {conversation} has no number {number}"
            self._refuse("DEL-4", part, problem)


_Order: TypeAlias = Callable[[Any], tuple[object, ...]]
_SECTIONS: Final[dict[type, tuple[int, _Order, Callable[[_Checker, Any], None]]]] = {
    SnapshotHeader: (0, lambda item: (), _Checker.header),
    Conversation: (1, lambda item: (item.id,), _Checker.conversation),
    DeletedConversation: (1, lambda item: (item.conversation.id,), _Checker.deleted),
    Entry: (2, lambda item: (item.id,), _Checker.entry),
    Task: (3, lambda item: (item.id,), _Checker.task),
    AddressPolicy: (
        4,
        lambda item: (
            *(item.address.conversation, item.shape, item.address.namespace),
            *(item.address.key is not None, item.address.key or ""),
        ),
        _Checker.policy,
    ),
    ValueVersion: (5, lambda item: (item.seq,), _Checker.version),
    ListItem: (6, lambda item: (item.id,), _Checker.element),
    ListMarker: (7, lambda item: (item.seq,), _Checker.marker),
    BatchRange: (8, lambda item: (item.first,), _Checker.batch),
}
