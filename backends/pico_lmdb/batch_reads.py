"""Reading batch boundaries: those of main batches, many in a row, and those of live scratch."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from pico_lmdb.layout import BATCHES, MAIN, last_number, pair, scratch_write
from pico_lmdb.memo import Memo, last_seq, streams
from pico_lmdb.rows import boundaries, decode_boundaries, decode_scratch, decode_tail
from pico_lmdb.snapshot import Snapshot
from pico_store.address import Seq
from pico_store.limits import SEQ_MAX
from pico_store.query_check import Window
from pico_store.records import BatchRange, Page


class BatchReads:
    """Answers questions about one session's batches."""

    def __init__(self, memo: Memo) -> None:
        self._memo = memo
        self._session = memo.session

    def scan_batches(self, snapshot: Snapshot, window: Window) -> Page[BatchRange]:
        """Return a page of the boundaries of main batches and of live tasks' scratch batches."""
        items: list[BatchRange] = []
        more = None
        for batch in self.batches(snapshot, window):
            if len(items) == window.limit:
                more = items[-1].first
                break
            items.append(batch)
        return Page(items, last_seq(snapshot, self._session), more)

    def batches(self, snapshot: Snapshot, window: Window) -> Iterator[BatchRange]:
        """Yield the batches that begin in a window, in its order."""
        if window.first > window.last:
            return iter(())
        sources = [self._main(snapshot, window)]
        for task, _ in streams(snapshot, self._session):
            sources.append(self._scratch(snapshot, task, window))
        if len(sources) == 1:
            return sources[0]
        return heapq.merge(*sources, key=lambda batch: batch.first, reverse=window.newest_first)

    def _main(self, snapshot: Snapshot, window: Window) -> Iterator[BatchRange]:
        step = -1 if window.newest_first else 1
        for first, numbers in self._rows(snapshot, window):
            for start, last in boundaries(first, numbers)[::step]:
                if window.first <= start <= window.last:
                    yield BatchRange(start, last)

    def _rows(self, snapshot: Snapshot, window: Window) -> Iterator[tuple[int, list[int]]]:
        """Yield the rows that a window may touch, in its order."""
        found = snapshot.read(MAIN, self._memo.tail_key, "batch boundaries", "at the end")
        if found is None:
            return
        tail = decode_tail(found)
        if window.newest_first and tail.first <= window.last:
            yield tail.first, tail.boundaries
        if window.first < tail.first:
            stop = pair(self._session, min(window.last, SEQ_MAX) + 1)
            # The row that the window begins in begins before it.
            start = pair(self._session, 0)
            at = snapshot.newest(BATCHES, start, pair(self._session, window.first + 1))
            if at is not None:
                start = at[0]
            newest_first = window.newest_first
            for key, stored in snapshot.between(BATCHES, start, stop, newest_first=newest_first):
                first = last_number(key, 4)[0]
                row = snapshot.checked(BATCHES, key, stored, "batch boundaries", f"from {first}")
                yield first, decode_boundaries(row)
        if not window.newest_first and tail.first <= window.last:
            yield tail.first, tail.boundaries

    def _scratch(self, snapshot: Snapshot, task: Seq, window: Window) -> Iterator[BatchRange]:
        start = scratch_write(self._session, task, window.first)
        stop = scratch_write(self._session, task, window.last + 1)
        newest_first = window.newest_first
        for key, stored in snapshot.between(MAIN, start, stop, newest_first=newest_first):
            first = Seq(last_number(key, 14)[0])
            row = decode_scratch(snapshot.checked(MAIN, key, stored, "scratch write", first))
            if row.writes:
                yield BatchRange(first, Seq(first + row.writes - 1), task)
