"""Faults in transcripts: which entries a conversation shows, and its newest head."""

from __future__ import annotations

import sys

from msgspec import UNSET
from msgspec.structs import replace

from pico_conformance.zoo.mutant import plant
from pico_conformance.zoo.wrapper import EntriesShown, Faulty, Lenient, Rewritten, every, turned
from pico_memory.view import MemoryView
from pico_store.address import Seq
from pico_store.batch import Batch, MainWrite
from pico_store.errors import InvalidQueryError, RefusedError
from pico_store.query import BatchQuery, ConversationQuery, EntryQuery
from pico_store.records import BatchRange, Entry, Page
from pico_store.storage import Storage

# --- What a fork shows ---


@plant("FORK-2")
class CutTooEarly(EntriesShown):
    """A fork does not show the entry that it was forked at."""

    def shown(self, conversation: Seq, items: list[Entry]) -> list[Entry]:
        parent = self.parent(conversation)
        return items if parent is None else [item for item in items if item.id != parent.at]


@plant("FORK-2", "ENT-6")
class CutTooLate(Faulty):
    """A fork shows one more entry of its parent than up to the cut."""

    def scan_entries(self, query: EntryQuery) -> Page[Entry]:
        right = self.storage.scan_entries(query)
        parent = self.parent(query.conversation_id)
        if parent is None:
            return right
        source = replace(query, conversation_id=parent.conversation_id)
        later = [item for item in every(self.storage.scan_entries, source) if item.id > parent.at]
        items = [*every(self.storage.scan_entries, query), *later[:1]]
        return turned(sorted(items, key=lambda item: item.id), query, right.read_at)


@plant("FORK-2", "FORK-6")
class CutNotLeast(Faulty):
    """A fork of a fork shows its grandparent up to the first cut, not up to the least."""

    def scan_entries(self, query: EntryQuery) -> Page[Entry]:
        right = self.storage.scan_entries(query)
        parent = self.parent(query.conversation_id)
        above = None if parent is None else self.parent(parent.conversation_id)
        if parent is None or above is None or above.at <= parent.at:
            return right
        source = replace(query, conversation_id=above.conversation_id)
        more = [
            item
            for item in every(self.storage.scan_entries, source)
            if parent.at < item.id <= above.at
        ]
        items = [*every(self.storage.scan_entries, query), *more]
        return turned(sorted(items, key=lambda item: item.id), query, right.read_at)


@plant("FORK-3")
class CommitOfCutShown(Faulty):
    """A fork shows its parent's entries to the end of the commit that holds the cut."""

    def scan_entries(self, query: EntryQuery) -> Page[Entry]:
        right = self.storage.scan_entries(query)
        parent = self.parent(query.conversation_id)
        if parent is None:
            return right
        batch = self.storage.scan_batches(BatchQuery(before=Seq(parent.at + 1), limit=1)).items[0]
        source = replace(query, conversation_id=parent.conversation_id)
        more = [
            item
            for item in every(self.storage.scan_entries, source)
            if parent.at < item.id <= batch.last
        ]
        items = [*every(self.storage.scan_entries, query), *more]
        return turned(sorted(items, key=lambda item: item.id), query, right.read_at)


@plant("FORK-2")
class EntriesNotInherited(EntriesShown):
    """A fork shows its own entries alone."""

    def shown(self, conversation: Seq, items: list[Entry]) -> list[Entry]:
        return [item for item in items if item.conversation_id == conversation]


