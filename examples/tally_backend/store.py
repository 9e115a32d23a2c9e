"""The store of the tally backend: its sessions live as long as it is open."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Mapping
from threading import RLock

from pico_store.backends import Backend, Promises
from pico_store.errors import (
    SessionExistsError,
    SessionOwnedError,
    StorageClosedError,
    UnknownSessionError,
    UnsupportedError,
)
from pico_store.names import check_name, check_path
from pico_store.owning import check_opening
from pico_store.snapshot import SnapshotItem
from pico_store.storage import Owner, SessionInfo, VacuumReport, VerifyReport
from tally_backend.ledger import Ledger
from tally_backend.snapshot import restore, snapshot
from tally_backend.storage import Session, TallyStorage


class TallyStore:
    """A `Store`."""

    url = "tally:"

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}
        self._handles: list[TallyStorage] = []
        self._lock = RLock()
        self._closed = False

    def sessions(self) -> list[SessionInfo]:
        with self._lock:
            self._check_open()
            return [
                SessionInfo(id, session.ledger.last_seq, session.epoch, session.owner)
                for id, session in sorted(self._sessions.items())
            ]

    def create(self, session_id: str) -> TallyStorage:
        with self._lock:
            self._add(session_id, Ledger())
            return self.open(session_id)

    def open(
        self, session_id: str, *, read_only: bool = False, take_over: bool = False
    ) -> TallyStorage:
        with self._lock:
            session = self._find(session_id)
            check_opening(read_only=read_only, take_over=take_over)
            if not read_only:
                if not take_over:
                    self._check_free(session_id, session)
                session.epoch += 1
                session.owner = Owner(os.getpid(), socket.gethostname(), int(time.time() * 1000))
            handle = TallyStorage(session_id, session, read_only=read_only)
            self._handles.append(handle)
            return handle

    def delete(self, session_id: str) -> None:
        with self._lock:
            self._check_free(session_id, self._find(session_id))
            del self._sessions[session_id]

    def load(self, session_id: str, items: Iterable[SnapshotItem]) -> None:
        with self._lock:
            self._check_open()
            self._add(session_id, restore(items))

    def verify(self) -> VerifyReport:
        """Decode everything; dictionaries have no bytes that could rot."""
        with self._lock:
            self._check_open()
            ledgers = [session.ledger for session in self._sessions.values()]
            return VerifyReport(sum(len(list(snapshot(ledger))) for ledger in ledgers))

    def vacuum(self) -> VacuumReport:
        """Do nothing: what nobody can read any more stays until the store is closed."""
        with self._lock:
            self._check_open()
            return VacuumReport(0, 0, 0)

    def backup(self, path: str) -> None:
        self._check_open()
        check_path(path)
        raise UnsupportedError("DUR-7", path, "a backup of memory; load an export elsewhere")

    def close(self) -> None:
        with self._lock:
            for handle in self._handles:
                handle.close()
            self._closed = True

    def _add(self, session_id: str, ledger: Ledger) -> None:
        self._check_open()
        check_name(session_id, "sessionId")
        if session_id in self._sessions:
            raise SessionExistsError("OWN-6", "sessionId", f"{session_id!r:.80} exists already")
        self._sessions[session_id] = Session(ledger)

    def _find(self, session_id: str) -> Session:
        self._check_open()
        if session_id not in self._sessions:
            raise UnknownSessionError("OWN-6", "sessionId", f"no session {session_id!r:.80}")
        return self._sessions[session_id]

    def _check_free(self, session_id: str, session: Session) -> None:
        owner = session.owner
        if owner is not None:
            who = f"process {owner.pid} on {owner.host} since {owner.since_ms}"
            raise SessionOwnedError(f"session {session_id!r:.80} is held by {who}")

    def _check_open(self) -> None:
        if self._closed:
            raise StorageClosedError("the store was closed; open it again")


def open_tally(path: str, options: Mapping[str, str], create: bool) -> TallyStore:  # noqa: FBT001
    """Open a store; there is nothing at a path, and nothing to be chosen."""
    return TallyStore()


backend = Backend(
    name="tally",
    scheme="tally",
    promises=Promises(durability=(), many_sessions=True, multi_process=False),
    options={},
    open=open_tally,
)
