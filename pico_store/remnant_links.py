"""What the conversations of a damaged session still show of one another."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final

import msgspec

from pico_store.address import Seq
from pico_store.records import Conversation, ForkPoint, Task
from pico_store.snapshot import DeletedConversation

_ROOT: Final = Seq(1)
_EVERYTHING: Final = 2**53


class RemnantLinks:
    """Conversations and where their entries are; `settle` makes them fit together."""

    def __init__(self) -> None:
        self.records: dict[Seq, Conversation] = {}
        self.through: dict[Seq, int] = {}
        """How far each deleted one reaches; once settled, 0: it is left out."""
        self.homes: dict[Seq, Seq] = {}
        """The conversation of each entry."""
        self.changes: list[tuple[str, str]] = []
        """What was changed, and how, once settled."""
        self._own: dict[Seq, list[Seq]] = {}
        self._restored: list[Seq] = []

    def conversation(self, item: Conversation | DeletedConversation) -> None:
        """Take a record that could be read."""
        if isinstance(item, DeletedConversation):
            self.through[item.conversation.id] = item.through
            item = item.conversation
        self.records[item.id] = item

    def entry(self, id: Seq, conversation: Seq) -> None:
        """Take the place of an entry that could be read, in ascending order."""
        self.homes[id] = conversation
        self._own.setdefault(conversation, []).append(id)

    def settle(self, tasks: dict[Seq, Task]) -> None:
        """Make forks leave from entries that are shown, and owners be tasks that are there."""
        self._restore_lost()
        for id, record in sorted(self.records.items()):
            if self.is_live(id):
                self.records[id] = self._owned(self._forked(record), tasks)
        self._measure_deleted()

    def is_live(self, id: Seq) -> bool:
        """Tell whether a conversation is there and not deleted."""
        return id in self.records and id not in self.through

    def keeps(self, id: Seq, number: int) -> bool:
        """Tell whether a number of a conversation is still shown by anybody."""
        return id in self.records and number <= self.through.get(id, _EVERYTHING)

    def items(self) -> list[Conversation | DeletedConversation]:
        """Return the records of the snapshot, once settled."""
        found: list[Conversation | DeletedConversation] = []
        for id, record in sorted(self.records.items()):
            through = self.through.get(id)
            if through is None:
                found.append(record)
            elif through:
                found.append(DeletedConversation(record, Seq(through)))
        return found

    def shows(self, reader: Seq, home: Seq, number: int) -> bool:
        """Tell whether a conversation shows what another one, or it, wrote at a number."""
        limit = _EVERYTHING
        while reader != home:
            parent = self.records[reader].parent
            if parent is None:
                return False
            limit = min(limit, parent.at)
            reader = parent.conversation_id
        return number <= limit

    def shows_entry(self, reader: Seq, entry: Seq) -> bool:
        """Tell whether an entry is there and a conversation shows it."""
        home = self.homes.get(entry)
        return home is not None and self.shows(reader, home, entry)

    def next_shown(self, reader: Seq, first: Seq) -> Seq | None:
        """Return the oldest entry that a conversation shows from a number on."""
        found: Seq | None = None
        limit = _EVERYTHING
        while True:
            own = self._own.get(reader, [])
            index = bisect_left(own, first)
            if index < len(own) and own[index] <= limit:
                found = own[index]
            parent = self.records[reader].parent
            if parent is None or reader <= first:
                # What was inherited is older than the conversation.
                return found
            limit = min(limit, parent.at)
            reader = parent.conversation_id

    def _last_shown(self, reader: Seq, last: int) -> Seq | None:
        """Return the newest entry that a conversation shows up to a number."""
        while True:
            own = self._own.get(reader, [])
            index = bisect_right(own, last)
            if index:
                return own[index - 1]
            parent = self.records[reader].parent
            if parent is None:
                return None
            last = min(last, parent.at)
            reader = parent.conversation_id

    def _restore_lost(self) -> None:
        parents = {
            record.parent.conversation_id for record in self.records.values() if record.parent
        }
        if _ROOT not in self.records:
            self.records[_ROOT] = Conversation(_ROOT)
            self._changed(_ROOT, "made anew: a root says nothing but that it is one")
        for id in sorted(parents - self.records.keys()):
            self.records[id] = Conversation(id)
            self.through[id] = 0
            self._restored.append(id)

    def _forked(self, record: Conversation) -> Conversation:
        parent = record.parent
        if parent is None:
            return record
        at = self._last_shown(parent.conversation_id, parent.at)
        if at == parent.at:
            return record
        if at is None:
            self._changed(record.id, f"left {parent.conversation_id} at {parent.at}; has no parent")
            return msgspec.structs.replace(record, parent=None)
        self._changed(record.id, f"left {parent.conversation_id} at {parent.at}; now at {at}")
        moved = ForkPoint(parent.conversation_id, at)
        return msgspec.structs.replace(record, parent=moved)

    def _owned(self, record: Conversation, tasks: dict[Seq, Task]) -> Conversation:
        if record.owner is None:
            return record
        task = tasks.get(record.owner)
        if task is not None and self.is_live(task.conversation_id):
            return record
        self._changed(record.id, f"its owner, task {record.owner}, is lost; it has none")
        return msgspec.structs.replace(record, owner=None)

    def _measure_deleted(self) -> None:
        before, self.through = self.through, dict.fromkeys(self.through, 0)
        # A fork is younger than its source, so that its own reach is known first.
        for id in sorted(self.records, reverse=True):
            parent = self.records[id].parent
            if parent is None or parent.conversation_id not in self.through:
                continue
            reach = min(parent.at, self.through.get(id, _EVERYTHING))
            source = parent.conversation_id
            self.through[source] = max(self.through[source], reach)
        for id in self._restored:
            if self.through[id]:
                what = "lost; its forks inherit from it what it wrote itself, and nothing else"
                self._changed(id, what)
        for id, through in self.through.items():
            if before[id] and through != before[id]:
                self._changed(id, f"deleted, and shown up to {before[id]}; now up to {through}")

    def _changed(self, conversation: Seq, what: str) -> None:
        self.changes.append((f"conversation {conversation}", what))
