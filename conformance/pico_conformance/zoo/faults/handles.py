"""Faults in handles and stores: owners, epochs, closing and the list of sessions."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace

from pico_conformance.zoo.mutant import plant
from pico_conformance.zoo.wrapper import Faulty, FaultyStore
from pico_memory import MemoryStore
from pico_memory.storage import MemoryStorage, Session
from pico_store.address import Seq
from pico_store.batch import Batch
from pico_store.errors import (
    OwnershipLostError,
    SessionExistsError,
    SessionOwnedError,
    StorageClosedError,
    UnknownSessionError,
    UnsupportedError,
)
from pico_store.records import BatchRange, Entry
from pico_store.storage import SessionInfo, Storage, Store, VerifyReport


@plant("OWN-1")
class SecondOwner(FaultyStore):
    """A session that somebody holds is opened for writing all the same."""

    def open(self, session_id: str, *, read_only: bool = False, take_over: bool = False) -> Storage:
        return self.store.open(session_id, read_only=read_only, take_over=not read_only)


@plant("OWN-1", "OWN-6")
class OwnedDeleted(FaultyStore):
    """A session that somebody holds can be deleted."""

    def delete(self, session_id: str) -> None:
        if any(info.id == session_id and info.owner is not None for info in self.store.sessions()):
            self.store.open(session_id, take_over=True).close()
        self.store.delete(session_id)


@plant("OWN-1", "OWN-4")
class ClosedStillOwns(FaultyStore):
    """A session stays owned after its handle was closed."""

    def __init__(self, store: Store, fault: type[Faulty] | None = None) -> None:
        super().__init__(store, fault)
        self._held: set[str] = set()

    def open(self, session_id: str, *, read_only: bool = False, take_over: bool = False) -> Storage:
        storage = self.store.open(session_id, read_only=read_only, take_over=take_over)
        if not read_only and not take_over and session_id in self._held:
            storage.close()
            raise SessionOwnedError(f"session {session_id!r:.60} is owned by process {os.getpid()}")
        self._held.add(session_id)
        return storage


@plant("OWN-5")
class FenceIgnored(Faulty):
    """A handle whose session was taken over goes on committing."""

    def commit(self, batch: Batch, *, expected_first: Seq | None = None) -> BatchRange:
        try:
            return self.storage.commit(batch, expected_first=expected_first)
        except OwnershipLostError:
            assert isinstance(self.storage, MemoryStorage)
            self.storage._epoch = self.storage._session.epoch
            return self.storage.commit(batch, expected_first=expected_first)


@plant("OWN-5")
class FencedCannotRead(Faulty):
    """A handle whose session was taken over cannot read any more."""

    def get_entries(self, ids: Iterable[Seq]) -> dict[Seq, Entry]:
        found = self.storage.get_entries(ids)
        assert isinstance(self.storage, MemoryStorage)
        if not self.storage.read_only and self.storage._session.epoch != self.storage.epoch:
            raise OwnershipLostError("another open took the session over; reopen it")
        return found


@plant("OWN-5", "OWN-2")
class ReadOnlyTakesOver(FaultyStore):
    """A session can be opened to read and taken over at once; what is meant by it stays open."""

    def open(self, session_id: str, *, read_only: bool = False, take_over: bool = False) -> Storage:
        take_over = take_over and not read_only
        return self.wrapped(self.store.open(session_id, read_only=read_only, take_over=take_over))


@plant("OWN-5", "OWN-1")
class FencedGivesBack(Faulty):
    """Closing a handle gives the session back, even if another took it over."""

    def close(self) -> None:
        self.storage.close()
        assert isinstance(self.storage, MemoryStorage)
        if not self.storage._read_only:
            self.storage._session.owner = None


@plant("OWN-2")
class EpochStays(Faulty):
    """A handle's epoch is 1, however often the session was opened."""

    @property
    def epoch(self) -> int:
        return min(self.storage.epoch, 1)


@plant("OWN-2", "OWN-1")
class ReaderOwns(FaultyStore):
    """A read-only open takes the session from its owner."""

    def open(self, session_id: str, *, read_only: bool = False, take_over: bool = False) -> Storage:
        if read_only:
            self.store.open(session_id, take_over=True).close()
        return self.store.open(session_id, read_only=read_only, take_over=take_over)


