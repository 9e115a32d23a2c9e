"""Who holds a session: a file that is locked as long as its handle, and so its process, lives."""

from __future__ import annotations

import fcntl
import os
import socket
from typing import Final

import msgspec
from msgspec import Struct

from pico_jsonl.disk import create_file, remove_file
from pico_store.storage import Owner

_START: Final = "owner-"


class OwnerRecord(Struct, frozen=True, rename="camel"):
    """An owner as it is stored, in JSON."""

    pid: int
    host: str
    since_ms: int


class Ownership:
    """This handle's claim on a session.

    The lock is on the open file, not on its name or a process id: it ends with the handle or the
    process, whatever that process dies of, and a reused process id means nothing.
    """

    __slots__ = ("_fd", "_path", "epoch")

    def __init__(self, folder: str, epoch: int, since_ms: int) -> None:
        """Claim the session of a folder; the caller holds its lock and found it free."""
        self.epoch = epoch
        self._fd = -1
        self._path = os.path.join(folder, f"{_START}{epoch}")
        remove_file(self._path)
        self._fd = create_file(self._path)
        try:
            # Nobody holds it for longer than a look takes.
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            record = OwnerRecord(os.getpid(), socket.gethostname(), since_ms)
            os.write(self._fd, msgspec.json.encode(record) + b"\n")
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Give the session back; a second time does nothing."""
        if self._fd >= 0:
            remove_file(self._path)
            self.forget()

    def forget(self) -> None:
        """Close the claim's file here; the claim goes on where it is open too, as after a fork."""
        # Forgotten before it is closed, so that an interrupt cannot have it closed twice.
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        # A handle that nobody closed must not hold its session for as long as the process lives.
        self.release()


class Claim(Struct, frozen=True):
    """A claim that was found in a folder."""

    epoch: int
    owner: Owner
    path: str
    live: bool
    """Whether its process holds it still."""

    @property
    def is_inherited(self) -> bool:
        """Whether its process has ended while something else holds it.

        Only a child that was forked beneath Python keeps it so. It is for messages alone: who
        cannot see a process of another namespace must not take it for ended.
        """
        if not self.live or self.owner.pid <= 0 or self.owner.host != socket.gethostname():
            return False
        try:
            os.kill(self.owner.pid, 0)
        except (ProcessLookupError, OverflowError):
            return True
        except PermissionError:
            pass
        return False

    def is_live(self) -> bool:
        """Look again whether its process holds it."""
        found = _read_claim(self.path, self.epoch)
        return found is not None and found.live


def find_claims(folder: str) -> list[Claim]:
    """Return the claims on a session, dead ones included, by epoch."""
    found = []
    for name in os.listdir(folder):
        start, epoch = name[: len(_START)], name[len(_START) :]
        if start == _START and epoch.isdigit():
            path = os.path.join(folder, name)
            claim = _read_claim(path, int(epoch))
            if claim is not None:
                found.append(claim)
    return sorted(found, key=lambda claim: claim.epoch)


def _read_claim(path: str, epoch: int) -> Claim | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        try:
            # Shared, so that two who look do not take one another for the owner.
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            live = False
        except BlockingIOError:
            live = True
        text = os.read(fd, 4096)
    finally:
        os.close(fd)
    try:
        record = msgspec.json.decode(text, type=OwnerRecord)
    except (msgspec.DecodeError, msgspec.ValidationError):
        # A power cut can leave the file without its text.
        record = OwnerRecord(0, "", 0)
    # Whoever held the file has ended, or it is a handle of this very process that nobody closed.
    here = record.host == socket.gethostname() and record.pid != os.getpid()
    owner = Owner(record.pid, record.host, record.since_ms, ended=here and not live)
    return Claim(epoch, owner, path, live)
