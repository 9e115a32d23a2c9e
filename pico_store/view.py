"""What the shared checks ask about committed state, and its answer from any storage's reads."""

from __future__ import annotations

from typing import Protocol

import msgspec
from msgspec import Struct

from pico_store.address import Address, ConversationAddress, Seq, Shape
from pico_store.forks import segments
from pico_store.limits import SEQ_MAX
from pico_store.query import ConversationQuery, EntryQuery, ListQuery, TaskQuery
from pico_store.records import Conversation
from pico_store.snapshot import DeletedConversation, ListItem, ListMarker
from pico_store.storage import Storage


class TaskFacts(Struct, frozen=True, gc=False):
    """What the rules need to know of a task."""

    conversation: Seq
    live: bool


class CommittedView(Protocol):
    """Committed state, as far as the rules look at it."""

    @property
    def last_seq(self) -> Seq:
        """The number of the last committed write."""
        ...

    def conversation(self, id: Seq) -> Conversation | None:
        """Return a live conversation."""
        ...

    def task(self, id: Seq) -> TaskFacts | None:
        """Return what is known of a task of a live conversation."""
        ...

    def entry_visible(self, conversation: Seq, entry: Seq) -> bool:
        """Tell whether a live conversation shows an entry."""
        ...

    def head_boundary(self, conversation: Seq, at: Seq) -> Seq | None:
        """Return the ``head`` of the newest visible entry that has one, at or before ``at``."""
        ...

    def element_visible(self, address: Address, element: Seq, at: Seq | None) -> bool:
        """Tell whether a list shows an element now, or at a visible entry ``at``.

        A rewindable address may be one of a fork's source, asked for what the source passes on: a
        sticky list that the source has under that name is looked past (SPEC.md, VAL-10).
        """
        ...

    def rewind_policy(self, address: ConversationAddress, shape: Shape) -> bool | None:
        """Return the policy that an address was first written with."""
        ...

    def owned_conversations(self, conversation: Seq) -> list[Seq]:
        """Return the live conversations that tasks of the given one own."""
        ...

    def live_tasks(self, conversation: Seq) -> list[Seq]:
        """Return the tasks of a conversation that are not terminal."""
        ...


class StorageView:
    """A `CommittedView` over the reads that every storage has; the slow, always right one."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    @property
    def last_seq(self) -> Seq:
        return self._storage.last_seq

    def conversation(self, id: Seq) -> Conversation | None:
        return self._storage.get_conversations((id,)).get(id)

    def task(self, id: Seq) -> TaskFacts | None:
        task = self._storage.get_tasks((id,)).get(id)
        return TaskFacts(task.conversation_id, task.role != "terminal") if task else None

    def entry_visible(self, conversation: Seq, entry: Seq) -> bool:
        query = EntryQuery(conversation_id=conversation, from_=entry, through=entry, limit=1)
        return bool(self._storage.scan_entries(query).items)

    def head_boundary(self, conversation: Seq, at: Seq) -> Seq | None:
        entry = self._storage.newest_head(conversation, at)
        return entry.head if entry else None

    def element_visible(self, address: Address, element: Seq, at: Seq | None) -> bool:
        if isinstance(address, ConversationAddress) and address.rewind:
            policy = self._storage.rewind_policy(address, "list")
            if policy is False:
                return self._passes_on(address, element, at)
        query = ListQuery(at=at, after=Seq(element - 1), before=Seq(element + 1), limit=1)
        return bool(self._storage.read_list(address, query).items)

    def _passes_on(self, address: ConversationAddress, element: Seq, at: Seq | None) -> bool:
        # Rare, and what stands behind may belong to a deleted conversation, which only an export
        # still shows.
        records: dict[Seq, Conversation] = {}
        home: ConversationAddress | None = None
        hiding: list[ListMarker] = []
        for item in self._storage.export():
            if isinstance(item, Conversation):
                records[item.id] = item
            elif isinstance(item, DeletedConversation):
                records[item.conversation.id] = item.conversation
            elif isinstance(item, ListItem):
                if item.id == element and isinstance(item.address, ConversationAddress):
                    home = item.address
            elif isinstance(item, ListMarker) and item.element in (None, element):
                hiding.append(item)
        reader = records[address.conversation]
        for segment in segments(reader, SEQ_MAX if at is None else at, records.__getitem__):
            here = msgspec.structs.replace(address, conversation=segment.conversation)
            if any(m.address == here and element < m.seq <= segment.through for m in hiding):
                return False
            if home == here:
                return element <= segment.through
        return False

    def rewind_policy(self, address: ConversationAddress, shape: Shape) -> bool | None:
        return self._storage.rewind_policy(address, shape)

    def owned_conversations(self, conversation: Seq) -> list[Seq]:
        found: list[Seq] = []
        after: Seq | None = None
        while True:
            query = ConversationQuery(owner_conversation=conversation, after=after)
            page = self._storage.scan_conversations(query)
            found += [owned.id for owned in page.items]
            if page.next is None:
                return found
            after = page.next

    def live_tasks(self, conversation: Seq) -> list[Seq]:
        found: list[Seq] = []
        after: Seq | None = None
        while True:
            query = TaskQuery(conversation_ids=(conversation,), live=True, after=after)
            page = self._storage.scan_tasks(query)
            found += [task.id for task in page.items]
            if page.next is None:
                return found
            after = page.next
