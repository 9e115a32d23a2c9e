"""How the conversations of a snapshot hang together: forks, owners, and what deleted ones reach."""

from __future__ import annotations

from pico_store.address import Seq
from pico_store.records import Conversation

_EVERYTHING = 2**53


class Links:
    """The conversations of a snapshot, live and deleted, and what they refer to."""

    def __init__(self) -> None:
        self.conversations: dict[Seq, Conversation] = {}
        self._through: dict[Seq, int] = {}
        """How far each deleted one reaches, as the snapshot says."""
        self._cuts: dict[Seq, Seq | None] = {}
        """The conversation of each entry that a fork leaves from, once the entry came."""
        self._owners: dict[Seq, bool] = {}
        """Whether each task that owns a live conversation came."""

    def conversation(self, item: Conversation, through: int | None) -> None:
        """Take the next one; with ``through`` it is deleted."""
        self.conversations[item.id] = item
        if item.parent is not None:
            self._cuts.setdefault(item.parent.at, None)
        if through is not None:
            self._through[item.id] = through
        elif item.owner is not None:
            self._owners[item.owner] = False

    def entry(self, id: Seq, conversation: Seq) -> None:
        """Take an entry's place."""
        if id in self._cuts:
            self._cuts[id] = conversation

    def task(self, id: Seq) -> None:
        """Take a task."""
        if id in self._owners:
            self._owners[id] = True

    def is_live(self, id: Seq) -> bool:
        """Tell whether a conversation that came is not deleted."""
        return id not in self._through

    def reach(self, id: Seq) -> int:
        """Return the greatest number that is left of a conversation."""
        return self._through.get(id, _EVERYTHING)

    def problem(self) -> str:
        """Return what does not hold once everything came, or nothing."""
        for record in self.conversations.values():
            if not self.is_live(record.id):
                # What it inherited itself may be gone: only what its live forks show is kept.
                continue
            if record.parent is not None and not self._shows(record.parent.conversation_id, record):
                source = record.parent.conversation_id
                return f"conversation {record.id} forks at {record.parent.at}, which {source} lacks"
            if record.owner is not None and not self._owners[record.owner]:
                return f"conversation {record.id} has owner {record.owner}, which is no task"
        for id, inherited in self._inherited().items():
            if self._through[id] != inherited:
                found = self._through[id]
                return f"deleted conversation {id} through {found}; its forks inherit {inherited}"
        return ""

    def _shows(self, source: Seq, fork: Conversation) -> bool:
        """Tell whether a conversation shows the entry where a fork leaves it."""
        assert fork.parent is not None
        at = fork.parent.at
        home = self._cuts[at]
        while source != home:
            parent = self.conversations[source].parent
            if parent is None or at > parent.at:
                return False
            source = parent.conversation_id
        return True

    def _inherited(self) -> dict[Seq, int]:
        """Return how far each deleted conversation is inherited by live ones."""
        found = dict.fromkeys(self._through, 0)
        # A fork is younger than its source, so that its own reach is known first.
        for id in sorted(self.conversations, reverse=True):
            parent = self.conversations[id].parent
            if parent is None or parent.conversation_id not in found:
                continue
            cut = min(parent.at, found.get(id, _EVERYTHING))
            source = parent.conversation_id
            found[source] = max(found[source], cut)
        return found
