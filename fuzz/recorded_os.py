"""Recording what Python code asks of the operating system, by standing in for its calls."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final
from unittest.mock import patch

from fuzz.recording import Recording

_Act = Callable[[], None]


@dataclass(slots=True)
class Calls:
    """The calls of `os` that change a disk, each recorded once it is done."""

    recording: Recording

    def open(self, path: str, flags: int, mode: int = 0o777, **more: int) -> int:
        """As `os.open`."""
        fd = _OPEN(path, flags, mode, **more)
        self.recording.opened(fd, path, flags)
        return fd

    def close(self, fd: int) -> None:
        """As `os.close`."""
        _CLOSE(fd)
        self.recording.closed(fd)

    def write(self, fd: int, data: bytes) -> int:
        """As `os.write`."""
        done = _WRITE(fd, data)
        self.recording.wrote(fd, data[:done])
        return done

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        """As `os.pwrite`."""
        done = _PWRITE(fd, data, offset)
        self.recording.wrote(fd, data[:done], offset)
        return done

    def sync(self, fd: int) -> None:
        """As `os.fsync` and `os.fdatasync`."""
        _SYNC(fd)
        self.recording.synced(fd)

    def ftruncate(self, fd: int, size: int) -> None:
        """As `os.ftruncate`."""
        _CUT(fd, size)
        self.recording.cut(fd, size)

    def rename(self, path: str, new: str) -> None:
        """As `os.rename`."""
        _RENAME(path, new)
        self.recording.renamed(path, new)

    def unlink(self, path: str) -> None:
        """As `os.unlink`."""
        _UNLINK(path)
        self.recording.removed(path)

    def link(self, path: str, new: str) -> None:
        """As `os.link`."""
        _LINK(path, new)
        self.recording.linked(path, new)

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        """As `os.mkdir`."""
        _MKDIR(path, mode)
        self.recording.made_folder(path)


_OPEN: Final = os.open
_CLOSE: Final = os.close
_WRITE: Final = os.write
_PWRITE: Final = os.pwrite
_SYNC: Final = os.fsync
_CUT: Final = os.ftruncate
_RENAME: Final = os.rename
_UNLINK: Final = os.unlink
_LINK: Final = os.link
_MKDIR: Final = os.mkdir


@contextmanager
def recording_os(recording: Recording) -> Iterator[Calls]:
    """Record the calls of this process while the block runs."""
    calls = Calls(recording)
    with patch.multiple(
        os,
        open=calls.open,
        close=calls.close,
        write=calls.write,
        pwrite=calls.pwrite,
        fsync=calls.sync,
        fdatasync=calls.sync,
        ftruncate=calls.ftruncate,
        rename=calls.rename,
        unlink=calls.unlink,
        link=calls.link,
        mkdir=calls.mkdir,
    ):
        yield calls
