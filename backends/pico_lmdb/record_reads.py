"""Reading conversations, entries and batch boundaries.

Every method runs on a snapshot that shows one state of the file. Payloads are decoded last, after
filters and limits, and each row is compared with its checksum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pico_lmdb.layout import (
    BY_OWNER,
    BY_OWNER_CONVERSATION,
    BY_PARENT,
    CONVERSATIONS,
    HEADS,
    KEYS,
    RECORD,
    RECORDS,
    TRANSCRIPTS,
    keyed,
    last_number,
    link,
    of_record,
    pair,
    triple,
)
from pico_lmdb.memo import Memo, last_seq
from pico_lmdb.names import entry_key
from pico_lmdb.rows import (
    ConversationRow,
    EntryRow,
    conversation_record,
    decode_conversation,
    decode_record,
    packed_kind,
)
from pico_lmdb.snapshot import Snapshot
from pico_store.address import Seq
from pico_store.entry_body import EntryColumns, unpack_entry
from pico_store.errors import UnknownConversationError
from pico_store.forks import Segment, segments
from pico_store.limits import SEQ_MAX
from pico_store.query import ConversationQuery, EntryQuery
from pico_store.query_check import Window
from pico_store.records import Conversation, Entry, Page
from pico_store.shown import shown
from pico_store.storage import Counters


class RecordReads:
    """Answers questions about one session's conversations and entries."""

    def __init__(self, memo: Memo, counters: Counters) -> None:
        self._memo = memo
        self._session = memo.session
        self._counters = counters

    # --- Conversations ---

    def conversation_row(self, snapshot: Snapshot, id: Seq) -> ConversationRow | None:
        """Return the row of a conversation, deleted ones included."""
        if not 0 < id <= SEQ_MAX:
            return None
        key = of_record(RECORD, self._session, id)
        found = snapshot.read(CONVERSATIONS, key, "conversation", id)
        return None if found is None else decode_conversation(found)

    def live(self, snapshot: Snapshot, id: Seq, path: str) -> Conversation:
        """Return a conversation that is not deleted.

        Raises:
            UnknownConversationError: There is none of that id.
        """
        row = self.conversation_row(snapshot, id)
        if row is None or row.through is not None:
            problem = f"no conversation {shown(id)}; allowed: one that exists and is not deleted"
            raise UnknownConversationError("PAGE-6", path, problem)
        return self.conversation(id, row)

    def get_conversations(self, snapshot: Snapshot, ids: Iterable[Seq]) -> dict[Seq, Conversation]:
        """Return the named live conversations."""
        found = {}
        for id in ids:
            row = self.conversation_row(snapshot, id)
            if row is not None and row.through is None:
                found[id] = self.conversation(id, row)
        return found

    def scan_conversations(
        self, snapshot: Snapshot, query: ConversationQuery, window: Window
    ) -> Page[Conversation]:
        """Return a page of live conversations, by the narrowest index."""
        items: list[Conversation] = []
        more = None
        for id in self._conversation_ids(snapshot, query, window):
            row = self.conversation_row(snapshot, id)
            if row is None:
                raise snapshot.damaged(f"conversation {id}")
            if row.through is not None or not self._matches(snapshot, query, id, row):
                continue
            if len(items) == window.limit:
                more = items[-1].id
                break
            items.append(self.conversation(id, row))
        return Page(items, last_seq(snapshot, self._session), more)

    def _conversation_ids(
        self, snapshot: Snapshot, query: ConversationQuery, window: Window
    ) -> Iterator[Seq]:
        if window.first > window.last:
            return
        for tag, source in (
            (BY_OWNER, query.owner),
            (BY_PARENT, query.parent),
            (BY_OWNER_CONVERSATION, query.owner_conversation),
        ):
            if source is not None:
                if not 0 < source <= SEQ_MAX:
                    return
                start = link(tag, self._session, source, window.first)
                stop = link(tag, self._session, source, window.last + 1)
                break
        else:
            start = of_record(RECORD, self._session, window.first)
            stop = of_record(RECORD, self._session, window.last + 1)
        newest_first = window.newest_first
        for key in snapshot.keys(CONVERSATIONS, start, stop, newest_first=newest_first):
            yield Seq(last_number(key, len(key) - 8)[0])

    def _matches(
        self, snapshot: Snapshot, query: ConversationQuery, id: Seq, row: ConversationRow
    ) -> bool:
        if query.owner is not None and row.owner != query.owner:
            return False
        if query.parent is not None and row.parent != query.parent:
            return False
        source = query.owner_conversation
        # Where that index was the one to be read, it need not be asked again.
        if source is None or (query.owner is None and query.parent is None):
            return True
        if not 0 < source <= SEQ_MAX:
            return False
        key = link(BY_OWNER_CONVERSATION, self._session, source, id)
        return snapshot.get(CONVERSATIONS, key) is not None

    def segments(self, snapshot: Snapshot, conversation: Conversation, at: int) -> list[Segment]:
        """Return the ranges that a conversation shows at a position, its own first."""

        def ancestor(id: Seq) -> Conversation:
            known = self._memo.ancestors.get(id)
            if known is None:
                row = self.conversation_row(snapshot, id)
                if row is None:
                    raise snapshot.damaged(f"conversation {id}")
                known = self.conversation(id, row)
                self._memo.ancestors.keep(id, known)
            return known

        return segments(conversation, at, ancestor)

    def conversation(self, id: Seq, row: ConversationRow) -> Conversation:
        """Return a conversation from its row."""
        self._counters.rows_decoded += 1
        return conversation_record(id, row)

    def owned_by_task(self, snapshot: Snapshot, task: Seq) -> tuple[Seq, ...]:
        """Return the live conversations that name a task as owner."""
        start = link(BY_OWNER, self._session, task, 0)
        stop = link(BY_OWNER, self._session, task, SEQ_MAX + 1)
        found = []
        for key in snapshot.keys(CONVERSATIONS, start, stop):
            id = Seq(last_number(key, len(key) - 8)[0])
            row = self.conversation_row(snapshot, id)
            if row is not None and row.through is None:
                found.append(id)
        return tuple(found)

    # --- Entries ---

    def get_entries(self, snapshot: Snapshot, ids: Iterable[Seq]) -> dict[Seq, Entry]:
        """Return the named entries that some live conversation shows."""
        found = {}
        reaches: dict[Seq, int] = {}
        for id in ids:
            row = self.entry_row(snapshot, id)
            if row is None:
                continue
            reach = reaches.get(row.conversation)
            if reach is None:
                owner = self.conversation_row(snapshot, row.conversation)
                if owner is None:
                    raise snapshot.damaged(f"conversation {row.conversation}")
                reach = SEQ_MAX if owner.through is None else owner.through
                reaches[row.conversation] = reach
            if id <= reach:
                found[id] = self.entry(snapshot, id, row)
        return found

    def entry_row(self, snapshot: Snapshot, id: Seq) -> EntryRow | None:
        """Return the row of an entry, also one that nothing shows."""
        if not 0 < id <= SEQ_MAX:
            return None
        found = snapshot.read(RECORDS, pair(self._session, id), "record", id)
        row = None if found is None else decode_record(found)
        return row if isinstance(row, EntryRow) else None

    def scan_entries(self, snapshot: Snapshot, query: EntryQuery, window: Window) -> Page[Entry]:
        """Return a page of what a conversation shows."""
        conversation = self.live(snapshot, query.conversation_id, "conversationId")
        items: list[Entry] = []
        more = None
        for id in self._entry_ids(snapshot, conversation, query, window):
            if len(items) == window.limit:
                more = items[-1].id
                break
            row = self.entry_row(snapshot, id)
            if row is None:
                raise snapshot.damaged(f"entry {id}")
            items.append(self.entry(snapshot, id, row))
        return Page(items, last_seq(snapshot, self._session), more)

    def _entry_ids(
        self, snapshot: Snapshot, conversation: Conversation, query: EntryQuery, window: Window
    ) -> Iterator[Seq]:
        if query.key is not None and query.kind is not None:
            select = self._keyed_ids
        else:
            select = self._all_ids
        parts = self.segments(snapshot, conversation, window.last)
        for part in parts if window.newest_first else reversed(parts):
            last = min(part.through, window.last)
            if last < window.first or last <= part.conversation:
                continue
            yield from select(snapshot, part.conversation, query, window.narrowed(1, last))

    def _all_ids(
        self, snapshot: Snapshot, conversation: Seq, query: EntryQuery, window: Window
    ) -> Iterator[Seq]:
        start = triple(self._session, conversation, window.first)
        stop = triple(self._session, conversation, window.last + 1)
        kind = None
        if query.kind is not None:
            number = self._memo.kind_number(snapshot, query.kind)
            if number is None:
                return
            kind = packed_kind(number)
        newest_first = window.newest_first
        for key, stored in snapshot.between(TRANSCRIPTS, start, stop, newest_first=newest_first):
            id = Seq(last_number(key, 12)[0])
            found = snapshot.checked(TRANSCRIPTS, key, stored, "entry", id)
            if kind is None or kind == found:
                yield id

    def _keyed_ids(
        self, snapshot: Snapshot, conversation: Seq, query: EntryQuery, window: Window
    ) -> Iterator[Seq]:
        assert query.kind is not None
        assert query.key is not None
        kind = self._memo.kind_number(snapshot, query.kind)
        if kind is None:
            return
        digest = entry_key(query.kind, query.key)
        start = keyed(self._session, conversation, digest, window.first)
        stop = keyed(self._session, conversation, digest, window.last + 1)
        newest_first = window.newest_first
        for found in snapshot.keys(KEYS, start, stop, newest_first=newest_first):
            id = Seq(last_number(found, 20)[0])
            row = self.entry_row(snapshot, id)
            # A digest is not a key: another one may have the same.
            if row is not None and row.kind == kind and row.key == query.key:
                yield id

    def newest_head(self, snapshot: Snapshot, conversation: Seq, at: Seq) -> Entry | None:
        """Return the newest visible entry with a head."""
        reader = self.live(snapshot, conversation, "conversation")
        for part in self.segments(snapshot, reader, min(at, SEQ_MAX)):
            if part.through > part.conversation:
                start = triple(self._session, part.conversation, 0)
                stop = triple(self._session, part.conversation, part.through + 1)
                found = snapshot.newest(HEADS, start, stop)
                if found is not None:
                    id = Seq(last_number(found[0], 12)[0])
                    row = self.entry_row(snapshot, id)
                    if row is None:
                        raise snapshot.damaged(f"entry {id}")
                    return self.entry(snapshot, id, row)
        return None

    def entry_visible(self, snapshot: Snapshot, conversation: Conversation, entry: Seq) -> bool:
        """Tell whether a conversation shows an entry."""
        row = self.entry_row(snapshot, entry)
        if row is None:
            return False
        parts = self.segments(snapshot, conversation, SEQ_MAX)
        return any(p.conversation == row.conversation and entry <= p.through for p in parts)

    def entry(self, snapshot: Snapshot, id: Seq, row: EntryRow) -> Entry:
        """Return an entry from its row."""
        kind = self._memo.kind_name(snapshot, row.kind)
        columns = EntryColumns(id, row.conversation, kind, row.key, row.by_task, row.head)
        self._counters.rows_decoded += 1
        return unpack_entry(columns, snapshot.plain(row.body))
