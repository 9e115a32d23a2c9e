"""The checksum of a stored row: CRC-32 over all that a reader is shown of it.

Source: SPEC.md, DUR-8. SQLite's own integrity check says "ok" over most flipped bits.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

import msgspec

pack: Final = msgspec.msgpack.Encoder().encode

BIAS: Final = 0x80000000
"""What is taken from a CRC-32, so that SQLite stores it in four bytes: signed."""

_PRIME: Final = 65_521

Column = int | str | bytes | None


def checksum(columns: tuple[Column, ...]) -> int:
    """Return the checksum as SQLite stores it.

    Args:
        columns: The row's number first, then every other column that a reader is shown, as the
            caller knows them: numbers, not keys, so that a row means the same in any file. The
            payload comes last. A payload that a flipped bit made a text differs from its bytes.
    """
    return crc32(pack(columns)) - BIAS


def coded_size(first: int, size: int) -> int:
    """Return the size of the batch that begins at a number, with a check of both beside it.

    Sizes are read without their rows' payloads, so that the rows' checksums cannot cover them.
    """
    return size << 16 | (first * 257 + size) % _PRIME
