"""Which rows no read shows any more: those of deleted conversations beyond what forks inherit."""

from __future__ import annotations

from collections.abc import Iterator

from pico_lmdb.layout import (
    ADDRESSES,
    BY_OWNER,
    BY_OWNER_CONVERSATION,
    BY_PARENT,
    CONVERSATIONS,
    HEADS,
    KEYS,
    LISTS,
    RECORD,
    RECORDS,
    TASKS,
    TRANSCRIPTS,
    VERSIONS,
    keyed,
    last_number,
    link,
    of_record,
    of_session,
    pair,
    triple,
)
from pico_lmdb.memo import Memo
from pico_lmdb.names import entry_key
from pico_lmdb.record_reads import RecordReads
from pico_lmdb.rows import (
    ConversationRow,
    ListRow,
    VersionedRow,
    decode_address,
    decode_conversation,
)
from pico_lmdb.snapshot import Snapshot
from pico_lmdb.task_reads import TaskReads
from pico_store.address import Seq
from pico_store.storage import Counters

Place = tuple[int, bytes]


def unshown_rows(snapshot: Snapshot, session: int) -> Iterator[Place]:
    """Yield the tree and key of every row of a session that may be dropped."""
    finder = _Finder(snapshot, session)
    for key, stored in snapshot.under(CONVERSATIONS, of_session(RECORD, session)):
        id = Seq(last_number(key, 5)[0])
        row = decode_conversation(snapshot.checked(CONVERSATIONS, key, stored, "conversation", id))
        if row.through is not None:
            yield from finder.entries(id, row.through)
            yield from finder.tasks(id)
            yield from finder.state(id, row.through)
            if not row.through:
                yield from finder.conversation(id, row)


class _Finder:
    def __init__(self, snapshot: Snapshot, session: int) -> None:
        self._snapshot = snapshot
        self._session = session
        self._memo = Memo(session, snapshot)
        self._records = RecordReads(self._memo, Counters())
        self._tasks = TaskReads(self._memo, Counters(), self._records)

    def entries(self, conversation: Seq, through: int) -> Iterator[Place]:
        session = self._session
        start = triple(session, conversation, through + 1)
        for place in self._snapshot.keys(TRANSCRIPTS, start, pair(session, conversation + 1)):
            id = Seq(last_number(place, 12)[0])
            row = self._records.entry_row(self._snapshot, id)
            yield TRANSCRIPTS, place
            yield RECORDS, pair(session, id)
            if row is not None and row.head is not None:
                yield HEADS, place
            if row is not None and row.key is not None:
                kind = self._memo.kind_name(self._snapshot, row.kind)
                yield KEYS, keyed(session, conversation, entry_key(kind, row.key), id)

    def tasks(self, conversation: Seq) -> Iterator[Place]:
        for place, _ in self._snapshot.under(TASKS, pair(self._session, conversation)):
            yield TASKS, place
            yield RECORDS, pair(self._session, last_number(place, 12)[0])
        # What its tasks owned was deleted with it, and may be kept longer than they are.
        prefix = of_record(BY_OWNER_CONVERSATION, self._session, conversation)
        for place, _ in self._snapshot.under(CONVERSATIONS, prefix):
            yield CONVERSATIONS, place

    def state(self, conversation: Seq, through: int) -> Iterator[Place]:
        for key, stored in self._snapshot.under(ADDRESSES, pair(self._session, conversation)):
            row = decode_address(self._snapshot.checked(ADDRESSES, key, stored, "address", key))
            kept = False
            if isinstance(row, VersionedRow):
                rows = self._snapshot.under(VERSIONS, pair(self._session, row.number))
                for place, _ in rows:
                    if last_number(place, 12)[0] > through:
                        yield VERSIONS, place
                    else:
                        kept = True
            elif isinstance(row, ListRow):
                for place, _ in self._snapshot.under(LISTS, pair(self._session, row.number)):
                    # Of an element its id, of a marker its number: the last one of the key.
                    if not row.rewind or last_number(place, len(place) - 8)[0] > through:
                        yield LISTS, place
                    else:
                        kept = True
            if not kept:
                yield ADDRESSES, key

    def conversation(self, id: Seq, row: ConversationRow) -> Iterator[Place]:
        session = self._session
        yield CONVERSATIONS, of_session(RECORD, session) + id.to_bytes(8, "big")
        if row.parent is not None:
            yield CONVERSATIONS, link(BY_PARENT, session, row.parent, id)
        if row.owner is not None:
            yield CONVERSATIONS, link(BY_OWNER, session, row.owner, id)
            owner = self._tasks.row(self._snapshot, row.owner)
            if owner is not None:
                source = owner.conversation
                yield CONVERSATIONS, link(BY_OWNER_CONVERSATION, session, source, id)
