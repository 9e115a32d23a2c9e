"""Giving room back: deleting a session's rows, vacuuming a folder, copying one that is in use."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Final

import lmdb

from pico_lmdb.engine import Transaction
from pico_lmdb.environment import Environment
from pico_lmdb.failures import translate
from pico_lmdb.folder import DATA_FILE, sync_folder, write_format
from pico_lmdb.layout import (
    ADDRESSES,
    BATCHES,
    BY_OWNER,
    BY_OWNER_CONVERSATION,
    BY_PARENT,
    CONVERSATIONS,
    DOOMED,
    EPOCH,
    HEADS,
    KEYS,
    KIND,
    LISTS,
    LIVE,
    MAIN,
    RECORD,
    RECORDS,
    SCRATCH,
    SESSION,
    TAIL,
    TASKS,
    TRANSCRIPTS,
    VERSIONS,
    of_session,
)
from pico_lmdb.rebuild import rebuild
from pico_lmdb.rows import SessionRow, decode_session, pack, seal, unseal
from pico_lmdb.snapshot import Snapshot
from pico_lmdb.unshown import unshown_rows
from pico_lmdb.writer import Writer
from pico_store.errors import StoreDamagedError, StoreIOError
from pico_store.ownership import decode_owner, is_alive
from pico_store.storage import Counters, VacuumReport

_ROWS_A_TRANSACTION: Final = 10_000

Place = tuple[int, bytes]
"""A tree and a key."""


def _prefixes(session: int) -> list[Place]:
    """Return where the rows of a session are; its marker of doom is not among them."""
    number = session.to_bytes(4, "big")
    tags = (EPOCH, TAIL, KIND, LIVE, SCRATCH)
    links = (RECORD, BY_PARENT, BY_OWNER, BY_OWNER_CONVERSATION)
    others = (*(RECORDS, TRANSCRIPTS, TASKS, HEADS, KEYS, ADDRESSES, VERSIONS, LISTS, BATCHES),)
    return [
        *((MAIN, of_session(tag, session)) for tag in tags),
        *((CONVERSATIONS, of_session(tag, session)) for tag in links),
        *((tree, number) for tree in others),
    ]


def purge(environment: Environment, writer: Writer, session: int) -> None:
    """Delete the rows of a session that nobody sees any more, a part at a time."""
    for tree, prefix in _prefixes(session):
        more = True

        def change(transaction: Transaction, tree: int = tree, prefix: bytes = prefix) -> None:
            nonlocal more
            more = False
            cursor = transaction.cursor(environment.trees[tree])
            if cursor.set_range(prefix):
                for _ in range(_ROWS_A_TRANSACTION):
                    if not cursor.key().startswith(prefix):
                        return
                    cursor.delete()
                more = True

        while more:
            writer.update("delete", change, sync=False)
    doomed = of_session(DOOMED, session)
    writer.update("delete", lambda txn: _delete(txn, doomed), sync=False)


def _delete(transaction: Transaction, key: bytes) -> None:
    transaction.delete(key)


def vacuum_folder(environment: Environment, writer: Writer, *, compress: bool) -> VacuumReport:
    """Drop the rows that nothing shows and, if no other process is there, rebuild the file.

    Where others use the folder, what was dropped stays in the file as free pages, which later
    commits use, and what was stored stays as it is compressed.

    Raises:
        StoreBusyError: Another thread is writing past the wait.
    """
    before = _size(environment.path)
    dropped = 0
    with _snapshot(environment) as snapshot:
        doomed = [
            int.from_bytes(key[1:], "big")
            for key, owner in snapshot.under(MAIN, DOOMED)
            if not _is_at_work(owner)
        ]
        sessions = [int.from_bytes(key[1:], "big") for key, _ in snapshot.under(MAIN, SESSION)]
    for session in doomed:
        purge(environment, writer, session)
    for session in sessions:
        with _snapshot(environment) as snapshot:
            places = list(unshown_rows(snapshot, session))
        dropped += len(places)
        for part in _parts(places):
            drop = partial(_drop, environment, part)
            writer.update("vacuum", drop, sync=False)
    rebuild(environment, writer, compress=compress)
    return VacuumReport(before, _size(environment.path), dropped)


def _is_at_work(owner: bytes) -> bool:
    record = decode_owner(owner.decode()) if owner else None
    return record is not None and is_alive(record)


def _parts(places: list[Place]) -> Iterator[list[Place]]:
    rest = iter(places)
    while part := list(islice(rest, _ROWS_A_TRANSACTION)):
        yield part


def _drop(environment: Environment, places: list[Place], transaction: Transaction) -> None:
    for tree, key in places:
        transaction.delete(key, b"", environment.trees[tree])


def _snapshot(environment: Environment) -> Snapshot:
    return Snapshot(environment, Counters(), "")


def backup_folder(environment: Environment, path: str) -> None:
    """Copy one moment's state into a new folder, while writers work.

    Raises:
        StoreIOError: The path exists already or cannot be written; nothing is left there.
    """
    try:
        if os.path.lexists(path):
            raise FileExistsError(17, "File exists")
        os.mkdir(path, 0o700)
        os.chmod(path, 0o700)
    except OSError as error:
        raise StoreIOError(
            f"{path}: cannot be created: {error.strerror}; name a new folder"
        ) from error
    try:
        _copy_file(environment, os.path.join(path, DATA_FILE))
        write_format(path)
        sync_folder(os.path.dirname(os.path.abspath(path)))
    except BaseException as error:
        shutil.rmtree(path, ignore_errors=True)
        if isinstance(error, OSError):
            raise StoreIOError(f"{path}: cannot be written: {error.strerror}") from error
        if isinstance(error, lmdb.Error):
            raise translate(path, "backup", error) from error
        raise


def _copy_file(environment: Environment, path: str) -> None:
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(handle, 0o600)
        transaction = environment.begin_read()
        try:
            environment.engine.copyfd(handle, True)
        finally:
            environment.end_read(transaction)
        _forget_owners(path)
        os.fsync(handle)
    finally:
        os.close(handle)


def _forget_owners(path: str) -> None:
    """Owners stay with the original.

    Raises:
        StoreDamagedError: A session's row is not what was written.
    """
    size = 2 * os.stat(path).st_size + (16 << 20)
    copy = lmdb.open(path, map_size=size, subdir=False, lock=False, sync=False)
    try:
        with copy.begin(write=True) as transaction:
            cursor = transaction.cursor()
            keys = []
            if cursor.set_range(SESSION):
                for key in cursor.iternext(values=False):
                    if not key.startswith(SESSION):
                        break
                    keys.append(key)
            for key in keys:
                stored = unseal(MAIN, key, transaction.get(key, b""))
                if stored is None:
                    number = int.from_bytes(key[1:], "big")
                    problem = f"backup: session {number} is damaged; run pico verify --salvage"
                    raise StoreDamagedError(f"{os.path.dirname(path)}: {problem}")
                row = decode_session(stored)
                free = SessionRow(row.name, row.epoch, None)
                transaction.put(key, seal(MAIN, key, pack(free)))
    finally:
        copy.close()


def _size(path: str) -> int:
    return os.stat(os.path.join(path, DATA_FILE)).st_size
