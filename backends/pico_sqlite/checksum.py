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
_NEVER: Final = 1 << 40

Column = int | str | bytes | None


def checksum(columns: tuple[Column, ...]) -> int:
    """Return the checksum as SQLite stores it.

    Args:
        columns: The row's number first, then every other column that a reader is shown, as the
            caller knows them: numbers, not keys, so that a row means the same in any file. The
            payload comes last. A payload that a flipped bit made a text differs from its bytes.
    """
    return crc32(pack(columns)) - BIAS


def scratch_start(task: int, writes: int, namespace: str | None, key: str | None) -> int:
    """Return where the checksums of scratch rows begin that are alike but for number and payload.

    What streams many of them computes it once.
    """
    return crc32(pack((task, writes, namespace, key)))


def scratch_checksum(start: int, seq: int, body: bytes | None) -> int:
    """Return the checksum of a scratch row as SQLite stores it; of a spent one without a body."""
    try:
        return crc32(b"" if body is None else body, start ^ seq ^ seq >> 32) - BIAS
    except TypeError:
        # A flipped bit made a text of the payload.
        return _NEVER


def coded_size(first: int, size: int) -> int:
    """Return the size of the batch that begins at a number, with a check of both beside it.

    Sizes are read without their rows' payloads, so that the rows' checksums cannot cover them.
    """
    return size << 16 | (first * 257 + size) % _PRIME
