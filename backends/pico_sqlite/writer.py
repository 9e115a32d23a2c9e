"""The one writing connection of a store: transactions, and commits that share an fsync.

Commits of all sessions that a process has open go through here, one transaction at a time. With
``power`` durability the commits that arrive while another waits for the disk are written together
by whichever thread comes next, in one transaction with one fsync: the first of them leads, the
others sleep until it has committed for them.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final, Protocol

import apsw

from pico_sqlite.connection import (
    WAL_BYTES_MAX,
    close_last,
    connect,
    limit_met,
    translate,
    translated,
)
from pico_sqlite.rows import Rows
from pico_store.check import CheckedBatch
from pico_store.errors import (
    CommitUncertainError,
    PicoError,
    StorageClosedError,
    StoreBusyError,
    StoreIOError,
)
from pico_store.sharing import Request, SharedCommits
from pico_store.storage import Durability

# WAL is what keeps every commit when only the process dies; these decide about the power.
_SYNCHRONOUS: Final[dict[Durability, tuple[str, str]]] = {
    "power": ("FULL", "NORMAL"),
    "ordered": ("NORMAL", "NORMAL"),
    "process": ("OFF", "OFF"),
}
_LOG_BYTES_MAX: Final = 2 * WAL_BYTES_MAX
_LOG_WAIT_MS: Final = 100


class _User(Protocol):
    """Who has statements of its own on the writer's connection."""

    def attach(self) -> None:
        """Prepare them on the present one."""
        ...


class _Request(Request):
    """A commit as what puts its rows into the shared transaction."""

    __slots__ = ("apply", "is_main")

    def __init__(self, apply: Callable[[], None], is_main: bool) -> None:  # noqa: FBT001
        super().__init__()
        self.apply = apply
        self.is_main = is_main


