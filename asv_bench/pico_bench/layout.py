"""Compares ways to lay a file of many sessions out: `python -m pico_bench.layout` prints a table.

This is the evidence of docs/adr/0003: the layout that the SQLite backend uses beside those that
it does not. Only entries are written, by plain SQL, so that nothing but the layout differs.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import apsw

_SESSIONS = 8
_PAGE = 100
_MANY = 2_000
_CONNECTIONS = 20
Row = tuple[int, int, bytes]
"""Session, number in the session, payload."""


class Layout(NamedTuple):
    """How entries are kept."""

    name: str
    schema: tuple[str, ...]
    insert: Callable[[int, int], tuple[str, tuple[int, ...]]]
    """The statement for an entry of a session and number, and its values before the payload."""
    page: Callable[[int, int], tuple[str, tuple[int, ...]]]
    """The statement for a page of a session after a number."""
    more: Callable[[int], tuple[str, ...]] = lambda session: ()
    """What one session more adds to the schema."""


class Result(NamedTuple):
    """What a layout took."""

    microseconds_a_row: float
    microseconds_a_page: float
    bytes_a_payload_byte: float
    microseconds_a_connection: float
    """Connecting to a file of two thousand sessions, and reading a page of one."""


def _key(session: int, number: int) -> int:
    # Extents of 2^20 numbers, handed out as they are needed: here each session has one.
    return session << 20 | number


def _tables(session: int) -> tuple[str, ...]:
    return (
        f"CREATE TABLE entry{session}(id INTEGER PRIMARY KEY, conversation INT, body BLOB)",
        f"CREATE INDEX of{session} ON entry{session}(conversation)",
    )


LAYOUTS = (
    Layout(
        "one integer key of session and number",
        (
            "CREATE TABLE entry(id INTEGER PRIMARY KEY, conversation INT, body BLOB)",
            "CREATE INDEX entry_conversation ON entry(conversation)",
        ),
        lambda session, number: (
            "INSERT INTO entry VALUES(?, ?, ?)",
            (_key(session, number), _key(session, 1)),
        ),
        lambda session, number: (
            "SELECT id, body FROM entry WHERE conversation = ? AND id > ? ORDER BY id LIMIT ?",
            (_key(session, 1), _key(session, number), _PAGE),
        ),
    ),
    Layout(
        "WITHOUT ROWID, key (session, number)",
        (
            "CREATE TABLE entry(session INT, id INT, conversation INT, body BLOB, "
            "PRIMARY KEY(session, id)) WITHOUT ROWID",
            "CREATE INDEX entry_conversation ON entry(session, conversation, id)",
        ),
        lambda session, number: ("INSERT INTO entry VALUES(?, ?, 1, ?)", (session, number)),
        lambda session, number: (
            "SELECT id, body FROM entry WHERE session = ? AND conversation = 1 AND id > ? "
            "ORDER BY id LIMIT ?",
            (session, number, _PAGE),
        ),
    ),
    Layout(
        "rowid table, unique (session, number)",
        (
            "CREATE TABLE entry(session INT, id INT, conversation INT, body BLOB, "
            "UNIQUE(session, id))",
            "CREATE INDEX entry_conversation ON entry(session, conversation, id)",
        ),
        lambda session, number: ("INSERT INTO entry VALUES(?, ?, 1, ?)", (session, number)),
        lambda session, number: (
            "SELECT id, body FROM entry WHERE session = ? AND conversation = 1 AND id > ? "
            "ORDER BY id LIMIT ?",
            (session, number, _PAGE),
        ),
    ),
    Layout(
        "a table for each session",
        tuple(sql for session in range(_SESSIONS) for sql in _tables(session)),
        lambda session, number: (f"INSERT INTO entry{session} VALUES(?, 1, ?)", (number,)),
        lambda session, number: (
            f"SELECT id, body FROM entry{session} WHERE conversation = 1 AND id > ? "
            "ORDER BY id LIMIT ?",
            (number, _PAGE),
        ),
        _tables,
    ),
)


def rows(count: int) -> Iterator[Row]:
    """Yield entries of sessions that write in turns; one in eight is as long as a page or two."""
    choose = random.Random(1)
    for index in range(count):
        size = choose.choice((120, 200, 300, 300, 500, 800, 1_500, 5_000))
        yield index % _SESSIONS, 2 + index // _SESSIONS, choose.randbytes(size)


def measure(layout: Layout, path: str, count: int) -> Result:
    """Fill a file, three entries a commit, and read pages of it at random places."""
    db = apsw.Connection(path)
    try:
        for pragma in ("page_size = 2048", "journal_mode = wal", "synchronous = normal"):
            db.execute(f"PRAGMA {pragma}").fetchall()
        for statement in layout.schema:
            db.execute(statement)
        entries = list(rows(count))
        started = time.process_time()
        for first in range(0, count, 3):
            with db:
                for session, number, body in entries[first : first + 3]:
                    sql, values = layout.insert(session, number)
                    db.execute(sql, (*values, body))
        written = time.process_time() - started
        choose = random.Random(2)
        pages = max(1, count // 100)
        started = time.process_time()
        for _ in range(pages):
            last = count // _SESSIONS
            sql, values = layout.page(choose.randrange(_SESSIONS), choose.randrange(last))
            db.execute(sql, values).fetchall()
        read = time.process_time() - started
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        size = os.stat(path).st_size
        with db:
            for session in range(_SESSIONS, _MANY):
                for statement in layout.more(session):
                    db.execute(statement)
        started = time.process_time()
        for _ in range(_CONNECTIONS):
            other = apsw.Connection(path)
            other.execute(*layout.page(0, 1)).fetchall()
            other.close()
        connected = time.process_time() - started
        payload = sum(len(body) for _, _, body in entries)
    finally:
        db.close()
    return Result(
        written / count * 1e6, read / pages * 1e6, size / payload, connected / _CONNECTIONS * 1e6
    )


def main(count: int = 40_000) -> None:
    """Print what each layout took."""
    names = ("us a row", "us a page", "us to connect", "bytes a byte")
    print(f"{'':40}" + "".join(f"{name:>15}" for name in names))
    for layout in LAYOUTS:
        with tempfile.TemporaryDirectory() as folder:
            row, page, size, connected = measure(layout, os.path.join(folder, "a.db"), count)
        print(f"{layout.name:40}{row:15.1f}{page:15.0f}{connected:15.0f}{size:15.2f}")


if __name__ == "__main__":
    main()
