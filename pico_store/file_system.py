"""What file system holds a path, and whether it lets processes share memory through a file."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

UNSHARED: Final = frozenset(
    (
        *("9p", "afs", "beegfs", "ceph", "cifs", "coda", "fuse.ceph", "fuse.ceph-fuse"),
        *("fuse.gcsfuse", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs"),
        *("fuse.vmhgfs-fuse", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4"),
        *("ocfs2", "orangefs", "prl_fs", "smb3", "smbfs", "vboxsf", "virtiofs"),
    )
)
"""File systems whose clients do not share memory and locks between machines, for every backend."""

_ESCAPE: Final = re.compile(rb"\\([0-7]{3})")


def file_system(path: str) -> str:
    """Return the type of the file system that holds a path, or "" where it cannot be told."""
    try:
        # Bytes, because a mount point is any bytes: only 0x0A ends a line and 0x20 parts fields.
        mounts = Path("/proc/self/mountinfo").read_bytes()
    except OSError:
        return ""
    real = os.fsencode(os.path.realpath(path))
    best, kind = -1, b""
    for line in mounts.split(b"\n")[:-1]:
        before, _, rest = line.partition(b" - ")
        fields = before.split(b" ")
        if len(fields) < 5:
            # No mount of any kernel that is known; what cannot be told is not refused.
            continue
        mount = _ESCAPE.sub(_unescape, fields[4])
        inside = real == mount or real.startswith(mount.rstrip(b"/") + b"/")
        # A later mount hides an earlier one.
        if inside and len(mount) >= best:
            best, kind = len(mount), rest.split(b" ")[0]
    return os.fsdecode(kind)


def _unescape(octal: re.Match[bytes]) -> bytes:
    return bytes((int(octal[1], 8),))
