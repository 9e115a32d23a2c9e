"""The file operations of this backend, each in one place, so that a test can make them fail."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from pico_store.errors import RetryableError, StoreFullError, StoreIOError

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700
FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
"""What says that there is no room."""


@dataclass(frozen=True, slots=True)
class Disk:
    """What changes a log or makes it durable; a test passes others."""

    # As they are when a disk is made: who watches the system's calls puts others in their place.
    write: Callable[[int, bytes], int] = field(default_factory=lambda: os.write)
    sync: Callable[[int], None] = field(default_factory=lambda: os.fdatasync)
    cut: Callable[[int, int], None] = field(default_factory=lambda: os.ftruncate)


def create_file(path: str, flags: int = 0) -> int:
    """Create a file that was not there and return its descriptor, for reading and writing."""
    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC | flags, FILE_MODE)
    # The umask may have taken the owner's own rights away.
    os.fchmod(fd, FILE_MODE)
    return fd


def create_folder(path: str) -> None:
    """Create a folder that was not there."""
    os.mkdir(path, FOLDER_MODE)
    os.chmod(path, FOLDER_MODE)


def sync_folder(path: str) -> None:
    """Make the names in a folder durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def remove_file(path: str) -> None:
    """Remove a file that may be gone already."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def write_all(disk: Disk, fd: int, text: bytes, done: int = 0) -> None:
    """Write what is left of a text; a disk that takes only a part says why at the next try."""
    while done < len(text):
        done += disk.write(fd, text[done:])


def translate(path: str, act: str, error: OSError) -> RetryableError:
    """Return the error of ours for one of the system's after which nothing has changed."""
    if isinstance(error.filename, str):
        path = error.filename
    if error.errno in FULL:
        return StoreFullError(f"{path}: {act}: no room ({error.strerror}); make room, try again")
    problem = f"{path}: {act}: {error.strerror}; check the disk and permissions, then try again"
    return StoreIOError(problem)


@contextmanager
def translated(path: str, act: str) -> Iterator[None]:
    """Turn the system's errors into ours, where nothing has changed."""
    try:
        yield
    except OSError as error:
        raise translate(path, act, error) from error
