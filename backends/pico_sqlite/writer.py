"""The one writing connection of a store: transactions, and commits that share an fsync.

Commits of all sessions that a process has open go through here, one transaction at a time. With
``power`` durability the commits that arrive while another waits for the disk are written together
by whichever thread comes next, in one transaction with one fsync: the first of them leads, the
others sleep until it has committed for them.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

import apsw

from pico_sqlite.connection import connect, translate, translated
from pico_sqlite.rows import Rows
from pico_store.check import CheckedBatch
from pico_store.errors import CommitUncertainError, PicoError, StorageClosedError
from pico_store.storage import Durability

# WAL is what keeps every commit when only the process dies; these decide about the power.
_SYNCHRONOUS: Final[dict[Durability, tuple[str, str]]] = {
    "power": ("FULL", "NORMAL"),
    "ordered": ("NORMAL", "NORMAL"),
    "process": ("OFF", "OFF"),
}
_SHARED_MAX: Final = 128


class _Request:
    """One commit that waits to be written, and what became of it.

    ``done`` is a lock that is held until the request is written or its thread is to lead.
    """

    __slots__ = ("apply", "done", "error", "is_main", "promoted")

    def __init__(self, apply: Callable[[], None], is_main: bool) -> None:  # noqa: FBT001
        self.apply = apply
        self.promoted = False
        self.is_main = is_main
        self.error: BaseException | None = None
        self.done = threading.Lock()
        self.done.acquire()


class Writer:
    """Serializes the commits of one store in this process."""

    def __init__(self, path: str, *, busy_ms: int, durability: Durability) -> None:
        self.path = path
        self.durability: Final = durability
        self._busy_ms = busy_ms
        self.shares = durability == "power"
        self._main_level, self._scratch_level = _SYNCHRONOUS[durability]
        self.lock = threading.Lock()
        self._queue = threading.Lock()
        self._waiting: deque[_Request] = deque()
        self._leading = False
        self.closed = False
        self.groups = 0
        """Transactions that ``power`` commits shared; each cost one fsync."""
        self._level = ""
        self.db = self._connect()
        self._run = self.db.cursor().execute

    def _connect(self) -> apsw.Connection:
        db = connect(self.path, busy_ms=self._busy_ms, read_only=False)
        self._level = self._main_level
        db.pragma("synchronous", self._level)
        return db

    @contextmanager
    def transaction(self, act: str) -> Iterator[apsw.Connection]:
        """Run a block in a transaction of its own; any error undoes it.

        Raises:
            RetryableError: Nothing became durable.
            CommitUncertainError: The commit itself failed in a way that may have succeeded.
        """
        with self.lock, translated(self.path, act):
            self.check_open()
            try:
                self._set_level(self._main_level)
                self._run("BEGIN IMMEDIATE")
                yield self.db
                self._commit()
            finally:
                if self.db.in_transaction:
                    self._undo()

    def write(self, rows: Rows, checked: CheckedBatch) -> None:
        """Make a batch durable, in a transaction.

        Raises:
            OwnershipLostError: Another open took the session over; nothing was written.
            RetryableError: Nothing became durable.
            CommitUncertainError: It may or may not be durable.
        """
        if self.shares:
            self._write_together(partial(rows.write, checked), is_main=checked.task is None)
            return
        with self.lock:
            if self.closed:
                self.check_open()
            at_the_end = False
            try:
                self._run("BEGIN IMMEDIATE")
                rows.write(checked)
                at_the_end = True
                self._run("COMMIT")
            except apsw.Error as error:
                if at_the_end:
                    raise self.failed(error) from error
                raise translate(self.path, "commit", error) from error
            finally:
                if self.db.in_transaction:
                    self._undo()

    def rebuild(self) -> None:
        """Rewrite the file without its free pages.

        Raises:
            StoreBusyError: Another connection is at work past the wait.
        """
        with self.lock, translated(self.path, "vacuum"):
            self.check_open()
            self._run("VACUUM")
            # Rows that nobody fetches keep a statement open, and that the next commit.
            self._run("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """Close the connection once no commit runs; the log is emptied if nobody else reads it."""
        with self.lock:
            if self.closed:
                return
            self.closed = True
            try:
                self.db.set_busy_timeout(0)
                self._run("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            except apsw.Error:
                pass  # Another process is at work: its close, or the next checkpoint, does it.
            finally:
                self.db.close()

    def abandon(self) -> None:
        """Close the connection to a file that is no store of ours, without changing a byte of it.

        What somebody else left in its log stays there; an empty log, which may be ours, goes.
        """
        log = f"{self.path}-wal"
        with self.lock:
            self.closed = True
            if os.path.exists(log) and os.stat(log).st_size > 0:
                self.db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            self.db.close()

    def check_open(self) -> None:
        """Refuse a closed store."""
        if self.closed:
            raise StorageClosedError(f"{self.path}: the store is closed; open it again")

    def _set_level(self, level: str) -> None:
        if self._level != level:
            self._run(f"PRAGMA synchronous = {level}")
            self._level = level

    def _commit(self) -> None:
        try:
            self._run("COMMIT")
        except apsw.Error as error:
            raise self.failed(error) from error

    def failed(self, error: apsw.Error) -> PicoError:
        """Say what is certain after a failed COMMIT or a failed single statement."""
        # Busy and full are found out before or while the log's frames are written: the frame that
        # ends the commit is not there, and undoing it forgets the others. Any other error may
        # come after that frame was written, and a recovery may find it.
        certain = isinstance(error, (apsw.BusyError, apsw.LockedError, apsw.FullError))
        if certain and self._undo():
            return translate(self.path, "commit", error)
        return CommitUncertainError(
            f"{self.path}: commit failed ({error}) and may or may not be durable; "
            "reopen the session and compare last_seq"
        )

    def _undo(self) -> bool:
        """Roll back what is open; tell whether the connection is clean afterwards."""
        if not self.db.in_transaction:
            return True
        try:
            self._run("ROLLBACK")
        except apsw.Error:
            self._reconnect()
            return False
        return True

    def _reconnect(self) -> None:
        self.db.close(True)
        self.db = self._connect()
        self._run = self.db.cursor().execute

    # --- Sharing ---

    def _write_together(self, apply: Callable[[], None], *, is_main: bool) -> None:
        request = _Request(apply, is_main)
        with self._queue:
            self._waiting.append(request)
            leads = not self._leading
            self._leading = True
        if not leads:
            request.done.acquire()
            leads = request.promoted
        if leads:
            self._lead()
        if request.error is not None:
            raise request.error

    def _lead(self) -> None:
        """Write for all that wait, then hand the lead to the first that came meanwhile."""
        group: list[_Request] = []
        try:
            with self.lock:
                with self._queue:
                    while self._waiting and len(group) < _SHARED_MAX:
                        group.append(self._waiting.popleft())
                self.check_open()
                self._write_group(group)
        except BaseException as error:
            for request in group:
                request.error = request.error or error
            if not isinstance(error, PicoError):
                raise
        finally:
            with self._queue:
                successor = self._waiting[0] if self._waiting else None
                self._leading = successor is not None
            for request in group:
                request.done.release()
            if successor is not None:
                successor.promoted = True
                successor.done.release()

    def _write_group(self, group: list[_Request]) -> None:
        try:
            is_main = any(request.is_main for request in group)
            self._set_level(self._main_level if is_main else self._scratch_level)
            self._run("BEGIN IMMEDIATE")
            for request in group:
                self._write_one(request, alone=len(group) == 1)
            self._commit()
            self.groups += 1
        except apsw.Error as error:
            raise translate(self.path, "commit", error) from error
        finally:
            if self.db.in_transaction:
                self._undo()

    def _write_one(self, request: _Request, *, alone: bool) -> None:
        if alone:
            request.apply()
            return
        self._run("SAVEPOINT one")
        try:
            request.apply()
        except PicoError as error:
            request.error = error
            self._run("ROLLBACK TO one")
        self._run("RELEASE one")
