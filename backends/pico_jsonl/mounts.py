"""Telling whether a folder is on a network file system, where this backend must not be used."""

from __future__ import annotations

import os
from typing import Final

from pico_store.errors import StoreUnusableError

# Locks and mapped memory of two machines do not meet there, so that both could own a session.
_NETWORK: Final = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "ceph", "lustre", "glusterfs", "9p")
)
_NETWORK_FUSE: Final = frozenset(("fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs"))


def refuse_network(path: str) -> None:
    """Refuse a path on a network file system, as far as the system tells.

    Raises:
        StoreUnusableError: It is on one; the message says what to do.
    """
    try:
        with open("/proc/self/mountinfo") as file:
            mounts = file.read()
    except OSError:
        return
    kind = file_system(os.path.realpath(path), mounts)
    if kind in _NETWORK or kind in _NETWORK_FUSE:
        raise StoreUnusableError(
            f"{path}: on a network file system ({kind}), where two machines could own a session "
            "at once; put the store on a local disk"
        )


def file_system(path: str, mounts: str) -> str:
    """Return the type of the file system that a path is on.

    Args:
        path: Absolute and without links.
        mounts: The text of /proc/self/mountinfo; a later line hides an earlier one.
    """
    found, longest = "", -1
    for line in mounts.splitlines():
        fields, _, types = line.partition(" - ")
        # A blank in the name is written as an octal number.
        point = fields.split(" ")[4].encode().decode("unicode_escape")
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= longest:
            found, longest = types.split(" ")[0], len(point)
    return found
