"""The context of a conversation, kept warm: entries are read once, whoever asks how often."""

from __future__ import annotations

from weakref import WeakValueDictionary

import msgspec
from msgspec import UNSET

from pico_store.address import Seq
from pico_store.context import Context, ContextItem, derive_context
from pico_store.errors import UnknownConversationError
from pico_store.query import EntryQuery
from pico_store.records import At, ContextEdit, Entry, JsonObject, Replace
from pico_store.storage import Storage

_PAGE = 1_000
_KEPT = 8


class ContextCache:
    """The context of one conversation, brought up to date when it is asked for.

    Guarantees:
        What it returns equals `derive_context` at that position. It is a copy, which its caller may
        change: nothing that is served later changes with it.

    Source: design §2.2; CTX-1, CTX-2.
    """

    __slots__ = ("__weakref__", "_range", "_storage", "_through", "conversation")

    def __init__(self, storage: Storage, conversation: Seq) -> None:
        self._storage = storage
        self.conversation = conversation
        self._range: _Range | None = None
        self._through = Seq(0)
        """The last number that was looked at; everything up to here is in the range."""

    def context(self, at: At | None = None) -> Context:
        """Return the context at a position; now if ``None``.

        Raises:
            UnknownConversationError: The conversation does not exist or was deleted.
            InvalidQueryError: ``at`` is no position.

        Cost: now, or at any position since the newest entry: the entries that were committed since
        the last time, read in one query a thousand, and a copy of the context in memory. An older
        position is derived from storage, and what is warm stays as it is.
        """
        now = max(Seq(1), self._storage.last_seq)
        found = self._caught_up(now)
        if at is None:
            return found.context(self.conversation, now)
        if at != "start" and type(at) is int and found.last <= at <= now:
            return found.context(self.conversation, at)
        return derive_context(self._storage, self.conversation, at)

    def _caught_up(self, now: Seq) -> _Range:
        """Return the range as of a position, with what was committed up to there."""
        found = self._range
        try:
            if found is None:
                head = self._storage.newest_head(self.conversation, now)
                found = _Range()
                self._read(found, head.head if head is not None else None, now)
            elif now > self._through:
                self._read(found, None, now)
        except UnknownConversationError:
            # It was deleted; ids are not used twice.
            self._range = None
            raise
        self._range = found
        return found

    def _read(self, found: _Range, first: Seq | None, now: Seq) -> None:
        # A page is taken over whole and then the cursor moves: whatever the next read raises, the
        # range is that of the cursor.
        after = self._through if self._range is not None else None
        while True:
            query = EntryQuery(
                conversation_id=self.conversation,
                from_=first,
                through=now,
                after=after,
                limit=_PAGE,
            )
            page = self._storage.scan_entries(query)
            found.add(page.items)
            self._through = now if page.next is None else page.next
            if page.next is None:
                return
            after = page.next


class _Range:
    """The entries from the newest head's boundary on, and what each contributes."""

    __slots__ = ("_entries", "_head", "_shown", "last")

    def __init__(self) -> None:
        self._head: Entry | None = None
        self._entries: list[Entry] = []
        """Every entry of the range, ascending; older heads too, for their edits count."""
        self._shown: dict[Seq, _Contribution] = {}
        """In the order of the context; what is omitted keeps its place, for it may come back."""
        self.last = Seq(0)
        """The newest entry."""

    def add(self, entries: list[Entry]) -> None:
        """Take over the entries that follow, ascending."""
        if not entries:
            return
        self._entries += entries
        self.last = entries[-1].id
        newest = next((entry for entry in reversed(entries) if entry.head is not None), None)
        if newest is None:
            self._fold(entries)
            return
        # Heads never go back (ENT-2), so that what is kept is a part of what there is. Edits before
        # the boundary count no more, which only folding anew can tell.
        assert newest.head is not None
        self._head = newest
        self._entries = [entry for entry in self._entries if entry.id >= newest.head]
        self._shown = {newest.id: _Contribution(newest)}
        self._fold(self._entries)

    def _fold(self, entries: list[Entry]) -> None:
        for entry in entries:
            if entry.head is None:
                self._shown[entry.id] = _Contribution(entry)
            for edit in entry.edits or ():
                shown = self._shown.get(edit.target)
                if shown is not None:
                    shown.edit = edit

    def context(self, conversation: Seq, through: Seq) -> Context:
        """Return a copy of the context as of a position from the newest entry on."""
        contributions = self._shown.values()
        omitted = [one.entry.id for one in contributions if one.omitted]
        return Context(
            conversation=conversation,
            through=through,
            head=self._head.id if self._head is not None else None,
            items=tuple(one.item() for one in contributions if not one.omitted),
            omitted=tuple(sorted(omitted)),
        )


class _Contribution:
    """An entry of the context and the last edit of it."""

    __slots__ = ("edit", "entry")

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.edit: ContextEdit | None = None

    @property
    def omitted(self) -> bool:
        """Whether an edit took it out."""
        return self.edit is not None and not isinstance(self.edit, Replace)

    def item(self) -> ContextItem:
        """Return a copy of what it contributes."""
        entry = _copied(self.entry)
        if isinstance(self.edit, Replace):
            messages: list[JsonObject] = msgspec.to_builtins(self.edit.messages)
            return ContextItem(entry, tuple(messages), replaced=True)
        return ContextItem(entry, tuple(entry.model or ()))


def _copied(entry: Entry) -> Entry:
    """Return an entry that shares nothing with another one that could be changed.

    Texts are shared, so that the cost is that of the lists and objects, not of their length.
    Nothing read-only is served instead: messages go on into requests and into storage again, which
    take plain lists and objects alone.
    """
    edits = entry.edits
    if edits is not None:
        edits = tuple(
            Replace(edit.target, msgspec.to_builtins(edit.messages))
            if isinstance(edit, Replace)
            else edit
            for edit in edits
        )
    return msgspec.structs.replace(
        entry,
        data=UNSET if entry.data is UNSET else msgspec.to_builtins(entry.data),
        model=None if entry.model is None else msgspec.to_builtins(entry.model),
        edits=edits,
    )


class ContextCaches:
    """The warm contexts of a session, one a conversation however many handles it has.

    Every handle shares the cache of its conversation and keeps it alive. Handles are often made
    for one call, such as by a task that reads the context and returns; so the few conversations
    that were asked for last stay warm without one. What a session keeps in memory this way is
    bounded by the handles that somebody holds and these few.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._all: WeakValueDictionary[Seq, ContextCache] = WeakValueDictionary()
        self._recent: dict[Seq, ContextCache] = {}
        """Those that were used last, oldest use first."""

    def of(self, conversation: Seq) -> ContextCache:
        """Return the cache of a conversation."""
        found = self._all.get(conversation)
        if found is None:
            found = self._all[conversation] = ContextCache(self._storage, conversation)
        return found

    def context(self, cache: ContextCache, at: At | None) -> Context:
        """Ask one of the caches, which stays warm for a while; see `ContextCache.context`."""
        self._recent.pop(cache.conversation, None)
        self._recent[cache.conversation] = cache
        if len(self._recent) > _KEPT:
            del self._recent[next(iter(self._recent))]
        return cache.context(at)
