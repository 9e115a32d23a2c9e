"""Proving a file whole: SQLite's own check, every checksum, and how the rows fit together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Final

import apsw

from pico_sqlite.connection import Row
from pico_sqlite.export import export_session
from pico_sqlite.memo import OWNER, Memo
from pico_sqlite.readers import Snapshot
from pico_sqlite.record_reads import CONVERSATION, ENTRY, STREAM, TASK, RecordReads
from pico_sqlite.scratch_rows import STREAM_BITS, STREAM_LAST
from pico_sqlite.state_reads import StateReads
from pico_store.errors import PicoError
from pico_store.limits import SEQ_MAX
from pico_store.snapshot_check import check_snapshot
from pico_store.storage import Counters, Problem, VerifyReport

# The session of a record's key.
_SESSION: Final = "(SELECT x.session FROM extents x WHERE x.base = {key} >> 20)"
# Each statement yields what must not be there: a place and what is wrong with it.
_MISFITS: Final = (
    "SELECT 'record ' || id, 'its conversation does not exist' FROM records r "
    "WHERE role IS NOT NULL "
    "AND NOT EXISTS (SELECT 1 FROM conversations c WHERE c.id = r.conversation)",
    "SELECT 'record ' || id, 'its kind does not exist' FROM records r "
    "WHERE role IS NOT NULL AND NOT EXISTS (SELECT 1 FROM kinds k WHERE k.kind = r.kind)",
    f"SELECT 'scratch stream ' || stream, 'its task is not live' FROM "
    f"(SELECT DISTINCT id >> {STREAM_BITS} AS stream FROM scratch "
    f"EXCEPT SELECT f.id >> {STREAM_BITS} FROM scratch f JOIN records t ON t.id = f.task "
    "WHERE t.role < 2 AND t.live = t.session)",
    "SELECT 'list element ' || seq, 'its list does not exist' FROM list_elements e "
    "WHERE NOT EXISTS (SELECT 1 FROM lists l WHERE l.list = e.list)",
    "SELECT 'list marker ' || seq, 'its list does not exist' FROM list_markers m "
    "WHERE NOT EXISTS (SELECT 1 FROM lists l WHERE l.list = m.list)",
    "SELECT 'record ' || id, 'no session holds it' FROM records r "
    "WHERE NOT EXISTS (SELECT 1 FROM extents x WHERE x.base = r.id >> 20)",
    "SELECT 'value version ' || seq, 'what it belongs to does not exist' FROM value_versions v "
    "WHERE NOT EXISTS (SELECT 1 FROM conversations c WHERE c.id = v.scope)",
    "SELECT 'value ' || seq, 'what it belongs to does not exist' FROM current_values v "
    "WHERE NOT CASE WHEN scope < 0 THEN EXISTS (SELECT 1 FROM records t WHERE t.id = -v.scope) "
    "WHEN scope & 1048575 THEN EXISTS (SELECT 1 FROM conversations c WHERE c.id = v.scope) "
    "ELSE EXISTS (SELECT 1 FROM extents x WHERE x.base = v.scope >> 20) END",
    "SELECT 'extent ' || base, 'its session does not exist' FROM extents x "
    "WHERE NOT EXISTS (SELECT 1 FROM sessions s WHERE s.session = x.session)",
    "SELECT 'record ' || id, 'its role is ' || role FROM records WHERE role NOT BETWEEN 0 AND 3",
    "SELECT 'record ' || id, 'it has a body and no role' FROM records "
    "WHERE role IS NULL AND body IS NOT NULL",
    "SELECT 'record ' || id, 'its flags are ' || flags FROM records "
    "WHERE flags NOT BETWEEN 0 AND 15",
    "SELECT 'record ' || id, 'it is marked as a task of session ' || session FROM records r "
    f"WHERE session IS NOT CASE WHEN role < 3 THEN {_SESSION.format(key='r.id')} END",
    "SELECT 'record ' || id, 'no batch holds it' FROM records r WHERE role IS NOT NULL AND id >= "
    "(SELECT b.id + b.writes FROM records b WHERE b.id BETWEEN r.id >> 20 << 20 AND r.id "
    "AND b.writes > 0 ORDER BY b.id DESC LIMIT 1)",
    "SELECT 'conversation ' || id, 'its session is ' || session FROM conversations c "
    f"WHERE session IS NOT {_SESSION.format(key='c.id')}",
    "SELECT 'conversation ' || id, 'it is not found by its owner' FROM conversations c "
    "WHERE through IS NULL AND owner_conversation IS NOT "
    "(SELECT t.conversation FROM records t WHERE t.id = c.owner)",
    "SELECT 'conversation ' || id, 'its owner does not know of it' FROM conversations c "
    f"WHERE EXISTS (SELECT 1 FROM records t WHERE t.id = c.owner AND t.flags & {OWNER} = 0)",
    "SELECT 'kind ' || kind, 'it is not known as one of entries' FROM "
    "(SELECT DISTINCT kind FROM records WHERE role = 3 "
    "EXCEPT SELECT kind FROM kinds WHERE entries = 1)",
    "SELECT 'kind ' || kind, 'its mark is ' || entries FROM kinds WHERE entries NOT IN (0, 1)",
    "SELECT 'list ' || list, 'its policy is ' || rewind FROM lists WHERE rewind NOT IN (0, 1)",
    "SELECT 'list ' || list, 'what it belongs to does not exist' FROM lists l "
    "WHERE scope & 1048575 "
    "AND NOT EXISTS (SELECT 1 FROM conversations c WHERE c.id = l.scope)",
)
_VALUE: Final = "seq, checksum, body, scope, namespace, key"
_PROBLEMS_MAX: Final = 1_000
# What decoding a damaged row may raise.
_DAMAGE: Final = (PicoError, LookupError, ValueError, TypeError)


def verify_file(snapshot: Snapshot) -> VerifyReport:
    """Read everything in one state of the file; change nothing."""
    problems = list(_engine_problems(snapshot))
    records = 0
    if not problems:
        # Names as bytes: one that is no text any more is reported and not raised.
        sql = "SELECT session, CAST(name AS BLOB) FROM sessions ORDER BY name"
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
    snapshot: Snapshot, session: int, stored: bytes, counters: Counters
) -> Iterator[Problem]:
    name = stored.decode(errors="replace")
    if name.encode() != stored:
        yield Problem(name, f"session row {session}", "its name is not UTF-8")
    try:
        memo = Memo(session, snapshot.db)
    except UnicodeDecodeError as error:
        yield Problem(name, "kinds", str(error))
        return
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
    except (*_DAMAGE, apsw.Error) as error:
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
            f"s.checksum, s.body FROM records t JOIN scratch f ON f.task = t.id "
            f"JOIN scratch s ON s.id BETWEEN {STREAM} "
            "WHERE s.body IS NOT NULL AND t.role < 2 AND t.id",
            "scratch element",
            frame,
        ),
    )
    for sql, what, check in checks:
        for bounds in memo.numbers.ranges(0, SEQ_MAX, newest_first=False):
            where = f"the first {what} row"
            for row in _readable(snapshot.stream(f"{sql} BETWEEN ? AND ?", bounds)):
                if isinstance(row, UnicodeDecodeError):
                    yield Problem(name, where, str(row))
                    continue
                where = f"the {what} row after {row[0]}"
                try:
                    check(row)
                except _DAMAGE as error:
                    yield Problem(name, f"{what} row {row[0]}", f"{error}")


def _readable(rows: Iterator[Row]) -> Iterator[Row | UnicodeDecodeError]:
    """Yield the rows, and in place of one with a text that is none, the error of its decoding."""
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except UnicodeDecodeError as error:
            yield error
        else:
            yield row
