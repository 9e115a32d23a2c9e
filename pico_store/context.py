"""The context: what a model would see of a conversation at a position, derived from entries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pico_store.address import Seq
from pico_store.query import EntryQuery
from pico_store.records import At, Entry, JsonObject, Replace
from pico_store.storage import Storage

_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class ContextItem:
    """One entry of a context and what it contributes."""

    entry: Entry
    """As stored; edits change only what it contributes."""
    messages: tuple[JsonObject, ...]
    """Its own projection or the replacement; empty if it has none."""
    replaced: bool = False
    """Whether an edit put other messages in the place of its own."""


@dataclass(frozen=True, slots=True)
class Context:
    """The context of a conversation at a position."""

    conversation: Seq
    through: Seq
    """The position it was derived at, inclusive."""
    head: Seq | None
    """The entry that began it; ``None``: it begins with the transcript."""
    items: tuple[ContextItem, ...]
    omitted: tuple[Seq, ...]
    """Entries of the range that an edit took out, ascending."""

    @property
    def ids(self) -> tuple[Seq, ...]:
        """The entries, in the order in which they contribute."""
        return tuple(item.entry.id for item in self.items)

    @property
    def messages(self) -> tuple[JsonObject, ...]:
        """What they contribute, in order; tool exchanges are not normalised yet."""
        return tuple(message for item in self.items for message in item.messages)


def derive_context(storage: Storage, conversation: Seq, at: At | None = None) -> Context:
    """Return the context of a conversation.

    The newest entry with a head comes first, then every entry from its boundary on that has none.
    Edits of all entries in that range are folded in order; the last for a target wins.

    Args:
        storage: An open session.
        conversation: A live conversation.
        at: Inclusive position, which need not be an entry; ``"start"`` is before the first entry,
            ``None`` is now.

    Raises:
        UnknownConversationError: The conversation does not exist or was deleted.

    Cost: one probe for the head, then only entries from its boundary on are read.
    Source: SPEC.md, ENT-1 to ENT-5.
    """
    # Number 1 is the root conversation, so no entry is at or before it.
    through = Seq(1) if at == "start" else max(Seq(1), storage.last_seq) if at is None else at
    head = storage.newest_head(conversation, through)
    first = head.head if head is not None else None
    edits: dict[Seq, Replace | None] = {}
    shown: list[Entry] = [] if head is None else [head]
    for entry in _entries(storage, conversation, first, through):
        for edit in entry.edits or ():
            edits[edit.target] = edit if isinstance(edit, Replace) else None
        if entry.head is None:
            shown.append(entry)
    items: list[ContextItem] = []
    omitted: list[Seq] = []
    for entry in shown:
        if entry.id not in edits:
            items.append(ContextItem(entry, tuple(entry.model or ())))
        elif (edit_ := edits[entry.id]) is not None:
            items.append(ContextItem(entry, tuple(edit_.messages), replaced=True))
        else:
            omitted.append(entry.id)
    return Context(
        conversation=conversation,
        through=through,
        head=head.id if head is not None else None,
        items=tuple(items),
        omitted=tuple(sorted(omitted)),
    )


def _entries(
    storage: Storage, conversation: Seq, first: Seq | None, through: Seq
) -> Iterator[Entry]:
    after: Seq | None = None
    while True:
        query = EntryQuery(
            conversation_id=conversation, from_=first, through=through, after=after, limit=_PAGE
        )
        page = storage.scan_entries(query)
        yield from page.items
        if page.next is None:
            return
        after = page.next
