"""The folder of a store: making it, telling whether it is one, and its sessions' folders."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import Struct

from pico_jsonl.control import EPOCH, Control
from pico_jsonl.disk import (
    FULL,
    Disk,
    create_file,
    create_folder,
    sync_folder,
    translate,
    write_all,
)
from pico_jsonl.lines import BadLineError, header_body, parse_header, seal
from pico_jsonl.names import folder_name
from pico_jsonl.opening import Place
from pico_store.errors import (
    NewerFormatError,
    NotAStoreError,
    SessionExistsError,
    StoreDamagedError,
    StoreIOError,
    StoreUnusableError,
    UnknownSessionError,
)
from pico_store.file_system import UNSHARED, file_system

_MARKER: Final = "store.json"
_TAKEN: Final = frozenset((errno.EEXIST, errno.ENOTEMPTY))
"""What says that a folder has the name already."""
_FORMAT: Final = "pico-jsonl-store"
_VERSION: Final = 1
_SESSION_FILES: Final = frozenset(("control", "main.jsonl", "spare.jsonl"))
# What is being made or removed; a session's folder never begins so.
_NEW: Final = ".new-"
_GONE: Final = ".gone-"


class _Marker(Struct, frozen=True):
    format: str
    version: int


def prepare_folder(path: str, *, create: bool) -> None:
    """Make a store's folder, or make sure that it is one.

    Raises:
        NotAStoreError: Something else is there.
        NewerFormatError: A newer pico made it.
        StoreUnusableError: It cannot be read or made.
        StoreFullError: There is no room for it.
    """
    try:
        _refuse_unshared(path)
        if create:
            _create_store(path)
        _check_marker(path)
    except FileNotFoundError as error:
        raise StoreUnusableError(f"no store at {path}") from error
    except NotADirectoryError as error:
        raise NotAStoreError(f"{path}: not a folder; name a folder, nothing was changed") from error
    except OSError as error:
        if error.errno in FULL:
            raise translate(path, "create", error) from error
        raise StoreUnusableError(f"{path}: cannot be used: {error.strerror}") from error


def _refuse_unshared(path: str) -> None:
    kind = file_system(path)
    if kind in UNSHARED:
        raise StoreUnusableError(
            f"{path}: on a {kind} file system, where two machines could own a session at once; "
            "put the store on a local disk"
        )


def _create_store(path: str) -> None:
    try:
        create_folder(path)
    except FileExistsError:
        names = os.listdir(path)
        if any(not name.startswith(_NEW) for name in names):
            return
    temporary = os.path.join(path, _NEW + secrets.token_hex(8))
    fd = create_file(temporary)
    try:
        write_all(Disk(), fd, msgspec.json.encode(_Marker(_FORMAT, _VERSION)) + b"\n")
        os.fsync(fd)
        # Whoever is first; the others find it.
        os.link(temporary, os.path.join(path, _MARKER))
    except FileExistsError:
        pass
    finally:
        os.close(fd)
        os.unlink(temporary)
    sync_folder(path)
    sync_folder(os.path.dirname(os.path.abspath(path)))


def _check_marker(path: str) -> None:
    try:
        with open(os.path.join(path, _MARKER), "rb") as file:
            text = file.read(4096)
    except FileNotFoundError as error:
        if not os.path.exists(path):
            raise
        if _holds_sessions(path):
            raise StoreDamagedError(f"{path}: its {_MARKER} is gone; restore a backup") from error
        problem = f"{path}: a folder without {_MARKER}, so no store; nothing was changed"
        raise NotAStoreError(problem) from error
    try:
        marker = msgspec.json.decode(text, type=_Marker)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if _holds_sessions(path):
            problem = f"{path}: its {_MARKER} is damaged; nothing was changed; restore a backup"
            raise StoreDamagedError(problem) from error
        raise NotAStoreError(f"{path}: its {_MARKER} is not a store's: {error}") from error
    if marker.format != _FORMAT:
        raise NotAStoreError(f"{path}: format {marker.format!r:.40}; nothing was changed")
    if marker.version > _VERSION:
        raise NewerFormatError(
            f"{path}: version {marker.version}, made by a newer pico; this one reads up to "
            f"{_VERSION}: upgrade pico; nothing was changed"
        )


def _holds_sessions(path: str) -> bool:
    """Tell whether a folder without a whole marker is a store's all the same."""
    return any(os.path.exists(Place("", folder).main) for folder in session_folders(path))


# --- Sessions ---


def session_place(path: str, session_id: str) -> Place:
    """Return where a session is or would be."""
    return Place(session_id, os.path.join(path, folder_name(session_id)))


def find_session(path: str, session_id: str) -> Place:
    """Return where a session is.

    Raises:
        UnknownSessionError: It is not there.
    """
    place = session_place(path, session_id)
    if not os.path.isdir(place.folder):
        problem = f"no session {session_id!r:.80} in {path}; create it, or choose another id"
        raise UnknownSessionError("OWN-6", "sessionId", problem)
    return place


def all_sessions(path: str) -> list[Place]:
    """Return all sessions of a store by id.

    Raises:
        StoreUnusableError: A folder holds no session's log.
    """
    return sorted(filter(None, map(place_in, session_folders(path))))