class Writer:
    """Serializes the commits of one store in this process."""

    def __init__(
        self, path: str, *, busy_ms: int, durability: Durability, read_only: bool = False
    ) -> None:
        self.path = path
        self._read_only = read_only
        self.wrote = False
        """Whether anything was put into the log, so that closing empties it."""
        self.durability: Final = durability
        self._busy_ms = busy_ms
        self.shares = durability == "power"
        self._main_level, self._scratch_level = _SYNCHRONOUS[durability]
        self.lock = threading.Lock()
        self.shared = SharedCommits[_Request](self._alone, self._write_group, self._interrupted)
        self._group: tuple[_Request, ...] = ()
        """Whose shared transaction was begun last."""
        self._stage = ""
        """How far that is: "", "commit", "commit failed" or "undone"."""
        self.closed = False
        self.groups = 0
        """Transactions that ``power`` commits shared; each cost one fsync."""
        self._level = ""
        self.users: weakref.WeakSet[_User] = weakref.WeakSet()
        """Told when another connection takes the place of this one."""
        self.db = self._connect()
        self._run = self.db.cursor().execute

    def _connect(self) -> apsw.Connection:
        db = connect(self.path, busy_ms=self._busy_ms, read_only=self._read_only)
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
            if self._read_only:
                problem = f"{self.path}: {act}: may not be written; see its permissions"
                raise StoreIOError(f"{problem}, or open the session read-only")
            self.wrote = True
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
            apply = partial(rows.write, checked)
            self.shared.commit(_Request(apply, is_main=checked.task is None))
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

    def bound_log(self) -> None:
        """Begin the log anew where readers that overlap without a pause kept SQLite from it.

        Waits for the reads that run now, but not long: an export may go on for hours. Whatever
        fails is left to the next commit: the one before is durable.
        """
        with self.lock, suppress(apsw.Error, OSError):
            if self.closed or os.stat(f"{self.path}-wal").st_size < _LOG_BYTES_MAX:
                return
            self.db.set_busy_timeout(min(self._busy_ms, _LOG_WAIT_MS))
            try:
                self._run("PRAGMA wal_checkpoint(RESTART)").fetchall()
            finally:
                self.db.set_busy_timeout(self._busy_ms)

    def rebuild(self) -> None:
        """Rewrite the file without its free pages.

        Raises:
            StoreBusyError: Another connection is at work past the wait.
        """
        with self.lock, translated(self.path, "vacuum"):
            self.check_open()
            self._run("VACUUM")
            # Who reads the log's end, as an unfinished export does, is not waited for: all commits
            # would wait too. Rows that nobody fetches keep a statement open, and that the next
            # commit.
            self.db.set_busy_timeout(0)
            try:
                self._run("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            finally:
                self.db.set_busy_timeout(self._busy_ms)

    def close(self) -> None:
        """Close the connection once no commit runs; the log is emptied if nobody else reads it."""
        with self.lock:
            if self.closed:
                return
            self.closed = True
            try:
                if self.wrote:
                    self.db.set_busy_timeout(0)
                    self._run("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            except apsw.Error:
                pass  # Another process is at work: its close, or the next checkpoint, does it.
            finally:
                close_last(self.db, self.path, wrote=self.wrote)

    def abandon(self) -> None:
        """Close the connection to a file that is no store of ours, without changing a byte of it.

        What somebody else left in its log stays there; an empty log, which may be ours, goes.
        """
        with self.lock:
            self.closed = True
            close_last(self.db, self.path, wrote=self.wrote)

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
            self._stage = "commit failed"
            raise self.failed(error) from error

    def failed(self, error: apsw.Error) -> PicoError:
        """Say what is certain after a failed COMMIT or a failed single statement."""
        # Busy and full are found out before or while the log's frames are written: the frame that
        # ends the commit is not there, and undoing it forgets the others. Any other error may
        # come after that frame was written, and a recovery may find it.
        certain = isinstance(error, (apsw.BusyError, apsw.LockedError, apsw.FullError))
        if certain and self._undo():
            return translate(self.path, "commit", error)
        reason = limit_met(error) or error
        return CommitUncertainError(
            f"{self.path}: commit failed ({reason}) and may or may not be durable; "
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
        for user in list(self.users):
            user.attach()

    # --- Sharing ---

    def _alone(self, act: Callable[[], None]) -> None:
        """Run what no other thread may write beside."""
        with self.lock:
            act()

    def _interrupted(self, error: BaseException, group: tuple[_Request, ...]) -> PicoError | None:
        """Say what became of the commits whose leader was interrupted; ``None``: they are durable.

        An interruption comes between two calls of the engine. Had its COMMIT failed, that error
        would be here instead, and a transaction that did not come to it was undone.
        """
        who = f"{self.path}: the thread that wrote for several was interrupted ({error!r})"
        stage = self._stage if group is self._group else ""
        if self.db.in_transaction or stage == "commit failed":
            return CommitUncertainError(f"{who}; reopen the session and compare last_seq")
        if stage == "commit":
            return None
        return StoreBusyError(f"{who} before anything was durable; try again")

    def _write_group(self, group: tuple[_Request, ...]) -> None:
        self._stage = ""
        self._group = group
        self.check_open()
        try:
            is_main = any(request.is_main for request in group)
            self._set_level(self._main_level if is_main else self._scratch_level)
            self._run("BEGIN IMMEDIATE")
            for request in group:
                self._write_one(request, alone=len(group) == 1)
            self._stage = "commit"
            self._commit()
            self.groups += 1
        except apsw.Error as error:
            raise translate(self.path, "commit", error) from error
        finally:
            if self.db.in_transaction:
                self._stage = "undone"
                self._undo()

    def _write_one(self, request: _Request, *, alone: bool) -> None:
        if alone:
            request.apply()
            return
        self._run("SAVEPOINT one")
        try:
            request.apply()
        except apsw.Error:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it is no other session's
            request.error = error
            self._run("ROLLBACK TO one")
        self._run("RELEASE one")
