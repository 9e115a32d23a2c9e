"""Faults in what lasts: files, checksums, and owners in other processes; planted into SQLite."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import cast

from pico_conformance.zoo.mutant import plant
from pico_conformance.zoo.wrapper import EntriesShown, Faulty, FaultyStore
from pico_store.address import Seq
from pico_store.batch import Batch
from pico_store.errors import (
    CommitUncertainError,
    NotAStoreError,
    RetryableError,
    SessionOwnedError,
    StorageFaultedError,
    StoreDamagedError,
)
from pico_store.records import BatchRange, Entry
from pico_store.storage import Storage, Store, VerifyReport

# --- What survives ---


@plant("DUR-1", base="sqlite")
class LastEntryLost(EntriesShown):
    """The entry of the last commit before a session is closed is not there when it is opened."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage)
        self._lost = 0 if storage.read_only else storage.last_seq

    def shown(self, conversation: Seq, items: list[Entry]) -> list[Entry]:
        return [item for item in items if item.id != self._lost]


@plant("DUR-1", base="sqlite")
class LogThrownAway(FaultyStore):
    """What a process that died left in SQLite's log is thrown away by the next."""

    @classmethod
    def open_at(cls, open_store: Callable[[str], Store], path: str) -> Store:
        for name in (f"{path}-wal", f"{path}-shm"):
            Path(name).unlink(missing_ok=True)
        return open_store(path)


@plant("DUR-1", "SEQ-5", base="sqlite")
class ReopenedOneBack(Faulty):
    """After reopening, a session's last number is one less than it was."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage)
        self._opened = storage.last_seq if storage.epoch > 1 else 0

    @property
    def last_seq(self) -> Seq:
        last = self.storage.last_seq
        return Seq(last - 1) if last and last == self._opened else last


@plant("OWN-3", "DUR-5", base="sqlite")
class FailureSwallowed(Faulty):
    """A commit that failed on a full disk is acknowledged."""

    def commit(self, batch: Batch, *, expected_first: Seq | None = None) -> BatchRange:
        first = Seq(self.storage.last_seq + 1)
        try:
            return self.storage.commit(batch, expected_first=expected_first)
        except (CommitUncertainError, RetryableError):
            return BatchRange(first, Seq(first + len(batch.writes) - 1))


class _Reopening(Faulty):
    reopen: Callable[[], Storage]

    @property
    def last_seq(self) -> Seq:
        try:
            return self.storage.last_seq
        except StorageFaultedError:
            self.storage = self.reopen()
            return self.storage.last_seq


@plant("OWN-3", base="sqlite")
class FaultForgotten(FaultyStore):
    """A handle goes on after a commit that ended uncertain."""

    def wrapped(self, storage: Storage) -> Storage:
        fault = _Reopening(storage)
        fault.reopen = partial(self.store.open, storage.session_id, take_over=True)
        return cast(Storage, fault)


# --- Files ---


@plant("DUR-2", base="sqlite")
class FileForAll(FaultyStore):
    """The store's file gets the mode that the umask leaves."""

    @classmethod
    def open_at(cls, open_store: Callable[[str], Store], path: str) -> Store:
        store = open_store(path)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(path, 0o666 & ~mask)
        return store


@plant("DUR-2", base="sqlite")
class LogForAll(FaultyStore):
    """SQLite's log beside the store can be read by everybody."""

    def create(self, session_id: str) -> Storage:
        storage = self.store.create(session_id)
        path = self.store.url.partition(":")[2].partition("?")[0]
        for name in (f"{path}-wal", f"{path}-shm"):
            if os.path.exists(name):
                os.chmod(name, 0o644)
        return storage


@plant("DUR-4", base="sqlite")
class ForeignFileReplaced(FaultyStore):
    """A file that is no store is replaced by an empty one."""

    @classmethod
    def open_at(cls, open_store: Callable[[str], Store], path: str) -> Store:
        try:
            return open_store(path)
        except NotAStoreError:
            Path(path).unlink()
            return open_store(path)


