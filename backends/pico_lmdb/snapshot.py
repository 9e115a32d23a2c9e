"""One state of the environment, as long as a read takes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from types import TracebackType
from typing import Final

import lmdb
import msgspec
from msgspec import Raw

from pico_lmdb.dictionaries import newest_dictionary
from pico_lmdb.engine import Cursor, Row
from pico_lmdb.environment import Environment
from pico_lmdb.failures import translate
from pico_lmdb.layout import MAIN, TREES, after_prefix, dictionary_key, is_sealed
from pico_lmdb.rows import DictionaryRow, decode_dictionary, unseal
from pico_store.compression import Compression, is_compressed
from pico_store.errors import StoreDamagedError
from pico_store.storage import Counters

# What rows that lead to rows which are not there, or hold something else, come to.
_MISFITS: Final = (
    KeyError,
    IndexError,
    struct.error,
    msgspec.MsgspecError,
    UnicodeDecodeError,
)


class Snapshot:
    """A context manager that lends one state; what it yields is bytes of its own.

    Every probe of a tree counts as one query. LMDB's pages have no checksums: a damaged key hides
    its row, and leads LMDB astray where it looks for others by halves, to the place beside that
    key. So what is beside a place that is looked up, and around a range, has to be in order and as
    it was written; else the read is refused.
    """

    __slots__ = ("_counters", "_environment", "_is_careful", "_name", "_transaction", "_trees")

    def __init__(
        self, environment: Environment, counters: Counters, name: str, *, is_careful: bool = True
    ) -> None:
        """Take what is read.

        Args:
            environment: The open folder.
            counters: Counts the queries.
            name: The session, for messages.
            is_careful: False where the caller compares everything itself.
        """
        self._environment = environment
        self._counters = counters
        self._name = name
        self._is_careful = is_careful

    def __enter__(self) -> Snapshot:
        self._transaction = self._environment.begin_read()
        self._trees = self._environment.trees
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._environment.end_read(self._transaction)
        if isinstance(error, lmdb.Error):
            raise translate(self._environment.path, "read", error) from error
        if isinstance(error, _MISFITS):
            problem = f"session {self._name!r}: damaged rows: {error!r:.200}"
            raise StoreDamagedError(f"{problem}; run pico verify, restore a backup") from error

    def get(self, tree: int, key: bytes) -> bytes | None:
        """Return what a key holds."""
        self._counters.queries += 1
        found = self._transaction.get(key, None, self._trees[tree])
        if found is None:
            cursor = self._transaction.cursor(self._trees[tree])
            if self._seek(cursor, tree, key) and cursor.key() == key:
                # It is there, and the pages above lead elsewhere.
                raise self._disorder(tree, key)
        return found

    def read(self, tree: int, key: bytes, what: str, id: object) -> bytes | None:
        """Return the row of a key, compared with its checksum.

        Args:
            tree: The number of the tree.
            key: The row's key.
            what: What the row holds, for the message.
            id: Which of them, likewise.
        """
        stored = self.get(tree, key)
        return None if stored is None else self.checked(tree, key, stored, what, id)

    def checked(self, tree: int, key: bytes, stored: bytes, what: str, id: object) -> bytes:
        """Return a row that was found, compared with its checksum.

        Raises:
            StoreDamagedError: It is not what was written.
        """
        row = unseal(tree, key, stored)
        if row is None:
            raise self.damaged(f"{what} {id}")
        return row

    def plain(self, payload: bytes | Raw) -> bytes:
        """Return a payload as it was before it was stored."""
        body = bytes(payload)
        if is_compressed(body):
            return self.compression().plain(body, self._dictionary)
        return body

    def _dictionary(self, number: int) -> bytes | None:
        row = self.read(MAIN, dictionary_key(number), "dictionary", number)
        return None if row is None else decode_dictionary(row).data

    def damaged(self, what: str) -> StoreDamagedError:
        """Return the error that names a damaged record."""
        return StoreDamagedError(
            f"session {self._name!r}: {what} is damaged: its checksum differs; "
            "run pico verify, restore a backup"
        )

    def between(
        self, tree: int, start: bytes, stop: bytes, *, newest_first: bool = False
    ) -> Iterator[Row]:
        """Yield the rows from a key on and before another, in either direction."""
        self._counters.queries += 1
        cursor = self._transaction.cursor(self._trees[tree])
        if newest_first:
            there = cursor.prev() if self._seek(cursor, tree, stop) else cursor.last()
            last = stop
            for row in cursor.iterprev() if there else ():
                key = row[0]
                if key >= last:
                    raise self._disorder(tree, key)
                if key < start:
                    self._check_row(tree, row)
                    if cursor.prev() and cursor.key() >= key:
                        raise self._disorder(tree, key)
                    return
                last = key
                yield row
        elif self._seek(cursor, tree, start):
            last = b""
            for row in cursor.iternext():
                key = row[0]
                if key <= last:
                    raise self._disorder(tree, key)
                if key >= stop:
                    self._check_row(tree, row)
                    if cursor.next() and cursor.key() <= key:
                        raise self._disorder(tree, key)
                    return
                last = key
                yield row

    def keys(
        self, tree: int, start: bytes, stop: bytes, *, newest_first: bool = False
    ) -> Iterator[bytes]:
        """Yield the keys alone, likewise; each row is compared with its checksum."""
        for row in self.between(tree, start, stop, newest_first=newest_first):
            self._check_row(tree, row)
            yield row[0]

    def _seek(self, cursor: Cursor, tree: int, key: bytes) -> bool:
        """Go to the least key that is not less than one, and look at what is around it.

        Raises:
            StoreDamagedError: It is not in order, or not as it was written.
        """
        there = cursor.set_range(key)
        if not self._is_careful:
            return there
        if there:
            after = cursor.item()
            if after[0] < key or (cursor.next() and cursor.key() <= after[0]):
                raise self._disorder(tree, after[0])
            self._check_row(tree, after)
            cursor.set_range(key)
        if cursor.prev() if there else cursor.last():
            before = cursor.item()
            if before[0] >= key or (cursor.prev() and cursor.key() >= before[0]):
                raise self._disorder(tree, before[0])
            self._check_row(tree, before)
        return cursor.set_range(key)

    def _check_row(self, tree: int, row: Row) -> None:
        key, stored = row
        if self._is_careful and is_sealed(tree, key) and unseal(tree, key, stored) is None:
            raise self._disorder(tree, key)

    def _disorder(self, tree: int, key: bytes) -> StoreDamagedError:
        name = repr(key[:80]) if tree == MAIN else f"{TREES[tree - 1].decode()} row"
        return StoreDamagedError(
            f"session {self._name!r}: {name} {int.from_bytes(key[-8:], 'big')} is damaged: its "
            "place or checksum is wrong; run pico verify, restore a backup"
        )

    def around(self, tree: int, start: bytes) -> Iterator[Row]:
        """Yield the rows from some whole one before a key on, as they lie, whole or not.

        Nothing is taken for granted: a damaged key may have led to either side of the place.
        """
        cursor = self._transaction.cursor(self._trees[tree])
        if not (cursor.set_range(start) or cursor.last()):
            return
        while cursor.prev():
            key, stored = cursor.item()
            if key < start and is_sealed(tree, key) and unseal(tree, key, stored) is not None:
                break
        else:
            cursor.first()
        yield from cursor.iternext()

    def every_row(self, tree: int) -> Iterator[Row]:
        """Yield all rows of a tree."""
        return self._transaction.cursor(self._trees[tree]).iternext()

    def compression(self) -> Compression:
        """Return what payloads are compressed with."""
        return self._environment.compression(self._transaction)

    def newest_dictionary(self) -> tuple[int, DictionaryRow] | None:
        """Return the number and the row of the newest dictionary, if there is any."""
        return newest_dictionary(self._environment.path, self._transaction)

    def finds(self, tree: int, key: bytes) -> bool:
        """Tell whether LMDB finds a key."""
        return self._transaction.get(key, None, self._trees[tree]) is not None

    def count(self, tree: int) -> int:
        """Return how many rows a tree says that it has."""
        return self._transaction.stat(self._trees[tree])["entries"]

    def under(self, tree: int, prefix: bytes) -> Iterator[Row]:
        """Yield the rows whose keys begin with a prefix."""
        return self.between(tree, prefix, after_prefix(prefix))

    def newest(self, tree: int, start: bytes, stop: bytes) -> Row | None:
        """Return the row with the greatest key from one on and before another."""
        self._counters.queries += 1
        cursor = self._transaction.cursor(self._trees[tree])
        there = cursor.prev() if self._seek(cursor, tree, stop) else cursor.last()
        if not there:
            return None
        row = cursor.item()
        return row if row[0] >= start else None
