"""Ownership links, as far as live work needs them: which conversation belongs to which."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from pico_store.address import Seq


@dataclass(eq=False, slots=True)
class _Node:
    """A conversation that something live, running or attached needs."""

    above: Seq | None
    """The conversation of the task that owns it."""
    users: int = 0
    """Live tasks, running invocations, attachments and nodes below it."""
    served: bool = False
    below: dict[Seq, None] = field(default_factory=dict)
    """The nodes whose conversation one of its tasks owns; a dictionary used as a set."""


class Ancestry:
    """The conversations that live work is in, and those above them.

    Serving follows ownership: an attached conversation serves itself and all that its tasks own,
    also after the owner settled. Links never change, so they are read once and kept only while
    something needs them; finished children are never looked at.

    Source: design §6.2.
    """

    def __init__(self, above: Callable[[Seq], Seq | None]) -> None:
        """Make an empty one.

        Args:
            above: Finds the conversation of the task that owns a conversation; ``None``: unowned.
        """
        self._above = above
        self._nodes: dict[Seq, _Node] = {}
        self._attached: set[Seq] = set()
        self._everything = False

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, conversation: Seq) -> bool:
        return conversation in self._nodes

    # --- Keeping ---

    def hold(self, conversation: Seq) -> None:
        """Keep a conversation's links until `release` was called as often.

        Cost: one step where it is kept already; otherwise one read for each conversation up to one
        that is kept. If a read fails, nothing is kept of it.
        """
        node = self._nodes.get(conversation)
        if node is not None:
            node.users += 1
            return
        # All links are read before one is kept: a read may fail. A loop, not recursion: chains of
        # owners may be longer than the interpreter's stack.
        new: dict[Seq, _Node] = {}
        id: Seq | None = conversation
        while id is not None and id not in self._nodes:
            new[id] = _Node(self._above(id), users=1)
            id = new[id].above
        above = self._nodes[id] if id is not None else None
        if above is not None:
            above.users += 1
        for below, node in reversed(new.items()):
            node.served = self._everything
            if above is not None:
                node.served = above.served
                above.below[below] = None
            above = node
        self._nodes |= new

    def release(self, conversation: Seq) -> None:
        """Give up one `hold`."""
        id: Seq | None = conversation
        while id is not None:
            node = self._nodes[id]
            node.users -= 1
            if node.users:
                return
            del self._nodes[id]
            if node.above is not None:
                del self._nodes[node.above].below[id]
            id = node.above

    # --- Serving ---

    def attach(self, conversation: Seq | None) -> list[Seq]:
        """Serve a conversation and what it owns, or everything.

        Returns the conversations that something live needs and that were not served before. What is
        served already is not looked at, and what is above it goes on serving it.
        """
        if self._everything:
            return []
        if conversation is None:
            self._everything = True
            found = [id for id, node in self._nodes.items() if not node.served]
            for id in found:
                self._nodes[id].served = True
            return found
        known = self._nodes.get(conversation)
        if known is not None and known.served:
            return []
        self.hold(conversation)
        if self._nodes[conversation].served:
            self.release(conversation)
            return []
        self._attached.add(conversation)
        found = []
        stack = [conversation]
        while stack:
            id = stack.pop()
            node = self._nodes[id]
            if not node.served:
                node.served = True
                found.append(id)
                stack += node.below
        return found

    def detach_deleted(self, conversation: Seq) -> None:
        """Forget the attachments of a conversation that was deleted and of all that is below it.

        Nothing there is live or runs, so that attachments are all that is looked at.
        """
        found: list[Seq] = []
        stack = [conversation] if conversation in self._nodes else []
        while stack:
            id = stack.pop()
            stack += self._nodes[id].below
            if id in self._attached:
                found.append(id)
        for id in found:
            self._attached.remove(id)
            self.release(id)

    def serves(self, conversation: Seq) -> bool:
        """Tell whether an attachment serves a conversation that is held."""
        return self._nodes[conversation].served

    def lineage(self, conversation: Seq) -> Iterator[Seq]:
        """Yield a conversation that is held, the one above it, and so on."""
        id: Seq | None = conversation
        while id is not None:
            yield id
            id = self._nodes[id].above