@plant("FORK-6")
class DeepForksRecursed(Faulty):
    """Ancestors are found by a function that calls itself, until there are too many."""

    def scan_entries(self, query: EntryQuery) -> Page[Entry]:
        page = self.storage.scan_entries(query)
        self._depth(query.conversation_id, sys.getrecursionlimit() // 2)
        return page

    def _depth(self, conversation: Seq, left: int) -> int:
        if left == 0:
            raise RecursionError
        parent = self.parent(conversation)
        return 0 if parent is None else 1 + self._depth(parent.conversation_id, left - 1)


@plant("ENT-6", "PAGE-8")
class KeyIndexOfSession(Faulty):
    """Entries found by key are those of every conversation."""

    def scan_entries(self, query: EntryQuery) -> Page[Entry]:
        right = self.storage.scan_entries(query)
        if query.key is None:
            return right
        found = {
            item.id: item
            for conversation in every(self.storage.scan_conversations, ConversationQuery())
            for item in every(
                self.storage.scan_entries, replace(query, conversation_id=conversation.id)
            )
        }
        return turned([found[id] for id in sorted(found)], query, right.read_at)


@plant("PAGE-8")
class KeyIndexUnique(Faulty):
    """Of the entries of one kind and key only the newest is found."""

    def scan_entries(self, query: EntryQuery) -> Page[Entry]:
        right = self.storage.scan_entries(query)
        if query.key is None:
            return right
        return turned(every(self.storage.scan_entries, query)[-1:], query, right.read_at)


@plant("PAGE-8")
class KeyWithoutKind(Faulty):
    """A key without a kind is taken for no filter at all."""

    def scan_entries(self, query: EntryQuery) -> Page[Entry]:
        try:
            return self.storage.scan_entries(query)
        except InvalidQueryError as error:
            if error.clause != "PAGE-8" or query.kind is not None:
                raise
            return self.storage.scan_entries(replace(query, key=None))


@plant("PAGE-7")
class FromExclusive(Faulty):
    """The lower bound of a transcript read is left out of it."""

    def scan_entries(self, query: EntryQuery) -> Page[Entry]:
        right = self.storage.scan_entries(query)
        items = every(self.storage.scan_entries, query)
        return turned([item for item in items if item.id != query.from_], query, right.read_at)


@plant("PAGE-7")
class ThroughExclusive(Faulty):
    """The upper bound of a transcript read is left out of it."""

    def scan_entries(self, query: EntryQuery) -> Page[Entry]:
        right = self.storage.scan_entries(query)
        items = every(self.storage.scan_entries, query)
        return turned([item for item in items if item.id != query.through], query, right.read_at)


@plant("PAGE-7")
class BoundsNameEntries(Faulty):
    """A transcript read from a number that is no entry finds nothing."""

    def scan_entries(self, query: EntryQuery) -> Page[Entry]:
        right = self.storage.scan_entries(query)
        if query.from_ is None or self.storage.get_entries((query.from_,)):
            return right
        return Page([], right.read_at)


@plant("PAGE-4")
class LimitBeforeKind(Faulty):
    """The limit of a page counts entries of other kinds, so that pages come short."""

    def scan_entries(self, query: EntryQuery) -> Page[Entry]:
        right = self.storage.scan_entries(query)
        if query.kind is None:
            return right
        page = self.storage.scan_entries(replace(query, kind=None, key=None))
        wanted = {item.id for item in every(self.storage.scan_entries, query)}
        return replace(page, items=[item for item in page.items if item.id in wanted])


@plant("PAGE-4", "PAGE-12")
class FilteredAfterDecoding(Faulty):
    """A scan for one kind decodes the entries of all kinds."""

    def scan_entries(self, query: EntryQuery) -> Page[Entry]:
        right = self.storage.scan_entries(query)
        if query.kind is not None:
            every(self.storage.scan_entries, replace(query, kind=None, key=None))
        return right


# --- What an entry holds ---


@plant("ENT-1", "JSON-1")
class NullDataLost(Rewritten):
    """An entry's data that is null is taken for absent."""

    def write(self, write: MainWrite) -> MainWrite:
        null = isinstance(write, Entry) and write.data is None
        return replace(write, data=UNSET) if null else write


@plant("ENT-1")
class EmptyModelLost(Rewritten):
    """An entry's model without messages is taken for none."""

    def write(self, write: MainWrite) -> MainWrite:
        empty = isinstance(write, Entry) and write.model == []
        return replace(write, model=None) if empty else write


@plant("ENT-1", "ENT-4")
class EditsMerged(Rewritten):
    """Of an entry's edits of one target only the last is kept."""

    def write(self, write: MainWrite) -> MainWrite:
        if not isinstance(write, Entry) or type(write.edits) is not tuple:
            return write
        last = {getattr(edit, "target", None): index for index, edit in enumerate(write.edits)}
        kept = set(last.values())
        edits = tuple(edit for index, edit in enumerate(write.edits) if index in kept)
        return replace(write, edits=edits)


@plant("ENT-1", "TASK-7")
class AuthorGoneWhenSettled(Faulty):
    """An entry forgets the task that wrote it when the task ends."""

    def scan_entries(self, query: EntryQuery) -> Page[Entry]:
        page = self.storage.scan_entries(query)
        ids = [item.by_task_id for item in page.items if item.by_task_id is not None]
        ended = {id for id, task in self.storage.get_tasks(ids).items() if task.role == "terminal"}
        items = [
            replace(item, by_task_id=None) if item.by_task_id in ended else item
            for item in page.items
        ]
        return replace(page, items=items)


# --- Heads ---


@plant("ENT-5")
class HeadAtCutMissed(Faulty):
    """An inherited head exactly at the cut does not count."""

    def newest_head(self, conversation: Seq, at: Seq) -> Entry | None:
        found = self.storage.newest_head(conversation, at)
        parent = self.parent(conversation)
        if found is None or parent is None or found.id != parent.at or parent.at == 1:
            return found
        return self.storage.newest_head(parent.conversation_id, Seq(parent.at - 1))


@plant("ENT-5", "ENT-6")
class HeadBeyondCut(Faulty):
    """A parent's head after the cut counts for its fork."""

    def newest_head(self, conversation: Seq, at: Seq) -> Entry | None:
        found = self.storage.newest_head(conversation, at)
        parent = self.parent(conversation)
        other = None if parent is None else self.storage.newest_head(parent.conversation_id, at)
        return max((found, other), key=lambda entry: 0 if entry is None else entry.id)


@plant("ENT-5", "ENT-6")
class HeadOfSibling(Faulty):
    """A head of another fork of the same parent counts."""

    def newest_head(self, conversation: Seq, at: Seq) -> Entry | None:
        found = self.storage.newest_head(conversation, at)
        parent = self.parent(conversation)
        if parent is None:
            return found
        query = ConversationQuery(parent=parent.conversation_id)
        near = every(self.storage.scan_conversations, query)
        heads = [self.storage.newest_head(sibling.id, at) for sibling in near]
        return max(heads, key=lambda entry: 0 if entry is None else entry.id)


@plant("ENT-5", "FORK-2")
class HeadNotInherited(Faulty):
    """Only a conversation's own heads count."""

    def newest_head(self, conversation: Seq, at: Seq) -> Entry | None:
        found = self.storage.newest_head(conversation, at)
        return found if found is not None and found.conversation_id == conversation else None


@plant("ENT-5")
class HeadBeforePosition(Faulty):
    """A head exactly at the position asked for does not count."""

    def newest_head(self, conversation: Seq, at: Seq) -> Entry | None:
        found = self.storage.newest_head(conversation, at)
        if found is None or found.id != at or at == 1:
            return found
        return self.storage.newest_head(conversation, Seq(at - 1))


@plant("ENT-5")
class HeadIsItsTarget(Faulty):
    """The entry that a head names is returned instead of the one that has it."""

    def newest_head(self, conversation: Seq, at: Seq) -> Entry | None:
        found = self.storage.newest_head(conversation, at)
        if found is None or found.head is None:
            return found
        return self.storage.get_entries((found.head,)).get(found.head)


@plant("ENT-5", "SEQ-10")
class HeadRemembered(Faulty):
    """A head that was once found for a position past the end is found for ever."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage)
        self._known: dict[tuple[Seq, Seq], Entry | None] = {}

    def newest_head(self, conversation: Seq, at: Seq) -> Entry | None:
        found = self.storage.newest_head(conversation, at)
        return self._known.setdefault((conversation, at), found)


# --- What the checks are told ---


class _NoHeads(MemoryView):
    def head_boundary(self, conversation: Seq, at: Seq) -> Seq | None:
        return None


@plant("ENT-2")
class HeadGoesBack(Lenient):
    """A head may lie before the one that was there."""

    view = _NoHeads


class _OwnHeads(MemoryView):
    def head_boundary(self, conversation: Seq, at: Seq) -> Seq | None:
        transcript = self.state.transcripts.get(conversation)
        heads = [id for id in transcript.heads if id <= at] if transcript is not None else []
        return self.state.entries[heads[-1]][5] if heads else None


@plant("ENT-2", "FORK-2")
class InheritedHeadNoBound(Lenient):
    """A head may lie before the one that a fork inherits."""

    view = _OwnHeads


class _AllVisible(MemoryView):
    def entry_visible(self, conversation: Seq, entry: Seq) -> bool:
        return entry in self.state.entries


@plant("ENT-4", "ENT-2", "FORK-1")
class HiddenTargetTaken(Lenient):
    """Edits, heads and forks may aim at any entry of the session."""

    view = _AllVisible


class _OwnVisible(MemoryView):
    def entry_visible(self, conversation: Seq, entry: Seq) -> bool:
        row = self.state.entries.get(entry)
        return row is not None and row[1] == conversation


@plant("ENT-4", "FORK-1")
class InheritedTargetRefused(Lenient):
    """Edits, heads and forks cannot aim at an inherited entry."""

    view = _OwnVisible


@plant("PAGE-10", "SEQ-5")
class KindsOfRefused(Faulty):
    """A refused batch leaves its entry kinds behind."""

    def commit(self, batch: Batch, *, expected_first: Seq | None = None) -> BatchRange:
        try:
            return self.storage.commit(batch, expected_first=expected_first)
        except RefusedError:
            writes = getattr(batch, "writes", None) or ()
            self.state.kinds.update(
                (write.kind, write.kind)
                for write in writes
                if isinstance(write, Entry) and type(write.kind) is str
            )
            raise
