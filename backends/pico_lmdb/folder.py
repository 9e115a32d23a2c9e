"""The folder of a store: what is checked before anything is opened, and how it is made.

It holds `format`, a line of JSON that says what wrote it, and LMDB's two files. A newer format, or
another program's folder, is refused without touching those: opening them would write to one.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import time
from functools import partial
from resource import getpagesize
from struct import Struct
from typing import Final, NamedTuple

import msgspec

from pico_lmdb.layout import FORMAT_VERSION
from pico_store.errors import (
    NewerFormatError,
    NotAStoreError,
    StoreBusyError,
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
_PAUSE_MAX: Final = 0.005
"""Seconds between two looks at whose turn it is."""


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
            raise StoreDamagedError(f"{path}: its {DATA_FILE} is gone; restore a backup")
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


def has_room(path: str) -> bool:
    """Tell whether the data file could have another page; if so, it has one."""
    try:
        handle = os.open(os.path.join(path, DATA_FILE), os.O_RDWR | os.O_CLOEXEC)
        try:
            os.posix_fallocate(handle, os.fstat(handle).st_size, 4_096)
        finally:
            os.close(handle)
    except OSError as error:
        return error.errno not in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
    return True


def make_folder(path: str) -> None:
    """Make a private folder, if nobody else has in the meantime."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return
    os.chmod(path, 0o700)


def make_files(path: str) -> None:
    """Make the files of an environment that are not there; LMDB would heed the umask."""
    for name in (DATA_FILE, _LOCK_FILE):
        try:
            flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC
            handle = os.open(os.path.join(path, name), flags, 0o600)
        except FileExistsError:
            continue
        os.fchmod(handle, 0o600)
        os.close(handle)


