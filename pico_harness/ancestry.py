"""Ownership links, as far as live work needs them: which conversation belongs to which."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pico_store.address import Seq


@dataclass(eq=False, slots=True)
class _Node:
    """A conversation that something live, running or attached needs."""

    above: Seq | None
    """The conversation of the task that owns it."""
    users: int = 0
    """Live tasks, running invocations, attachments and nodes below it."""
    served: bool = False
    generation: int = -1
    """The attachment count for which ``served`` was found out."""


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
        self._generation = 0

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
        self._nodes |= new
        if id is not None:
            self._nodes[id].users += 1

    def release(self, conversation: Seq) -> None:
        """Give up one `hold`."""
        id: Seq | None = conversation
        while id is not None:
            node = self._nodes[id]
            node.users -= 1
            if node.users:
                return
            del self._nodes[id]
            id = node.above

    # --- Serving ---

    def attach(self, conversation: Seq | None) -> bool:
        """Serve a conversation and what it owns, or everything; False if that was so already."""
        if conversation is None:
            if self._everything:
                return False
            self._everything = True
        else:
            if conversation in self._attached:
                return False
            self.hold(conversation)
            self._attached.add(conversation)
        self._generation += 1
        return True

    def detach_deleted(self, conversation: Seq) -> None:
        """Forget an attachment whose conversation was deleted."""
        if conversation in self._attached:
            self._attached.remove(conversation)
            self.release(conversation)
            self._generation += 1

    def serves(self, conversation: Seq) -> bool:
        """Tell whether an attachment serves a conversation that is held."""
        if self._everything:
            return True
        if not self._attached:
            return False
        path: list[_Node] = []
        served = False
        for id in self.lineage(conversation):
            node = self._nodes[id]
            if node.generation == self._generation:
                served = node.served
                break
            path.append(node)
            if id in self._attached:
                served = True
                break
        for node in path:
            node.served, node.generation = served, self._generation
        return served

    def lineage(self, conversation: Seq) -> Iterator[Seq]:
        """Yield a conversation that is held, the one above it, and so on."""
        id: Seq | None = conversation
        while id is not None:
            yield id
            id = self._nodes[id].above
