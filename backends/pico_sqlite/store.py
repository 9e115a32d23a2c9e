"""A SQLite store: many sessions in one file, shared by processes."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable, Iterator

import apsw

from pico_sqlite.checksum import checksum
from pico_sqlite.connection import Row, check_file, is_writable, prepare, translate
from pico_sqlite.load import load_session
from pico_sqlite.memo import Memo
from pico_sqlite.packing import Packing
from pico_sqlite.readers import Readers
from pico_sqlite.reclaim import backup_file, delete_session, vacuum_file
from pico_sqlite.record_reads import RecordReads
from pico_sqlite.rows import Rows
from pico_sqlite.salvage import salvage_file
from pico_sqlite.storage import SqliteStorage
from pico_sqlite.verify import verify_file
from pico_sqlite.writer import Writer
from pico_store.compression import LEVEL, Compression
from pico_store.errors import (
    PicoError,
    SessionExistsError,
    SessionOwnedError,
    StorageClosedError,
    StoreDamagedError,
    UnknownSessionError,
)
from pico_store.names import check_name, check_path
from pico_store.options import BUSY_MS_DEFAULT
from pico_store.ownership import OwnerRecord, decode_owner, forget_owner, is_alive, new_owner
from pico_store.owning import check_opening, owned_problem
from pico_store.salvage import Readable
from pico_store.snapshot import SnapshotItem
from pico_store.snapshot_check import check_snapshot
from pico_store.storage import (
    Counters,
    Durability,
    SessionInfo,
    VacuumReport,
    VerifyReport,
)


class SqliteStore:
    """A `Store` in one SQLite file.

    Guarantees:
        Any number of threads and processes may use one file; commits of one process go through
        one connection, and reads through connections of their own.
    """

    def __init__(
        self,
        path: str,
        *,
        create: bool = True,
        durability: Durability = "ordered",
        busy_ms: int = BUSY_MS_DEFAULT,
        compress: bool = False,
    ) -> None:
        """Open the file, or make it.

        Args:
            path: The file.
            create: Whether it may be made.
            durability: What survives a power cut.
            busy_ms: How long a commit waits for other writers, in milliseconds.
            compress: Whether payloads that are written from now on are compressed; those that
                are can be read in any case.

        Raises:
            StoreUnusableError: The path is no place for a store; nothing was changed.
            MissingDriverError: ``compress``, and zstandard is not installed.
        """
        if compress:
            Compression(LEVEL)
        self._given = path
        # SQLite puts its log beside what a link leads to.
        if os.path.islink(path) and os.path.exists(path):
            path = os.path.realpath(path)
        check_file(path, create=create)
        self._path = path
        self._durability: Durability = durability
        self._busy_ms = busy_ms
        self._closed = ""
        self._lock = threading.Lock()
        self._open: weakref.WeakSet[SqliteStorage] = weakref.WeakSet()
        # What the file says that handles of this store own, whether they were closed or forgotten.
        self._held: dict[str, tuple[OwnerRecord, int, int]] = {}
        read_only = not is_writable(path)
        self._writer = Writer(path, busy_ms=busy_ms, durability=durability, read_only=read_only)
        try:
            self._writer.wrote = prepare(self._writer.db, path)
        except BaseException:
            self._writer.abandon()
            raise
        self._readers = Readers(path, busy_ms=busy_ms, read_only=read_only)
        self._packing = Packing(self._readers)
        self._compress = compress
        _stores.add(self)

    @property
    def url(self) -> str:
        options = []
        if self._durability != "ordered":
            options.append(f"durability={self._durability}")
        if self._compress:
            options.append("compression=zstd")
        return f"sqlite:{self._given}{'?' * bool(options)}{'&'.join(options)}"

    @property
    def transactions(self) -> int:
        """Transactions that ``power`` commits shared; each cost at most one fsync."""
        return self._writer.groups

    def sessions(self) -> list[SessionInfo]:
        self._check_open()
        found = []
        with self._readers.snapshot() as snapshot:
            sql = (
                "SELECT session, name, epoch, CAST(owner AS BLOB), checksum FROM sessions "
                "ORDER BY name"
            )
            rows: list[Row] = snapshot.rows(sql)
            for session, name, epoch, owner, sums in rows:
                self._check_row(name, epoch, sums)
                memo = Memo(session, snapshot.db)
                reads = RecordReads(memo, Counters(), name, self._packing.plain)
                record = decode_owner(owner)
                public = None if record is None else record.public()
                found.append(SessionInfo(name, reads.last_seq(snapshot), epoch, public))
        return found

    def create(self, session_id: str) -> SqliteStorage:
        self._check_open()
        check_name(session_id, "sessionId")
        owner = new_owner()
        try:
            with self._writer.transaction("create") as db:
                session = self._new_session(db, session_id, owner)
        except BaseException:
            forget_owner(owner)
            raise
        return self._handle(session, session_id, epoch=1, owner=owner)

    def open(
        self, session_id: str, *, read_only: bool = False, take_over: bool = False
    ) -> SqliteStorage:
        self._check_open()
        check_opening(read_only=read_only, take_over=take_over)
        if read_only:
            with self._readers.snapshot() as snapshot:
                session, epoch, _ = self._find(snapshot.db, session_id)
            return self._handle(session, session_id, epoch=epoch, owner=None)
        owner = new_owner()
        try:
            with self._writer.transaction("open") as db:
                session, epoch, holder = self._find(db, session_id)
                if not take_over:
                    self._check_free(session_id, holder)
                epoch += 1
                sql = "UPDATE sessions SET epoch = ?, owner = ?, checksum = ? WHERE session = ?"
                db.execute(sql, (epoch, owner.encode(), checksum((session_id, epoch)), session))
        except BaseException:
            forget_owner(owner)
            raise
        return self._handle(session, session_id, epoch=epoch, owner=owner)

    def delete(self, session_id: str) -> None:
        self._check_open()
        with self._writer.transaction("delete") as db:
            session, _, holder = self._find(db, session_id)
            self._check_free(session_id, holder)
            delete_session(db, session)

    def load(self, session_id: str, items: Iterable[SnapshotItem]) -> None:
        self._check_open()
        check_name(session_id, "sessionId")
        with self._writer.transaction("load") as db:
            session = self._new_session(db, session_id, None)
            compress = self._packing.compressed if self._compress else None
            load_session(db, session, check_snapshot(items), compress)

    def verify(self) -> VerifyReport:
        self._check_open()
        with self._readers.snapshot() as snapshot:
            return verify_file(snapshot, self._packing.plain)

    def salvage(self) -> Iterator[Readable]:
        """Yield what is whole of each session, row by row."""
        self._check_open()
        return salvage_file(self._readers, self._packing.plain)

    def vacuum(self) -> VacuumReport:
        self._check_open()
        packing = self._packing if self._compress else None
        return vacuum_file(self._writer, self._path, packing)

    def backup(self, path: str) -> None:
        self._check_open()
        check_path(path)
        backup_file(self._path, path, self._busy_ms)

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            for storage in list(self._open):
                storage.close()
            for owner, session, epoch in list(self._held.values()):
                self.release(owner, session, epoch)
            self._closed = "closed"
            _stores.discard(self)
        self._readers.close()
        self._writer.close()

    def refuse_after_fork(self) -> None:
        """Refuse every call in a process that inherited this store by ``fork``."""
        self._closed = "used after os.fork()"
        for storage in list(self._open):
            storage.refuse_after_fork()

    def release(self, owner: OwnerRecord, session: int, epoch: int) -> None:
        """Give a session back, as far as the file can be written."""
        forget_owner(owner)
        self._held.pop(owner.token, None)
        try:
            with self._writer.transaction("close") as db:
                sql = "UPDATE sessions SET owner = NULL WHERE session = ? AND epoch = ?"
                db.execute(sql, (session, epoch))
        except PicoError:
            # The record stays; its token is dead, so that the next open takes the session.
            pass

    def _handle(
        self, session: int, session_id: str, *, epoch: int, owner: OwnerRecord | None
    ) -> SqliteStorage:
        try:
            storage = SqliteStorage(
                session=session,
                session_id=session_id,
                epoch=epoch,
                owner=owner,
                writer=self._writer,
                readers=self._readers,
                plain=self._packing.plain,
                compress=self._packing.compress if self._compress else None,
                release=self.release,
            )
        except BaseException:
            if owner is not None:
                self.release(owner, session, epoch)
            raise
        self._open.add(storage)
        if owner is not None:
            self._held[owner.token] = owner, session, epoch
            # A handle that nobody closed must not hold the session for the process's life.
            weakref.finalize(storage, forget_owner, owner).atexit = False
        return storage

    def _new_session(self, db: apsw.Connection, name: str, owner: OwnerRecord | None) -> int:
        # One more than the first extent that it gets below: neither is ever given again, so that
        # a handle of a deleted session finds nothing, instead of what came after it.
        sql = (
            "INSERT INTO sessions(session, name, epoch, owner, checksum) "
            "SELECT coalesce(max(base), -1) + 2, ?, ?, ?, ? FROM extents"
        )
        epoch = 0 if owner is None else 1
        holder = None if owner is None else owner.encode()
        try:
            db.execute(sql, (name, epoch, holder, checksum((name, epoch))))
        except apsw.ConstraintError as error:
            problem = f"session {name!r:.80} exists already; open it, or choose another id"
            raise SessionExistsError("OWN-6", "sessionId", problem) from error
        session = db.last_insert_rowid()
        Rows(db, Memo(session, db), epoch).add_extent(0)
        return session

    def _find(self, db: apsw.Connection, name: str) -> tuple[int, int, OwnerRecord | None]:
        check_name(name, "sessionId")
        try:
            # As bytes: damage may have left no text.
            sql = (
                "SELECT session, epoch, CAST(owner AS BLOB), checksum FROM sessions WHERE name = ?"
            )
            found: list[Row] = db.execute(sql, (name,)).fetchall()
        except apsw.Error as error:
            raise translate(self._path, "open", error) from error
        if not found:
            problem = f"no session {name!r:.80} in {self.url}; create it, or choose another id"
            raise UnknownSessionError("OWN-6", "sessionId", problem)
        session, epoch, owner, sums = found[0]
        self._check_row(name, epoch, sums)
        return int(session), int(epoch), decode_owner(owner)

    def _check_row(self, name: str, epoch: int, sums: int) -> None:
        if checksum((name, epoch)) != sums:
            problem = f"session {name!r:.80} is damaged: the checksum of its row differs"
            raise StoreDamagedError(f"{self._path}: {problem}; run pico verify, restore a backup")

    def _check_free(self, name: str, holder: OwnerRecord | None) -> None:
        if holder is not None and is_alive(holder):
            raise SessionOwnedError(owned_problem(name, holder.public()))

    def _check_open(self) -> None:
        if self._closed:
            raise StorageClosedError(f"{self.url}: the store is {self._closed}; open it again")


_stores: weakref.WeakSet[SqliteStore] = weakref.WeakSet()


def _refuse_all_after_fork() -> None:
    for store in list(_stores):
        store.refuse_after_fork()


# SQLite's connections must not be used in a forked child: its locks stay with the parent.
os.register_at_fork(after_in_child=_refuse_all_after_fork)
