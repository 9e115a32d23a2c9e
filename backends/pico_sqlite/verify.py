"""Proving a file whole: SQLite's own check, every checksum, and how the rows fit together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Final, TypeAlias

import apsw

from pico_sqlite.checksum import checksum, scratch_checksum, scratch_start
from pico_sqlite.connection import Row
from pico_sqlite.export import export_session
from pico_sqlite.memo import OWNER, Memo
from pico_sqlite.packing import dictionary_problems
from pico_sqlite.readers import Snapshot
from pico_sqlite.record_reads import CONVERSATION, ENTRY, STREAM, TASK, RecordReads
from pico_sqlite.scratch_rows import STREAM_BITS, STREAM_LAST
from pico_sqlite.state_reads import StateReads
from pico_store.errors import MissingDriverError, PicoError, StoreDamagedError
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
    "WHERE NOT (session = 0 AND high = base) "
    "AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.session = x.session)",
    "SELECT 'record ' || id, 'its role is ' || role FROM records WHERE role NOT BETWEEN 0 AND 3",
    "SELECT 'record ' || id, 'it has a body and no role' FROM records "
    "WHERE role IS NULL AND body IS NOT NULL",
    "SELECT 'record ' || id, 'its flags are ' || flags FROM records "
    "WHERE flags NOT BETWEEN 0 AND 15",
    "SELECT 'record ' || id, 'it is marked as a task of session ' || session FROM records r "
    f"WHERE session IS NOT CASE WHEN role < 3 THEN {_SESSION.format(key='r.id')} END",
    # Between the end of a batch and the next one's first row of the extent. From batch to batch:
    # to look for its batch from each record would cost the square of the batch's size.
    "SELECT 'record ' || r.id, 'no batch holds it' FROM "
    "(SELECT id, writes >> 16 AS size, lead(id) OVER (ORDER BY id) AS next FROM records "
    "WHERE writes NOT NULL) b "
    "JOIN records r ON r.id >= b.id + b.size AND r.id < min(coalesce(b.next, 1 << 62), "
    "((b.id >> 20) + 1) << 20) WHERE r.role IS NOT NULL",
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
    "SELECT 'list ' || list, 'what it belongs to does not exist' FROM lists l "
    "WHERE scope & 1048575 "
    "AND NOT EXISTS (SELECT 1 FROM conversations c WHERE c.id = l.scope)",
)
_RowCheck: TypeAlias = tuple[str, str, Callable[[Row], object]]
_VALUE: Final = "seq, checksum, body, scope, namespace, key"
_SCRATCH_VALUE: Final = "scratch value"
_PROBLEMS_MAX: Final = 1_000
DAMAGE: Final = (PicoError, LookupError, ValueError, TypeError)
"""What decoding a damaged row may raise."""


def verify_file(snapshot: Snapshot, plain: Callable[[bytes], bytes]) -> VerifyReport:
    """Read everything in one state of the file; change nothing."""
    problems = list(_engine_problems(snapshot))
    problems += (Problem(None, *found) for found in dictionary_problems(snapshot))
    records = 0
    if not problems:
        # Names as bytes: one that is no text any more is reported and not raised.
        sql = "SELECT session, CAST(name AS BLOB), epoch, checksum FROM sessions ORDER BY name"
        sessions: list[Row] = snapshot.rows(sql)
        for session, stored, epoch, sums in sessions:
            counters = Counters()
            name = stored.decode(errors="replace")
            if checksum((name, epoch)) != sums:
                problems.append(Problem(name, f"session row {session}", "its checksum differs"))
            problems += _session_problems(snapshot, session, name, counters, plain)
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
    snapshot: Snapshot,
    session: int,
    name: str,
    counters: Counters,
    plain: Callable[[bytes], bytes],
) -> Iterator[Problem]:
    try:
        memo = Memo(session, snapshot.db)
    except (UnicodeDecodeError, StoreDamagedError) as error:
        yield Problem(name, "kinds and extents", str(error))
        return
    records = RecordReads(memo, counters, name, plain)
    state = StateReads(memo, counters, records)
    # Every row by itself first, so that all damaged ones are named, then the whole.
    damaged = list(_row_problems(snapshot, memo, records, state, name))
    yield from damaged
    if damaged:
        return
    try:
        for _ in check_snapshot(export_session(snapshot, memo, records, state)):
            pass
    except MissingDriverError:
        raise
    except (*DAMAGE, apsw.Error) as error:
        yield Problem(name, "session", str(error))


def _row_checks(
    snapshot: Snapshot, memo: Memo, records: RecordReads, state: StateReads
) -> tuple[_RowCheck, ...]:
    """Return how the rows of each kind are read, what they are, and what checks one."""
    seq = memo.numbers.seq

    def frame(row: Row) -> object:
        id, task, writes, namespace, key, sums, body = row
        if body is None:
            records.check_spent(seq(id), seq(task), writes, sums)
            return None
        start = scratch_start(seq(task), writes, namespace, key)
        return state.decode(seq(id), scratch_checksum(start, seq(id), body), sums, body)

    return (
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
            f"SELECT {_VALUE} FROM current_values WHERE scope",
            "value",
            lambda row: state.version(row[:3], *row[3:]),
        ),
        (
            f"SELECT {_VALUE} FROM current_values WHERE scope",
            _SCRATCH_VALUE,
            lambda row: state.version(row[:3], *row[3:]),
        ),
        (
            f"SELECT {_VALUE} FROM value_versions WHERE scope",
            "value version",
            lambda row: state.version(row[:3], *row[3:]),
        ),
        (
            f"SELECT t.id + (s.id & {STREAM_LAST}), t.id, s.writes, s.namespace, s.key, "
            f"s.checksum, s.body FROM records t JOIN scratch f ON f.task = t.id "
            f"JOIN scratch s ON s.id BETWEEN {STREAM} "
            "WHERE t.role < 2 AND t.id",
            "scratch",
            frame,
        ),
        *_list_checks(state),
    )


def _list_checks(state: StateReads) -> tuple[_RowCheck, ...]:
    return (
        (
            "SELECT e.seq, e.list, e.checksum, e.body FROM lists l "
            "JOIN list_elements e ON e.list = l.list WHERE l.scope",
            "list element",
            lambda row: state.decode(row[0], checksum((*row[:2], row[3])), *row[2:]),
        ),
        (
            "SELECT list, scope, namespace, key, rewind, checksum FROM lists WHERE scope",
            "list",
            lambda row: state.check_list(*row),
        ),
        (
            "SELECT m.seq, m.element, m.list, m.checksum FROM lists l "
            "JOIN list_markers m ON m.list = l.list WHERE l.scope",
            "list marker",
            lambda row: state.check_marker(*row),
        ),
    )


def _row_problems(
    snapshot: Snapshot, memo: Memo, records: RecordReads, state: StateReads, name: str
) -> Iterator[Problem]:
    for sql, what, check in _row_checks(snapshot, memo, records, state):
        for first, last in memo.numbers.ranges(0, SEQ_MAX, newest_first=False):
            # Scratch values stand below zero.
            bounds = (-last, -max(first, 1)) if what == _SCRATCH_VALUE else (first, last)
            where = f"the first {what} row"
            for row in readable_rows(snapshot.stream(f"{sql} BETWEEN ? AND ?", bounds)):
                if isinstance(row, UnicodeDecodeError):
                    yield Problem(name, where, str(row))
                    continue
                where = f"the {what} row after {row[0]}"
                try:
                    check(row)
                except MissingDriverError:
                    # What cannot be read here is not damaged.
                    raise
                except DAMAGE as error:
                    yield Problem(name, f"{what} row {row[0]}", f"{error}")


def readable_rows(rows: Iterator[Row]) -> Iterator[Row | UnicodeDecodeError]:
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
