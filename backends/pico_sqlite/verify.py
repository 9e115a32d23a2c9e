"""Proving a file whole: SQLite's own check, every checksum, and how the rows fit together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Final

import apsw

from pico_sqlite.connection import Row
from pico_sqlite.export import export_session
from pico_sqlite.memo import Memo
from pico_sqlite.readers import Snapshot
from pico_sqlite.record_reads import CONVERSATION, ENTRY, STREAM, TASK, RecordReads
from pico_sqlite.scratch_rows import STREAM_BITS, STREAM_LAST
from pico_sqlite.state_reads import StateReads
from pico_store.errors import PicoError
from pico_store.limits import SEQ_MAX
from pico_store.snapshot_check import check_snapshot
from pico_store.storage import Counters, Problem, VerifyReport

# Each statement yields what must not be there: a place and what is wrong with it.
_MISFITS: Final = (
    "SELECT 'record ' || id, 'its conversation does not exist' FROM records r "
    "WHERE role IS NOT NULL "
    "AND NOT EXISTS (SELECT 1 FROM conversations c WHERE c.id = r.conversation)",
    "SELECT 'record ' || id, 'its kind does not exist' FROM records r "
    "WHERE role IS NOT NULL AND NOT EXISTS (SELECT 1 FROM kinds k WHERE k.kind = r.kind)",
    f"SELECT 'scratch stream ' || stream, 'its task is not live' FROM "
    f"(SELECT DISTINCT id >> {STREAM_BITS} AS stream FROM scratch "
    "EXCEPT SELECT stream FROM records WHERE role < 2)",
    "SELECT 'list element ' || seq, 'its list does not exist' FROM list_elements e "
    "WHERE NOT EXISTS (SELECT 1 FROM lists l WHERE l.list = e.list)",
    "SELECT 'list marker ' || seq, 'its list does not exist' FROM list_markers m "
    "WHERE NOT EXISTS (SELECT 1 FROM lists l WHERE l.list = m.list)",
    "SELECT 'extent ' || base, 'its session does not exist' FROM extents x "
    "WHERE NOT EXISTS (SELECT 1 FROM sessions s WHERE s.session = x.session)",
)
_VALUE: Final = "seq, checksum, body, scope, namespace, key"
_PROBLEMS_MAX: Final = 1_000


def verify_file(snapshot: Snapshot) -> VerifyReport:
    """Read everything in one state of the file; change nothing."""
    problems = list(_engine_problems(snapshot))
    records = 0
    if not problems:
        sql = "SELECT session, name FROM sessions ORDER BY name"
        sessions: list[Row] = snapshot.rows(sql)
        for session, name in sessions:
            counters = Counters()
            problems += _session_problems(snapshot, session, name, counters)
            records += counters.rows_decoded
    return VerifyReport(records, tuple(problems[:_PROBLEMS_MAX]))


def _engine_problems(snapshot: Snapshot) -> Iterator[Problem]:
    try:
        for (text,) in snapshot.rows("PRAGMA integrity_check"):
            if text != "ok":
                yield Problem(None, "file", str(text))
        for sql in _MISFITS:
            for where, what in islice(snapshot.stream(sql), _PROBLEMS_MAX):
                yield Problem(None, str(where), str(what))
    except apsw.Error as error:
        yield Problem(None, "file", str(error))


def _session_problems(
    snapshot: Snapshot, session: int, name: str, counters: Counters
) -> Iterator[Problem]:
    memo = Memo(session, snapshot.db)
    records = RecordReads(memo, counters, name)
    state = StateReads(memo, counters, records)
    # Every row by itself first, so that all damaged ones are named, then the whole.
    damaged = list(_row_problems(snapshot, memo, records, state, name))
    yield from damaged
    if damaged:
        return
    try:
        for _ in check_snapshot(export_session(snapshot, memo, records, state)):
            pass
    except (PicoError, apsw.Error, KeyError) as error:
        yield Problem(name, "session", str(error))


def _row_problems(
    snapshot: Snapshot, memo: Memo, records: RecordReads, state: StateReads, name: str
) -> Iterator[Problem]:
    seq = memo.numbers.seq

    def frame(row: Row) -> object:
        id, task, writes, namespace, key, sums, body = row
        return state.decode(seq(id), (seq(id), seq(task), writes, namespace, key), sums, body)

    checks: tuple[tuple[str, str, Callable[[Row], object]], ...] = (
        (
            f"SELECT {CONVERSATION} FROM conversations WHERE id",
            "conversation",
            records.conversation,
        ),
        (f"SELECT {ENTRY} FROM records WHERE role = 3 AND id", "entry", records.entry),
        (
            f"SELECT {TASK} FROM records t WHERE t.role < 3 AND t.id",
            "task",
            partial(records.task, snapshot),
        ),
        (
            f"SELECT {_VALUE} FROM current_values WHERE abs(scope)",
            "value",
            lambda row: state.version(row[:3], *row[3:]),
        ),
        (
            f"SELECT {_VALUE} FROM value_versions WHERE scope",
            "value version",
            lambda row: state.version(row[:3], *row[3:]),
        ),
        (
            "SELECT e.seq, e.list, e.checksum, e.body FROM lists l "
            "JOIN list_elements e ON e.list = l.list WHERE l.scope",
            "list element",
            lambda row: state.decode(row[0], row[:2], *row[2:]),
        ),
        (
            f"SELECT t.id + (s.id & {STREAM_LAST}), t.id, s.writes, s.namespace, s.key, "
            f"s.checksum, s.body FROM records t JOIN scratch s ON s.id BETWEEN {STREAM} "
            "WHERE s.body IS NOT NULL AND t.role < 2 AND t.id",
            "scratch element",
            frame,
        ),
    )
    for sql, what, check in checks:
        for bounds in memo.numbers.ranges(0, SEQ_MAX, newest_first=False):
            for row in snapshot.stream(f"{sql} BETWEEN ? AND ?", bounds):
                try:
                    check(row)
                except (PicoError, KeyError, ValueError, TypeError) as error:
                    yield Problem(name, f"{what} row {row[0]}", f"{error}")
