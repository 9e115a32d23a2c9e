"""Reading conversations, entries, tasks and batch boundaries.

Every method runs on a snapshot that shows one state of the file. Rows are decoded last, after
filters and limits, and each is compared with its checksum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from pico_sqlite.checksum import checksum, coded_size, scratch_checksum, scratch_start
from pico_sqlite.connection import Bindings, Row
from pico_sqlite.memo import ABORT, BACKGROUND, OWNER, TURN, LiveTask, Memo
from pico_sqlite.readers import Snapshot
from pico_sqlite.rows import conversation_columns, conversation_record
from pico_sqlite.scratch_rows import STREAM_BITS, STREAM_LAST
from pico_store.address import Seq
from pico_store.compression import COMPRESSED
from pico_store.entry_body import EntryColumns, unpack_entry
from pico_store.errors import StoreDamagedError, UnknownConversationError
from pico_store.forks import Segment, segments
from pico_store.limits import SEQ_MAX
from pico_store.query import ConversationQuery, EntryQuery, TaskQuery
from pico_store.query_check import Window
from pico_store.records import BatchRange, Conversation, Entry, Page, Task, TaskRole
from pico_store.shown import shown
from pico_store.storage import Counters
from pico_store.strict_json import unpack

# The newest batch between two keys. Its first row stands before all others of it, which may be
# ten thousand; they are not passed again where the newest row is one of a batch that is known.
_NEWEST_BATCH: Final = """
    SELECT id, writes FROM records WHERE id = CASE
        WHEN (SELECT max(id) FROM records WHERE id BETWEEN ?1 AND ?2) BETWEEN ?3 AND ?4 THEN ?3
        ELSE (SELECT id FROM records WHERE id BETWEEN ?1 AND ?2 AND writes NOT NULL
            ORDER BY id DESC LIMIT 1) END"""
_ROLE_NAMES: Final[tuple[TaskRole, ...]] = ("start", "inflight", "terminal")
# The columns of a row, in the order that the methods of `RecordReads` decode them.
CONVERSATION: Final = "id, parent, at, owner, through, checksum"
ENTRY: Final = "id, conversation, kind, key, by_task, head, checksum, body"
TASK: Final = "t.id, t.conversation, t.kind, t.status, t.role, t.flags, t.after, t.checksum, t.body"
_LIVE = "EXISTS (SELECT 1 FROM conversations c WHERE c.id = t.conversation AND c.through IS NULL)"
_after = msgspec.msgpack.Decoder(tuple[Seq, ...]).decode


# The rows of a stream, for a statement that has its first row as f.
_START: Final = f"((f.id >> {STREAM_BITS}) << {STREAM_BITS})"
STREAM: Final = f"{_START} AND {_START} + {STREAM_LAST}"


def stream_rows(task: int, stream: int, first: int, last: int) -> tuple[int, int]:
    """Return the inclusive range of a stream's rows whose numbers have keys in a range."""
    start = stream << STREAM_BITS
    low, high = max(first - task, 0), min(last - task, STREAM_LAST)
    return start + low, start + high


