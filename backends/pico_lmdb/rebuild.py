"""Writing a data file anew: every page full, and every payload compressed with one dictionary."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

import lmdb
from msgspec import Raw
from msgspec.structs import replace

from pico_lmdb.engine import Row, Transaction
from pico_lmdb.environment import Environment
from pico_lmdb.failures import translate
from pico_lmdb.folder import DATA_FILE, sync_folder
from pico_lmdb.layout import (
    ADDRESSES,
    LISTS,
    MAIN,
    RECORDS,
    TREES,
    VERSIONS,
    dictionary_key,
)
from pico_lmdb.rows import CurrentRow, DictionaryRow, decode_address, decode_record, pack, seal
from pico_lmdb.snapshot import Snapshot
from pico_lmdb.writer import Writer
from pico_store.compression import LEVEL_ANEW, Compression, pick_samples, train_dictionary
from pico_store.errors import StoreIOError
from pico_store.storage import Counters

_ROWS_A_TRANSACTION: Final = 10_000
_REBUILT: Final = "vacuum-"
_GROWN: Final = 4
"""How many times as many rows there must be for another dictionary: few, at any size."""
_PAYLOADS: Final = (RECORDS, ADDRESSES, VERSIONS, LISTS)

Shrink = Callable[[bytes], bytes]


def rebuild(environment: Environment, writer: Writer, *, compress: bool) -> None:
    """Put a file without a free byte in the place of the data file.

    Where another process uses the folder, the file stays as it is.
    """
    if compress:
        _train(environment, writer)
    with environment.lock:
        environment.take_turn(writer.busy_ms)
        try:
            if environment.presence.try_alone():
                # Another process may have grown the map. A read that found that out would wait for
                # the lock that is held here; after this none does, since nobody else can write.
                environment.adopt_map()
                _replace_file(environment, compress=compress)
        finally:
            environment.presence.among_others()
            environment.give_turn_back()


def _replace_file(environment: Environment, *, compress: bool) -> None:
    path = os.path.join(environment.path, f"{_REBUILT}{os.getpid()}")
    try:
        # Nobody else is there: what a vacuum that was killed has left is nobody's.
        for name in os.listdir(environment.path):
            if name.startswith(_REBUILT):
                os.unlink(os.path.join(environment.path, name))
        _copy_rows(environment, path, compress=compress)
        environment.replace_file(path)
    except BaseException as error:
        if os.path.exists(path):
            os.unlink(path)
        if isinstance(error, OSError):
            problem = f"vacuum: {error.strerror}; nothing was changed"
            raise StoreIOError(f"{environment.path}: {problem}") from error
        raise
    try:
        sync_folder(environment.path)
    except OSError as error:
        problem = f"vacuum: the new file's name could not be made durable: {error.strerror}"
        raise StoreIOError(f"{environment.path}: {problem}; vacuum again") from error


def _copy_rows(environment: Environment, path: str, *, compress: bool) -> None:
    """Copy every tree in its order, which leaves no room in its pages."""
    _make_private(path)
    size = 2 * os.stat(os.path.join(environment.path, DATA_FILE)).st_size + (16 << 20)
    try:
        target = lmdb.open(
            path, map_size=size, max_dbs=len(TREES), subdir=False, lock=False, sync=False
        )
        try:
            with Snapshot(environment, Counters(), "") as source:
                shrink = _shrink(source) if compress else None
                for tree, name in enumerate((None, *TREES)):
                    there = None if name is None else target.open_db(name)
                    rows = _rows(source, tree, shrink)
                    while part := list(islice(rows, _ROWS_A_TRANSACTION)):
                        with target.begin(write=True, db=there) as transaction:
                            # In the main tree the names of the others come in between.
                            transaction.cursor().putmulti(part, append=name is not None)
            target.sync(True)
        finally:
            target.close()
    except lmdb.Error as error:
        raise translate(environment.path, "vacuum", error) from error


def _make_private(path: str) -> None:
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    os.fchmod(handle, 0o600)
    os.close(handle)


def _rows(source: Snapshot, tree: int, shrink: Shrink | None) -> Iterator[Row]:
    """Yield the rows of a tree as they are to be."""
    if tree == MAIN:
        for key, row in source.every_row(tree):
            if key not in TREES:
                yield key, row
    elif shrink is None or tree not in _PAYLOADS:
        yield from source.every_row(tree)
    else:
        for key, stored in source.every_row(tree):
            yield key, _with_payload(source, tree, key, stored, shrink)


def _with_payload(source: Snapshot, tree: int, key: bytes, stored: bytes, change: Shrink) -> bytes:
    """Return a row with another payload, if it has any."""
    if not stored:
        return stored
    # Never from a damaged row: what is sealed again has to be what was written.
    row = source.checked(tree, key, stored, "row", key)
    if tree == RECORDS:
        record = decode_record(row)
        return seal(tree, key, pack(replace(record, body=Raw(change(bytes(record.body))))))
    if tree == ADDRESSES:
        current = decode_address(row)
        if not isinstance(current, CurrentRow):
            return stored
        return seal(tree, key, pack(replace(current, body=Raw(change(bytes(current.body))))))
    return seal(tree, key, change(row)) if row else stored


def _shrink(source: Snapshot) -> Shrink:
    newest = source.compression()
    compression = Compression(LEVEL_ANEW, newest.number, newest.dictionary)
    return lambda payload: compression.compressed(source.plain(payload))


def _train(environment: Environment, writer: Writer) -> None:
    """Train a dictionary on payloads of all sessions and make it the newest, where that is due.

    None is ever taken away: a commit that uses it may be on its way, in any process.
    """
    number = 1
    with Snapshot(environment, Counters(), "") as snapshot:
        rows = sum(map(snapshot.count, _PAYLOADS))
        newest = snapshot.newest_dictionary()
        if newest is not None:
            if rows < _GROWN * newest[1].rows:
                return
            number = newest[0] + 1
        trained = train_dictionary(pick_samples(_payloads(snapshot), snapshot.plain))
    if trained is None:
        return
    key = dictionary_key(number)
    row = seal(MAIN, key, pack(DictionaryRow(rows, trained)))

    def change(transaction: Transaction) -> None:
        # Another vacuum may have been quicker, and payloads need the one that it made.
        if transaction.get(key) is None:
            transaction.put(key, row)

    writer.update("vacuum", change, sync=environment.synced)
    environment.forget_dictionary()


def _payloads(snapshot: Snapshot) -> Iterator[bytes]:
    found: list[bytes] = []

    def take(payload: bytes) -> bytes:
        found.append(payload)
        return payload

    for tree in _PAYLOADS:
        for key, stored in snapshot.every_row(tree):
            _with_payload(snapshot, tree, key, stored, take)
            yield from found
            found.clear()
