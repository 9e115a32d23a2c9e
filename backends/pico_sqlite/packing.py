"""Bodies that are compressed: the dictionaries of a file, and what makes and reads such bodies.

Which bodies are compressed can be told from their first byte, so that a file may hold both kinds.
A dictionary is never taken away: another process may be about to use it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import apsw

from pico_sqlite.checksum import checksum
from pico_sqlite.connection import Row
from pico_sqlite.readers import Readers, Snapshot
from pico_store.check import CheckedBatch
from pico_store.compression import LEVEL, Compression, is_compressed
from pico_store.errors import StoreDamagedError

# One damaged bit may make a text of it, which need not be UTF-8.
_BODY: Final = "iif(typeof(body) = 'blob', body, NULL)"
_COLUMNS: Final = f"SELECT number, payloads, checksum, {_BODY} FROM dictionaries"


def has_dictionaries(db: apsw.Connection) -> bool:
    """Tell whether a dictionary was ever trained."""
    # Asked of the file: what a connection remembers of the tables may be old.
    sql = "SELECT 1 FROM sqlite_schema WHERE name = 'dictionaries'"
    found: list[Row] = db.execute(sql).fetchall()
    return bool(found)


def dictionary_problems(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the dictionaries: a place and what."""
    for row in snapshot.rows(_COLUMNS) if has_dictionaries(snapshot.db) else ():
        if not _is_whole(row):
            yield f"dictionary {row[0]}", "its checksum differs"


def _is_whole(row: Row) -> bool:
    number, payloads, sums, body = row
    return bool(checksum((number, payloads, body)) == sums)


class Packing:
    """Makes bodies smaller, and reads those that were made so, for one file.

    Any number of threads may use one.
    """

    def __init__(self, readers: Readers) -> None:
        self._readers = readers
        self._newest: Compression | None = None

    def compress(self, checked: CheckedBatch) -> None:
        """Compress the bodies of a main batch where that pays; scratch soon goes and stays."""
        if checked.task is None:
            shrink = self.newest().compressed
            bodies = checked.bodies
            for index, body in enumerate(bodies):
                if body is not None:
                    bodies[index] = shrink(body)

    def compressed(self, body: bytes) -> bytes:
        """Return a body as it is to be stored: compressed where that pays."""
        return self.newest().compressed(body)

    def plain(self, body: bytes) -> bytes:
        """Return a body as it was before it was compressed, if it was.

        Raises:
            MissingDriverError: It is compressed, and zstandard is not installed.
            StoreDamagedError: Its dictionary is gone or damaged.
        """
        if not is_compressed(body):
            return body
        return self.newest().plain(body, self._dictionary)

    def newest(self) -> Compression:
        """Return what compresses with the newest dictionary, and reads what any was used for."""
        found = self._newest
        if found is None:
            number, dictionary = 0, None
            if row := self._row(f"{_COLUMNS} ORDER BY number DESC LIMIT 1"):
                number, dictionary = int(row[0]), bytes(row[3])
            self._newest = found = Compression(LEVEL, number, dictionary)
        return found

    def forget(self) -> None:
        """Look for the newest dictionary again when it is needed next."""
        self._newest = None

    def _dictionary(self, number: int) -> bytes | None:
        row = self._row(f"{_COLUMNS} WHERE number = ?", number)
        return None if row is None else bytes(row[3])

    def _row(self, sql: str, *values: int) -> Row | None:
        with self._readers.snapshot() as snapshot:
            rows = snapshot.rows(sql, values) if has_dictionaries(snapshot.db) else []
        if not rows:
            return None
        if not _is_whole(rows[0]):
            problem = f"dictionary {rows[0][0]} is damaged; run pico verify, restore a backup"
            raise StoreDamagedError(problem)
        return rows[0]
