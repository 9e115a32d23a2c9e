"""Scratch as rows: one a write, in a stream of rows for each live task that ever wrote.

A stream's rows stand together at ``stream << 32``, each at the distance of its own number from
its task's, so that frames are appended to the end of the table, and a settled task's rows go as
one range. Streams are numbered from the greatest in use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import apsw
from msgspec.structs import replace

from pico_sqlite.checksum import scratch_checksum, scratch_start
from pico_sqlite.connection import Bindings, Row
from pico_sqlite.memo import LiveTask, Memo
from pico_store.address import Address, ScratchAddress, Seq
from pico_store.batch import ListAppend, ListClear, ListRemove, ValueDelete, ValueSet
from pico_store.check import CheckedBatch
from pico_store.errors import LimitExceededError, OwnershipLostError

STREAM_BITS: Final = 32
STREAM_LAST: Final = (1 << STREAM_BITS) - 1
_ROW: Final = "INSERT INTO scratch VALUES(?, ?, ?, ?, ?, ?, ?)"
_SPENT: Final = (
    "UPDATE scratch SET namespace = NULL, key = NULL, checksum = ?, body = NULL WHERE id = ?"
)

PutValue = Callable[[Address, Seq, bytes | None], None]


def stored_key(key: str | None) -> str:
    """Return a key as it is stored: no key and the empty key differ, and order is kept."""
    return "" if key is None else ":" + key


def lost(epoch: int) -> OwnershipLostError:
    """Return the error of a handle whose epoch is over."""
    return OwnershipLostError(
        f"this handle's epoch {epoch} is over: another open took the session; "
        "nothing was written; open it again"
    )


class ScratchRows:
    """Writes the scratch of one session's tasks."""

    def __init__(self, db: apsw.Connection, memo: Memo, put_value: PutValue) -> None:
        self._db = db
        self._run = db.cursor().execute
        self._memo = memo
        self._put_value = put_value
        # The key of a task whose stream's first row has not been written yet.
        self._starts: int | None = None

    def write(self, checked: CheckedBatch) -> None:
        """Write any scratch batch, in a transaction of a handle that owns the session."""
        assert checked.task is not None
        known = self.begin(checked.task)
        size = len(checked.writes)
        for index, write in enumerate(checked.writes):
            seq = Seq(checked.first + index)
            body = checked.bodies[index]
            kept = _WRITERS[type(write)](self, known, write, seq, body)
            writes = 0 if index else size
            address = write.address  # type: ignore[union-attr]
            assert type(address) is ScratchAddress
            self.put(known, address, seq, writes, body if kept else None)

    def begin(self, task: Seq) -> LiveTask:
        """Return a live task that has a stream."""
        known = self._memo.live_tasks[task]
        if known.stream is None:
            sql = f"SELECT coalesce(max(id) >> {STREAM_BITS}, -1) + 1 FROM scratch"
            rows: list[Row] = self._run(sql).fetchall()
            stream = int(rows[0][0])
            self._starts = self._memo.numbers.key(task)
            known = replace(known, stream=stream, origin=(stream << STREAM_BITS) - self._starts)
            self._memo.live_tasks[task] = known
        return known

    def put(
        self, known: LiveTask, address: ScratchAddress, seq: Seq, writes: int, body: bytes | None
    ) -> None:
        """Insert the row of a write; without a body it is spent, and only its number counts.

        Raises:
            LimitExceededError: The file has given out 2^32 numbers since the task's.
        """
        id = known.origin + self._memo.numbers.key(seq)
        if id >> STREAM_BITS != known.stream:
            problem = f"task {address.task} is 2^32 numbers of this file old; settle it"
            raise LimitExceededError("TASK-4", "task", problem)
        name = (None, None) if body is None else (address.namespace, stored_key(address.key))
        sums = scratch_checksum(scratch_start(address.task, writes, *name), seq, body)
        self._run(_ROW, (id, writes, self._starts, *name, sums, body))
        self._starts = None

    def retire(self, known: LiveTask, key: int) -> None:
        """Delete the scratch of a task that wrote some."""
        assert known.stream is not None
        first = known.stream << STREAM_BITS
        self._run("DELETE FROM scratch WHERE id BETWEEN ? AND ?", (first, first | STREAM_LAST))
        if known.has_values:
            self._run("DELETE FROM current_values WHERE scope = ?", (-key,))

    # Each returns whether the write's own row holds its payload.

    def _append(self, known: LiveTask, write: ListAppend, seq: Seq, body: bytes) -> bool:
        return True

    def _remove(self, known: LiveTask, write: ListRemove, seq: Seq, body: None) -> bool:
        id = known.origin + self._memo.numbers.key(write.element)
        self._spend(known, write, "id = ?", (id,))
        return False

    def _clear(self, known: LiveTask, write: ListClear, seq: Seq, body: None) -> bool:
        assert known.stream is not None
        first = known.stream << STREAM_BITS
        name = (write.address.namespace, stored_key(write.address.key))
        where = "id BETWEEN ? AND ? AND namespace = ? AND key = ?"
        self._spend(known, write, where, (first, first | STREAM_LAST, *name))
        return False

    def _spend(
        self, known: LiveTask, write: ListRemove | ListClear, where: str, values: Bindings
    ) -> None:
        """Leave nothing of some rows but their numbers."""
        assert type(write.address) is ScratchAddress
        sql = f"SELECT id, writes FROM scratch WHERE {where}"
        rows: list[Row] = self._run(sql, values).fetchall()
        for id, writes in rows:
            seq = self._memo.numbers.seq(id - known.origin)
            start = scratch_start(write.address.task, writes, None, None)
            self._run(_SPENT, (scratch_checksum(start, seq, None), id))

    def _set(self, known: LiveTask, write: ValueSet, seq: Seq, body: bytes) -> bool:
        self._put_value(write.address, seq, body)
        if not known.has_values:
            assert type(write.address) is ScratchAddress
            self._memo.live_tasks[write.address.task] = replace(known, has_values=True)
        return False

    def _delete(self, known: LiveTask, write: ValueDelete, seq: Seq, body: None) -> bool:
        self._put_value(write.address, seq, None)
        return False


_WRITERS: Final[dict[type, Callable[[ScratchRows, LiveTask, Any, Seq, Any], bool]]] = {
    ValueSet: ScratchRows._set,
    ValueDelete: ScratchRows._delete,
    ListAppend: ScratchRows._append,
    ListRemove: ScratchRows._remove,
    ListClear: ScratchRows._clear,
}
