"""The short way of a streamed frame: a scratch batch of one append, in one statement.

A task that streams an answer commits little else, so that what one frame costs is what streaming
costs. The statement finds out by itself whether the handle still owns the session; it needs no
transaction around it.
"""

from __future__ import annotations

from typing import Final

import apsw

from pico_sqlite.checksum import checksum
from pico_sqlite.memo import Memo
from pico_sqlite.numbers import EXTENT_BITS, LOW
from pico_sqlite.scratch_rows import STREAM_BITS, lost
from pico_sqlite.view import View
from pico_sqlite.writer import Writer
from pico_store.batch import ScratchBatch
from pico_store.records import BatchRange

_FRAME: Final = (
    "INSERT INTO scratch SELECT ?, 1, NULL, ?, '', ?, ? FROM sessions "
    "WHERE session = ? AND epoch = ?"
)
_FIRST_FRAME: Final = (
    f"INSERT INTO scratch SELECT ? + (((SELECT coalesce(max(id) >> {STREAM_BITS}, -1) + 1 "
    f"FROM scratch)) << {STREAM_BITS}), 1, ?, ?, '', ?, ? FROM sessions "
    "WHERE session = ? AND epoch = ?"
)


class Frames:
    """Writes the frames of one session."""

    def __init__(self, writer: Writer, memo: Memo, view: View, epoch: int) -> None:
        self._writer = writer
        self._memo = memo
        self._view = view
        self._epoch = epoch
        self._run = writer.db.cursor().execute
        self._changes = writer.db.changes
        self._last_id = writer.db.last_insert_rowid

    def write(self, batch: ScratchBatch, body: bytes) -> BatchRange | None:
        """Commit a batch of which `lone_append` returned the payload.

        Returns:
            ``None``, and nothing is written, where one statement is not enough: at the first
            number of an extent.

        Raises:
            OwnershipLostError: Another open took the session over; nothing was written.
            RetryableError: Nothing became durable.
            CommitUncertainError: It may or may not be durable.
        """
        memo, view, task = self._memo, self._view, batch.task
        seq = view.last_seq + 1
        # The arithmetic of numbers.py, stretched out.
        keys = memo.numbers.keys
        extent = keys.get(seq >> EXTENT_BITS)
        if extent is None:
            return None
        key = extent | (seq & LOW)
        known = memo.live_tasks[task]
        namespace = batch.writes[0].address.namespace
        sums = checksum((seq, task, 1, namespace, ""), body)
        values: tuple[int | str | bytes, ...]
        if known.stream is None:
            sql, origin = _FIRST_FRAME, keys[task >> EXTENT_BITS] | (task & LOW)
            values = (key - origin, origin, namespace, sums, body, memo.session, self._epoch)
        else:
            id = known.origin + key
            if id >> STREAM_BITS != known.stream:
                return None
            sql, values = _FRAME, (id, namespace, sums, body, memo.session, self._epoch)
        writer = self._writer
        with writer.lock:
            if writer.closed:
                writer.check_open()
            try:
                self._run(sql, values)
            except apsw.Error as error:
                raise writer.failed(error) from error
            owned = self._changes()
            if owned and known.stream is None:
                stream = self._last_id() >> STREAM_BITS
                origin = (stream << STREAM_BITS) - origin
                memo.keep_task(task, known._replace(stream=stream, origin=origin))
        if not owned:
            raise lost(self._epoch)
        view.last_seq = seq  # type: ignore[assignment]
        return BatchRange(seq, seq, task)  # type: ignore[arg-type]
