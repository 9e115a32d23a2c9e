"""One session's state in dictionaries: how writes change it and what follows from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from msgspec import structs

from pico_store.address import Address, ConversationAddress, ScratchAddress, Seq, Shape
from pico_store.batch import (
    DeleteConversation,
    ListAppend,
    ListClear,
    ListRemove,
    MainWrite,
    PatchTask,
    SettleTask,
    ValueDelete,
    ValueSet,
)
from pico_store.check import CheckedBatch
from pico_store.entry_body import EntryColumns
from pico_store.forks import Segment, inherited_through, segments
from pico_store.records import BatchRange, Conversation, Entry, Task

A = TypeVar("A", bound=Address)


class Ledger:
    """What was written. Payloads stay packed, so that every read decodes a copy of its own."""

    def __init__(self) -> None:
        self.last_seq = Seq(0)
        self.conversations: dict[Seq, Conversation] = {}
        self.deleted: set[Seq] = set()
        self.kinds: set[str] = set()
        self.entries: dict[Seq, tuple[EntryColumns, bytes]] = {}
        self.tasks: dict[Seq, tuple[Task, bytes]] = {}
        self.policies: dict[tuple[ConversationAddress, Shape], bool] = {}
        self.values: dict[Address, dict[Seq, bytes | None]] = {}
        """Versions by number, ascending; none of a sticky address that is absent."""
        self.elements: dict[Address, dict[Seq, bytes]] = {}
        self.markers: dict[Address, dict[Seq, Seq | None]] = {}
        self.batches: list[BatchRange] = []

    # --- Writing ---

    def apply(self, batch: CheckedBatch) -> BatchRange:
        """Carry out a batch that was checked; nothing in here can be refused any more."""
        for index, write in enumerate(batch.writes):
            taken = batch.deletions.get(index, [])
            self._apply_write(write, Seq(batch.first + index), batch.bodies[index], taken)
        self.last_seq = batch.last
        self.batches.append(BatchRange(batch.first, batch.last, batch.task))
        return self.batches[-1]

    def _apply_write(
        self, write: MainWrite, seq: Seq, body: bytes | None, taken: list[Seq]
    ) -> None:
        match write:
            case Conversation():
                self.conversations[seq] = write
            case Entry():
                self.add_entry(write, body or b"")
            case Task():
                self.tasks[seq] = (structs.replace(write, state={}), body or b"")
            case PatchTask():
                task, old = self.tasks[write.id]
                if write.status is not None:
                    task = structs.replace(task, status=write.status, role=write.role)
                task = structs.replace(task, abort=task.abort or write.abort)
                self.tasks[write.id] = (task, body or old)
            case SettleTask():
                task, _ = self.tasks[write.id]
                task = structs.replace(task, status=write.status, role="terminal")
                self.tasks[write.id] = (task, body or b"")
                self._retire(write.id)
            case DeleteConversation():
                self.deleted.update(taken)
                gone = [id for id, (task, _) in self.tasks.items() if task.conversation_id in taken]
                for id in gone:
                    del self.tasks[id]
            case _:
                self._apply_state(write, seq, body)

    def _apply_state(self, write: MainWrite, seq: Seq, body: bytes | None) -> None:
        assert isinstance(write, ValueSet | ValueDelete | ListAppend | ListRemove | ListClear)
        address = write.address
        shape: Shape = "value" if isinstance(write, ValueSet | ValueDelete) else "list"
        if isinstance(address, ConversationAddress):
            self.policies[unbound(address), shape] = address.rewind
        match write:
            case ListAppend():
                self.elements.setdefault(address, {})[seq] = body or b""
            case ListRemove() | ListClear() if keeps_history(address):
                element = write.element if isinstance(write, ListRemove) else None
                self.markers.setdefault(address, {})[seq] = element
            case ListRemove():
                del self.elements[address][write.element]
            case ListClear():
                self.elements.pop(address, None)
            case _ if keeps_history(address):
                self.values.setdefault(address, {})[seq] = body
            case ValueSet():
                self.values[address] = {seq: body}
            case ValueDelete():
                # Nothing, but written: its own key hides an inherited one.
                self.values[address] = {}

    def add_entry(self, entry: Entry, body: bytes) -> None:
        """Append an entry whose parts are packed."""
        columns = EntryColumns(
            entry.id, entry.conversation_id, entry.kind, entry.key, entry.by_task_id, entry.head
        )
        self.entries[entry.id] = (columns, body)
        self.kinds.add(entry.kind)

    def _retire(self, task: Seq) -> None:
        for state in (self.values, self.elements):
            for address in list(state):
                if isinstance(address, ScratchAddress) and address.task == task:
                    del state[address]
        self.batches = [batch for batch in self.batches if batch.task != task]

    # --- What follows from it ---

    def is_live(self, conversation: Seq) -> bool:
        """Tell whether a conversation exists and is not deleted."""
        return conversation in self.conversations and conversation not in self.deleted

    def segments(self, conversation: Seq, at: int) -> list[Segment]:
        """Return the part of each conversation that this one shows, its own first."""
        return segments(self.conversations[conversation], at, self.conversations.__getitem__)

    def reach(self, conversation: Seq) -> float:
        """Return the greatest number that can still be read of a conversation."""
        if self.is_live(conversation):
            return float("inf")
        return inherited_through(conversation, self._forks, self.is_live)

    def _forks(self, conversation: Seq) -> Iterator[Conversation]:
        for fork in self.conversations.values():
            if fork.parent is not None and fork.parent.conversation_id == conversation:
                yield fork

    def shown(self, conversation: Seq, at: int) -> Iterator[EntryColumns]:
        """Yield the entries that a conversation shows at a position, ascending."""
        through = dict(self.segments(conversation, at))
        for columns, _ in self.entries.values():
            if columns.id <= through.get(columns.conversation_id, 0):
                yield columns

    def owns(self, task: Seq) -> tuple[Seq, ...]:
        """Return the live conversations that name a task as their owner."""
        every = self.conversations.values()
        return tuple(c.id for c in every if c.owner == task and self.is_live(c.id))

    def version(self, address: Address, at: int) -> tuple[Seq, bytes | None] | None:
        """Return the newest version of an address itself, ancestors left aside."""
        found = [item for item in self.values.get(address, {}).items() if item[0] <= at]
        return found[-1] if found else None

    def versions(self, address: Address, at: int) -> tuple[Seq, bytes | None] | None:
        """Return the version that an address shows, its ancestors' included."""
        if not isinstance(address, ConversationAddress) or not keeps_history(address):
            return self.version(address, at)
        for part in self.segments(address.conversation, at):
            own = structs.replace(address, conversation=part.conversation)
            found = self.version(own, part.through)
            if found is not None:
                return found
        return None

    def visible_elements(self, address: Address, at: int) -> dict[Seq, bytes]:
        """Return the packed elements that a list shows, ascending."""
        if not isinstance(address, ConversationAddress) or not keeps_history(address):
            return self.elements.get(address, {})
        found: dict[Seq, bytes] = {}
        removed: set[Seq] = set()
        for part in self.segments(address.conversation, at):
            own = structs.replace(address, conversation=part.conversation)
            marks = self.markers.get(own, {}).items()
            removed.update(e for seq, e in marks if e is not None and seq <= part.through)
            cleared = max((seq for seq, e in marks if e is None and seq <= part.through), default=0)
            for id, body in self.elements.get(own, {}).items():
                if cleared < id <= part.through and id not in removed:
                    found[id] = body
            if cleared:
                # What is inherited is older than the clear.
                break
        return dict(sorted(found.items()))

    def keyed(self, scope: Address) -> dict[str, tuple[Seq, bytes]]:
        """Return the present keyed values of a namespace, ascending by key."""
        found: dict[str, tuple[Seq, bytes | None] | None] = {}
        parts: list[tuple[Address, int]] = [(scope, self.last_seq)]
        if isinstance(scope, ConversationAddress):
            own = self.segments(scope.conversation, self.last_seq)
            parts = [(unbound(scope, conversation=of), through) for of, through in own]
        for depth, (namespace, through) in enumerate(parts):
            for address in self.values:
                if address.key is None or unbound(address, key=None) != namespace:
                    continue
                newest = self.version(address, through)
                # Of an ancestor only what rewinds counts; nearer writes stand before it.
                if not depth or (newest is not None and keeps_history(address)):
                    found.setdefault(address.key, newest)
        # Python compares texts by code point, which is what the contract asks for.
        return {
            key: (version[0], version[1])
            for key, version in sorted(found.items())
            if version is not None and version[1] is not None
        }


def keeps_history(address: Address) -> bool:
    """Tell whether every version and marker of an address is kept."""
    return isinstance(address, ConversationAddress) and address.rewind


def unbound(address: A, **changes: object) -> A:
    """Return an address without its policy, so that two of one place are equal."""
    if isinstance(address, ConversationAddress):
        changes["rewind"] = False
    return structs.replace(address, **changes)