@plant("OWN-2")
class ReaderBlocked(FaultyStore):
    """A session that somebody holds cannot be opened read-only."""

    def open(self, session_id: str, *, read_only: bool = False, take_over: bool = False) -> Storage:
        if read_only:
            owner = next((i.owner for i in self.store.sessions() if i.id == session_id), None)
            if owner is not None:
                raise SessionOwnedError(f"session {session_id!r:.60} is owned by {owner.pid}")
        return self.store.open(session_id, read_only=read_only, take_over=take_over)


@plant("OWN-2")
class ReaderCommits(Faulty):
    """A commit of a read-only handle is swallowed."""

    def commit(self, batch: Batch, *, expected_first: Seq | None = None) -> BatchRange:
        try:
            return self.storage.commit(batch, expected_first=expected_first)
        except UnsupportedError:
            last = self.storage.last_seq
            return BatchRange(Seq(last + 1), Seq(last + len(batch.writes)))


@plant("OWN-4")
class CloseNotFinal(Faulty):
    """A closed handle still answers reads."""

    def close(self) -> None:
        assert isinstance(self.storage, MemoryStorage)
        self.storage._release(self.storage)


@plant("OWN-4")
class SecondCloseRaises(Faulty):
    """Closing a handle a second time is refused."""

    closed = False

    def close(self) -> None:
        if self.closed:
            raise StorageClosedError("the session was closed; open it again")
        self.closed = True
        self.storage.close()


@plant("OWN-4")
class StoreLeavesHandles(FaultyStore):
    """Handles go on after their store was closed."""

    def close(self) -> None:
        """Leave everything as it is."""


@plant("OWN-6")
class SessionsAsCreated(FaultyStore):
    """Sessions are listed in the order of their creation."""

    def sessions(self) -> list[SessionInfo]:
        found = {info.id: info for info in self.store.sessions()}
        assert isinstance(self.store, MemoryStore)
        return [found[id] for id in self.store._sessions]


@plant("OWN-6", "OWN-1")
class SessionsWithoutOwner(FaultyStore):
    """The list of sessions does not say who owns them."""

    def sessions(self) -> list[SessionInfo]:
        return [replace(info, owner=None) for info in self.store.sessions()]


@plant("OWN-6", "DUR-3")
class SessionsWithoutCase(FaultyStore):
    """Session ids that differ in case alone name one session."""

    def create(self, session_id: str) -> Storage:
        return self.store.create(_lower(session_id))

    def open(self, session_id: str, *, read_only: bool = False, take_over: bool = False) -> Storage:
        return self.store.open(_lower(session_id), read_only=read_only, take_over=take_over)


@plant("OWN-6")
class DeletedSessionReturns(FaultyStore):
    """A session created under the id of a deleted one has its content."""

    def delete(self, session_id: str) -> None:
        assert isinstance(self.store, MemoryStore)
        session = self.store._sessions.get(session_id)
        self.store.delete(session_id)
        if session is not None:
            self._attic[session_id] = session

    def __init__(self, store: Store, fault: type[Faulty] | None = None) -> None:
        super().__init__(store, fault)
        self._attic: dict[str, Session] = {}

    def create(self, session_id: str) -> Storage:
        storage = self.store.create(session_id)
        assert isinstance(self.store, MemoryStore)
        if session_id not in self._attic:
            return storage
        storage.close()
        self.store._sessions[session_id] = self._attic.pop(session_id)
        return self.store.open(session_id)


@plant("OWN-6", "DUR-3")
class CreateOpens(FaultyStore):
    """Creating a session that exists opens it."""

    def create(self, session_id: str) -> Storage:
        try:
            return self.store.create(session_id)
        except SessionExistsError:
            return self.store.open(session_id, take_over=True)


@plant("OWN-6")
class OpenCreates(FaultyStore):
    """Opening a session that does not exist creates it."""

    def open(self, session_id: str, *, read_only: bool = False, take_over: bool = False) -> Storage:
        try:
            return self.store.open(session_id, read_only=read_only, take_over=take_over)
        except UnknownSessionError:
            return self.store.create(session_id)


@plant("DUR-6")
class VerifyLooksAtNothing(FaultyStore):
    """Verify reads nothing and finds nothing wrong."""

    def verify(self) -> VerifyReport:
        self.store.verify()
        return VerifyReport(0)


@plant("DUR-7")
class BackupOfNothing(FaultyStore):
    """A backup that cannot be made is passed over in silence."""

    def backup(self, path: str) -> None:
        try:
            self.store.backup(path)
        except UnsupportedError:
            return


def _lower(session_id: str) -> str:
    return session_id.lower() if type(session_id) is str else session_id