class RecordReads:
    """Answers questions about one session's records."""

    def __init__(
        self, memo: Memo, counters: Counters, name: str, plain: Callable[[bytes], bytes]
    ) -> None:
        """Take whose records these are, and what makes a compressed body readable."""
        self._memo = memo
        self._counters = counters
        self._name = name
        self.plain = plain

    def fetch(self, snapshot: Snapshot, sql: str, values: Bindings) -> list[Row]:
        """Return all rows of one statement, counting it."""
        self._counters.queries += 1
        return snapshot.rows(sql, values)

    def last_seq(self, snapshot: Snapshot) -> Seq:
        """Return the number of the last committed write: of a main batch or of live scratch."""
        memo = self._memo
        numbers = memo.numbers
        last: int = 0
        for bounds in numbers.ranges(1, SEQ_MAX, newest_first=True):
            if rows := self.fetch(snapshot, _NEWEST_BATCH, (*bounds, *memo.newest_batch)):
                key, coded = rows[0]
                last = self._main_batch(key, coded).last
                memo.newest_batch = key, numbers.find(last)
                break
        sql = (
            f"SELECT t.id, (SELECT max(s.id) FROM scratch s WHERE s.id BETWEEN {STREAM}) "
            "FROM records t JOIN scratch f ON f.task = t.id WHERE t.live = ?"
        )
        for task, id in self.fetch(snapshot, sql, (self._memo.session,)):
            if id is not None:
                last = max(last, numbers.seq(task + (id & STREAM_LAST)))
        return Seq(last)

    # --- Conversations ---

    def live(self, snapshot: Snapshot, id: Seq, path: str) -> Conversation:
        """Return a conversation that is not deleted.

        Raises:
            UnknownConversationError: There is none of that id.
        """
        found = self.get_conversations(snapshot, [id]).get(id)
        if found is None:
            problem = f"no conversation {shown(id)}; allowed: one that exists and is not deleted"
            raise UnknownConversationError("PAGE-6", path, problem)
        return found

    def get_conversations(self, snapshot: Snapshot, ids: Iterable[Seq]) -> dict[Seq, Conversation]:
        """Return the named live conversations."""
        sql = f"SELECT {CONVERSATION} FROM conversations WHERE id = ? AND through IS NULL"
        found = {}
        for id in ids:
            for row in self.fetch(snapshot, sql, (self._memo.numbers.find(id),)):
                found[id] = self.conversation(row)
        return found

    def scan_conversations(
        self, snapshot: Snapshot, query: ConversationQuery, window: Window
    ) -> Page[Conversation]:
        """Return a page of live conversations, by the narrowest index."""
        numbers = self._memo.numbers
        conditions = ["through IS NULL"]
        values: list[int | str | None] = []
        for column, id in (
            ("owner", query.owner),
            ("parent", query.parent),
            ("owner_conversation", query.owner_conversation),
        ):
            if id is not None:
                conditions.append(f"{column} = ?")
                values.append(numbers.find(id))
        if not values:
            conditions.append("session = ?")
            values.append(self._memo.session)
        conditions.append("id BETWEEN ? AND ?")
        values += [numbers.at_least(window.first), numbers.through(window.last), window.limit + 1]
        sql = (
            f"SELECT {CONVERSATION} FROM conversations WHERE {' AND '.join(conditions)} "
            f"ORDER BY id{' DESC' * window.newest_first} LIMIT ?"
        )
        rows = self.fetch(snapshot, sql, values) if window.first <= window.last else []
        items = [self.conversation(row) for row in rows[: window.limit]]
        more = items[-1].id if len(rows) > window.limit else None
        return Page(items, self.last_seq(snapshot), more)

    def segments(self, snapshot: Snapshot, conversation: Conversation, at: int) -> list[Segment]:
        """Return the ranges that a conversation shows at a position, its own first."""

        def ancestor(id: Seq) -> Conversation:
            known = self._memo.ancestors.get(id)
            if known is None:
                sql = f"SELECT {CONVERSATION} FROM conversations WHERE id = ?"
                (row,) = self.fetch(snapshot, sql, (self._memo.numbers.key(id),))
                known = self.conversation(row)
                self._memo.ancestors.keep(id, known)
            return known

        return segments(conversation, at, ancestor)

    def conversation(self, row: Row) -> Conversation:
        """Return a conversation from its row."""
        record = conversation_record(self._memo, row[:4])
        if checksum(conversation_columns(record, row[4])) != row[5]:
            raise self.damaged(f"conversation {record.id}")
        self._counters.rows_decoded += 1
        return record

    # --- Entries ---

    def get_entries(self, snapshot: Snapshot, ids: Iterable[Seq]) -> dict[Seq, Entry]:
        """Return the named entries that some live conversation shows."""
        sql = (
            f"SELECT {ENTRY}, (SELECT through FROM conversations c WHERE c.id = e.conversation) "
            "FROM records e WHERE id = ? AND role = 3"
        )
        found = {}
        for id in ids:
            for row in self.fetch(snapshot, sql, (self._memo.numbers.find(id),)):
                if row[8] is None or id <= row[8]:
                    found[id] = self.entry(row)
        return found

    def scan_entries(self, snapshot: Snapshot, query: EntryQuery, window: Window) -> Page[Entry]:
        """Return a page of what a conversation shows."""
        conversation = self.live(snapshot, query.conversation_id, "conversationId")
        conditions = ["session IS NULL", "conversation = ?", "id BETWEEN ? AND ?"]
        filters: list[int | str | None] = []
        if query.kind is not None:
            kind = self.kind(snapshot, query.kind)
            conditions.append("kind = ?")
            filters.append(kind)
        if query.key is not None:
            conditions.append("key = ?")
            filters.append(query.key)
        sql = (
            f"SELECT {ENTRY} FROM records WHERE {' AND '.join(conditions)} "
            f"ORDER BY id{' DESC' * window.newest_first} LIMIT ?"
        )
        rows: list[Row] = []
        numbers = self._memo.numbers
        parts = self.segments(snapshot, conversation, window.last)
        for part in parts if window.newest_first else reversed(parts):
            wanted = window.limit + 1 - len(rows)
            if wanted == 0:
                break
            if part.through < window.first or part.through <= part.conversation:
                continue
            bounds = (numbers.at_least(window.first), numbers.through(part.through))
            key = numbers.key(part.conversation)
            rows += self.fetch(snapshot, sql, (key, *bounds, *filters, wanted))
        items = [self.entry(row) for row in rows[: window.limit]]
        more = items[-1].id if len(rows) > window.limit else None
        return Page(items, self.last_seq(snapshot), more)

    def newest_head(self, snapshot: Snapshot, conversation: Seq, at: Seq) -> Entry | None:
        """Return the newest visible entry with a head."""
        reader = self.live(snapshot, conversation, "conversation")
        sql = (
            f"SELECT {ENTRY} FROM records WHERE conversation = ? AND head IS NOT NULL "
            "AND id <= ? ORDER BY id DESC LIMIT 1"
        )
        numbers = self._memo.numbers
        for part in self.segments(snapshot, reader, min(at, SEQ_MAX)):
            if part.through > part.conversation:
                bound = numbers.through(part.through)
                for row in self.fetch(snapshot, sql, (numbers.key(part.conversation), bound)):
                    return self.entry(row)
        return None

    def entry_visible(self, snapshot: Snapshot, conversation: Conversation, entry: Seq) -> bool:
        """Tell whether a conversation shows an entry."""
        numbers = self._memo.numbers
        sql = "SELECT conversation FROM records WHERE id = ? AND role = 3"
        for (key,) in self.fetch(snapshot, sql, (numbers.find(entry),)):
            writer = numbers.seq(key)
            parts = self.segments(snapshot, conversation, SEQ_MAX)
            return any(part.conversation == writer and entry <= part.through for part in parts)
        return False

    def entry(self, row: Row) -> Entry:
        """Return an entry from its row."""
        seq = self._memo.numbers.seq
        by_task, head = row[4], row[5]
        columns = EntryColumns(
            seq(row[0]),
            seq(row[1]),
            self._memo.kind_names[row[2]],
            row[3],
            None if by_task is None else seq(by_task),
            None if head is None else seq(head),
        )
        if checksum((*columns, row[7])) != row[6]:
            raise self.damaged(f"entry {columns.id}")
        self._counters.rows_decoded += 1
        body = row[7]
        return unpack_entry(columns, self.plain(body) if body[0] in COMPRESSED else body)

    def kind(self, snapshot: Snapshot, name: str) -> int:
        """Return the number of a kind; -1, the number of none, if it was never used."""
        known = self._memo.kinds.get(name)
        if known is not None:
            return known
        sql = "SELECT kind FROM kinds WHERE session = ? AND name = ?"
        rows = self.fetch(snapshot, sql, (self._memo.session, name))
        return int(rows[0][0]) if rows else -1

    # --- Tasks ---

    def get_tasks(self, snapshot: Snapshot, ids: Iterable[Seq]) -> dict[Seq, Task]:
        """Return the named tasks of live conversations."""
        sql = f"SELECT {TASK} FROM records t WHERE t.id = ? AND t.role < 3 AND {_LIVE}"
        found = {}
        for id in ids:
            for row in self.fetch(snapshot, sql, (self._memo.numbers.find(id),)):
                found[id] = self.task(snapshot, row)
        return found

    def scan_tasks(self, snapshot: Snapshot, query: TaskQuery, window: Window) -> Page[Task]:
        """Return a page of tasks, of named conversations or of the session."""
        wanted = window.limit + 1
        conditions, filters = self._task_filters(snapshot, query)
        order = f"ORDER BY t.id{' DESC' * window.newest_first} LIMIT ?"
        keys: list[int] = []
        sql = f"SELECT t.id FROM records t WHERE {{}} AND {' AND '.join(conditions)} {order}"
        numbers = self._memo.numbers
        bounds = (numbers.at_least(window.first), numbers.through(window.last))
        if query.conversation_ids is not None:
            # Named with their session, a conversation's live tasks have an index of their own.
            is_live = query.live or query.role in ("start", "inflight")
            session = (self._memo.session,) if is_live else ()
            index = "t.live = ?" if is_live else "t.session IS NOT NULL"
            of_conversation = sql.format(f"{index} AND t.conversation = ? AND t.id BETWEEN ? AND ?")
            for id in dict.fromkeys(query.conversation_ids):
                key = numbers.key(self.live(snapshot, id, "conversationIds").id)
                values = (*session, key, *bounds, *filters, wanted)
                rows = self.fetch(snapshot, of_conversation, values)
                keys += [row[0] for row in rows]
            keys.sort(reverse=window.newest_first)
        elif query.live or query.role in ("start", "inflight"):
            values = (self._memo.session, *bounds, *filters, wanted)
            rows = self.fetch(snapshot, sql.format("t.live = ? AND t.id BETWEEN ? AND ?"), values)
            keys = [row[0] for row in rows]
        else:
            in_range = sql.format("t.id BETWEEN ? AND ?")
            newest_first = window.newest_first
            for part in numbers.ranges(window.first, window.last, newest_first=newest_first):
                values = (*part, *filters, wanted - len(keys))
                keys += [row[0] for row in self.fetch(snapshot, in_range, values)]
        sql = f"SELECT {TASK} FROM records t WHERE t.id = ?"
        items = []
        for key in keys[: window.limit]:
            (row,) = self.fetch(snapshot, sql, (key,))
            items.append(self.task(snapshot, row))
        more = items[-1].id if len(keys) > window.limit else None
        return Page(items, self.last_seq(snapshot), more)

    def _task_filters(
        self, snapshot: Snapshot, query: TaskQuery
    ) -> tuple[list[str], list[int | str | None]]:
        conditions: list[str] = []
        filters: list[int | str | None] = []
        if query.live or query.role in ("start", "inflight"):
            conditions.append("t.role < 2")
        else:
            conditions.append(f"t.role < 3 AND {_LIVE}")
        if query.live is False:
            conditions.append("t.role = 2")
        if query.role is not None:
            conditions.append("t.role = ?")
            filters.append(_ROLE_NAMES.index(query.role))
        if query.kind is not None:
            conditions.append("t.kind = ?")
            filters.append(self.kind(snapshot, query.kind))
        for flag, wanted in (
            (ABORT, query.abort),
            (BACKGROUND, query.background),
            (TURN, query.turn),
        ):
            if wanted is not None:
                conditions.append(f"t.flags & {flag} = ?")
                filters.append(flag if wanted else 0)
        return conditions, filters

    def task(self, snapshot: Snapshot, row: Row, *, owns: bool = True) -> Task:
        """Return a task from its row."""
        known, id = self.live_task(row), self._memo.numbers.seq(row[0])
        status, role, flags = row[3], _ROLE_NAMES[row[4]], row[5]
        if checksum((id, *known.columns(status, row[4]), row[8])) != row[7]:
            raise self.damaged(f"task {id}")
        self._counters.rows_decoded += 1
        body = row[8]
        state = unpack(self.plain(body) if body[0] in COMPRESSED else body)
        assert isinstance(state, dict)
        return Task(
            id=id,
            conversation_id=known.conversation,
            kind=known.kind,
            status=status,
            role=role,
            state=state,
            after=_after(row[6]) if row[6] else (),
            background=bool(flags & BACKGROUND),
            turn=bool(flags & TURN),
            abort=bool(flags & ABORT),
            owns=self._owns(snapshot, row[0]) if owns and flags & OWNER else (),
        )

    def live_task(self, row: Row, stream: int | None = None) -> LiveTask:
        """Return what a change needs to know of a task, from its row."""
        conversation = self._memo.numbers.seq(row[1])
        kind = self._memo.kind_names[row[2]]
        origin = 0 if stream is None else (stream << STREAM_BITS) - row[0]
        flags, after = row[5] or 0, row[6]
        return LiveTask(conversation, True, kind, flags, after, stream, origin, has_values=True)

    def task_row(self, snapshot: Snapshot, id: Seq) -> Row | None:
        """Return a task's row if its conversation is live."""
        sql = f"SELECT {TASK} FROM records t WHERE t.id = ? AND t.role < 3 AND {_LIVE}"
        rows = self.fetch(snapshot, sql, (self._memo.numbers.find(id),))
        return rows[0] if rows else None

    def stream(self, snapshot: Snapshot, task: int) -> int | None:
        """Return the stream of a live task, by the task's key, if it ever wrote scratch."""
        sql = f"SELECT id >> {STREAM_BITS} FROM scratch WHERE task = ?"
        rows = self.fetch(snapshot, sql, (task,))
        return int(rows[0][0]) if rows else None

    def _owns(self, snapshot: Snapshot, key: int) -> tuple[Seq, ...]:
        sql = "SELECT id FROM conversations WHERE owner = ? AND through IS NULL ORDER BY id"
        seq = self._memo.numbers.seq
        return tuple(seq(row[0]) for row in self.fetch(snapshot, sql, (key,)))

    # --- Kinds and batches ---

    def entry_kinds(self, snapshot: Snapshot) -> frozenset[str]:
        """Return every kind that an entry ever had."""
        sql = "SELECT name FROM kinds WHERE session = ? AND entries"
        return frozenset(row[0] for row in self.fetch(snapshot, sql, (self._memo.session,)))

    def scan_batches(self, snapshot: Snapshot, window: Window) -> Page[BatchRange]:
        """Return a page of the boundaries of main batches and of live tasks' scratch batches."""
        numbers = self._memo.numbers
        wanted = window.limit + 1
        direction = "DESC" if window.newest_first else "ASC"
        found: list[BatchRange] = []
        sql = (
            "SELECT id, writes FROM records WHERE id BETWEEN ? AND ? AND writes NOT NULL "
            f"ORDER BY id {direction} LIMIT ?"
        )
        newest_first = window.newest_first
        for part in numbers.ranges(window.first, window.last, newest_first=newest_first):
            rows = self.fetch(snapshot, sql, (*part, wanted))
            found += [self._main_batch(*row) for row in rows]
            if len(found) >= wanted:
                break
        bounds = (numbers.at_least(window.first), numbers.through(window.last))
        sql = (
            f"SELECT t.id, f.id >> {STREAM_BITS} FROM records t JOIN scratch f ON f.task = t.id "
            "WHERE t.live = ?"
        )
        of_task = (
            "SELECT id, writes FROM scratch WHERE id BETWEEN ? AND ? AND writes > 0 "
            f"ORDER BY id {direction} LIMIT ?"
        )
        for task, stream in self.fetch(snapshot, sql, (self._memo.session,)):
            span = stream_rows(task, stream, *bounds)
            for id, writes in self.fetch(snapshot, of_task, (*span, wanted)):
                first = numbers.seq(task + (id & STREAM_LAST))
                found.append(BatchRange(first, Seq(first + writes - 1), numbers.seq(task)))
        found.sort(key=lambda batch: batch.first, reverse=window.newest_first)
        items = found[: window.limit]
        more = items[-1].first if len(found) > window.limit else None
        return Page(items, self.last_seq(snapshot), more)

    def _main_batch(self, key: int, coded: int) -> BatchRange:
        first, size = self._memo.numbers.seq(key), coded >> 16
        if coded_size(first, size) != coded:
            raise self.damaged(f"the size of batch {first}")
        return BatchRange(first, Seq(first + size - 1))

    def check_spent(self, seq: Seq, task: Seq, writes: int, sums: int) -> None:
        """Compare a scratch row without a payload with its checksum."""
        if scratch_checksum(scratch_start(task, writes, None, None), seq, None) != sums:
            raise self.damaged(f"scratch row {seq}")

    def damaged(self, what: str) -> StoreDamagedError:
        """Return the error that names a damaged record."""
        return StoreDamagedError(
            f"session {self._name!r}: {what} is damaged: its checksum differs; "
            "run pico verify, restore a backup"
        )
