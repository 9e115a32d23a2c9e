"""Committed state plus the earlier writes of one batch: what each write of it meets."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from pico_store.address import Address, ConversationAddress, Seq, Shape
from pico_store.records import Conversation
from pico_store.view import CommittedView, TaskFacts

_ListAct: TypeAlias = Literal["append", "remove", "clear"]
_ListStep: TypeAlias = tuple[Seq, _ListAct, Seq | None]
"""``number, act, removed element``."""


class PendingState:
    """Answers the rules' questions as if the batch's earlier writes were committed.

    A position at or past ``first`` can only be seen through this batch, so that committed state
    answers for it as of now.
    """

    # One is made for each batch, and most batches need little of it.
    __slots__ = (
        "_committed",
        "_conversations",
        "_created",
        "_first",
        "_heads",
        "_lists",
        "_policies",
        "entries",
        "steps",
        "tasks",
    )

    def __init__(self, committed: CommittedView, first: Seq) -> None:
        self._committed = committed
        self._first = first
        self.tasks: dict[Seq, TaskFacts | None] = {}
        """The tasks that were created or settled; ``None``: gone with their conversation."""
        self.entries: dict[Seq, Seq] = {}
        """The conversation of each entry that was appended."""
        self.steps: list[tuple[Address, Seq, _ListAct, Seq | None]] = []
        """The writes of lists that nobody has asked about yet."""
        # Most batches need none of these.
        self._conversations: dict[Seq, Conversation | None] | None = None
        # Kept after a deletion in the same batch: a fork may still lead there.
        self._created: dict[Seq, Conversation] | None = None
        self._heads: list[tuple[Seq, Seq, Seq]] | None = None
        self._lists: dict[Address, _ListSteps] | None = None
        self._policies: dict[tuple[Seq, Shape, str, str | None], bool] | None = None

    # --- What a write meets ---

    def conversation(self, id: Seq) -> Conversation | None:
        """Return a conversation that is live at this point of the batch."""
        if self._conversations and id in self._conversations:
            return self._conversations[id]
        return self._committed.conversation(id)

    def task(self, id: Seq) -> TaskFacts | None:
        """Return what is known of a task at this point of the batch."""
        if id in self.tasks:
            return self.tasks[id]
        facts = self._committed.task(id)
        if facts is not None and self._conversations:  # noqa: SIM102 - a batch has mostly none
            if self._conversations.get(facts.conversation, facts) is None:
                return None
        return facts

    def entry_visible(self, conversation: Conversation, entry: Seq) -> bool:
        """Tell whether ``conversation`` shows ``entry`` at this point of the batch."""
        writer = self.entries.get(entry)
        reader = conversation
        while reader.id >= self._first and writer != reader.id:
            if reader.parent is None or entry > reader.parent.at:
                return False
            reader = self._ancestor(reader.parent.conversation_id)
        if writer is not None:
            return writer == reader.id
        return entry < self._first and self._committed.entry_visible(reader.id, entry)

    def head_boundary(self, conversation: Conversation) -> Seq | None:
        """Return the boundary of the newest head that ``conversation`` shows, if any."""
        through: int = 2**63
        reader = conversation
        while True:
            for id, writer, boundary in reversed(self._heads or ()):
                if writer == reader.id and id <= through:
                    return boundary
            if reader.id < self._first:
                at = Seq(min(through, self._committed.last_seq))
                return self._committed.head_boundary(reader.id, at)
            if reader.parent is None:
                return None
            through = min(through, reader.parent.at)
            reader = self._ancestor(reader.parent.conversation_id)

    def element_visible(self, address: Address, element: Seq) -> bool:
        """Tell whether the list at ``address`` shows ``element`` at this point of the batch."""
        through: int = 2**63
        reader = address
        while True:
            found = self._found_in_steps(reader, element, through)
            if found is not None:
                return found
            if not isinstance(reader, ConversationAddress) or reader.conversation < self._first:
                if element >= self._first:
                    return False
                at = Seq(through) if through < self._first else None
                return self._committed.element_visible(reader, element, at)
            parent = self._ancestor(reader.conversation).parent
            if parent is None or not reader.rewind:
                return False
            through = min(through, parent.at)
            reader = msgspec.structs.replace(reader, conversation=parent.conversation_id)

    def rewind_policy(self, address: ConversationAddress, shape: Shape) -> bool | None:
        """Return the policy that the address's first write fixed."""
        policy = None
        if self._policies:
            key = (address.conversation, shape, address.namespace, address.key)
            policy = self._policies.get(key)
        if policy is None and address.conversation < self._first:
            policy = self._committed.rewind_policy(address, shape)
        return policy

    def subtree(self, conversation: Seq) -> tuple[list[Seq], list[Seq]]:
        """Return a conversation with all that its tasks own, and the live tasks in there."""
        taken = [conversation]
        live: list[Seq] = []
        changed = self._conversations or {}
        for source in taken:
            owned = self._committed.owned_conversations(source) if source < self._first else []
            taken += [id for id in owned if changed.get(id, id) is not None]
            for id, created in changed.items():
                if created is not None and id >= self._first and created.owner is not None:
                    facts = self.task(created.owner)
                    if facts is not None and facts.conversation == source:
                        taken.append(id)
            tasks = set(self._committed.live_tasks(source) if source < self._first else ())
            for task_id, facts in self.tasks.items():
                if facts is not None and facts.conversation == source:
                    (tasks.add if facts.live else tasks.discard)(task_id)
            live += sorted(tasks)
        return taken, live

    # --- What an accepted write changes ---

    def add_conversation(self, conversation: Conversation) -> None:
        """Note a created conversation."""
        if self._conversations is None:
            self._conversations = {}
        if self._created is None:
            self._created = {}
        self._conversations[conversation.id] = conversation
        self._created[conversation.id] = conversation

    def add_head(self, id: Seq, conversation: Seq, head: Seq) -> None:
        """Note the head of an appended entry."""
        if self._heads is None:
            self._heads = []
        self._heads.append((id, conversation, head))

    def add_policy(self, address: ConversationAddress, shape: Shape) -> None:
        """Note the first write of an address."""
        if self._policies is None:
            self._policies = {}
        key = (address.conversation, shape, address.namespace, address.key)
        self._policies[key] = address.rewind

    def remove_conversations(self, ids: list[Seq]) -> None:
        """Note deleted conversations, whose tasks go with them."""
        if self._conversations is None:
            self._conversations = {}
        for id in ids:
            self._conversations[id] = None
        gone = set(ids)
        for task_id, facts in self.tasks.items():
            if facts is not None and facts.conversation in gone:
                self.tasks[task_id] = None

    def _ancestor(self, id: Seq) -> Conversation:
        """Return a conversation by id that a fork of this batch leads to."""
        created = self._created.get(id) if self._created else None
        if created is not None:
            return created
        found = self._committed.conversation(id)
        assert found is not None, f"conversation {id} vanished under its fork"
        return found

    def _found_in_steps(self, address: Address, element: Seq, through: int) -> bool | None:
        if self._lists is None:
            self._lists = {}
        for written, seq, act, removed in self.steps:
            steps = self._lists.get(written)
            if steps is None:
                steps = self._lists[written] = _ListSteps()
            steps.add(seq, act, removed)
        self.steps.clear()
        asked = self._lists.get(address)
        return None if asked is None else asked.found(element, through)


class _ListSteps:
    """The writes of one list in a batch, and what they amount to."""

    __slots__ = ("_cleared", "_now", "_steps")

    def __init__(self) -> None:
        self._steps: list[_ListStep] = []
        self._now: dict[Seq, bool] = {}
        self._cleared = False

    def add(self, seq: Seq, act: _ListAct, element: Seq | None) -> None:
        """Note the next write."""
        self._steps.append((seq, act, element))
        if act == "append":
            self._now[seq] = True
        elif element is not None:
            self._now[element] = False
        else:
            self._now.clear()
            self._cleared = True

    def found(self, element: Seq, through: int) -> bool | None:
        """Tell whether the writes up to a position show an element; ``None``: they do not say."""
        if through >= self._steps[-1][0]:
            return self._now.get(element, False if self._cleared else None)
        # A fork of this batch left in between: rare, so that looking at each is good enough.
        visible: bool | None = None
        for seq, act, removed in self._steps:
            if seq > through:
                break
            if act == "append":
                if seq == element:
                    visible = True
            elif act == "clear" or removed == element:
                visible = False
        return visible
