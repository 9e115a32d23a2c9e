"""Compressing what a file holds: a dictionary trained on it, and every body written anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import apsw

from pico_sqlite.checksum import Column, checksum
from pico_sqlite.connection import Row
from pico_sqlite.memo import Memo
from pico_sqlite.numbers import EXTENT_BITS
from pico_sqlite.packing import Packing, has_dictionaries
from pico_sqlite.readers import Snapshot
from pico_sqlite.record_reads import ENTRY, TASK, RecordReads
from pico_sqlite.rows import value_columns
from pico_sqlite.schema import DICTIONARIES
from pico_sqlite.writer import Writer
from pico_store.compression import (
    LEVEL_ANEW,
    Compression,
    dictionary_of,
    is_compressed,
    pick_samples,
    train_dictionary,
)
from pico_store.entry_body import EntryColumns
from pico_store.errors import StoreDamagedError
from pico_store.storage import Counters

_ROWS_A_TRANSACTION: Final = 1_000
_BYTES_A_TRANSACTION: Final = 4 << 20
_GROWN: Final = 4
"""How many times as many payloads there must be for another dictionary: few, at any size."""
_BODIES: Final = (
    "SELECT body FROM records WHERE body IS NOT NULL "
    "UNION ALL SELECT body FROM current_values WHERE body IS NOT NULL AND scope >= 0 "
    "UNION ALL SELECT body FROM value_versions WHERE body IS NOT NULL "
    "UNION ALL SELECT body FROM list_elements"
)


class _Table(NamedTuple):
    """Where bodies are."""

    columns: str
    source: str
    keys: str
    start: Row
    """What is less than every key."""
    key: Callable[[Row], Row]
    """Returns the key of a row."""
    covered: Callable[[_Reads, Row], tuple[Column, ...]]
    """Returns what a row's checksum covers beside the body, its last column."""
    name: str

    def select(self) -> str:
        """Return the statement that yields rows after a key."""
        marks = ", ".join("?" * len(self.start))
        return (
            f"SELECT {self.columns} FROM {self.source} AND ({self.keys}) > ({marks}) "
            f"ORDER BY {self.keys} LIMIT {_ROWS_A_TRANSACTION}"
        )

    def update(self) -> str:
        """Return the statement that replaces the body of a key."""
        marks = ", ".join("?" * len(self.start))
        keys = self.keys.replace("t.", "")
        return f"UPDATE {self.name} SET checksum = ?, body = ? WHERE ({keys}) = ({marks})"


class _Reads:
    """Knows, for one transaction, the session of each key."""

    def __init__(self, db: apsw.Connection, packing: Packing) -> None:
        self._db = db
        self._packing = packing
        extents: list[Row] = db.execute("SELECT base, session FROM extents").fetchall()
        self._sessions: dict[int, int] = dict(extents)
        self._records: dict[int, tuple[Memo, RecordReads]] = {}

    def of(self, key: int) -> tuple[Memo, RecordReads]:
        """Return what is known of the session of a key."""
        session = self._sessions[key >> EXTENT_BITS]
        if session not in self._records:
            memo = Memo(session, self._db)
            records = RecordReads(memo, Counters(), str(session), self._packing.plain)
            self._records[session] = memo, records
        return self._records[session]

    def entry(self, row: Row) -> tuple[Column, ...]:
        entry = self.of(row[0])[1].entry(row)
        return EntryColumns(
            entry.id, entry.conversation_id, entry.kind, entry.key, entry.by_task_id, entry.head
        )

    def task(self, row: Row) -> tuple[Column, ...]:
        records = self.of(row[0])[1]
        task = records.task(Snapshot(self._db), row, owns=False)
        return (task.id, *records.live_task(row).columns(task.status, row[4]))

    def value(self, row: Row) -> tuple[Column, ...]:
        scope, namespace, key, seq = row[:4]
        return value_columns(self.of(scope)[0], seq, scope, namespace, key)

    def element(self, row: Row) -> tuple[Column, ...]:
        list, seq = row[:2]
        return (seq, list)


