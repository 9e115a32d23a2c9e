"""An LMDB store: many sessions in one environment, shared by processes."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator

from pico_lmdb.engine import Transaction
from pico_lmdb.environment import (
    MAP_BYTES,
    leave_environment,
    open_environment,
)
from pico_lmdb.layout import COUNTER, DOOMED, EPOCH, MAIN, NAME, SESSION, of_session
from pico_lmdb.load import load_session
from pico_lmdb.memo import last_seq
from pico_lmdb.names import fit
from pico_lmdb.reclaim import backup_folder, purge, vacuum_folder
from pico_lmdb.rows import SessionRow, decode_session, pack, seal, unseal
from pico_lmdb.salvage import salvage_folder
from pico_lmdb.snapshot import Snapshot
from pico_lmdb.storage import LmdbStorage
from pico_lmdb.verify import verify_folder
from pico_lmdb.writer import Change, Writer
from pico_store.errors import (
    PicoError,
    SessionExistsError,
    SessionOwnedError,
    StorageClosedError,
    StoreDamagedError,
    UnknownSessionError,
)
from pico_store.names import check_name, check_outside, check_path
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


class LmdbStore:
    """A `Store` in one folder.

    Guarantees:
        Any number of threads and processes may use one folder. LMDB lets one of them write at a
        time and never makes a reader wait.
    """

    def __init__(
        self,
        path: str,
        *,
        create: bool = True,
        durability: Durability = "ordered",
        busy_ms: int = BUSY_MS_DEFAULT,
        compress: bool = False,
        map_bytes: int = MAP_BYTES,
    ) -> None:
        """Open the store of a folder.

        Args:
            path: The folder.
            create: Whether to make it where there is none.
            durability: What commits survive.
            busy_ms: How long a commit waits for other threads of this process, and then for
                other processes, in milliseconds; an open waits for these.
            compress: Whether new payloads are made smaller, and all of them by ``vacuum``.
            map_bytes: How large the map is at first; it grows by itself.
        """
        self._path = path
        self._durability: Durability = durability
        self._closed = ""
        self._lock = threading.Lock()
        self._open: weakref.WeakSet[LmdbStorage] = weakref.WeakSet()
        # What was not given back yet, also by handles that nobody has any more.
        self._held: dict[str, tuple[OwnerRecord, int, int]] = {}
        self._environment = open_environment(
            path,
            create=create,
            durability=durability,
            map_bytes=map_bytes,
            busy_ms=busy_ms,
        )
        # A store that nobody closed must not keep the folder open for the process's life.
        self._leave = weakref.finalize(self, leave_environment, self._environment)
        self._leave.atexit = False
        self._compress: Callable[[bytes], bytes] | None = None
        if compress:
            self._environment.compression()
            self._compress = self._compressed
        self._writer = Writer(self._environment, busy_ms)
        _stores.add(self)

    @property
    def url(self) -> str:
        options = []
        if self._durability != "ordered":
            options.append(f"durability={self._durability}")
        if self._compress is not None:
            options.append("compression=zstd")
        return f"lmdb:{self._path}{'?' * bool(options)}{'&'.join(options)}"

    @property
    def transactions(self) -> int:
        """Transactions that ``power`` commits shared; each cost one sync."""
        return self._writer.groups

    def sessions(self) -> list[SessionInfo]:
        self._check_open()
        found = []
        with self._snapshot() as snapshot:
            for key, stored in snapshot.under(MAIN, SESSION):
                number = int.from_bytes(key[1:], "big")
                row = decode_session(snapshot.checked(MAIN, key, stored, "session", number))
                owner = decode_owner(row.owner)
                public = None if owner is None else owner.public()
                last = last_seq(snapshot, number)
                found.append(SessionInfo(row.name, last, row.epoch, public))
        return sorted(found, key=lambda info: info.id)

    def create(self, session_id: str) -> LmdbStorage:
        self._check_open()
        check_name(session_id, "sessionId")
        owner = new_owner()
        session = 0

        def change(transaction: Transaction) -> None:
            nonlocal session
            self._check_new(transaction, session_id)
            session = new_number(transaction)
            put_session(transaction, session, SessionRow(session_id, 1, owner.encode()))

        try:
            self._update("create", change)
        except BaseException:
            forget_owner(owner)
            raise
        return self._handle(session, session_id, epoch=1, owner=owner)

    def open(
        self, session_id: str, *, read_only: bool = False, take_over: bool = False
    ) -> LmdbStorage:
        self._check_open()
        check_opening(read_only=read_only, take_over=take_over)
        if read_only:
            with self._snapshot() as snapshot:
                session, row = self._find(snapshot, session_id)
            return self._handle(session, session_id, epoch=row.epoch, owner=None)
        owner = new_owner()
        session, epoch = 0, 0

        def change(transaction: Transaction) -> None:
            nonlocal session, epoch
            session, row = self._find(transaction, session_id)
            if not take_over:
                self._check_free(row)
            epoch = row.epoch + 1
            put_session(transaction, session, SessionRow(session_id, epoch, owner.encode()))

        try:
            self._update("open", change)
        except BaseException:
            forget_owner(owner)
            raise
        return self._handle(session, session_id, epoch=epoch, owner=owner)

    def delete(self, session_id: str) -> None:
        self._check_open()
        session = 0

        def change(transaction: Transaction) -> None:
            nonlocal session
            session, row = self._find(transaction, session_id)
            self._check_free(row)
            for key in (of_session(SESSION, session), of_session(EPOCH, session)):
                transaction.delete(key)
            transaction.delete(name_key(session_id))
            transaction.put(of_session(DOOMED, session), b"")

        self._update("delete", change)
        purge(self._environment, self._writer, session)

    def load(self, session_id: str, items: Iterable[SnapshotItem]) -> None:
        self._check_open()
        check_name(session_id, "sessionId")
        owner = new_owner()
        session = 0

        def begin(transaction: Transaction) -> None:
            nonlocal session
            self._check_new(transaction, session_id)
            session = new_number(transaction)
            # Nobody sees it before it is whole.
            transaction.put(of_session(DOOMED, session), owner.encode().encode())
            transaction.put(of_session(EPOCH, session), (0).to_bytes(8, "big"))

        def end(transaction: Transaction) -> None:
            self._check_new(transaction, session_id)
            put_session(transaction, session, SessionRow(session_id, 0, None))
            transaction.delete(of_session(DOOMED, session))

        try:
            self._update("load", begin)
            try:
                load_session(
                    self._environment, self._writer, session, check_snapshot(items), self._compress
                )
                self._update("load", end)
            except BaseException:
                purge(self._environment, self._writer, session)
                raise
        finally:
            forget_owner(owner)

    def verify(self) -> VerifyReport:
        self._check_open()
        return verify_folder(self._path)

    def salvage(self) -> Iterator[Readable]:
        """Yield what is whole of each session, row by row.

        A damaged map can end the process that reads it: let it be one that does nothing else.
        """
        self._check_open()
        return salvage_folder(self._environment)

    def vacuum(self) -> VacuumReport:
        self._check_open()
        return vacuum_folder(self._environment, self._writer, compress=self._compress is not None)

    def backup(self, path: str) -> None:
        self._check_open()
        check_path(path)
        check_outside(path, self._path)
        backup_folder(self._environment, path)

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
        self._leave()

    def refuse_after_fork(self) -> None:
        """Refuse every call in a process that inherited this store by ``fork``."""
        self._closed = "used after os.fork()"
        for storage in list(self._open):
            storage.refuse_after_fork()

    def release(self, owner: OwnerRecord, session: int, epoch: int) -> None:
        """Give a session back, as far as the file can be written."""
        forget_owner(owner)
        self._held.pop(owner.token, None)

        def change(transaction: Transaction) -> None:
            key = of_session(SESSION, session)
            stored = transaction.get(key)
            row = None if stored is None else self._session_row(key, stored)
            if row is not None and row.epoch == epoch:
                put_session(transaction, session, SessionRow(row.name, epoch, None))

        try:
            self._update("close", change)
        except PicoError:
            # The record stays; its token is dead, so that the next open takes the session.
            pass

    def _compressed(self, payload: bytes) -> bytes:
        return self._environment.compression().compressed(payload)

    def _update(self, act: str, change: Change) -> None:
        sync = self._durability == "power"
        self._writer.update(act, change, sync=sync)

    def _handle(
        self, session: int, session_id: str, *, epoch: int, owner: OwnerRecord | None
    ) -> LmdbStorage:
        try:
            storage = LmdbStorage(
                session=session,
                session_id=session_id,
                epoch=epoch,
                owner=owner,
                environment=self._environment,
                writer=self._writer,
                durability=self._durability,
                compress=self._compress,
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

    def _snapshot(self) -> Snapshot:
        return Snapshot(self._environment, Counters(), "")

    def _check_new(self, transaction: Transaction, name: str) -> None:
        if transaction.get(name_key(name)) is not None:
            problem = f"session {name!r:.80} exists already; open it, or choose another id"
            raise SessionExistsError("OWN-6", "sessionId", problem)

    def _find(self, rows: Transaction | Snapshot, name: str) -> tuple[int, SessionRow]:
        check_name(name, "sessionId")
        key = name_key(name)
        found = rows.get(MAIN, key) if isinstance(rows, Snapshot) else rows.get(key)
        if found is None:
            problem = f"no session {name!r:.80} in {self.url}; create it, or choose another id"
            raise UnknownSessionError("OWN-6", "sessionId", problem)
        session = int.from_bytes(found, "big")
        key = of_session(SESSION, session)
        stored = rows.get(MAIN, key) if isinstance(rows, Snapshot) else rows.get(key)
        row = None if stored is None else self._session_row(key, stored)
        if row is None or row.name != name:
            raise StoreDamagedError(f"{self.url}: session {name!r:.80} is damaged; run pico verify")
        return session, row

    def _session_row(self, key: bytes, stored: bytes) -> SessionRow | None:
        row = unseal(MAIN, key, stored)
        return None if row is None else decode_session(row)

    def _check_free(self, row: SessionRow) -> None:
        holder = decode_owner(row.owner)
        if holder is not None and is_alive(holder):
            raise SessionOwnedError(owned_problem(row.name, holder.public()))

    def _check_open(self) -> None:
        if self._closed:
            raise StorageClosedError(f"{self.url}: the store is {self._closed}; open it again")


def name_key(name: str) -> bytes:
    """Return the key of the row that leads from a session's name to its number."""
    return fit(NAME + name.encode())


def new_number(transaction: Transaction) -> int:
    """Return a number for a session that no other ever had."""
    found = transaction.get(COUNTER)
    assert found is not None, "the counter is made with the trees"
    number = int.from_bytes(found, "big")
    transaction.put(COUNTER, (number + 1).to_bytes(4, "big"))
    return number


def put_session(transaction: Transaction, session: int, row: SessionRow) -> None:
    """Put the rows that make a session known."""
    key = of_session(SESSION, session)
    transaction.put(key, seal(MAIN, key, pack(row)))
    transaction.put(of_session(EPOCH, session), row.epoch.to_bytes(8, "big"))
    transaction.put(name_key(row.name), session.to_bytes(4, "big"))


_stores: weakref.WeakSet[LmdbStore] = weakref.WeakSet()


def _refuse_all_after_fork() -> None:
    for store in list(_stores):
        store.refuse_after_fork()


os.register_at_fork(after_in_child=_refuse_all_after_fork)
