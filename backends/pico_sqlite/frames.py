"""The short way of a streamed frame: a scratch batch of one append, in one statement.

A task that streams an answer commits little else, so that what one frame costs is what streaming
costs. The statement finds out by itself whether the handle still owns the session; it needs no
transaction around it.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

import apsw
from msgspec.structs import replace

from pico_sqlite.checksum import BIAS, scratch_checksum, scratch_start
from pico_sqlite.memo import LiveTask, Memo
from pico_sqlite.numbers import EXTENT_BITS, LOW
from pico_sqlite.scratch_rows import STREAM_BITS, STREAM_LAST, lost
from pico_sqlite.view import View
from pico_sqlite.writer import Writer
from pico_store.address import ScratchAddress, Seq
from pico_store.batch import ListAppend, ScratchBatch
from pico_store.check import lone_append
from pico_store.errors import PicoError
from pico_store.limits import SEQ_MAX
from pico_store.records import BatchRange
from pico_store.strict_json import pack

# Short texts: the driver hashes one at each call.
_OWNED: Final = "FROM sessions WHERE session=? AND epoch=?"
# Not owned, it breaks the constraint that every row has a size.
_FRAME: Final = f"INSERT INTO scratch VALUES(?,(SELECT 1 {_OWNED}),NULL,?,'',?,?)"
_FIRST_FRAME: Final = (
    f"INSERT INTO scratch VALUES(? + (((SELECT coalesce(max(id) >> {STREAM_BITS}, -1) + 1 "
    f"FROM scratch)) << {STREAM_BITS}),(SELECT 1 {_OWNED}),?,?,'',?,?)"
)


class Frames:
    """Writes the frames of one session."""

    def __init__(self, writer: Writer, memo: Memo, view: View, epoch: int) -> None:
        self._writer = writer
        self._memo = memo
        self._session = memo.session
        self._view = view
        self._epoch = epoch
        self._run = writer.db.cursor().execute
        self._last_id = writer.db.last_insert_rowid
        # The frame before, as far as the next one of its stream is written like it.
        self._address: ScratchAddress | None = None
        self._task = Seq(0)
        self._namespace = ""
        self._start = 0
        self._distance = 0
        self._last = 0

    def forget(self) -> None:
        """Look at the next frame closely: something else was committed."""
        self._address = None

    def commit(self, batch: ScratchBatch) -> BatchRange | None:
        """Commit a batch if it is such a frame.

        Returns:
            ``None``, and nothing is written, where it is another batch, or one statement is not
            enough: at the first number of an extent, or before anything is known of the task.

        Raises:
            RefusedError: The value is not strict JSON; nothing was written.
            OwnershipLostError: Another open took the session over; nothing was written.
            RetryableError: Nothing became durable.
            CommitUncertainError: It may or may not be durable.
        """
        view, writes, task = self._view, batch.writes, self._task
        seq = view.last_seq + 1
        if type(writes) is not tuple or len(writes) != 1 or type(writes[0]) is not ListAppend:
            return None
        write = writes[0]
        # The very objects of the frame before, which was found right.
        if write.address is not self._address or batch.task is not task or seq > self._last:
            return self._commit_first(batch, seq)
        body = pack(write.value, "writes[0].value")
        # As scratch_checksum does it.
        sums = crc32(body, self._start ^ seq) - BIAS
        values = (seq + self._distance, self._session, self._epoch, self._namespace, sums, body)
        writer = self._writer
        with writer.lock:
            if writer.closed:
                writer.check_open()
            try:
                self._run(_FRAME, values)
            except apsw.Error as error:
                raise self._failed(error) from error
        view.last_seq = seq  # type: ignore[assignment]
        return BatchRange(seq, seq, task)  # type: ignore[arg-type]

    def _commit_first(self, batch: ScratchBatch, seq: int) -> BatchRange | None:
        """Commit a frame that nothing is known of; the next one of its stream is like it."""
        memo, task = self._memo, batch.task
        known = memo.live_tasks.get(task) if type(task) is int else None
        extent = memo.numbers.keys.get(seq >> EXTENT_BITS)
        if known is None or extent is None or seq > SEQ_MAX:
            return None
        body = lone_append(batch, known)
        if body is None:
            return None
        key, address = extent | (seq & LOW), batch.writes[0].address
        assert type(address) is ScratchAddress
        if known.stream is not None and (known.origin + key) >> STREAM_BITS != known.stream:
            return None
        # A frame so far from its task would stand in the stream behind.
        if known.stream is None and (key - memo.numbers.key(task)) >> STREAM_BITS:
            return None
        start = scratch_start(task, 1, address.namespace, "")
        sums = scratch_checksum(start, seq, body)
        session, values = (self._session, self._epoch), (address.namespace, sums, body)
        with self._writer.lock:
            if self._writer.closed:
                self._writer.check_open()
            origin = memo.numbers.key(task)
            try:
                if known.stream is None:
                    self._run(_FIRST_FRAME, (key - origin, *session, origin, *values))
                else:
                    self._run(_FRAME, (known.origin + key, *session, *values))
            except apsw.Error as error:
                raise self._failed(error) from error
            if known.stream is None:
                stream = self._last_id() >> STREAM_BITS
                known = replace(known, stream=stream, origin=(stream << STREAM_BITS) - origin)
                memo.live_tasks[task] = known
        # Numbers of one extent are alike in their upper half.
        self._start = start ^ seq >> 32
        self._remember(address, task, known, key - seq, seq)
        self._view.last_seq = Seq(seq)
        return BatchRange(Seq(seq), Seq(seq), task)

    def _failed(self, error: apsw.Error) -> PicoError:
        if isinstance(error, apsw.ConstraintError):
            return lost(self._epoch)
        return self._writer.failed(error)

    def _remember(
        self, address: ScratchAddress, task: Seq, known: LiveTask, shift: int, seq: int
    ) -> None:
        """Keep what the next frame shares with this one, whose key is ``seq + shift``."""
        assert known.stream is not None
        self._address, self._task, self._namespace = address, task, address.namespace
        self._distance = known.origin + shift
        end_of_stream = (known.stream << STREAM_BITS | STREAM_LAST) - self._distance
        self._last = min(seq | LOW, end_of_stream, SEQ_MAX)
