"""A session that a store has open for writing: its claim, its files and its state."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from pico_jsonl.control import EPOCH, SYNCED, Control, busy_word
from pico_jsonl.disk import Disk, remove_file, sync_folder, translate
from pico_jsonl.opening import Cut, Loaded, Place, load_for_owner
from pico_jsonl.owner import Claim, Ownership, find_claims
from pico_jsonl.writer import Writer
from pico_memory.resident import Resident
from pico_store.errors import (
    OwnershipLostError,
    PicoError,
    SessionOwnedError,
    StoreIOError,
    UnknownSessionError,
)
from pico_store.owning import owned_problem
from pico_store.storage import Durability, OpenReport


class Session:
    """A session as its owner has it.

    Several handles of one store may share it: those whose epoch is not the session's any more are
    fenced.

    Attributes:
        lock: Held by whoever commits, or changes who may.
        epoch: That of its newest owner.
        committer: The epoch of the handle that may commit; 0: none may any more.
        syncs: Whether anything of it is made durable.
        disk: The calls that write.
    """

    def __init__(
        self,
        place: Place,
        control: Control,
        claim: Ownership,
        loaded: Loaded,
        durability: Durability,
        disk: Disk,
    ) -> None:
        self.place = place
        self.lock = Lock()
        self.epoch = self.committer = claim.epoch
        self.resident = Resident(loaded.state)
        self.report: OpenReport = loaded.report()
        self._control = control
        self._claim = claim
        self.syncs = durability != "process"
        self.disk = disk
        self._is_open = True
        self.writer = Writer(place, loaded, self.resident, control, claim.epoch, durability, disk)

    @property
    def fault(self) -> PicoError | None:
        """The uncertain commit after which nothing works, if there was one."""
        return self.writer.fault

    @property
    def lost(self) -> str:
        """How the session was taken over by another store or process, if it was."""
        return self.writer.lost

    @property
    def is_usable(self) -> bool:
        """Whether its state is that of the files, now and with what this process commits."""
        try:
            return self.committer > 0 and self._control.get(EPOCH) == self.epoch
        except ValueError:
            # Another thread closed the control file in between.
            return False

    def pass_on(self, since_ms: int) -> int:
        """Fence the handle that may commit and return the epoch of the next one.

        Raises:
            OwnershipLostError: Somebody else was quicker.
        """
        with self.lock:
            if not self.committer:
                raise OwnershipLostError(f"{self.place.folder}: given back meanwhile; open it")
            self._control.acquire()
            try:
                if self._control.get(EPOCH) != self.epoch:
                    raise OwnershipLostError(
                        f"{self.place.folder}: taken over meanwhile; reopen it"
                    )
                epoch = self.epoch + 1
                claim = Ownership(self.place.folder, epoch, since_ms)
                self._control.set(EPOCH, epoch)
                self.writer.use_epoch(epoch)
                self._claim.release()
                self._claim = claim
                self.epoch = self.committer = epoch
            finally:
                self._control.release()
        return epoch

    def abandon(self) -> None:
        """Let go of every lock in a process that inherited it by ``fork``."""
        self._is_open = False
        self.committer = 0
        self._claim.forget()
        # Its map keeps the file open as well, and a thread that this process lacks may refer to it.
        self._control.close()

    def close(self, epoch: int) -> None:
        """Give the session back for the handle with an epoch, if it is that one's to give."""
        with self.lock:
            if not self._is_open or epoch != self.epoch:
                return
            self._is_open = False
            self.committer = 0
            try:
                self.writer.close()
            finally:
                self._claim.release()
                self._control.close()


def claim_session(place: Place, control: Control, since_ms: int, *, take_over: bool) -> Ownership:
    """Claim a session for a new owner.

    A live owner is fenced at once if it is to be taken over. Otherwise nothing but the claim's
    file changes until `confirm`.

    Raises:
        SessionOwnedError: A live owner holds it.
        UnknownSessionError: It was deleted meanwhile.
    """
    control.acquire()
    try:
        check_in_place(place, control)
        claims = find_claims(place.folder)
        live = [claim for claim in claims if claim.live]
        if live and not take_over:
            raise owned_error(place, live[-1])
        newest = max([control.get(EPOCH), *(claim.epoch for claim in claims)])
        claim = Ownership(place.folder, newest + 1, since_ms)
        if live:
            try:
                control.set(EPOCH, claim.epoch)
                for old in live:
                    control.await_idle(old.epoch, old.is_live)
            except BaseException:
                claim.release()
                raise
            _remove_claims(claims)
        # An owner that was killed may have left it set; nobody who uses it is alive.
        control.words[busy_word(claim.epoch)] = 0
        return claim
    finally:
        control.release()


