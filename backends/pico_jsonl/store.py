"""A JSONL store: a folder with a folder for each session, shared by processes."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from pico_jsonl.control import EPOCH, read_control
from pico_jsonl.disk import Disk, translated
from pico_jsonl.folder import (
    all_sessions,
    find_session,
    make_session,
    prepare_folder,
    remove_session,
    session_place,
    sweep,
)
from pico_jsonl.keeping import backup_store, vacuum_free, vacuum_owned
from pico_jsonl.opening import Place, load_for_reader
from pico_jsonl.owner import find_claims
from pico_jsonl.salvage import salvage_store
from pico_jsonl.session import (
    Session,
    check_in_place,
    open_control,
    open_session,
    owned_error,
)
from pico_jsonl.snapshot_lines import SnapshotWriter
from pico_jsonl.storage import JsonlStorage
from pico_jsonl.tail import last_number
from pico_jsonl.verify import verify_store
from pico_memory.load import load
from pico_memory.resident import Resident
from pico_store.errors import (
    OwnershipLostError,
    SessionExistsError,
    SessionOwnedError,
    StorageClosedError,
    UnknownSessionError,
)
from pico_store.names import check_name, check_outside, check_path
from pico_store.owning import check_opening
from pico_store.salvage import Readable
from pico_store.snapshot import SnapshotItem
from pico_store.snapshot_check import check_snapshot
from pico_store.storage import Durability, OpenReport, SessionInfo, VacuumReport, VerifyReport


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class JsonlStore:
    """A `Store` in a folder.

    Guarantees:
        Any number of threads and processes may use one folder. A session's files are written by
        its owner alone.
    """

    def __init__(
        self,
        path: str,
        *,
        create: bool = True,
        durability: Durability = "ordered",
        disk: Disk | None = None,
        now_ms: Callable[[], int] = _now_ms,
    ) -> None:
        """Open the store at a path, or make one there.

        Args:
            path: A folder.
            create: Whether to make a store where there is nothing or an empty folder.
            durability: What a commit survives.
            disk: The calls that write; a test passes others.
            now_ms: Unix time in milliseconds, for owners' records.
        """
        prepare_folder(path, create=create)
        self._path = path
        self._durability: Durability = durability
        self._disk = Disk() if disk is None else disk
        self._now_ms = now_ms
        self._closed = ""
        self._lock = threading.Lock()
        self._sessions: weakref.WeakValueDictionary[str, Session] = weakref.WeakValueDictionary()
        """Those that handles of this store have open for writing."""
        self._handles: weakref.WeakSet[JsonlStorage] = weakref.WeakSet()
        _stores.add(self)

    @property
    def url(self) -> str:
        options = f"?durability={self._durability}" if self._durability != "ordered" else ""
        return f"jsonl:{self._path}{options}"

    def sessions(self) -> list[SessionInfo]:
        self._check_open()
        with translated(self._path, "list"):
            return [_session_info(place) for place in all_sessions(self._path)]

    def create(self, session_id: str) -> JsonlStorage:
        self._check_open()
        check_name(session_id, "sessionId")
        self._check_free(session_id)
        place = self._make(session_id, None)
        with translated(place.folder, "open"):
            return self._open_writing(place, take_over=False)

    def open(
        self, session_id: str, *, read_only: bool = False, take_over: bool = False
    ) -> JsonlStorage:
        self._check_open()
        check_opening(read_only=read_only, take_over=take_over)
        check_name(session_id, "sessionId")
        place = find_session(self._path, session_id)
        with translated(place.folder, "open"):
            if read_only:
                return self._open_reading(place)
            return self._open_writing(place, take_over=take_over)

    def delete(self, session_id: str) -> None:
        self._check_open()
        check_name(session_id, "sessionId")
        place = find_session(self._path, session_id)
        control = open_control(place)
        try:
            control.acquire()
            check_in_place(place, control)
            with translated(place.folder, "delete"):
                for claim in find_claims(place.folder):
                    if claim.live:
                        raise owned_error(place, claim)
                remove_session(self._path, place)
                sweep(self._path)
        finally:
            control.close()

    def load(self, session_id: str, items: Iterable[SnapshotItem]) -> None:
        self._check_open()
        check_name(session_id, "sessionId")
        self._check_free(session_id)
        self._make(session_id, partial(_write_checked, check_snapshot(items)))

    def verify(self) -> VerifyReport:
        self._check_open()
        with translated(self._path, "verify"):
            return verify_store(self._path)

    def salvage(self) -> Iterator[Readable]:
        """Yield what is whole of each session; of a damaged log, what precedes its bad line."""
        self._check_open()
        return salvage_store(self._path)

    def vacuum(self) -> VacuumReport:
        """Write each session's log anew, without what nothing shows any more.

        A session that another process or store has open for writing is left as it is.
        """
        self._check_open()
        before = after = dropped = 0
        with translated(self._path, "vacuum"):
            places = all_sessions(self._path)
            sweep(self._path)
        for place in places:
            try:
                report = self._vacuum(place, self._sessions.get(place.session))
            except (SessionOwnedError, OwnershipLostError, UnknownSessionError):
                continue
            before += report.bytes_before
            after += report.bytes_after
            dropped += report.records_dropped
        return VacuumReport(before, after, dropped)

    def backup(self, path: str) -> None:
        self._check_open()
        check_path(path)
        check_outside(path, self._path)
        backup_store(path, self._exports(), self._disk)

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = "closed"
            handles = list(self._handles)
        for handle in handles:
            handle.close()
        _stores.discard(self)

    def refuse_after_fork(self) -> None:
        """Refuse every call in a process that inherited this store by ``fork``."""
        self._closed = "used after os.fork()"
        for session in list(self._sessions.values()):
            session.abandon()
        for handle in list(self._handles):
            handle.refuse_after_fork()

    # --- Opening ---

    def _open_writing(self, place: Place, *, take_over: bool) -> JsonlStorage:
        session = self._sessions.get(place.session)
        if take_over and session is not None and session.is_usable:
            session.pass_on(self._now_ms())
        else:
            session = open_session(
                place, self._now_ms(), self._durability, self._disk, take_over=take_over
            )
            self._sessions[place.session] = session
        return self._handle(place, session.resident, session.epoch, session, session.report)

    def _open_reading(self, place: Place) -> JsonlStorage:
        session = self._sessions.get(place.session)
        if session is not None and session.is_usable:
            return self._handle(place, session.resident, session.epoch, None, OpenReport())
        epoch = read_control(place.control)[EPOCH]
        loaded = load_for_reader(place, self._durability)
        return self._handle(place, Resident(loaded.state), epoch, None, loaded.report())

    def _handle(
        self,
        place: Place,
        resident: Resident,
        epoch: int,
        session: Session | None,
        report: OpenReport,
    ) -> JsonlStorage:
        handle = JsonlStorage(
            place.session,
            resident,
            epoch=epoch,
            session=session,
            waits=session is not None and self._durability == "power",
            report=report,
            # Bound to this store: whoever keeps the handle alone keeps what a forked child finds
            # the handle by.
            release=self._forget_handle,
        )
        with self._lock:
            self._handles.add(handle)
            closed = self._closed
        if closed:
            handle.close()
            self._check_open()
        return handle

    def _forget_handle(self, handle: JsonlStorage) -> None:
        self._handles.discard(handle)

    # --- Making, keeping ---

    def _make(
        self, session_id: str, fill: Callable[[Callable[[bytes], object], int], object] | None
    ) -> Place:
        return make_session(
            self._path,
            session_id,
            epoch=0,
            fill=fill,
            disk=self._disk,
            sync=self._durability != "process",
        )

    def _vacuum(self, place: Place, session: Session | None) -> VacuumReport:
        if session is not None and session.is_usable:
            return vacuum_owned(session)
        return vacuum_free(place, self._now_ms(), self._durability, self._disk)

    def _exports(self) -> Iterator[tuple[str, int, Iterator[SnapshotItem]]]:
        for place in all_sessions(self._path):
            handle = self._open_reading(place)
            try:
                yield place.session, handle.epoch, handle.export()
            finally:
                handle.close()

    def _check_free(self, session_id: str) -> None:
        if os.path.isdir(session_place(self._path, session_id).folder):
            problem = f"session {session_id!r:.80} exists already; open it, or choose another id"
            raise SessionExistsError("OWN-6", "sessionId", problem)

    def _check_open(self) -> None:
        if self._closed:
            raise StorageClosedError(f"{self.url}: the store is {self._closed}; open it again")


def _session_info(place: Place) -> SessionInfo:
    control = read_control(place.control)
    claims = find_claims(place.folder)
    owner = claims[-1].owner if claims else None
    return SessionInfo(place.session, last_number(place, control), control[EPOCH], owner)


def _write_checked(
    items: Iterable[SnapshotItem], write: Callable[[bytes], object], crc: int
) -> None:
    """Write items as a snapshot, each after it passed the checks.

    Raises:
        RefusedError: One does not.
    """
    writer = SnapshotWriter(write, crc)

    def passing() -> Iterator[SnapshotItem]:
        for item in items:
            yield item
            # Whoever takes the items comes back for more once this one is right.
            writer.add(item)

    load(passing(), keep=_forget)
    writer.finish()


def _forget(packed: bytes) -> bytes:
    return b""


_stores: weakref.WeakSet[JsonlStore] = weakref.WeakSet()


def _refuse_all_after_fork() -> None:
    for store in list(_stores):
        store.refuse_after_fork()


# A forked child shares the locks of its parent, so that it must not write, nor hold them.
os.register_at_fork(after_in_child=_refuse_all_after_fork)
