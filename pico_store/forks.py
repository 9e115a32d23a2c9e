"""Fork ranges: which part of each ancestor a conversation shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from pico_store.address import Seq
from pico_store.records import Conversation


class Segment(NamedTuple):
    """The part of one conversation's own history that a reader sees."""

    conversation: Seq
    through: int
    """Inclusive."""


def segments(
    conversation: Conversation,
    at: int,
    ancestor: Callable[[Seq], Conversation],
) -> list[Segment]:
    """Return what ``conversation`` shows at ``at``, its own segment first, then its ancestors'.

    The bound of each ancestor is the least of ``at`` and every cut on the way to it. Since a fork
    is created after the entry it leaves from, the segments read backwards are in ascending order.

    Args:
        conversation: The reader.
        at: Inclusive position.
        ancestor: Finds a parent, deleted ones included.

    Source: SPEC.md, FORK-2 and FORK-6 (a loop, so that no chain is too deep).
    """
    result = [Segment(conversation.id, at)]
    through = at
    parent = conversation.parent
    while parent is not None:
        through = min(through, parent.at)
        result.append(Segment(parent.conversation_id, through))
        parent = ancestor(parent.conversation_id).parent
    return result


def inherited_through(
    conversation: Seq,
    forks: Callable[[Seq], Iterable[Conversation]],
    is_live: Callable[[Seq], bool],
) -> int:
    """Return the greatest position of a deleted conversation that some live fork shows.

    Args:
        conversation: A deleted conversation.
        forks: The conversations, live or deleted, that were forked from the given one.
        is_live: Whether a conversation is not deleted.

    Returns:
        An inclusive position; 0 if nothing is inherited.

    Cost: visits the forks below ``conversation`` down to the first live ones.
    """
    # Each item is a fork and the least cut between it and ``conversation``.
    greatest = 0
    open_forks: list[tuple[Seq, int]] = [(conversation, 2**63)]
    while open_forks:
        source, through = open_forks.pop()
        for fork in forks(source):
            assert fork.parent is not None
            cut = min(through, fork.parent.at)
            if cut <= greatest:
                continue
            if is_live(fork.id):
                greatest = cut
            else:
                open_forks.append((fork.id, cut))
    return greatest