@contextmanager
def noticing_loss(place: Place, control: Control, claim: Ownership) -> Iterator[None]:
    """Read what a claim is for; files that somebody who took it over changes are not damaged.

    Raises:
        OwnershipLostError: Reading failed, and somebody took the session over meanwhile.
    """
    try:
        yield
    except (PicoError, OSError) as error:
        if control.get(EPOCH) > claim.epoch:
            problem = f"{place.folder}: taken over meanwhile; open it again"
            raise OwnershipLostError(problem) from error
        raise


def owned_error(place: Place, claim: Claim) -> SessionOwnedError:
    """Return the error that names a session's owner."""
    problem = owned_problem(place.session, claim.owner)
    if claim.is_inherited:
        heir = f"process {claim.owner.pid} has ended, but one that it forked holds its lock"
        problem = f"{problem}; {heir}: end that one, or take over"
    return SessionOwnedError(problem)


def check_in_place(place: Place, control: Control) -> None:
    """Refuse a session whose folder went while its control file was opened.

    Raises:
        UnknownSessionError: It was deleted.
    """
    try:
        same = os.path.samestat(os.stat(place.control), os.fstat(control.fd))
    except FileNotFoundError:
        same = False
    if not same:
        raise _deleted(place)


def _deleted(place: Place) -> UnknownSessionError:
    problem = f"session {place.session!r:.60} was deleted; create it, or choose another id"
    return UnknownSessionError("OWN-6", "sessionId", problem)


def _remove_claims(claims: list[Claim]) -> None:
    for claim in claims:
        remove_file(claim.path)


def open_session(
    place: Place, since_ms: int, durability: Durability, disk: Disk, *, take_over: bool
) -> Session:
    """Open a session for writing.

    Raises:
        SessionOwnedError: A live owner holds it.
        StoreUnusableError: It is damaged; nothing was changed.
    """
    control = open_control(place)
    claim: Ownership | None = None
    try:
        claim = claim_session(place, control, since_ms, take_over=take_over)
        with noticing_loss(place, control, claim):
            loaded = load_for_owner(place, control.numbers(), durability)
        try:
            confirm(place, control, claim, loaded, durability, disk)
        except OSError as error:
            raise translate(place.folder, "open", error) from error
        return Session(place, control, claim, loaded, durability, disk)
    except BaseException:
        if claim is not None:
            claim.release()
        control.close()
        raise


def open_control(place: Place) -> Control:
    """Open a session's control file for its owner.

    Raises:
        UnknownSessionError: The session was deleted meanwhile.
        StoreIOError: It cannot be opened.
    """
    try:
        return Control(place.control, writable=True)
    except FileNotFoundError as error:
        # It would have been made; so the folder is gone.
        raise _deleted(place) from error
    except OSError as error:
        problem = f"{place.control}: cannot be opened for writing: {error.strerror}; "
        problem += "correct that, or open the session read-only"
        raise StoreIOError(problem) from error


def confirm(
    place: Place,
    control: Control,
    claim: Ownership,
    loaded: Loaded,
    durability: Durability,
    disk: Disk,
) -> None:
    """Become the owner: raise the epoch, and mend the ends of the files.

    Raises:
        OwnershipLostError: Somebody took the session over meanwhile.
        OSError: A file cannot be mended.
    """
    control.acquire()
    try:
        check_in_place(place, control)
        if control.get(EPOCH) > claim.epoch:
            raise OwnershipLostError(f"{place.folder}: taken over meanwhile; open it again")
        control.set(EPOCH, claim.epoch)
        _remove_claims([old for old in find_claims(place.folder) if old.epoch < claim.epoch])
        for cut in loaded.cuts:
            _cut(cut, disk, sync=durability != "process")
        for path in loaded.strays:
            remove_file(path)
        if loaded.strays and durability != "process":
            # A file that comes back could be taken for that of a later task with its number.
            sync_folder(place.folder)
        if control.get(SYNCED) > loaded.main.end:
            control.set(SYNCED, loaded.main.end)
        if durability != "process" and control.get(SYNCED) < loaded.main.end:
            disk.sync(loaded.bodies.fd)
            control.set(SYNCED, loaded.main.end)
    finally:
        control.release()


def _cut(cut: Cut, disk: Disk, *, sync: bool) -> None:
    fd = os.open(cut.path, os.O_RDWR | os.O_CLOEXEC)
    try:
        disk.cut(fd, cut.end)
        if sync:
            disk.sync(fd)
    finally:
        os.close(fd)
