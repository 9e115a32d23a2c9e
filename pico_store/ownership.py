"""Who holds a session: an identity that dies with its process, so that nobody cleans up."""

from __future__ import annotations

import os
import secrets
import socket
import time
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct

from pico_store.storage import Owner

# The tokens of this process's open handles. A record with our pid but another token was left by a
# handle that is gone.
_open_tokens: set[str] = set()


class OwnerRecord(Struct, frozen=True):
    """An owner as it is stored, in JSON."""

    token: str
    pid: int
    started: int
    """The process's start in clock ticks since boot, so that a reused pid is told apart; 0 where
    the system does not tell."""
    host: str
    boot: str
    """The system's boot and process-id namespace; "" where the system does not tell."""
    since_ms: int

    def public(self) -> Owner:
        """Return what callers are told."""
        return Owner(self.pid, self.host, self.since_ms, ended=has_ended(self))

    def encode(self) -> str:
        """Return the stored text."""
        return msgspec.json.encode(self).decode()


def decode_owner(text: str | bytes | None) -> OwnerRecord | None:
    """Return the stored owner, if any; a record that cannot be read is nobody's.

    Whoever it was is fenced by the epoch, as after any other take-over.
    """
    try:
        return None if text is None else msgspec.json.decode(text, type=OwnerRecord)
    except msgspec.DecodeError:
        return None


def new_owner() -> OwnerRecord:
    """Return a record of this process that is alive until `forget_owner`."""
    pid = os.getpid()
    owner = OwnerRecord(
        token=secrets.token_hex(8),
        pid=pid,
        started=_started(pid),
        host=socket.gethostname(),
        boot=_boot(),
        since_ms=time.time_ns() // 1_000_000,
    )
    _open_tokens.add(owner.token)
    return owner


def forget_owner(owner: OwnerRecord) -> None:
    """Declare the record dead."""
    _open_tokens.discard(owner.token)


def is_alive(owner: OwnerRecord) -> bool:
    """Tell whether the owner may still be at work.

    A process of this boot and namespace is alive if its pid exists with the same start. Where that
    cannot be seen, as on another host, it counts as alive.
    """
    if owner.boot != _boot() or owner.host != socket.gethostname():
        # An earlier boot of this host has ended; another host cannot be asked.
        earlier_boot = owner.host == socket.gethostname() and owner.boot and _boot()
        return not (earlier_boot and owner.boot.split("/")[0] != _boot().split("/")[0])
    if owner.pid == os.getpid() and owner.started == _started(owner.pid):
        return owner.token in _open_tokens
    try:
        os.kill(owner.pid, 0)
    except (ProcessLookupError, OverflowError):
        # No process has a number beyond the system's; a damaged record may.
        return False
    except PermissionError:
        pass
    return owner.started == _started(owner.pid)


def has_ended(owner: OwnerRecord) -> bool:
    """Tell whether the owner's process is known to have ended.

    Known is less than `is_alive` may take for granted: only of a process of this boot, of this
    process-id namespace and of another number than this one's. A machine of the same name that was
    started at another time may be another machine.
    """
    here = bool(owner.boot) and owner.boot == _boot() and owner.host == socket.gethostname()
    return here and owner.pid != os.getpid() and not is_alive(owner)


def _started(pid: int) -> int:
    try:
        # Bytes, because the name in it is any bytes: the system cuts a long one off anywhere.
        found = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0
    fields = found.rpartition(b")")[2].split()
    # A zombie has ended, though its pid is not free yet.
    return -1 if fields[0] in (b"Z", b"X") else int(fields[19])


@cache
def _boot() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""
