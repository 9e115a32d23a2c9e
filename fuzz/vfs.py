"""Standing between SQLite and its files: every call that changes one is told first and after."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Final, Protocol

import apsw

_numbers = count()
_LOGS: Final = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL


class Watcher(Protocol):
    """Hears of calls. What it raises before a call becomes SQLite's error."""

    def before(self, call: str, path: str) -> None:
        """A call is about to be made: write, sync, truncate or delete."""
        ...

    def opened(self, handle: int, path: str, flags: int) -> None:
        """A file was opened, and made if it was not there."""
        ...

    def wrote(self, handle: int, data: bytes, offset: int) -> None:
        """Bytes were written."""
        ...

    def truncated(self, handle: int, size: int) -> None:
        """A file was given another size."""
        ...

    def synced(self, handle: int) -> None:
        """A file was made durable."""
        ...

    def synced_folder(self, path: str) -> None:
        """The names beside a path were made durable."""
        ...

    def deleted(self, path: str) -> None:
        """A file was removed."""
        ...


class _File(apsw.VFSFile):
    def __init__(
        self, name: str | apsw.URIFilename | None, flags: list[int], watcher: Watcher, handle: int
    ) -> None:
        self._path = name if isinstance(name, str) else name.filename() if name else ""
        super().__init__("unix", name, flags)
        self._watcher = watcher
        self._handle = handle
        # SQLite's own layer syncs the folder with the first sync of a log that it made.
        self._names_too = bool(flags[0] & _LOGS and flags[0] & apsw.SQLITE_OPEN_CREATE)
        if self._path:
            creates = os.O_CREAT if flags[0] & apsw.SQLITE_OPEN_CREATE else 0
            watcher.opened(handle, self._path, creates)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
        self._watcher.before("write", self._path)
        super().xWrite(data, offset)
        self._watcher.wrote(self._handle, bytes(data), offset)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 - SQLite's name
        self._watcher.before("truncate", self._path)
        super().xTruncate(newsize)
        self._watcher.truncated(self._handle, newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        self._watcher.before("sync", self._path)
        super().xSync(flags)
        self._watcher.synced(self._handle)
        if self._names_too:
            self._names_too = False
            self._watcher.synced_folder(self._path)


class _Vfs(apsw.VFS):
    def __init__(self, name: str, watcher: Watcher) -> None:
        self._watcher = watcher
        super().__init__(name, "unix", makedefault=True)

    def xOpen(  # noqa: N802 - SQLite's name
        self, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> apsw.VFSFile:
        return _File(name, flags, self._watcher, next(_numbers))

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: FBT001, N802 - SQLite's name
        self._watcher.before("delete", filename)
        super().xDelete(filename, syncdir)
        self._watcher.deleted(filename)
        if syncdir:
            self._watcher.synced_folder(filename)


@contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Let a watcher hear of every file that SQLite opens in this process in the block."""
    vfs = _Vfs(f"watched-{next(_numbers)}", watcher)
    try:
        yield
    finally:
        vfs.unregister()
