"""How a session's numbers become keys: one integer holds both the session and the number.

A session's sequence is cut into extents of 2^20 numbers. Each extent in use has a base, unique in
the file, and the key of number ``n`` is ``base << 20 | n & (2^20 - 1)``. Bases are handed out in
rising order, so that the keys of one session rise with its numbers, and a file's first two
thousand extents have keys of four bytes.

A session's extents cost one small row each and are kept in memory: sixteen for sixteen million
writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pico_store.address import Seq

EXTENT_BITS: Final = 20
LOW: Final = (1 << EXTENT_BITS) - 1


class Numbers:
    """The extents of one session, both ways."""

    def __init__(self, extents: list[tuple[int, int]]) -> None:
        """Take (high, base) pairs."""
        self.keys: dict[int, int] = {}
        """The key of an extent's first number by ``number >> EXTENT_BITS``."""
        self._highs: dict[int, int] = {}
        for high, base in extents:
            self.add(high, base)

    def add(self, high: int, base: int) -> None:
        """Take an extent: the numbers from ``high << 20`` on."""
        self.keys[high] = base << EXTENT_BITS
        self._highs[base] = high << EXTENT_BITS

    def holds(self, seq: int) -> bool:
        """Tell whether the number's extent is in use."""
        return seq >> EXTENT_BITS in self.keys

    def key(self, seq: int) -> int:
        """Return the key of a number whose extent is in use."""
        return self.keys[seq >> EXTENT_BITS] | (seq & LOW)

    def find(self, seq: int) -> int:
        """Return the key of any number; -1, the key of nothing, where its extent is not in use."""
        extent = self.keys.get(seq >> EXTENT_BITS)
        return -1 if extent is None else extent | (seq & LOW)

    def seq(self, key: int) -> Seq:
        """Return the number of a key of this session."""
        return Seq(self._highs[key >> EXTENT_BITS] | (key & LOW))

    def scope(self) -> int:
        """Return the key of the session itself: number 0, which no record has."""
        return self.keys[0]

    def through(self, seq: int) -> int:
        """Return an inclusive upper bound, as a key, of the keys of numbers up to ``seq``."""
        high = seq >> EXTENT_BITS
        extent = self.keys.get(high)
        if extent is not None:
            return extent | (seq & LOW)
        below = [used for used in self.keys if used < high]
        return self.keys[max(below)] | LOW if below else -1

    def at_least(self, seq: int) -> int:
        """Return an inclusive lower bound, as a key, of the keys of numbers from ``seq`` on."""
        high = seq >> EXTENT_BITS
        extent = self.keys.get(high)
        if extent is not None:
            return extent | (seq & LOW)
        above = [used for used in self.keys if used > high]
        return self.keys[min(above)] if above else 1 << 62

    def ranges(self, first: int, last: int, *, newest_first: bool) -> Iterator[tuple[int, int]]:
        """Yield key ranges, both ends inclusive, that hold the numbers ``first`` to ``last``."""
        for high in sorted(self.keys, reverse=newest_first):
            start = high << EXTENT_BITS
            if start <= last and start + LOW >= first:
                key = self.keys[high]
                yield key | max(first - start, 0), key | min(last - start, LOW)
