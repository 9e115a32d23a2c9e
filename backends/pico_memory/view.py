"""What the shared checks ask, answered from a session's indexes."""

from __future__ import annotations

from collections.abc import Callable

from pico_memory.lists import shows_element
from pico_memory.scans import newest_head, rewind_policy
from pico_memory.state import SessionState
from pico_store.address import Address, ConversationAddress, Seq, Shape
from pico_store.records import Conversation
from pico_store.view import TaskFacts


class MemoryView:
    """A `CommittedView` of a `SessionState`; like the state, it knows no lock."""

    __slots__ = ("conversation", "state", "task")

    def __init__(self, state: SessionState) -> None:
        self.state = state
        # Asked for almost every write: the look-ups themselves, without a call around each.
        self.conversation: Callable[[Seq], Conversation | None] = state.conversations.get
        self.task: Callable[[Seq], TaskFacts | None] = state.facts.get

    @property
    def last_seq(self) -> Seq:
        return self.state.last_seq

    def entry_visible(self, conversation: Seq, entry: Seq) -> bool:
        return self.state.shows(conversation, entry)

    def head_boundary(self, conversation: Seq, at: Seq) -> Seq | None:
        id, _ = newest_head(self.state, conversation, at)
        return None if id is None else self.state.entries[id][5]

    def element_visible(self, address: Address, element: Seq, at: Seq | None) -> bool:
        return shows_element(self.state, address, element, at)

    def rewind_policy(self, address: ConversationAddress, shape: Shape) -> bool | None:
        return rewind_policy(self.state, address, shape)

    def owned_conversations(self, conversation: Seq) -> list[Seq]:
        return list(self.state.owned_from.get(conversation, ()))

    def live_tasks(self, conversation: Seq) -> list[Seq]:
        return list(self.state.live_of.get(conversation, ()))
