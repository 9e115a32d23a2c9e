"""Connecting to a store's file: what is checked before anything is written, and the settings."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from resource import RLIM_INFINITY, RLIMIT_FSIZE, getrlimit
from typing import Any, Final
from urllib.parse import quote

import apsw

from pico_sqlite.schema import APPLICATION_ID, DICTIONARIES, FORMAT_VERSION, SCHEMA
from pico_store.errors import (
    NewerFormatError,
    NotAStoreError,
    PicoError,
    StoreBusyError,
    StoreDamagedError,
    StoreFullError,
    StoreIOError,
    StoreUnusableError,
)
from pico_store.file_system import UNSHARED, file_system

Row = tuple[Any, ...]
"""Columns as SQLite gives them; the statement says of which types they are."""
Bindings = Sequence[int | str | bytes | None] | Mapping[str, int | str | bytes | None]

WAL_BYTES_MAX: Final = 16 << 20
"""What the log is cut back to after a checkpoint that emptied it."""
_MAGIC: Final = b"SQLite format 3\0"
_PAGE_BYTES_MIN: Final = 512
_FIRST_BYTES: Final = 32_768
# What SQLite says where a file cannot grow, except for a full disk.
_GROWING: Final = (
    apsw.SQLITE_IOERR_WRITE,
    apsw.SQLITE_IOERR_TRUNCATE,
    apsw.SQLITE_IOERR_SHMSIZE,
    apsw.SQLITE_IOERR_SHMOPEN,
)
_BESIDE: Final = ("-wal", "-shm", "-journal")
# The files that were open when this process was forked.
_inherited: set[tuple[int, int]] = set()


def check_file_name(path: str) -> None:
    """Refuse a path that SQLite would take for its own file beside another store.

    Raises:
        StoreUnusableError: It ends like one.
    """
    if path.endswith(_BESIDE):
        raise StoreUnusableError(
            f"{path}: ends like what SQLite puts beside a file, and would be taken for that; "
            "give it another name"
        )


def check_file(path: str, *, create: bool) -> None:
    """Refuse a path that is no place for a store, without writing; create an empty file if asked.

    Raises:
        StoreUnusableError: No such file, a folder, another program's file, a newer format, a
            file that may not be read or written, one that was open when this process was forked,
            or a file system that WAL cannot work on.
    """
    if not path:
        raise StoreUnusableError("sqlite: without a file; write it as sqlite:FILE")
    check_file_name(path)
    if path == ":memory:":
        raise StoreUnusableError("sqlite::memory: keeps nothing; write memory: for that")
    kind = file_system(path)
    if kind in UNSHARED:
        raise StoreUnusableError(
            f"{path}: on a {kind} file system, where processes cannot share SQLite's log; "
            "put the store on a local disk"
        )
    try:
        if create and not os.path.lexists(path):
            # Private from the first byte, whatever the umask (DUR-2); SQLite gives the files
            # that it puts beside this one the same mode.
            handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_EXCL | os.O_CLOEXEC, 0o600)
            os.fchmod(handle, 0o600)
            os.close(handle)
    except FileExistsError:
        pass
    except OSError as error:
        raise StoreUnusableError(f"{path}: cannot be created: {error.strerror}") from error
    _check_header(path, create=create)


def _check_header(path: str, *, create: bool) -> None:
    try:
        found = os.stat(path)
    except FileNotFoundError as error:
        raise StoreUnusableError(f"no store at {path}") from error
    except OSError as error:
        raise StoreUnusableError(f"{path}: cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(found.st_mode):
        raise NotAStoreError(f"{path}: not a regular file; name a file")
    if (found.st_dev, found.st_ino) in _inherited:
        # SQLite would go on believing that it holds the parent's locks, and lose every commit that
        # follows when the parent, or anybody else, closes the file.
        raise StoreUnusableError(
            f"{path}: was open when this process was forked; close it before forking, or start "
            "processes afresh (spawn)"
        )
    if not os.access(path, os.R_OK):
        raise StoreUnusableError(f"{path}: may not be read; see its permissions")
    if found.st_size == 0:
        if not create:
            raise StoreUnusableError(f"no store at {path}: the file is empty")
        return
    before = _state_of(path)
    first = _first_bytes(path) if found.st_size >= _PAGE_BYTES_MIN else b""
    header = first[:_PAGE_BYTES_MIN]
    if not header.strip(b"\0") and os.path.exists(f"{path}-journal"):
        # The power failed while the file was made; SQLite undoes that when it opens it.
        return
    # Beside a log or a journal, a power cut may have left any sector old, and another process may
    # have written while the file was read: SQLite sees to both.
    _, *logs = before
    is_settled = not any(bytes for bytes, _ in logs) and _state_of(path) == before
    is_ours = is_settled and SCHEMA[1].encode() in first
    is_marked = header[68:72] == APPLICATION_ID.to_bytes(4, "big")
    has_magic = header.startswith(_MAGIC)
    if has_magic != is_marked and is_settled and (is_marked or is_ours):
        raise StoreDamagedError(
            f"{path}: offset 0: its header is damaged; nothing was changed; restore a backup"
        )
    if not has_magic and is_ours:
        raise StoreDamagedError(
            f"{path}: offset 0: its header is gone; nothing was changed; restore a backup"
        )
    if not has_magic:
        raise NotAStoreError(f"{path}: not a SQLite file; nothing was changed")
    _check_version(
        path,
        application=int.from_bytes(header[68:72], "big"),
        version=int.from_bytes(header[60:64], "big"),
        # One page, and nothing on it.
        empty=header[28:32] == b"\0\0\0\1" and header[103:105] == b"\0\0",
    )


def _state_of(path: str) -> list[tuple[int, int]]:
    """Return the size in bytes and the time of change of a file, of its log and of its journal."""
    state = []
    for name in (path, f"{path}-wal", f"{path}-journal"):
        try:
            found = os.stat(name)
        except OSError:
            state.append((0, 0))
        else:
            state.append((found.st_size, found.st_mtime_ns))
    return state


def _first_bytes(path: str) -> bytes:
    """Return the file's first bytes: its header, and on a store's first pages its schema.

    Read by SQLite, which knows whether this process has the file open: closing a file of our own
    would give up all locks of the process on it, and another process could then take away the log.
    """
    flags = [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0]
    with translated(path, "open"):
        file = apsw.VFSFile("", path, flags)
        try:
            return file.xRead(_FIRST_BYTES, 0)
        finally:
            file.xClose()


def _remember_inherited() -> None:
    for db in apsw.connections():
        try:
            found = os.stat(db.filename)
        except (OSError, apsw.ConnectionClosedError):
            continue
        _inherited.add((found.st_dev, found.st_ino))


os.register_at_fork(after_in_child=_remember_inherited)


def _check_version(path: str, *, application: int, version: int, empty: bool) -> None:
    if application != APPLICATION_ID and not (empty and application == version == 0):
        raise NotAStoreError(f"{path}: a SQLite file of another program; nothing was changed")
    if version > FORMAT_VERSION:
        raise NewerFormatError(
            f"{path}: format {version}, written by a newer pico; this one reads up to "
            f"{FORMAT_VERSION}: upgrade pico; nothing was changed"
        )


def limit_met(error: apsw.Error) -> str:
    """Return that a limit of file sizes was met, where that explains an error."""
    limit, _ = getrlimit(RLIMIT_FSIZE)
    grows = isinstance(error, apsw.IOError) and getattr(error, "extendedresult", 0) in _GROWING
    if not grows or limit == RLIM_INFINITY:
        return ""
    return f"a file would pass this process's limit of {limit:,} bytes"


def translate(path: str, act: str, error: apsw.Error) -> PicoError:
    """Return the error of ours that says what the caller can do about one of the engine's."""
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return StoreBusyError(f"{path}: {act}: another writer holds it; try again")
        case apsw.FullError():
            return StoreFullError(f"{path}: {act}: no room left; make room and try again")
        case apsw.NotADBError():
            # The header was looked at before: it is a store's.
            problem = f"its header is damaged ({error}); nothing was changed; restore a backup"
            return StoreDamagedError(f"{path}: {act}: {problem}")
        case apsw.CorruptError():
            return StoreDamagedError(f"{path}: {act}: {error}; run pico verify")
    problem = limit_met(error)
    if problem:
        return StoreFullError(f"{path}: {act}: {problem}; raise it (ulimit -f) and try again")
    return StoreIOError(f"{path}: {act}: {error}; check the disk and permissions, then try again")


