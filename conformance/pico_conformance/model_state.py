"""The model's state: plain records of what was written, and the questions that rules and reads ask.

Nothing here is clever on purpose. Every answer is worked out anew from lists of writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from pico_store.address import Address, ConversationAddress, Seq, SessionAddress, Shape
from pico_store.batch import (
    DeleteConversation,
    ListAppend,
    ListClear,
    ListRemove,
    MainWrite,
    PatchTask,
    SettleTask,
    StateWrite,
    ValueSet,
)
from pico_store.records import Conversation, Entry, JsonValue, Task

FOREVER = 2**200
"""Past every position."""


class Spot(NamedTuple):
    """What tells one value or list from all others; an address without its policy."""

    scope: str
    holder: int
    """The conversation or task; 0 for the session."""
    shape: Shape
    namespace: str
    key: str | None


class Change(NamedTuple):
    """One write to a value or list."""

    seq: Seq
    write: StateWrite


def spot(address: Address, shape: Shape) -> Spot:
    """Return which value or list an address names."""
    if isinstance(address, SessionAddress):
        return Spot("session", 0, shape, address.namespace, address.key)
    if isinstance(address, ConversationAddress):
        return Spot("conversation", address.conversation, shape, address.namespace, address.key)
    return Spot("scratch", address.task, shape, address.namespace, address.key)


def is_rewindable(change: Change) -> bool:
    """Tell whether a write went to a rewindable address."""
    address = change.write.address
    return isinstance(address, ConversationAddress) and address.rewind


def shape_of(write: StateWrite) -> Shape:
    """Return what kind of state a write is for."""
    return "list" if isinstance(write, ListAppend | ListRemove | ListClear) else "value"


@dataclass(slots=True)
class State:
    """Everything that was ever written, by number; deleting only notes what is deleted."""

    last_seq: int = 0
    conversations: dict[Seq, Conversation] = field(default_factory=dict)
    deleted: dict[Seq, int] = field(default_factory=dict)
    """Deleted conversations, each with the number of the write that took it."""
    entries: dict[Seq, Entry] = field(default_factory=dict)
    tasks: dict[Seq, Task] = field(default_factory=dict)
    """Each as it is now; ``owns`` stays empty."""
    changes: dict[Spot, tuple[Change, ...]] = field(default_factory=dict)

    def copy(self) -> State:
        """Return a state that can go on by itself."""
        return State(
            self.last_seq,
            dict(self.conversations),
            dict(self.deleted),
            dict(self.entries),
            dict(self.tasks),
            dict(self.changes),
        )

    def apply(self, seq: Seq, write: MainWrite) -> None:
        """Make an accepted write part of the state."""
        self.last_seq = seq
        if isinstance(write, Conversation):
            self.conversations[seq] = write
        elif isinstance(write, Entry):
            edits = None if write.edits is None else tuple(write.edits)
            self.entries[seq] = replace(write, edits=edits)
        elif isinstance(write, Task):
            self.tasks[seq] = replace(write, after=tuple(write.after))
        elif isinstance(write, PatchTask):
            self._patch(write)
        elif isinstance(write, SettleTask):
            self.tasks[write.id] = replace(
                self.tasks[write.id], status=write.status, role="terminal", state=write.state
            )
        elif isinstance(write, DeleteConversation):
            for taken in self.subtree(write.id):
                self.deleted[taken] = seq
        else:
            where = spot(write.address, shape_of(write))
            self.changes[where] = (*self.changes.get(where, ()), Change(seq, write))

    def _patch(self, write: PatchTask) -> None:
        task = self.tasks[write.id]
        if write.status is not None and write.role is not None and write.state is not None:
            task = replace(task, status=write.status, role=write.role, state=write.state)
        self.tasks[write.id] = replace(task, abort=task.abort or write.abort)

    # --- Conversations and entries ---

    def is_live(self, conversation: int) -> bool:
        """Tell whether a conversation exists and is not deleted."""
        return conversation in self.conversations and conversation not in self.deleted

    def live_conversations(self) -> list[Conversation]:
        """Return the conversations that are not deleted, by id."""
        return [found for id, found in self.conversations.items() if id not in self.deleted]

    def chain(self, conversation: Seq, at: int = FOREVER) -> Iterator[tuple[Seq, int]]:
        """Yield a conversation and its ancestors, each with the last position it shows."""
        record: Conversation = self.conversations[conversation]
        yield record.id, at
        while record.parent is not None:
            at = min(at, record.parent.at)
            record = self.conversations[record.parent.conversation_id]
            yield record.id, at

    def shows(self, conversation: Seq, entry: int) -> bool:
        """Tell whether a conversation shows an entry."""
        found = self.entries.get(Seq(entry))
        return found is not None and any(
            found.conversation_id == source and entry <= through
            for source, through in self.chain(conversation)
        )

    def visible_entries(self, conversation: Seq) -> list[Entry]:
        """Return the entries that a conversation shows, by id."""
        through = dict(self.chain(conversation))
        return [
            entry
            for id, entry in self.entries.items()
            if id <= through.get(entry.conversation_id, 0)
        ]

    def newest_head(self, conversation: Seq, at: int) -> Entry | None:
        """Return the newest visible entry at or before a position that has a head."""
        heads = [
            entry
            for entry in self.visible_entries(conversation)
            if entry.head is not None and entry.id <= at
        ]
        return heads[-1] if heads else None

    def inherited_through(self, conversation: Seq) -> int:
        """Return the last position of a conversation that live others show; 0 if none does."""
        return max(
            (
                dict(self.chain(other.id)).get(conversation, 0)
                for other in self.live_conversations()
                if other.id != conversation
            ),
            default=0,
        )

    def readable_through(self, conversation: Seq) -> int:
        """Return the last position of a conversation's history that can still be read."""
        return FOREVER if self.is_live(conversation) else self.inherited_through(conversation)

    def subtree(self, conversation: Seq) -> list[Seq]:
        """Return a live conversation with all that its tasks own, transitively."""
        taken = [conversation]
        for source in taken:
            for other in self.live_conversations():
                if other.owner is not None and self.tasks[other.owner].conversation_id == source:
                    taken.append(other.id)
        return taken

    # --- Tasks ---

    def task(self, id: int) -> Task | None:
        """Return a task of a live conversation, with what it owns."""
        task = self.tasks.get(Seq(id))
        if task is None or not self.is_live(task.conversation_id):
            return None
        owned = [found.id for found in self.live_conversations() if found.owner == id]
        return replace(task, owns=tuple(owned)) if owned else task

    def is_live_task(self, id: int) -> bool:
        """Tell whether a task exists and is not terminal."""
        task = self.tasks.get(Seq(id))
        return task is not None and task.role != "terminal" and self.is_live(task.conversation_id)

    # --- Values and lists ---

    def policy(self, where: Spot) -> bool | None:
        """Return whether the first write of a spot said that it rewinds."""
        changes = self.changes.get(where)
        return is_rewindable(changes[0]) if changes else None

    def current(self, where: Spot) -> tuple[Change, ...]:
        """Return the writes of a spot that still count: those of retired scratch do not."""
        if where.scope == "scratch" and not self.is_live_task(where.holder):
            return ()
        return self.changes.get(where, ())

    def rewindable(self, where: Spot, at: int = FOREVER) -> list[Change]:
        """Return what a conversation shows of the rewindable writes of a spot, by number.

        What an ancestor wrote to a sticky address of the same name is not part of it.
        """
        found: list[Change] = []
        for source, through in self.chain(Seq(where.holder), at):
            own = self.changes.get(where._replace(holder=source), ())
            found += [change for change in own if is_rewindable(change) and change.seq <= through]
        return sorted(found, key=lambda change: change.seq)

    def value(self, where: Spot, *, rewind: bool, at: int = FOREVER) -> Change | None:
        """Return the write that set a value, or ``None`` where the value is absent."""
        changes = self.rewindable(where, at) if rewind else self.current(where)
        if not changes or not isinstance(changes[-1].write, ValueSet):
            return None
        return changes[-1]

    def elements(self, where: Spot, *, rewind: bool, at: int = FOREVER) -> dict[Seq, JsonValue]:
        """Return the elements that a list shows, by id."""
        shown: dict[Seq, JsonValue] = {}
        for change in self.rewindable(where, at) if rewind else self.current(where):
            write = change.write
            if isinstance(write, ListAppend):
                shown[change.seq] = write.value
            elif isinstance(write, ListRemove):
                shown.pop(write.element, None)
            else:
                shown.clear()
        return shown
