"""The whole state of one session: its records, their indexes, and the way back out of a commit.

Knows no handles and no locks: whoever holds it lets one caller in at a time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import TypeAlias

from pico_memory.bodies import PACKED, Bodies
from pico_memory.rows import EntryRow, TaskRow
from pico_memory.scope import Scope, Scratch
from pico_memory.transcript import Transcript
from pico_store.address import Address, ConversationAddress, ScratchAddress, Seq
from pico_store.forks import inherited_through
from pico_store.records import BatchRange, Conversation
from pico_store.view import TaskFacts

Undo: TypeAlias = tuple[Callable[..., object], *tuple[object, ...]]
"""A function and its arguments that take one change back.

It is noted before the change, so it may meet the change made, half made or not made at all.
"""


class SessionState:
    """Records of a session by number, with what finds them.

    Deleting a conversation only moves its record to ``deleted`` and drops its tasks. What it held
    stays for the forks that inherit it; `cap` says how far, and `snapshot.compacted` drops the
    rest.
    """

    __slots__ = (
        "_caps",
        "applying",
        "batches",
        "bodies",
        "conversation_ids",
        "conversations",
        "deleted",
        "entries",
        "facts",
        "forks",
        "journal",
        "kinds",
        "last_seq",
        "live",
        "live_of",
        "owned",
        "owned_from",
        "scopes",
        "scratch",
        "session",
        "task_ids",
        "tasks",
        "tasks_of",
        "transcripts",
    )

    def __init__(self, bodies: Bodies = PACKED) -> None:
        self.bodies = bodies
        """What turns the payloads of the rows into objects."""
        self.last_seq = Seq(0)
        """The commit point of `apply`: a batch counts once this is its last number."""
        self.kinds: dict[str, str] = {}
        """Each kind by itself, so that all rows of a kind share one text."""
        self.batches: list[BatchRange] = []
        """Main batches; those of scratch are with the scratch."""

        self.conversations: dict[Seq, Conversation] = {}
        self.conversation_ids: list[Seq] = []
        self.deleted: dict[Seq, Conversation] = {}
        self.forks: dict[Seq, list[Conversation]] = {}
        """By parent, deleted ones included."""
        self.owned: dict[Seq, list[Seq]] = {}
        """Live conversations by the task that owns them."""
        self.owned_from: dict[Seq, list[Seq]] = {}
        """Live conversations by the conversation of the task that owns them."""

        self.entries: dict[Seq, EntryRow] = {}
        self.transcripts: dict[Seq, Transcript] = {}

        self.tasks: dict[Seq, TaskRow] = {}
        self.facts: dict[Seq, TaskFacts] = {}
        self.task_ids: list[Seq] = []
        """Ascending; one that is not in ``tasks`` went with its conversation."""
        self.tasks_of: dict[Seq, list[Seq]] = {}
        self.live: list[Seq] = []
        self.live_of: dict[Seq, list[Seq]] = {}

        self.session = Scope()
        self.scopes: dict[Seq, Scope] = {}
        self.scratch: dict[Seq, Scratch] = {}

        self.journal: list[Undo] = []
        self.applying = Seq(0)
        """The last number of the batch that the journal belongs to."""
        self._caps: dict[Seq, int] = {}

    def recover(self) -> None:
        """Complete or take back what an interrupted commit left; nothing if none did.

        Each step can be repeated, and leaves the journal only when it is done, so that an
        interruption in here does no harm either: the next call goes on.
        """
        journal = self.journal
        while journal and self.last_seq < self.applying:
            undo = journal[-1]
            undo[0](*undo[1:])
            journal.pop()
        journal.clear()

    def conversation(self, id: Seq) -> Conversation:
        """Return a conversation, live or deleted, that is known to exist."""
        found = self.conversations.get(id)
        return self.deleted[id] if found is None else found

    def cap(self, conversation: Seq) -> int:
        """Return the greatest position of a conversation that something live shows."""
        if conversation in self.conversations:
            return self.last_seq
        found = self._caps.get(conversation)
        if found is None:
            found = inherited_through(
                conversation, lambda id: self.forks.get(id, ()), self.conversations.__contains__
            )
            self._caps[conversation] = found
        return found

    def forget_caps(self) -> None:
        """Make `cap` look again: what is deleted or live has changed."""
        self._caps.clear()

    def shows(self, conversation: Seq, entry: Seq) -> bool:
        """Tell whether a live conversation shows an entry, its own or an inherited one.

        Cost: one step a fork level.
        """
        row = self.entries.get(entry)
        if row is None:
            return False
        writer, reader = row[1], conversation
        while reader != writer:
            parent = self.conversation(reader).parent
            if parent is None or entry > parent.at:
                return False
            reader = parent.conversation_id
        return True

    def scope(self, address: Address) -> Scope | None:
        """Return the scope of an address, or ``None`` if nothing was written there."""
        if type(address) is ScratchAddress:
            scratch = self.scratch.get(address.task)
            return None if scratch is None else scratch.scope
        if type(address) is ConversationAddress:
            return self.scopes.get(address.conversation)
        return self.session


def insert_sorted(ids: list[Seq], id: Seq) -> None:
    """Put an id where it belongs in an ascending list, unless it is there."""
    index = bisect_left(ids, id)
    if index == len(ids) or ids[index] != id:
        ids.insert(index, id)


def remove_sorted(ids: list[Seq] | None, id: Seq) -> None:
    """Take an id out of an ascending list, if it is there."""
    if ids:
        index = bisect_left(ids, id)
        if index < len(ids) and ids[index] == id:
            del ids[index]


def remove_all_sorted(lists: Iterable[list[Seq] | None], id: Seq) -> None:
    """Take an id out of several ascending lists."""
    for ids in lists:
        remove_sorted(ids, id)
