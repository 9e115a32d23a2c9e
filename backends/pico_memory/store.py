"""The sessions that one process keeps in memory."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from threading import Lock
from weakref import WeakKeyDictionary, ref

from pico_memory.load import load
from pico_memory.resident import Resident
from pico_memory.snapshot import snapshot
from pico_memory.state import SessionState
from pico_memory.storage import MemoryStorage, Session
from pico_memory.weight import weigh
from pico_store.backends import Backend, Promises
from pico_store.errors import (
    SessionExistsError,
    SessionOwnedError,
    StorageClosedError,
    StoreUnusableError,
    StoreUrlError,
    UnknownSessionError,
    UnsupportedError,
)
from pico_store.names import check_name, check_path
from pico_store.owning import check_opening, owned_problem
from pico_store.snapshot import SnapshotItem
from pico_store.snapshot_check import check_snapshot
from pico_store.storage import Owner, SessionInfo, VacuumReport, VerifyReport


class MemoryStore:
    """A `Store` that lives as long as it is open.

    Args:
        now_ms: The time in Unix milliseconds, for the owner's record.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        # Taken before a session's own lock, never while that one is held.
        self._lock = Lock()
        self._sessions: dict[str, Session] = {}
        self._handles: WeakKeyDictionary[MemoryStorage, Session] = WeakKeyDictionary()
        """Open handles."""
        self._closed = False

    @property
    def url(self) -> str:
        return "memory:"

    def sessions(self) -> list[SessionInfo]:
        with self._lock:
            self._check_open()
            found = sorted(self._sessions.items())
            return [_session_info(session) for _, session in found]

    def create(self, session_id: str) -> MemoryStorage:
        with self._lock:
            self._check_open()
            check_name(session_id, "sessionId")
            self._check_free(session_id)
            session = Session(session_id, Resident(SessionState()))
            handle = self._own(session)
            self._sessions[session_id] = session
            return handle

    def open(
        self, session_id: str, *, read_only: bool = False, take_over: bool = False
    ) -> MemoryStorage:
        with self._lock:
            self._check_open()
            check_opening(read_only=read_only, take_over=take_over)
            check_name(session_id, "sessionId")
            session = self._find(session_id)
            if read_only:
                handle = MemoryStorage(session, self._release, read_only=True)
                self._handles[handle] = session
                return handle
            if not take_over:
                self._check_unowned(session)
            return self._own(session)

    def delete(self, session_id: str) -> None:
        with self._lock:
            self._check_open()
            check_name(session_id, "sessionId")
            self._check_unowned(self._find(session_id))
            del self._sessions[session_id]

    def load(self, session_id: str, items: Iterable[SnapshotItem]) -> None:
        with self._lock:
            self._check_open()
            check_name(session_id, "sessionId")
            self._check_free(session_id)
        # The items may come from a session of this very store, so nothing is held meanwhile.
        session = Session(session_id, Resident(load(check_snapshot(items))))
        with self._lock:
            self._check_open()
            self._check_free(session_id)
            self._sessions[session_id] = session

    def verify(self) -> VerifyReport:
        """Decode every payload; memory has no stored bytes that could have changed."""
        with self._lock:
            self._check_open()
            residents = [session.resident for session in self._sessions.values()]
        return VerifyReport(sum(_decode_all(resident) for resident in residents))

    def vacuum(self) -> VacuumReport:
        """Drop what deleted conversations held and no live one inherits."""
        with self._lock:
            self._check_open()
            residents = [session.resident for session in self._sessions.values()]
        before = after = dropped = 0
        for resident in residents:
            with resident.lock:
                old = resident.settled()
                new = load(snapshot(old).items())
                resident.replace(new)
            records, held = weigh(old)
            records_left, held_left = weigh(new)
            before += held
            after += held_left
            dropped += records - records_left
        return VacuumReport(before, after, dropped)

    def backup(self, path: str) -> None:
        self._check_open()
        check_path(path)
        problem = "a backup of memory; copy its sessions into a store on disk"
        raise UnsupportedError("DUR-7", path, problem)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            handles = list(self._handles)
        for handle in handles:
            handle.close()
        with self._lock:
            self._sessions.clear()

    def _own(self, session: Session) -> MemoryStorage:
        """Open a session for writing; whoever had it before is fenced from here on."""
        owner = Owner(os.getpid(), socket.gethostname(), self._now_ms())
        with session.resident.lock:
            session.epoch += 1
            session.owner = owner
            handle = MemoryStorage(session, self._release, read_only=False)
            session.holder = ref(handle)
        self._handles[handle] = session
        return handle

    def _release(self, handle: MemoryStorage) -> None:
        with self._lock:
            session = self._handles.pop(handle, None)
            if session is not None and handle.owns(session):
                session.owner = None

    def _check_open(self) -> None:
        if self._closed:
            raise StorageClosedError("the store was closed, and its sessions went with it")

    def _check_free(self, session_id: str) -> None:
        if session_id in self._sessions:
            problem = f"session {session_id!r:.60} exists; open it, or choose another id"
            raise SessionExistsError("OWN-6", "sessionId", problem)

    def _find(self, session_id: str) -> Session:
        session = self._sessions.get(session_id)
        if session is None:
            problem = f"no session {session_id!r:.60}; create it, or choose another id"
            raise UnknownSessionError("OWN-6", "sessionId", problem)
        return session

    def _check_unowned(self, session: Session) -> None:
        owner = session.live_owner()
        if owner is not None:
            raise SessionOwnedError(owned_problem(session.id, owner))


def _session_info(session: Session) -> SessionInfo:
    with session.resident.lock:
        last_seq = session.resident.settled().last_seq
        return SessionInfo(session.id, last_seq, session.epoch, session.live_owner())


def _decode_all(resident: Resident) -> int:
    with resident.lock:
        found = snapshot(resident.settled())
    return sum(1 for _ in found.items())


def _open(path: str, options: Mapping[str, str], create: bool) -> MemoryStore:  # noqa: FBT001 - Backend.open
    if path:
        problem = f"path {path!r:.60}; allowed: memory: alone, which is a new store each time"
        raise StoreUrlError("URL-1", f"memory:{path}", problem)
    if not create:
        problem = "memory: never names a store that exists; leave create out"
        raise StoreUnusableError(problem)
    return MemoryStore(lambda: time.time_ns() // 1_000_000)


backend = Backend(
    name="memory",
    scheme="memory",
    promises=Promises(durability=(), many_sessions=True, multi_process=False),
    options={},
    open=_open,
)
