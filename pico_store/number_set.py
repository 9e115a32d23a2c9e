"""A set of sequence numbers that takes little room where they stand close together."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final

_BITS: Final = 12
_LOW: Final = (1 << _BITS) - 1


class NumberSet:
    """Numbers as bits, 4,096 to a piece; a piece without any takes nothing."""

    __slots__ = ("_ordered", "_pieces")

    def __init__(self) -> None:
        self._pieces: dict[int, int] = {}
        self._ordered: list[int] = []

    def add(self, number: int) -> bool:
        """Add a number; tell whether it is new."""
        piece, bit = number >> _BITS, 1 << (number & _LOW)
        found = self._pieces.get(piece, 0)
        self._pieces[piece] = found | bit
        return not found & bit

    def __contains__(self, number: int) -> bool:
        return bool(self._pieces.get(number >> _BITS, 0) >> (number & _LOW) & 1)

    def __len__(self) -> int:
        return sum(piece.bit_count() for piece in self._pieces.values())

    def count(self, first: int, last: int) -> int:
        """Return how many numbers from ``first`` to ``last``, both inclusive, it holds.

        Cost: the pieces that the range touches and hold any.
        """
        if len(self._ordered) != len(self._pieces):
            self._ordered = sorted(self._pieces)
        start = bisect_left(self._ordered, first >> _BITS)
        end = bisect_right(self._ordered, last >> _BITS)
        total = 0
        for piece in self._ordered[start:end]:
            bits = self._pieces[piece]
            if piece == last >> _BITS:
                bits &= (2 << (last & _LOW)) - 1
            if piece == first >> _BITS:
                bits >>= first & _LOW
            total += bits.bit_count()
        return total
