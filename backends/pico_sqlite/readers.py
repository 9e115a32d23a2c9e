"""Connections for reading: each call borrows one, so that no read waits for a commit."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import apsw

from pico_sqlite.connection import Bindings, Row, connect, translate
from pico_store.errors import StorageClosedError, StoreDamagedError

_IDLE_MAX: Final = 8


class Snapshot:
    """One state of the file, as long as the block that it was lent to runs."""

    def __init__(self, db: apsw.Connection) -> None:
        self.db = db
        self._cursor = db.cursor()
        self._streams: list[apsw.Cursor] = []

    def rows(self, sql: str, values: Bindings = ()) -> list[Row]:
        """Return all rows of a statement."""
        rows: list[Row] = self._cursor.execute(sql, values).fetchall()
        return rows

    def stream(self, sql: str, values: Bindings = ()) -> Iterator[Row]:
        """Return the rows of a statement one by one; the rest is given up with the block."""
        cursor = self.db.cursor()
        self._streams.append(cursor)
        return cursor.execute(sql, values)

    def end(self) -> None:
        """Finish every statement: one that is not would keep the log from being emptied."""
        self._cursor.close(True)
        for cursor in self._streams:
            cursor.close(True)


class Readers:
    """The reading connections of one store."""

    def __init__(self, path: str, *, busy_ms: int, read_only: bool = False) -> None:
        self._path = path
        self._read_only = read_only
        self._busy_ms = busy_ms
        self._idle: list[apsw.Connection] = []
        self._lock = threading.Lock()
        self._closed = False

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Lend one state of the file; the read transaction ends with the block."""
        db = self._take()
        try:
            snapshot = Snapshot(db)
            try:
                snapshot.rows("BEGIN")
                yield snapshot
            finally:
                snapshot.end()
                if db.in_transaction:
                    db.execute("ROLLBACK")
        except apsw.Error as error:
            raise translate(self._path, "read", error) from error
        except (LookupError, TypeError, UnicodeDecodeError) as error:
            # Rows lead to rows that are not there, a number is none any more, or a text: one bit
            # decides of what type a column is. No whole file has any of these.
            problem = f"{error!r}; run pico verify, restore a backup"
            raise StoreDamagedError(f"{self._path}: read: damaged rows: {problem}") from error
        finally:
            self._give_back(db)

    def close(self) -> None:
        """Close the idle connections; a lent one is closed when its reader gives it back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for db in idle:
            db.close()

    def _take(self) -> apsw.Connection:
        with self._lock:
            if self._closed:
                raise StorageClosedError(f"{self._path}: the store is closed; open it again")
            if self._idle:
                return self._idle.pop()
        db = connect(self._path, busy_ms=self._busy_ms, read_only=self._read_only)
        db.pragma("query_only", True)
        return db

    def _give_back(self, db: apsw.Connection) -> None:
        # A transaction is still open if the end of the read was itself interrupted.
        usable = not db.in_transaction
        with self._lock:
            if usable and not self._closed and len(self._idle) < _IDLE_MAX:
                self._idle.append(db)
                return
        db.close()
