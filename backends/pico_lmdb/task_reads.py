"""Reading tasks: live ones from the main tree, terminal ones from the records."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from pico_lmdb.layout import (
    LIVE,
    MAIN,
    RECORDS,
    TASKS,
    last_number,
    of_record,
    pair,
    triple,
)
from pico_lmdb.memo import LiveTask, Memo, last_seq
from pico_lmdb.record_reads import RecordReads
from pico_lmdb.rows import (
    ABORT,
    BACKGROUND,
    ROLE_NAMES,
    ROLES,
    TURN,
    TaskRow,
    decode_record,
    decode_task,
)
from pico_lmdb.snapshot import Snapshot
from pico_store.address import Seq
from pico_store.limits import SEQ_MAX
from pico_store.query import TaskQuery
from pico_store.query_check import Window
from pico_store.records import Page, Task
from pico_store.storage import Counters
from pico_store.strict_json import unpack

_ENTRY: Final = b"\x97\0"
EVERYTHING: Final = Window(1, SEQ_MAX, newest_first=False, limit=1)


class TaskReads:
    """Answers questions about one session's tasks."""

    def __init__(self, memo: Memo, counters: Counters, records: RecordReads) -> None:
        self._memo = memo
        self._session = memo.session
        self._counters = counters
        self._records = records

    def live_row(self, snapshot: Snapshot, id: Seq) -> TaskRow | None:
        """Return the row of a live task."""
        if not 0 < id <= SEQ_MAX:
            return None
        found = snapshot.read(MAIN, of_record(LIVE, self._session, id), "task", id)
        return None if found is None else decode_task(found)

    def row(self, snapshot: Snapshot, id: Seq) -> TaskRow | None:
        """Return the row of a task of a live conversation, live or terminal."""
        row = self.live_row(snapshot, id)
        if row is not None or not 0 < id <= SEQ_MAX:
            return row
        found = snapshot.read(RECORDS, pair(self._session, id), "record", id)
        record = None if found is None else decode_record(found)
        if not isinstance(record, TaskRow):
            return None
        owner = self._records.conversation_row(snapshot, record.conversation)
        return record if owner is not None and owner.through is None else None

    def get_tasks(self, snapshot: Snapshot, ids: Iterable[Seq]) -> dict[Seq, Task]:
        """Return the named tasks of live conversations."""
        found = {}
        for id in ids:
            row = self.row(snapshot, id)
            if row is not None:
                found[id] = self.task(snapshot, id, row)
        return found

    def scan_tasks(self, snapshot: Snapshot, query: TaskQuery, window: Window) -> Page[Task]:
        """Return a page of tasks, of named conversations or of the session."""
        items: list[Task] = []
        more = None
        matches = self._filter(snapshot, query)
        for id, row in self._rows(snapshot, query, window):
            if not matches(row):
                continue
            if len(items) == window.limit:
                more = items[-1].id
                break
            items.append(self.task(snapshot, id, row))
        return Page(items, last_seq(snapshot, self._session), more)

    def live_ids(self, snapshot: Snapshot, conversation: Seq) -> list[Seq]:
        """Return the live tasks of a conversation."""
        rows = self._live_rows(snapshot, EVERYTHING)
        return [id for id, row in rows if row.conversation == conversation]

    def _filter(self, snapshot: Snapshot, query: TaskQuery) -> Callable[[TaskRow], bool]:
        kind = None
        if query.kind is not None:
            kind = self._memo.kind_number(snapshot, query.kind)
            if kind is None:
                return lambda row: False
        role = None if query.role is None else ROLES[query.role]
        mask = wanted = 0
        for flag, asked in (
            (ABORT, query.abort),
            (BACKGROUND, query.background),
            (TURN, query.turn),
        ):
            if asked is not None:
                mask |= flag
                wanted |= flag * asked

        def matches(row: TaskRow) -> bool:
            return (
                (kind is None or row.kind == kind)
                and (role is None or row.role == role)
                and row.flags & mask == wanted
            )

        return matches

    def _rows(
        self, snapshot: Snapshot, query: TaskQuery, window: Window
    ) -> Iterator[tuple[Seq, TaskRow]]:
        """Yield what may match, in the order of the window."""
        live = query.live is not False and query.role != "terminal"
        terminal = query.live is not True and query.role not in ("start", "inflight")
        sources: list[Iterator[tuple[Seq, TaskRow]]] = []
        if query.conversation_ids is None:
            if live:
                sources.append(self._live_rows(snapshot, window))
            if terminal:
                sources.append(self._terminal_rows(snapshot, window))
        else:
            wanted = frozenset(query.conversation_ids)
            for id in wanted:
                self._records.live(snapshot, id, "conversationIds")
                if terminal:
                    sources.append(self._terminal_of(snapshot, id, window))
            if live:
                # What is live is little; an index by conversation would be two more rows for
                # every task that ever runs.
                rows = self._live_rows(snapshot, window)
                sources.append(found for found in rows if found[1].conversation in wanted)
        if window.first > window.last:
            return iter(())
        if len(sources) == 1:
            return sources[0]
        return heapq.merge(*sources, key=lambda found: found[0], reverse=window.newest_first)

    def _live_rows(self, snapshot: Snapshot, window: Window) -> Iterator[tuple[Seq, TaskRow]]:
        start = of_record(LIVE, self._session, window.first)
        stop = of_record(LIVE, self._session, window.last + 1)
        newest_first = window.newest_first
        for key, stored in snapshot.between(MAIN, start, stop, newest_first=newest_first):
            id = Seq(last_number(key, 5)[0])
            yield id, decode_task(snapshot.checked(MAIN, key, stored, "task", id))

    def _terminal_rows(self, snapshot: Snapshot, window: Window) -> Iterator[tuple[Seq, TaskRow]]:
        start = pair(self._session, window.first)
        stop = pair(self._session, window.last + 1)
        shown: dict[Seq, bool] = {}
        newest_first = window.newest_first
        for key, stored in snapshot.between(RECORDS, start, stop, newest_first=newest_first):
            # An array of seven that begins with 0 is an entry; no flipped bit makes a task one.
            if stored.startswith(_ENTRY):
                continue
            id = Seq(last_number(key, 4)[0])
            row = decode_record(snapshot.checked(RECORDS, key, stored, "record", id))
            assert isinstance(row, TaskRow)
            is_shown = shown.get(row.conversation)
            if is_shown is None:
                owner = self._records.conversation_row(snapshot, row.conversation)
                is_shown = shown[row.conversation] = owner is not None and owner.through is None
            if is_shown:
                yield id, row

    def _terminal_of(
        self, snapshot: Snapshot, conversation: Seq, window: Window
    ) -> Iterator[tuple[Seq, TaskRow]]:
        start = triple(self._session, conversation, window.first)
        stop = triple(self._session, conversation, window.last + 1)
        for key in snapshot.keys(TASKS, start, stop, newest_first=window.newest_first):
            id = Seq(last_number(key, 12)[0])
            found = snapshot.read(RECORDS, pair(self._session, id), "record", id)
            row = None if found is None else decode_record(found)
            if not isinstance(row, TaskRow):
                raise snapshot.damaged(f"task {id}")
            yield id, row

    def task(self, snapshot: Snapshot, id: Seq, row: TaskRow, *, owns: bool = True) -> Task:
        """Return a task from its row."""
        self._counters.rows_decoded += 1
        state = unpack(snapshot.plain(row.body))
        assert isinstance(state, dict)
        return Task(
            id=id,
            conversation_id=row.conversation,
            kind=self._memo.kind_name(snapshot, row.kind),
            status=row.status,
            role=ROLE_NAMES[row.role],
            state=state,
            after=row.after,
            background=bool(row.flags & BACKGROUND),
            turn=bool(row.flags & TURN),
            abort=bool(row.flags & ABORT),
            owns=self._records.owned_by_task(snapshot, id) if owns else (),
        )

    def every_row(self, snapshot: Snapshot) -> Iterator[tuple[Seq, TaskRow]]:
        """Yield the rows of all tasks of live conversations, by id."""
        live, terminal = (
            rows(snapshot, EVERYTHING) for rows in (self._live_rows, self._terminal_rows)
        )
        return heapq.merge(live, terminal, key=lambda found: found[0])


def known_task(row: TaskRow) -> LiveTask:
    """Return what a change needs to know of a live task."""
    return LiveTask(row.conversation, row.kind, row.flags, row.after)
