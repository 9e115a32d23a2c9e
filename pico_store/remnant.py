"""What is left of a damaged session, made to fit together again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator
from typing import Final, TypeAlias

import msgspec

from pico_store.address import Address, ConversationAddress, ScratchAddress, Seq, Shape
from pico_store.limits import SEQ_MAX
from pico_store.records import BatchRange, Conversation, Entry, Task
from pico_store.remnant_batches import RemnantBatches, Tell
from pico_store.remnant_links import RemnantLinks
from pico_store.snapshot import (
    AddressPolicy,
    DeletedConversation,
    ListItem,
    ListMarker,
    SnapshotHeader,
    SnapshotItem,
    ValueVersion,
)

EVERY_NUMBER: Final = range(1, SEQ_MAX + 1)
"""For who cannot tell which numbers were lost: all that are not there."""

_Place: TypeAlias = tuple[Seq, Shape, str, str | None]
_State: TypeAlias = ValueVersion | ListItem | ListMarker


class Remnant:
    """The items of a snapshot that could be read, without what refers to those that could not.

    Guarantees:
        `items` is a snapshot that `check_snapshot` accepts, if what was read are items of one,
        in its order. What nothing that was lost concerns is in it, unchanged; where nothing was
        lost, it is what was read.

    The rule, for what refers to something lost:

    - An entry's edits of a lost entry are dropped, and its head moves to the next entry that its
      conversation shows, which is the entry itself at the latest. So heads still never go back.
    - A fork at a lost entry leaves from the nearest earlier one that its source shows, and inherits
      what there was then; if there is none it has no parent. It keeps what it wrote itself, save
      removals of list elements that it shows no more.
    - The root, whose record says nothing, is made anew. Any other lost conversation takes along
      what is only in it. What forks of it show stays, as it does when a conversation is deleted;
      but what it inherited itself cannot be found any more.
    - A lost task takes its scratch along. It is no longer named by entries, by ``after``, nor as an
      owner; what it owned is kept.
    - A rewindable address without any write left was never written.
    - Numbers whose batch is lost form one with their neighbours, up to the next boundary. The last
      number stays the last one, so that none is used twice.
    """

    def __init__(self, found: Callable[[], Iterator[SnapshotItem]], lost: Container[int]) -> None:
        """Go through the items once.

        Args:
            found: Yields the items that could be read, the same at each call; in their order,
                but for policies and batches.
            lost: The numbers of records that were there. What else is missing may have been
                deleted: such a task may still be named.
        """
        self._found = found
        self._lost = lost
        self._last_seq = 0
        self._kinds: set[str] = set()
        self._links = RemnantLinks()
        self._tasks: dict[Seq, Task] = {}
        """Without their states."""
        self._policies: dict[_Place, bool] = {}
        self._elements: dict[Seq, _Place] = {}
        """Where the elements of rewindable lists are."""
        self._markers: list[ListMarker] = []
        self._written: set[_Place] = set()
        self._batches: list[BatchRange] = []
        for item in found():
            self._survey(item)
        self._batches.sort(key=lambda batch: batch.first)
        self._links.settle(self._tasks)
        for marker in self._markers:
            if not self._is_aimless(marker):
                self._written.add(_place(marker, marker.address))

    @property
    def is_empty(self) -> bool:
        """Whether nothing could be read."""
        return not (self._last_seq or self._kinds)

    def items(self, tell: Tell) -> Iterator[SnapshotItem]:
        """Yield the snapshot.

        Args:
            tell: Told what was changed or left out, and why, beside what was lost.
        """
        yield SnapshotHeader(Seq(self._last_seq), tuple(sorted(self._kinds)))
        if not self._last_seq:
            return
        for change in self._links.changes:
            tell(*change)
        batches = RemnantBatches([batch for batch in self._batches if self._keeps_batch(batch)])
        left: Counter[tuple[str, str]] = Counter()
        kept: SnapshotItem | None
        for record in self._links.items():
            id = record.id if isinstance(record, Conversation) else record.conversation.id
            batches.number(id, None)
            yield record
        policies: Iterator[AddressPolicy] | None = self._kept_policies(tell)
        for item in self._found():
            if policies is not None and isinstance(item, _AFTER_POLICIES):
                yield from policies
                policies = None
            match item:
                case Entry() | Task():
                    kept, number, task = self._record(item, tell), item.id, None
                case ListMarker() if self._is_aimless(item):
                    what = f"the element that it removes, {item.element}, is not shown; left out"
                    tell(f"list marker {item.seq}", what)
                    continue
                case ValueVersion() | ListItem() | ListMarker():
                    kept, number, task = self._state(item), _number(item), _task(item)
                case AddressPolicy() if not self._links.is_live(item.address.conversation):
                    kept, number, task = None, item.address.conversation, None
                case _:
                    continue
            if kept is None:
                left[_whose(item), _KINDS[type(item)]] += 1
            else:
                batches.number(number, task)
                yield kept
        if policies is not None:
            yield from policies
        yield from batches.ranges(Seq(self._last_seq), tell)
        for (whose, what), count in left.items():
            tell(whose, f"{count:,} {what} left out with it")

    # --- Reading ---

    def _survey(self, item: SnapshotItem) -> None:
        match item:
            case SnapshotHeader():
                self._last_seq = max(self._last_seq, item.last_seq)
                self._kinds.update(item.entry_kinds)
                return
            case Conversation():
                number = item.id
                self._links.conversation(item)
            case DeletedConversation():
                number = item.conversation.id
                self._links.conversation(item)
            case Entry():
                number = item.id
                self._kinds.add(item.kind)
                self._links.entry(item.id, item.conversation_id)
            case Task():
                number = item.id
                self._tasks[item.id] = msgspec.structs.replace(item, state={})
            case AddressPolicy():
                number = item.address.conversation
                self._policies[_policy_place(item)] = item.address.rewind
            case BatchRange():
                number = item.last
                self._batches.append(item)
            case _:
                number = _number(item)
                self._survey_state(item)
        self._last_seq = max(self._last_seq, number)

    def _survey_state(self, item: _State) -> None:
        address = item.address
        if not isinstance(address, ConversationAddress):
            return
        place = _place(item, address)
        self._policies.setdefault(place, address.rewind)
        if not address.rewind:
            return
        if isinstance(item, ListMarker):
            self._markers.append(item)
            return
        self._written.add(place)
        if isinstance(item, ListItem):
            self._elements[item.id] = place

    # --- Deciding ---

    def _record(self, item: Entry | Task, tell: Tell) -> Entry | Task | None:
        """Return an entry or task as it is kept; ``None``: it is not."""
        if isinstance(item, Task):
            return self._task(item, tell) if self._has_task(item.id) else None
        return self._entry(item, tell) if self._links.keeps(item.conversation_id, item.id) else None

    def _entry(self, item: Entry, tell: Tell) -> Entry:
        links, reader = self._links, item.conversation_id
        where = f"entry {item.id}"
        if item.by_task_id is not None and self._lacks_task(item.by_task_id):
            tell(where, f"the task that wrote it, {item.by_task_id}, is lost; it names none")
            item = msgspec.structs.replace(item, by_task_id=None)
        if item.head is not None and not links.shows_entry(reader, item.head):
            head = links.next_shown(reader, item.head)
            tell(where, f"its head, {item.head}, is lost; it is {head} now")
            item = msgspec.structs.replace(item, head=head)
        if item.edits:
            edits = tuple(edit for edit in item.edits if links.shows_entry(reader, edit.target))
            if len(edits) < len(item.edits):
                targets = {edit.target for edit in item.edits} - {edit.target for edit in edits}
                tell(where, f"its edits of {_listed(targets)}, which is lost, are dropped")
                item = msgspec.structs.replace(item, edits=edits or None)
        return item

    def _task(self, item: Task, tell: Tell) -> Task:
        after = tuple(id for id in item.after if not self._lacks_task(id))
        if len(after) == len(item.after):
            return item
        missing = _listed(set(item.after) - set(after))
        tell(f"task {item.id}", f"comes after {missing}, which is lost; waits for that no more")
        return msgspec.structs.replace(item, after=after)

    def _state(self, item: _State) -> _State | None:
        address = item.address
        if isinstance(address, ScratchAddress):
            return item if self._has_task(address.task) else None
        if not isinstance(address, ConversationAddress):
            return item
        if not self._links.keeps(address.conversation, _number(item)):
            return None
        if not address.rewind and not self._links.is_live(address.conversation):
            return None
        return item

    def _is_aimless(self, marker: ListMarker) -> bool:
        """Tell whether a marker of a conversation that is kept removes what that does not show."""
        reader = marker.address.conversation
        if marker.element is None or not self._links.keeps(reader, marker.seq):
            return False
        home = self._elements.get(marker.element)
        return not (
            home is not None
            and home[1:] == _place(marker, marker.address)[1:]
            and self._links.keeps(home[0], marker.element)
            and self._links.shows(reader, home[0], marker.element)
        )

    def _kept_policies(self, tell: Tell) -> Iterator[AddressPolicy]:
        for place in sorted(self._policies, key=_policy_order):
            conversation, shape, namespace, key = place
            rewind = self._policies[place]
            if not self._links.is_live(conversation):
                continue
            if rewind and place not in self._written:
                name = f"{shape} {namespace!r:.80} {key!r:.80} of conversation {conversation}"
                tell(name, "no write of it is left; the address is free")
                continue
            address = ConversationAddress(conversation, namespace, key, rewind=rewind)
            yield AddressPolicy(address, shape)

    def _keeps_batch(self, batch: BatchRange) -> bool:
        return batch.task is None or self._has_task(batch.task)

    def _has_task(self, id: Seq) -> bool:
        task = self._tasks.get(id)
        return task is not None and self._links.is_live(task.conversation_id)

    def _lacks_task(self, id: Seq) -> bool:
        """Tell whether a task is lost, and was not deleted."""
        return not self._has_task(id) and (id in self._lost or id in self._tasks)


_AFTER_POLICIES: Final = (ValueVersion, ListItem, ListMarker, BatchRange)
_KINDS: Final[dict[type, str]] = {
    Entry: "entries",
    Task: "tasks",
    AddressPolicy: "addresses",
    ValueVersion: "values",
    ListItem: "list elements",
    ListMarker: "list markers",
}


def _number(item: _State) -> Seq:
    return item.id if isinstance(item, ListItem) else item.seq


def _task(item: _State) -> Seq | None:
    return item.address.task if isinstance(item.address, ScratchAddress) else None


def _whose(item: Entry | Task | AddressPolicy | _State) -> str:
    address: Address
    if isinstance(item, (Entry, Task)):
        return f"conversation {item.conversation_id}"
    address = item.address
    if isinstance(address, ScratchAddress):
        return f"task {address.task}"
    assert isinstance(address, ConversationAddress)
    return f"conversation {address.conversation}"


def _place(item: _State, address: ConversationAddress) -> _Place:
    shape: Shape = "value" if isinstance(item, ValueVersion) else "list"
    return address.conversation, shape, address.namespace, address.key


def _policy_place(item: AddressPolicy) -> _Place:
    address = item.address
    return address.conversation, item.shape, address.namespace, address.key


def _policy_order(place: _Place) -> tuple[Seq, Shape, str, bool, str]:
    conversation, shape, namespace, key = place
    return conversation, shape, namespace, key is not None, key or ""


def _listed(numbers: set[Seq]) -> str:
    return ", ".join(map(str, sorted(numbers)))