@contextmanager
def translated(path: str, act: str) -> Iterator[None]:
    """Turn the engine's errors into ours."""
    try:
        yield
    except apsw.Error as error:
        raise translate(path, act, error) from error


def is_writable(path: str) -> bool:
    """Tell whether a store's file, and the log that SQLite puts beside it, may be written."""
    return os.access(path, os.W_OK) and os.access(os.path.dirname(path) or ".", os.W_OK)


def connect(path: str, *, busy_ms: int, read_only: bool) -> apsw.Connection:
    """Return a connection with the settings that every connection has.

    Closing it leaves the log as it is: looking changes no byte, and who wrote empties the log.

    Raises:
        StoreBusyError: The switch to the log could not be made within ``busy_ms``.
        StoreUnusableError: The file is damaged or not a store's.
    """
    flags = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE
    name = path
    if read_only and not os.path.exists(f"{path}-wal"):
        # Nobody has the file open, and SQLite cannot put a log beside it.
        name = f"file:{quote(os.path.abspath(path))}?immutable=1"
        flags |= apsw.SQLITE_OPEN_URI
    with translated(path, "open"):
        db = apsw.Connection(name, flags=flags | apsw.SQLITE_OPEN_NOMUTEX, statementcachesize=200)
        try:
            db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            # Only an empty file takes it. A commit writes whole pages to the log, mostly one or two
            # with little on them; half of SQLite's usual size costs a sixth less CPU.
            if not read_only:
                db.pragma("page_size", 2048)
                _switch_to_log(db, path, busy_ms)
            db.set_busy_timeout(busy_ms)
            db.pragma("wal_autocheckpoint", 1000)
            db.pragma("journal_size_limit", WAL_BYTES_MAX)
            db.pragma("cache_size", -8192)
            db.pragma("trusted_schema", False)
        except BaseException:
            close_last(db, path, wrote=False)
            raise
    return db