def session_folders(path: str) -> list[str]:
    """Return the folders of a store's sessions, by name."""
    folders = [
        os.path.join(path, name)
        for name in sorted(os.listdir(path))
        if not name.startswith(".") and name != _MARKER
    ]
    return list(filter(os.path.isdir, folders))


def is_ours(folder: str) -> bool:
    """Tell whether a folder is what a session was or is in; else pico did not make it.

    An empty one is: a session's folder comes into being with its files in it.
    """
    names = os.listdir(folder)
    return not names or any(name in _SESSION_FILES or name.startswith("scratch-") for name in names)


def place_in(folder: str) -> Place | None:
    """Return the session of a folder; ``None``: its log is not there, so it may be removed.

    Raises:
        StoreUnusableError: It holds no log of the session that its name stands for.
    """
    session = _session_of(folder)
    if session is None:
        return None
    if folder_name(session) != os.path.basename(folder):
        problem = f"{folder}: holds session {session!r:.60}, whose folder has another name; "
        raise StoreDamagedError(problem + "move it away or to its own name")
    return Place(session, folder)


def _session_of(folder: str) -> str | None:
    path = Place("", folder).main
    try:
        with open(path, "rb") as file:
            header = parse_header(file.readline())
    except FileNotFoundError:
        return None
    except BadLineError as error:
        raise NotAStoreError(f"{path}: {error}; nothing was changed") from error
    return header.session


def make_session(
    path: str,
    session_id: str,
    *,
    epoch: int,
    fill: Callable[[Callable[[bytes], object], int], object] | None,
    disk: Disk,
    sync: bool,
) -> Place:
    """Make a session's folder, whole or not at all.

    Args:
        path: The store's folder.
        session_id: Not there yet.
        epoch: Where its owners' epochs begin.
        fill: Writes what follows the main log's first line, given that line's checksum.
        disk: Writes it.
        sync: Whether the session is durable afterwards.

    Raises:
        SessionExistsError: The session is there.
        RetryableError: It cannot be made.
    """
    place = session_place(path, session_id)
    try:
        temporary, working = _begin_folder(path)
        try:
            unborn = Place(session_id, temporary)
            control = Control(unborn.control, writable=True)
            try:
                control.set(EPOCH, epoch)
            finally:
                control.close()
            write_main(unborn.main, session_id, fill, disk, sync=sync)
            if sync:
                sync_folder(temporary)
            os.rename(temporary, place.folder)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        finally:
            os.close(working)
        if sync:
            _make_durable(path, place)
    except OSError as error:
        if error.errno in _TAKEN:
            problem = f"session {session_id!r:.80} exists already; open it, or choose another id"
            raise SessionExistsError("OWN-6", "sessionId", problem) from error
        raise translate(place.folder, "create", error) from error
    return place


def _make_durable(path: str, place: Place) -> None:
    """Make the name of a new session durable.

    Where that fails the session stays: by now somebody may have opened it.
    """
    try:
        sync_folder(path)
    except OSError as error:
        problem = f"{place.folder}: made, but its name could not be made durable: {error.strerror}"
        raise StoreIOError(f"{problem}; check the disk, then open it or delete it") from error


def _begin_folder(path: str) -> tuple[str, int]:
    """Make a folder for a session in the making; return a lock on it that ends with the process."""
    while True:
        temporary = os.path.join(path, _NEW + secrets.token_hex(8))
        create_folder(temporary)
        try:
            fd = os.open(temporary, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            # Swept before it was locked.
            continue
        fcntl.flock(fd, fcntl.LOCK_EX)
        if os.path.isdir(temporary):
            return temporary, fd
        os.close(fd)


def write_main(
    path: str,
    session_id: str,
    fill: Callable[[Callable[[bytes], object], int], object] | None,
    disk: Disk,
    *,
    sync: bool,
) -> None:
    """Write a main log that was not there."""
    fd = create_file(path)
    try:
        line, crc = seal(header_body(session_id, None), 0)
        write_all(disk, fd, line)
        if fill is not None:
            fill(lambda text: write_all(disk, fd, text), crc)
        if sync:
            disk.sync(fd)
    finally:
        os.close(fd)


def remove_session(path: str, place: Place) -> None:
    """Remove a session that nobody owns; the caller holds its lock.

    Raises:
        StoreIOError: It cannot be removed; it is whole.
    """
    gone = os.path.join(path, _GONE + secrets.token_hex(8))
    try:
        os.rename(place.folder, gone)
    except OSError as error:
        raise translate(place.folder, "delete", error) from error
    shutil.rmtree(gone, ignore_errors=True)


def sweep(path: str) -> None:
    """Remove what processes left behind that were killed while they made or removed a session."""
    for name in os.listdir(path):
        place = os.path.join(path, name)
        if name.startswith(_GONE):
            shutil.rmtree(place, ignore_errors=True)
        elif name.startswith(_NEW) and os.path.isdir(place):
            _sweep_unborn(place)


def _sweep_unborn(folder: str) -> None:
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # If it was finished meanwhile, it has another name.
        shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        # Somebody is at work in it.
        pass
    finally:
        os.close(fd)