@plant("DUR-3", "OWN-6", base="sqlite")
class IdsEndAtNul(FaultyStore):
    """A session's id ends before its first NUL, as where a file is named by it."""

    def create(self, session_id: str) -> Storage:
        return self.store.create(_before_nul(session_id))

    def open(self, session_id: str, *, read_only: bool = False, take_over: bool = False) -> Storage:
        name = _before_nul(session_id)
        return self.store.open(name, read_only=read_only, take_over=take_over)


# --- Checksums, verify, backup ---


class _Equal:
    """Equal to everything."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return True


@plant("DUR-8", base="sqlite")
class ChecksumNotCompared(Faulty):
    """A damaged entry is returned as it is read."""

    def get_entries(self, ids: Iterable[Seq]) -> dict[Seq, Entry]:
        reads = sys.modules["pico_sqlite.record_reads"]
        right = reads.checksum
        reads.checksum = lambda columns, body: _Equal()  # type: ignore[attr-defined]
        try:
            return self.storage.get_entries(ids)
        finally:
            reads.checksum = right  # type: ignore[attr-defined]


@plant("DUR-8", base="sqlite")
class DamageSkipped(Faulty):
    """A damaged entry is left out, as if it had never been written."""

    def get_entries(self, ids: Iterable[Seq]) -> dict[Seq, Entry]:
        try:
            return self.storage.get_entries(ids)
        except StoreDamagedError:
            return {}


@plant("DUR-6", "DUR-8", base="sqlite")
class VerifyAlwaysContent(FaultyStore):
    """Verify finds nothing wrong, whatever it meets."""

    def verify(self) -> VerifyReport:
        return VerifyReport(self.store.verify().records or 1)


@plant("DUR-7", base="sqlite")
class BackupReplaces(FaultyStore):
    """A backup over a file that exists replaces it."""

    def backup(self, path: str) -> None:
        Path(path).unlink(missing_ok=True)
        self.store.backup(path)


@plant("DUR-7", base="sqlite")
class BackupWithoutLog(FaultyStore):
    """A backup copies the store's file, but not what is only in its log yet."""

    def backup(self, path: str) -> None:
        self.store.backup(path)
        shutil.copyfile(self.store.url.partition(":")[2].partition("?")[0], path)


# --- Owners in other processes ---


@plant("OWN-1", base="sqlite")
class OtherProcessOvercome(FaultyStore):
    """A session that another process holds is opened for writing all the same."""

    def open(self, session_id: str, *, read_only: bool = False, take_over: bool = False) -> Storage:
        held = [i.owner for i in self.store.sessions() if i.id == session_id and i.owner]
        other = any(owner.pid != os.getpid() for owner in held)
        return self.store.open(
            session_id, read_only=read_only, take_over=take_over or (other and not read_only)
        )


@plant("OWN-1", base="sqlite")
class DeadOwnerStays(FaultyStore):
    """A session whose owner died stays owned."""

    def open(self, session_id: str, *, read_only: bool = False, take_over: bool = False) -> Storage:
        held = [i.owner for i in self.store.sessions() if i.id == session_id and i.owner]
        if held and not read_only and not take_over:
            raise SessionOwnedError(f"owned by process {held[0].pid} on {held[0].host}")
        return self.store.open(session_id, read_only=read_only, take_over=take_over)


@plant("OWN-2", base="sqlite")
class EpochOfHandle(Faulty):
    """Epochs are counted from the first time that a process opened the session."""

    @property
    def epoch(self) -> int:
        return 1 if self.storage.epoch < 3 else self.storage.epoch


@plant("OWN-2", "OWN-1", base="sqlite")
class ReaderTakesFile(FaultyStore):
    """A read-only open leaves its reader on record as the owner."""

    def open(self, session_id: str, *, read_only: bool = False, take_over: bool = False) -> Storage:
        if not read_only:
            return self.store.open(session_id, take_over=take_over)
        return self.store.open(session_id, take_over=True)


def _before_nul(session_id: str) -> str:
    return session_id.partition("\0")[0] if type(session_id) is str else session_id