def close_last(db: apsw.Connection, path: str, *, wrote: bool) -> None:
    """Close what may be the last connection to a file.

    Args:
        db: The connection.
        path: The file.
        wrote: True: the log may be emptied into the file and taken away. False: only a log that
            is empty, which may be ours, is taken away.
    """
    log = f"{path}-wal"
    if wrote or not os.path.exists(log) or os.stat(log).st_size == 0:
        db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
    db.close()


def _switch_to_log(db: apsw.Connection, path: str, busy_ms: int) -> None:
    """Switch to WAL, waiting here and not in SQLite.

    Two connections that switch at once may each keep a lock that the other waits for: SQLite would
    let both wait until their time is up. Here each gives up its locks before it waits.
    """
    deadline = time.monotonic() + busy_ms / 1000
    pause = 0.001
    while True:
        try:
            # The switch writes: what is no store of ours must be found out before.
            _tables(db, path)
            mode = db.pragma("journal_mode", "wal")
        except (apsw.BusyError, apsw.LockedError):
            if time.monotonic() >= deadline:
                raise
            time.sleep(pause)
            pause = min(pause * 2, 0.05)
            continue
        if mode != "wal":
            raise StoreUnusableError(
                f"{db.filename}: SQLite stays in journal mode {mode} here, which this backend "
                "does not use; put the store on a local disk"
            )
        return


def prepare(db: apsw.Connection, path: str) -> bool:
    """Create the tables in an empty file, or make sure that they are the expected ones.

    Returns:
        Whether it created them.

    Raises:
        NotAStoreError: The tables are not those of the format that the file claims.
        NewerFormatError: The file is of a newer format.
    """
    with translated(path, "open"):
        if _tables(db, path):
            return False
        db.execute("BEGIN IMMEDIATE")
        try:
            if not _tables_seen(db, path):
                for statement in SCHEMA:
                    db.execute(statement)
                db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                db.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
            db.execute("COMMIT")
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")
    return True


def _tables(db: apsw.Connection, path: str) -> bool:
    """Tell whether the tables are there; refuse others than the format's."""
    # One transaction: another process may make them between two of the reads.
    db.execute("BEGIN")
    try:
        return _tables_seen(db, path)
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def _tables_seen(db: apsw.Connection, path: str) -> bool:
    """Tell what :func:`_tables` tells, as the open transaction sees the file."""
    # As bytes: what is damaged may be no text any more.
    rows = db.execute("SELECT CAST(sql AS BLOB) FROM sqlite_schema WHERE sql IS NOT NULL")
    found = {bytes(sql).decode(errors="replace") for (sql,) in rows}
    _check_version(
        path,
        application=int(db.pragma("application_id")),
        version=int(db.pragma("user_version")),
        empty=not found,
    )
    strange = (found - {DICTIONARIES}) ^ set(SCHEMA)
    if found and strange:
        first = sorted(strange)[0].split("(")[0]
        raise NotAStoreError(
            f"{path}: its tables are not those of format {FORMAT_VERSION} (see: {first}); "
            "nothing was changed"
        )
    return bool(found)
