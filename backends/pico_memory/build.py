"""Putting a session's state together from the items of a snapshot, without asking questions.

Whoever calls this has checked the items, or has them from where only checked ones were written.
"""

from __future__ import annotations

from pico_memory.bodies import PACKED, Bodies
from pico_memory.rows import Body
from pico_memory.scope import Cell, ListState, RewindList, Scope, Scratch, ValueSpace
from pico_memory.state import SessionState
from pico_memory.transcript import Transcript
from pico_store.address import Address, ConversationAddress, ScratchAddress, Seq, SessionAddress
from pico_store.records import BatchRange, Conversation, Entry, Task
from pico_store.snapshot import AddressPolicy, ListItem, ListMarker, SnapshotHeader, ValueVersion
from pico_store.view import TaskFacts


class Builder:
    """Takes the items in canonical order, each with its payload in stored form.

    The policy of an address may be left out where a version, element or marker of it follows.
    """

    __slots__ = ("state",)

    def __init__(self, bodies: Bodies = PACKED) -> None:
        self.state = SessionState(bodies)

    def header(self, item: SnapshotHeader) -> None:
        """Take the last number and the entry kinds."""
        self.state.last_seq = item.last_seq
        self.state.kinds.update((kind, kind) for kind in item.entry_kinds)

    def conversation(self, item: Conversation) -> None:
        """Take a live conversation."""
        self._add_fork(item)
        self.state.conversations[item.id] = item
        self.state.conversation_ids.append(item.id)

    def deleted(self, item: Conversation) -> None:
        """Take a deleted conversation."""
        self._add_fork(item)
        self.state.deleted[item.id] = item

    def _add_fork(self, item: Conversation) -> None:
        if item.parent is not None:
            self.state.forks.setdefault(item.parent.conversation_id, []).append(item)

    def own(self, conversation: Conversation) -> None:
        """Enter a live conversation where its owner, a task that was taken before, finds it."""
        state, owner = self.state, conversation.owner
        if owner is not None:
            source = state.facts[owner].conversation
            state.owned.setdefault(owner, []).append(conversation.id)
            state.owned_from.setdefault(source, []).append(conversation.id)

    def entry(self, item: Entry, body: Body) -> None:
        """Take an entry."""
        state, id, key, head = self.state, item.id, item.key, item.head
        record = state.conversation(item.conversation_id)
        # The record's id and the known text, so that equal ones are kept once.
        conversation, kind = record.id, state.kinds[item.kind]
        state.entries[id] = (id, conversation, kind, key, item.by_task_id, head, body)
        transcript = state.transcripts.get(conversation)
        if transcript is None:
            transcript = state.transcripts[conversation] = Transcript()
        transcript.add(id, kind, key, head)

    def task(self, item: Task, body: Body) -> None:
        """Take a task."""
        state, id, conversation = self.state, item.id, item.conversation_id
        live = item.role != "terminal"
        state.tasks[id] = (
            conversation,
            item.kind,
            item.status,
            item.role,
            tuple(item.after),
            item.background,
            item.turn,
            item.abort,
            body,
        )
        state.facts[id] = TaskFacts(conversation, live)
        state.task_ids.append(id)
        state.tasks_of.setdefault(conversation, []).append(id)
        state.live_of.setdefault(conversation, [])
        if live:
            state.live.append(id)
            state.live_of[conversation].append(id)

    # --- Values and lists ---

    def policy(self, item: AddressPolicy) -> None:
        """Take the policy of an address; nothing is there until more comes."""
        if item.shape == "value":
            self.cell(item.address)
        else:
            self.list(item.address)

    def version(self, item: ValueVersion, body: Body | None) -> None:
        """Take a version of a value; no body is a tombstone."""
        address = item.address
        cell = self.cell(address)
        if type(cell) is list:
            cell.append((item.seq, body))
        else:
            self.scope(address).values[address.namespace].cells[address.key] = (item.seq, body)

    def element(self, item: ListItem, body: Body) -> None:
        """Take a list element."""
        found = self.list(item.address)
        items = found.items if type(found) is RewindList else found
        items.append((item.id, body))  # type: ignore[union-attr]  # it is the other one

    def marker(self, item: ListMarker) -> None:
        """Take a removal or clear of a rewindable list."""
        found = self.list(item.address)
        assert type(found) is RewindList
        if item.element is None:
            found.clears.append(item.seq)
        else:
            found.removed[item.element] = item.seq

    def cell(self, address: Address) -> Cell:
        """Return what a value's address holds so far; a new one is made by its policy."""
        spaces = self.scope(address).values
        space = spaces.get(address.namespace)
        if space is None:
            space = spaces[address.namespace] = ValueSpace()
        cell = space.cells.get(address.key)
        if cell is None:
            rewinds = type(address) is ConversationAddress and address.rewind
            cell = space.cells[address.key] = [] if rewinds else (Seq(0), None)
        return cell

    def list(self, address: Address) -> ListState:
        """Return what a list's address holds so far; a new one is made by its policy."""
        lists, name = self.scope(address).lists, (address.namespace, address.key)
        found = lists.get(name)
        if found is None:
            rewinds = type(address) is ConversationAddress and address.rewind
            found = lists[name] = RewindList() if rewinds else []
        return found

    def scope(self, address: Address) -> Scope:
        """Return the scope of an address."""
        if type(address) is SessionAddress:
            return self.state.session
        if type(address) is ScratchAddress:
            return self.scratch(address.task).scope
        assert type(address) is ConversationAddress
        return self.state.scopes.setdefault(address.conversation, Scope())

    # --- Batches ---

    def batch(self, item: BatchRange) -> None:
        """Take the boundaries of a batch."""
        owner = self.state if item.task is None else self.scratch(item.task)
        owner.batches.append(item)

    def scratch(self, task: Seq) -> Scratch:
        """Return the scratch of a live task."""
        found = self.state.scratch.get(task)
        if found is None:
            found = self.state.scratch[task] = Scratch()
        return found
