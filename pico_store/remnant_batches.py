"""The batch boundaries of what is left of a damaged session."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator

from pico_store.address import Seq
from pico_store.limits import BATCH_WRITES_MAX
from pico_store.records import BatchRange

Tell = Callable[[str, str], object]


class RemnantBatches:
    """The boundaries that could be read, and new ones for numbers that these leave out."""

    def __init__(self, kept: list[BatchRange]) -> None:
        """Take boundaries in ascending order."""
        self._kept = kept
        self._firsts = [batch.first for batch in kept]
        self._bare: list[tuple[Seq, Seq | None]] = []

    def number(self, number: Seq, task: Seq | None) -> None:
        """Take the number of an item, and the task whose scratch it is."""
        index = bisect_right(self._firsts, number)
        if not index or number > self._kept[index - 1].last:
            self._bare.append((number, task))

    def ranges(self, last_seq: Seq, tell: Tell) -> Iterator[BatchRange]:
        """Yield boundaries that hold every number and end at the last one."""
        made = self._made(last_seq)
        for batch in made:
            tell(f"batch {batch.first}", f"its boundaries are lost; made anew up to {batch.last}")
        yield from sorted([*self._kept, *made], key=lambda batch: batch.first)

    def _made(self, last_seq: Seq) -> list[BatchRange]:
        """Put neighbours of one kind that no kept batch parts into one batch."""
        made: list[BatchRange] = []
        before = -1
        for number, task in sorted(self._bare, key=lambda bare: bare[0]):
            gap = bisect_right(self._firsts, number)
            last = made[-1] if made else None
            if (
                last is not None
                and gap == before
                and last.task == task
                and (task is None or number - last.first < BATCH_WRITES_MAX)
            ):
                made[-1] = BatchRange(last.first, number, task)
            else:
                made.append(BatchRange(number, number, task))
            before = gap
        end = max((batches[-1].last for batches in (self._kept, made) if batches), default=0)
        if end < last_seq:
            # Without it the next number would be one that was used before.
            made.append(BatchRange(last_seq, last_seq))
        return made