_TABLES: Final = (
    _Table(
        ENTRY, "records WHERE role = 3", "id", (-1,), lambda row: row[:1], _Reads.entry, "records"
    ),
    _Table(
        TASK,
        "records t WHERE t.role < 3",
        "t.id",
        (-1,),
        lambda row: row[:1],
        _Reads.task,
        "records",
    ),
    _Table(
        "scope, namespace, key, seq, checksum, body",
        "current_values WHERE body IS NOT NULL",
        "scope, namespace, key",
        (-1, "", ""),
        lambda row: row[:3],
        _Reads.value,
        "current_values",
    ),
    _Table(
        "scope, namespace, key, seq, checksum, body",
        "value_versions WHERE body IS NOT NULL",
        "scope, namespace, key, seq",
        (-1, "", "", 0),
        lambda row: row[:4],
        _Reads.value,
        "value_versions",
    ),
    _Table(
        "list, seq, checksum, body",
        "list_elements WHERE 1",
        "list, seq",
        (-1, 0),
        lambda row: row[:2],
        _Reads.element,
        "list_elements",
    ),
)


def repack(writer: Writer, packing: Packing) -> None:
    """Train a dictionary if that is worth it, and compress all bodies with the newest.

    In transactions of bounded size, so that others can commit in between.

    Raises:
        StoreDamagedError: A row is not what was written; it is left as it is.
    """
    try:
        _train(writer, packing)
        _repack(writer, packing)
    except (KeyError, UnicodeDecodeError) as error:
        problem = f"vacuum: damaged rows: {error!r}; run pico verify, restore a backup"
        raise StoreDamagedError(f"{writer.path}: {problem}") from error


def _repack(writer: Writer, packing: Packing) -> None:
    newest = packing.newest()
    compression = Compression(LEVEL_ANEW, newest.number, newest.dictionary)

    def shrunk(body: bytes) -> bytes:
        if is_compressed(body) and dictionary_of(body) == compression.number > 0:
            return body
        return compression.compressed(packing.plain(body))

    for table in _TABLES:
        start: Row | None = table.start
        while start is not None:
            with writer.transaction("vacuum") as db:
                start = _repack_part(db, packing, table, start, shrunk)


def _repack_part(
    db: apsw.Connection,
    packing: Packing,
    table: _Table,
    start: Row,
    shrunk: Callable[[bytes], bytes],
) -> Row | None:
    """Compress some rows; return the key of the last one, ``None`` where none was left."""
    # Other processes may add and delete sessions between two transactions.
    reads = _Reads(db, packing)
    rows: list[Row] = []
    weight = 0
    cursor = db.cursor()
    for row in cursor.execute(table.select(), start):
        rows.append(row)
        weight += len(row[-1])
        if weight > _BYTES_A_TRANSACTION:
            break
    cursor.close(True)
    for row in rows:
        *_, sums, body = row
        columns = table.covered(reads, row)
        if checksum((*columns, body)) != sums:
            # Never from a damaged row: what is sealed again has to be what was written.
            problem = f"{table.name} row {table.key(row)} is damaged; run pico verify"
            raise StoreDamagedError(f"{db.filename}: vacuum: {problem}")
        made = shrunk(body)
        if made != body:
            db.execute(table.update(), (checksum((*columns, made)), made, *table.key(row)))
    return table.key(rows[-1]) if rows else None


def _train(writer: Writer, packing: Packing) -> None:
    with writer.transaction("vacuum") as db:
        counted: list[Row] = db.execute(f"SELECT count(*) FROM ({_BODIES})").fetchall()
        payloads = int(counted[0][0])
        number, trained_on = 0, 0
        if has_dictionaries(db):
            sql = "SELECT number, payloads FROM dictionaries ORDER BY number DESC LIMIT 1"
            trained: list[Row] = db.execute(sql).fetchall()
            if not trained or type(trained[0][1]) is not int:
                # A number that was used must not come to stand for another dictionary.
                problem = "vacuum: dictionaries are gone or damaged; run pico verify"
                raise StoreDamagedError(f"{writer.path}: {problem}, restore a backup")
            number, trained_on = trained[0]
        if payloads < _GROWN * trained_on:
            return
        bodies: Iterator[Row] = db.execute(_BODIES)
        dictionary = train_dictionary(pick_samples((row[0] for row in bodies), packing.plain))
        if dictionary is None:
            return
        if number == 0:
            db.execute(DICTIONARIES)
        number += 1
        sums = checksum((number, payloads, dictionary))
        row = (number, payloads, sums, dictionary)
        db.execute("INSERT INTO dictionaries VALUES(?, ?, ?, ?)", row)
    packing.forget()
