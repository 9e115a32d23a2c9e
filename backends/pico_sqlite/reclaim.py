"""Giving room back: deleting a session, vacuuming a file, and copying a file while it is used."""

from __future__ import annotations

import errno
import os
import secrets
from typing import Final

import apsw

from pico_sqlite.checksum import checksum
from pico_sqlite.connection import Row, check_file_name, connect, is_writable, translated
from pico_sqlite.memo import Memo
from pico_sqlite.packing import Packing
from pico_sqlite.repack import repack
from pico_sqlite.scratch_rows import STREAM_BITS, STREAM_LAST
from pico_sqlite.writer import Writer
from pico_store.errors import StoreIOError
from pico_store.limits import SEQ_MAX
from pico_store.storage import VacuumReport

_PAGES_A_STEP: Final = 1_024

# Rows that no read shows any more. A deleted conversation keeps what live forks inherit: entries
# and rewindable history up to `through`, which is a number and not a key, so that it is compared
# through the extents.
_SEQ: Final = "(SELECT x.high << 20 FROM extents x WHERE x.base = {key} >> 20) + ({key} & 1048575)"
_GONE: Final = "SELECT id FROM conversations WHERE through IS NOT NULL"
_UNSHOWN: Final = f"""conversation IN ({_GONE}) AND (role < 3 OR
    {_SEQ.format(key="records.id")} >
        (SELECT c.through FROM conversations c WHERE c.id = records.conversation))"""
_EMPTY: Final = ", ".join(
    f"{column} = NULL"
    for column in (
        *("role", "conversation", "kind", "checksum", "key", "by_task", "head", "session"),
        *("live", "status", "flags", "after", "body"),
    )
)
_DROP: Final = (
    f"""DELETE FROM list_markers WHERE list IN (SELECT list FROM lists WHERE scope IN ({_GONE}))
        AND seq > (SELECT c.through * l.rewind FROM lists l JOIN conversations c ON c.id = l.scope
            WHERE l.list = list_markers.list)""",
    f"""DELETE FROM list_elements WHERE list IN (SELECT list FROM lists WHERE scope IN ({_GONE}))
        AND seq > (SELECT c.through * l.rewind FROM lists l JOIN conversations c ON c.id = l.scope
            WHERE l.list = list_elements.list)""",
    f"""DELETE FROM lists WHERE scope IN ({_GONE})
        AND NOT EXISTS (SELECT 1 FROM list_elements e WHERE e.list = lists.list)
        AND NOT EXISTS (SELECT 1 FROM list_markers m WHERE m.list = lists.list)""",
    f"DELETE FROM current_values WHERE scope IN ({_GONE})",
    f"""DELETE FROM value_versions WHERE scope IN ({_GONE})
        AND seq > (SELECT c.through FROM conversations c WHERE c.id = value_versions.scope)""",
    # A row where a batch begins stays as its boundary.
    f"""UPDATE records SET {_EMPTY} WHERE writes > 0 AND {_UNSHOWN}""",
    f"""DELETE FROM records WHERE {_UNSHOWN}""",
    "DELETE FROM conversations WHERE through = 0",
)


