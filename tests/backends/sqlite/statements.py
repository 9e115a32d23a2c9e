"""What is sent to SQLite: every statement of every connection, and the plans that it makes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import apsw


@contextmanager
def statements() -> Iterator[dict[str, object]]:
    """Collect the statements that connections opened within the block run, with bindings."""
    seen: dict[str, object] = {}

    def trace(cursor: apsw.Cursor, sql: str, bindings: object) -> bool:
        seen[sql] = bindings
        return True

    def watch(db: apsw.Connection) -> None:
        db.exec_trace = trace

    apsw.connection_hooks.append(watch)
    try:
        yield seen
    finally:
        apsw.connection_hooks.remove(watch)


def plan(path: str, sql: str, bindings: object) -> list[str]:
    """Return the steps of the plan that SQLite makes for a statement."""
    db = apsw.Connection(path)
    try:
        rows = db.execute(f"EXPLAIN QUERY PLAN {sql}", bindings).fetchall()  # type: ignore[arg-type]
        return [str(row[3]) for row in rows]
    finally:
        db.close()
