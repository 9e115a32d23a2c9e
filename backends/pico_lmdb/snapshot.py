"""One state of the environment, as long as a read takes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from types import TracebackType
from typing import Final

import lmdb

from pico_lmdb.engine import Row
from pico_lmdb.environment import Environment, translate
from pico_lmdb.layout import after_prefix
from pico_lmdb.rows import unseal
from pico_store.errors import StoreDamagedError
from pico_store.storage import Counters

_MISFITS: Final = (struct.error, KeyError, IndexError, UnicodeDecodeError)


class Snapshot:
    """A context manager that lends one state; what it yields is bytes of its own.

    Every probe of a tree counts as one query.
    """

    __slots__ = ("_counters", "_environment", "_name", "_transaction", "_trees")

    def __init__(self, environment: Environment, counters: Counters, name: str) -> None:
        self._environment = environment
        self._counters = counters
        self._name = name

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
            # A key is none, or rows lead to rows that are not there: no whole file has either.
            problem = f"damaged rows: {error!r}; run pico verify, restore a backup"
            raise StoreDamagedError(f"{self._environment.path}: read: {problem}") from error

    def get(self, tree: int, key: bytes) -> bytes | None:
        """Return what a key holds."""
        self._counters.queries += 1
        return self._transaction.get(key, None, self._trees[tree])

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
            there = cursor.prev() if cursor.set_range(stop) else cursor.last()
            if there:
                for row in cursor.iterprev():
                    if row[0] < start:
                        return
                    yield row
        elif cursor.set_range(start):
            for row in cursor.iternext():
                if row[0] >= stop:
                    return
                yield row

    def keys(
        self, tree: int, start: bytes, stop: bytes, *, newest_first: bool = False
    ) -> Iterator[bytes]:
        """Yield the keys alone, likewise."""
        return (row[0] for row in self.between(tree, start, stop, newest_first=newest_first))

    def every_key(self, tree: int) -> Iterator[bytes]:
        """Yield all keys of a tree."""
        return self._transaction.cursor(self._trees[tree]).iternext(True, False)

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
        there = cursor.prev() if cursor.set_range(stop) else cursor.last()
        if not there:
            return None
        row = cursor.item()
        return row if row[0] >= start else None