def delete_session(db: apsw.Connection, session: int) -> None:
    """Delete all rows of a session, inside a transaction."""
    streams = (
        f"SELECT f.id >> {STREAM_BITS} FROM records t JOIN scratch f ON f.task = t.id "
        "WHERE t.live = ?"
    )
    rows: list[Row] = db.execute(streams, (session,)).fetchall()
    for (stream,) in rows:
        first = stream << STREAM_BITS
        db.execute("DELETE FROM scratch WHERE id BETWEEN ? AND ?", (first, first | STREAM_LAST))
    for keys in Memo(session, db).numbers.ranges(0, SEQ_MAX, newest_first=False):
        for table in ("records", "conversations"):
            db.execute(f"DELETE FROM {table} WHERE id BETWEEN ? AND ?", keys)
        owned = "SELECT list FROM lists WHERE scope BETWEEN ? AND ?"
        for table in ("list_elements", "list_markers"):
            db.execute(f"DELETE FROM {table} WHERE list IN ({owned})", keys)
        scratch = (-keys[1], -max(keys[0], 1))
        db.execute("DELETE FROM current_values WHERE scope BETWEEN ? AND ?", scratch)
        for table in ("lists", "current_values", "value_versions"):
            db.execute(f"DELETE FROM {table} WHERE scope BETWEEN ? AND ?", keys)
    for table in ("kinds", "sessions"):
        db.execute(f"DELETE FROM {table} WHERE session = ?", (session,))
    # The greatest extent that was ever given stays, as no session's: the next is counted from it.
    ((last,),) = db.execute("SELECT max(base) FROM extents").fetchall()
    assert isinstance(last, int)
    sql = "UPDATE extents SET session = 0, high = base, checksum = ? WHERE base = ? AND session = ?"
    db.execute(sql, (checksum((last, 0, last)), last, session))
    sql = "DELETE FROM extents WHERE session = ? OR session = 0 AND base < ?"
    db.execute(sql, (session, last))


def vacuum_file(writer: Writer, path: str, packing: Packing | None) -> VacuumReport:
    """Drop the rows that nothing shows, and rebuild the file without free pages.

    Args:
        writer: The store's.
        path: The file.
        packing: Compresses all that is stored; ``None`` leaves it as it is.

    Raises:
        StoreBusyError: Another process is writing.
    """
    before = _size(path)
    dropped = 0
    with writer.transaction("vacuum") as db:
        for statement in _DROP:
            db.execute(statement)
            dropped += db.changes()
    if packing is not None:
        repack(writer, packing)
    writer.rebuild()
    return VacuumReport(before, _size(path), dropped)


def backup_file(source: str, path: str, busy_ms: int) -> None:
    """Copy the file at one moment's state into a new file, a few pages at a time.

    Raises:
        StoreBusyError: Another process kept the file to itself for ``busy_ms``.
        StoreIOError: The path exists already or cannot be written; nothing is left there.
        StoreUnusableError: No store may have that name.
    """
    check_file_name(path)
    # Under another name until it is whole: half a copy that a killed process left would be taken
    # for a store without sessions.
    unfinished = f"{path}.new-{secrets.token_hex(8)}"
    try:
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        handle = os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        os.fchmod(handle, 0o600)
        os.close(handle)
    except OSError as error:
        raise StoreIOError(
            f"{path}: cannot be created: {error.strerror}; name a new file"
        ) from error
    try:
        with translated(path, "backup"):
            _copy(source, unfinished, busy_ms)
        _give_name(unfinished, path)
    except BaseException:
        for end in ("", "-journal", "-shm", "-wal"):
            if os.path.exists(unfinished + end):
                os.unlink(unfinished + end)
        raise


def _give_name(unfinished: str, path: str) -> None:
    """Give a whole copy its name, unless somebody else has taken that meanwhile."""
    try:
        os.link(unfinished, path)
    except FileExistsError as error:
        raise StoreIOError(f"{path}: exists meanwhile; name a new file") from error
    except OSError:
        # A file system without links.
        os.rename(unfinished, path)
    else:
        os.unlink(unfinished)
    folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _copy(source: str, path: str, busy_ms: int) -> None:
    # One read transaction holds the state still while writers go on.
    origin = connect(source, busy_ms=busy_ms, read_only=not is_writable(source))
    target = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        origin.execute("BEGIN")
        origin.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        with target.backup("main", origin, "main") as backup:
            while not backup.done:
                backup.step(_PAGES_A_STEP)
        # Owners stay with the original.
        target.execute("UPDATE sessions SET owner = NULL")
        target.pragma("wal_checkpoint", "TRUNCATE")
        origin.execute("ROLLBACK")
    finally:
        target.close()
        origin.close()
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _size(path: str) -> int:
    return sum(os.stat(path + end).st_size for end in ("", "-wal") if os.path.exists(path + end))
