"""The folder of a store: what is checked before anything is opened, and how it is made.

It holds `format`, a line of JSON that says what wrote it, and LMDB's two files. A newer format, or
another program's folder, is refused without touching those: opening them would write to one.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from resource import getpagesize
from struct import Struct
from typing import Final

import msgspec

from pico_lmdb.layout import FORMAT_VERSION
from pico_store.errors import (
    NewerFormatError,
    NotAStoreError,
    StoreDamagedError,
    StoreUnusableError,
)
from pico_store.file_system import UNSHARED, file_system

FORMAT_FILE: Final = "format"
DATA_FILE: Final = "data.mdb"
_LOCK_FILE: Final = "lock.mdb"
_STARTED: Final = "format-"
"""What a format file is called until it is whole."""
_META: Final = Struct("<II16x I")
"""Of a meta page, from offset 16: magic, version, address and map size, page size."""
_META_LAST: Final = Struct("<QQ")
"""From offset 136: the last page in use, the transaction."""
_MAGIC: Final = 0xBEEFC0DE
_META_READS: Final = 5
_UNUSED_PAGES: Final = 3
"""A file with more than these holds, or held, a session."""
_SECTOR_BYTES: Final = 512
"""What a disk writes as a whole; each of the first two pages says in it what it is."""


class _Format(msgspec.Struct):
    format: str
    version: int


def check_folder(path: str, *, create: bool) -> None:
    """Refuse a path that is no place for a store, without writing; make an empty one if asked.

    Raises:
        StoreUnusableError: No such folder, a file, another program's folder, a newer format, a
            folder that may not be read or written, a file system that processes cannot share, or
            a data file that is cut off.
    """
    if not path:
        raise StoreUnusableError("lmdb: without a folder; write it as lmdb:FOLDER")
    kind = file_system(path)
    if kind in UNSHARED:
        raise StoreUnusableError(
            f"{path}: on a {kind} file system, where processes cannot share LMDB's map; "
            "put the store on a local disk"
        )
    try:
        if create and not os.path.lexists(path):
            make_folder(path)
        names = set(os.listdir(path))
        if FORMAT_FILE in names:
            _check_format(path)
        elif any(not name.startswith(_STARTED) for name in names):
            raise NotAStoreError(f"{path}: a folder of something else; nothing was changed")
        elif create:
            write_format(path)
        else:
            raise StoreUnusableError(f"no store at {path}: the folder is empty")
        if DATA_FILE in names:
            _check_data(os.path.join(path, DATA_FILE), path if create else "")
        elif FORMAT_FILE in names and not create:
            raise StoreUnusableError(f"{path}: its {DATA_FILE} is gone; restore a backup")
    except FileNotFoundError as error:
        raise StoreUnusableError(f"no store at {path}") from error
    except NotADirectoryError as error:
        if not os.path.exists(path):
            raise StoreUnusableError(f"{path}: cannot be created: {error.strerror}") from error
        raise NotAStoreError(f"{path}: not a folder; nothing was changed") from error
    except OSError as error:
        raise StoreUnusableError(f"{path}: cannot be used: {error.strerror}") from error


def is_writable(path: str) -> bool:
    """Tell whether a store's folder and its data file, if there is one, may be written."""
    data = os.path.join(path, DATA_FILE)
    return os.access(path, os.W_OK) and (not os.path.exists(data) or os.access(data, os.W_OK))


def make_folder(path: str) -> None:
    """Make a private folder, if nobody else has in the meantime."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return
    os.chmod(path, 0o700)


def write_format(path: str) -> None:
    """Say what the folder is, in a file that is there as a whole or not at all."""
    started = os.path.join(path, f"{_STARTED}{secrets.token_hex(8)}")
    handle = os.open(started, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(handle, 0o600)
        os.write(handle, msgspec.json.encode(_Format("pico-lmdb", FORMAT_VERSION)) + b"\n")
        os.fsync(handle)
    finally:
        os.close(handle)
    os.rename(started, os.path.join(path, FORMAT_FILE))
    sync_folder(path)


def sync_folder(path: str) -> None:
    """Make the names in a folder durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_version(path: str, version: int) -> None:
    """Refuse a format that is newer than this code's."""
    if version > FORMAT_VERSION:
        raise NewerFormatError(
            f"{path}: format {version}, written by a newer pico; this one reads up to "
            f"{FORMAT_VERSION}: upgrade pico; nothing was changed"
        )


