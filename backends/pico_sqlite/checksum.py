"""The checksum of a stored row: CRC-32 over what identifies it, what is indexed of it, its bytes.

Source: SPEC.md, DUR-8. SQLite's own integrity check says "ok" over most flipped bits.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

import msgspec

_pack = msgspec.msgpack.Encoder().encode

_NEVER: Final = 1 << 40

Column = int | str | bytes | None


def checksum(columns: tuple[Column, ...], body: bytes | None) -> int:
    """Return the checksum as SQLite stores it in four bytes: shifted to be signed.

    Args:
        columns: The row's number first, then every other column that a reader is shown, as the
            caller knows them: numbers, not keys, so that a row means the same in any file.
        body: The payload; ``None`` has another checksum than ``b""``.
    """
    start = crc32(_pack(columns))
    try:
        return (start if body is None else crc32(body, start + 1 & 0xFFFFFFFF)) - 0x80000000
    except TypeError:
        # One bit of a row decides whether SQLite returns its bytes as such or as a text.
        return _NEVER
