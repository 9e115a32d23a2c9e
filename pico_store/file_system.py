"""What file system holds a path, and whether it lets processes share memory through a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

UNSHARED: Final = frozenset(
    (
        *("9p", "afs", "ceph", "cifs", "fuse.glusterfs", "fuse.sshfs", "nfs", "nfs4", "smb3"),
        *("smbfs", "vboxsf", "virtiofs"),
    )
)
"""File systems whose clients do not share memory between machines."""


def file_system(path: str) -> str:
    """Return the type of the file system that holds a path, or "" where it cannot be told."""
    try:
        text = Path("/proc/self/mountinfo").read_text()
    except OSError:
        return ""
    real = os.path.realpath(path)
    best, kind = -1, ""
    for line in text.splitlines():
        fields, _, rest = line.partition(" - ")
        mount = fields.split()[4].encode().decode("unicode_escape")
        inside = real == mount or real.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= best:
            best, kind = len(mount), rest.split()[0]
    return kind