def _check_format(path: str) -> None:
    with open(os.path.join(path, FORMAT_FILE), "rb") as file:
        text = file.read(1_000)
    try:
        found = msgspec.json.decode(text, type=_Format)
    except msgspec.MsgspecError as error:
        raise NotAStoreError(f"{path}: {FORMAT_FILE} is not that of a store: {error}") from error
    if found.format != "pico-lmdb":
        raise NotAStoreError(f"{path}: a store of format {found.format!r:.40}, not pico-lmdb")
    check_version(path, found.version)


def _check_data(path: str, folder: str) -> None:
    """Refuse a file that ends before its newest state does: reading there kills the process.

    One that a power cut left of the first making of a store is removed from the folder, if that is
    given.
    """
    needed: int | None = None
    for _ in range(_META_READS):
        needed = _bytes_needed(path)
        if needed is not None and os.stat(path).st_size >= needed and (needed or folder):
            return
    size = os.stat(path).st_size
    if size == 0 and not folder:
        raise StoreDamagedError(f"{path}: offset 0: is empty; restore a backup")
    is_unused = size <= _UNUSED_PAGES * getpagesize()
    if needed is None and folder and is_unused and _remove_unfinished(path, folder):
        return
    if needed is None:
        raise StoreDamagedError(f"{path}: offset 0: no header of an LMDB file; restore a backup")
    raise StoreDamagedError(
        f"{path}: offset {size}: cut off there; {needed} bytes are in use; restore a backup"
    )


def _remove_unfinished(path: str, folder: str) -> bool:
    """Remove a file that holds no session yet, unless somebody is about to fill it."""
    presence = Presence(folder)
    try:
        if not presence.try_alone():
            return False
        with open(path, "rb") as file:
            pages = file.read(2 * getpagesize())
        # What was written of its two first pages is right; the rest of them is not there.
        starts = (pages[:_SECTOR_BYTES], pages[getpagesize() :][:_SECTOR_BYTES])
        if all(start.strip(b"\0") for start in starts):
            return False
        os.unlink(path)
        return True
    finally:
        presence.end()


def _bytes_needed(path: str) -> int | None:
    """Return how long the file must be; ``None`` where its header is none, or is being written."""
    with open(path, "rb") as file:
        first = file.read(4_096)
        if not first:
            return 0  # Another process is making it.
        if len(first) < 152:
            return None
        _, _, page_bytes = _META.unpack_from(first, 16)
        file.seek(page_bytes)
        second = file.read(4_096)
    newest, needed = -1, None
    for page in (first, second):
        if len(page) < 152:
            return None
        magic, version, size = _META.unpack_from(page, 16)
        last, transaction = _META_LAST.unpack_from(page, 136)
        if magic != _MAGIC or version != 1 or size != page_bytes:
            return None
        if transaction > newest:
            newest, needed = transaction, (last + 1) * page_bytes
    return needed


class Presence:
    """Says to other processes that this one uses the folder; one of them may ask to be alone."""

    def __init__(self, path: str) -> None:
        self._handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._handle, fcntl.LOCK_SH)

    def try_alone(self) -> bool:
        """Keep the others from opening the store, if no other process uses it."""
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            # The change of a lock gives up the old one first.
            fcntl.flock(self._handle, fcntl.LOCK_SH)
            return False
        return True

    def among_others(self) -> None:
        """Let the others open the store again."""
        fcntl.flock(self._handle, fcntl.LOCK_SH)

    def end(self) -> None:
        """Leave the folder."""
        os.close(self._handle)