def write_format(path: str) -> None:
    """Say what the folder is, in a file that is there as a whole or not at all.

    One that is there already stays: another process may hold its lock.
    """
    started = os.path.join(path, f"{_STARTED}{secrets.token_hex(8)}")
    handle = os.open(started, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(handle, 0o600)
        os.write(handle, msgspec.json.encode(_Format("pico-lmdb", FORMAT_VERSION)) + b"\n")
        os.fsync(handle)
    finally:
        os.close(handle)
    place = os.path.join(path, FORMAT_FILE)
    try:
        os.link(started, place)
    except FileExistsError:
        os.unlink(started)
    except OSError:
        # A file system without links.
        os.rename(started, place)
    else:
        os.unlink(started)
    sync_folder(path)


def sync_folder(path: str) -> None:
    """Make the names in a folder durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def decode_version(path: str, found: bytes) -> int:
    """Return the version of the format that a data file says it has."""
    try:
        return msgspec.msgpack.decode(found, type=int)
    except msgspec.DecodeError as error:
        problem = f"{path}: its format is {found[:20]!r} ({error})"
        raise StoreDamagedError(f"{problem}; restore a backup") from error


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
        if os.path.exists(os.path.join(path, DATA_FILE)):
            problem = f"{path}: its {FORMAT_FILE} is damaged; nothing was changed; restore a backup"
            raise StoreDamagedError(problem) from error
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
        headers = _headers(path)
        needed = None if headers is None else max(headers).bytes
        if needed is not None and os.stat(path).st_size >= needed and (needed or folder):
            return
    size = os.stat(path).st_size
    if size == 0 and not folder:
        raise StoreDamagedError(f"{path}: offset 0: is empty; restore a backup")
    if folder and size <= _UNUSED_PAGES * getpagesize() and _remove_unfinished(path, folder):
        return
    if needed is None:
        raise StoreDamagedError(f"{path}: offset 0: no header of an LMDB file; restore a backup")
    raise StoreDamagedError(
        f"{path}: offset {size}: cut off there; {needed} bytes are in use; restore a backup"
    )


def _remove_unfinished(path: str, folder: str) -> bool:
    """Remove a file that holds no session yet, unless somebody is about to fill it."""
    presence, turn = Presence(folder, 0), WriteTurn(folder)
    try:
        if not turn.take(0) or not presence.try_alone():
            return False
        headers = _headers(path)
        if headers is None:
            with open(path, "rb") as file:
                pages = file.read(2 * getpagesize())
            # What was written of its two first pages is right; the rest of them is not there.
            starts = (pages[:_SECTOR_BYTES], pages[getpagesize() :][:_SECTOR_BYTES])
            if all(start.strip(b"\0") for start in starts):
                return False
        elif any(header.transaction for header in headers):
            return False
        os.unlink(path)
        return True
    finally:
        presence.end()
        turn.end()


def check_headers(path: str) -> None:
    """Refuse a data file whose two headers are not of two transactions in a row.

    LMDB takes the greater one: a damaged number would bring an old state back. Nobody may be
    writing.
    """
    headers = _headers(os.path.join(path, DATA_FILE)) or ()
    numbers = [header.transaction for header in headers]
    if any(numbers) and abs(numbers[0] - numbers[1]) != 1:
        raise StoreDamagedError(
            f"{path}: {DATA_FILE}: offset 144: its headers are of transactions {numbers[0]} and "
            f"{numbers[1]}, which do not follow each other; restore a backup"
        )


class _Header(NamedTuple):
    """One of the two pages that say what a data file holds."""

    transaction: int
    bytes: int
    """How long the file must be."""


def _headers(path: str) -> tuple[_Header, ...] | None:
    """Return both headers; ``None`` where one is none, or is being written."""
    with open(path, "rb") as file:
        first = file.read(4_096)
        if not first:
            return (_Header(0, 0),) * 2  # Another process is making it.
        if len(first) < 152:
            return None
        _, _, page_bytes = _META.unpack_from(first, 16)
        file.seek(page_bytes)
        second = file.read(4_096)
    found = []
    for page in (first, second):
        if len(page) < 152:
            return None
        magic, version, size = _META.unpack_from(page, 16)
        last, transaction = _META_LAST.unpack_from(page, 136)
        if magic != _MAGIC or version != 1 or size != page_bytes:
            return None
        found.append(_Header(transaction, (last + 1) * page_bytes))
    return tuple(found)


def _lock(handle: int, operation: int, seconds: float) -> bool:
    """Lock a file, waiting for other processes; tell whether that was possible in time."""
    deadline = time.monotonic() + seconds
    pause = 0.0
    while True:
        try:
            fcntl.flock(handle, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(pause)
            pause = min(2 * pause + 0.0001, _PAUSE_MAX)
        else:
            return True


class Presence:
    """Says to other processes that this one uses the folder; one of them may ask to be alone."""

    def __init__(self, path: str, busy_ms: int) -> None:
        """Enter the folder.

        Raises:
            StoreBusyError: Another process has kept it to itself for all of ``busy_ms``.
        """
        self._handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        if not _lock(self._handle, fcntl.LOCK_SH, busy_ms / 1000):
            self.end()
            problem = f"another process has been vacuuming it for {busy_ms} ms; try again"
            raise StoreBusyError(f"{path}: {problem}")

    def try_alone(self) -> bool:
        """Keep the others from opening the store, if no other process uses it.

        Only in this process's turn to write: whoever asks gives up its old lock first, so that of
        two that ask at once one could be alone with the other's file.
        """
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.among_others()
            return False
        return True

    def among_others(self) -> None:
        """Let the others open the store again."""
        fcntl.flock(self._handle, fcntl.LOCK_SH)

    def end(self) -> None:
        """Leave the folder; a second time does nothing."""
        # Forgotten before it is closed, so that an interrupt cannot have it closed twice.
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)


class WriteTurn:
    """Whose turn it is to write, among the processes that use a folder.

    LMDB has a lock of its own for that, for which it waits without a limit. Who dies gives both
    back; who is stopped keeps them.
    """

    def __init__(self, path: str) -> None:
        self._handle = os.open(os.path.join(path, FORMAT_FILE), os.O_RDONLY | os.O_CLOEXEC)
        # Bound once, for commits that stream.
        self.take_at_once = partial(fcntl.flock, self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        """Take the turn; raises `BlockingIOError` while another process has it."""
        self.give_back = partial(fcntl.flock, self._handle, fcntl.LOCK_UN)
        """Let others write; does nothing where it is not our turn."""

    def take(self, seconds: float) -> bool:
        """Take the turn, waiting for others; tell whether it came in time."""
        return _lock(self._handle, fcntl.LOCK_EX, seconds)

    def end(self) -> None:
        """Give it up for good; a second time does nothing."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)
