"""Payloads that stay in the main log: rows hold where they are, and reads fetch them.

A payload is referred to by one integer. In a line of ordinary length it says where the line is and
which of its parts is meant; a read fetches the line, checks it and takes the part out. In a long
line it says where the part itself is, how long, and its own checksum, so that reading one of ten
thousand entries that were committed together does not read them all. Either way a session of a
million entries takes memory for its rows alone, and a text that changed since it was read for the
first time is noticed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final
from zlib import crc32

import msgspec
from msgspec import Raw, Struct

from pico_jsonl.lines import SEAL_BYTES, BadLineError, check_seal, claimed_seal
from pico_memory.bodies import PACKED
from pico_memory.rows import Body, EntryRow
from pico_store.address import Seq
from pico_store.errors import StoreDamagedError, StoreIOError
from pico_store.records import Entry, JsonObject, JsonValue

LONG_LINE: Final = 32_768
"""Lines of more bytes are long."""
# The lowest bit tells the two kinds apart. A batch has at most 10,000 parts.
_INDEX_BITS: Final = 14
_INDEX_MASK: Final = (1 << _INDEX_BITS) - 1
_LENGTH_BITS: Final = 28
_LENGTH_MASK: Final = (1 << _LENGTH_BITS) - 1
_CRC_BITS: Final = 32
_CRC_MASK: Final = (1 << _CRC_BITS) - 1
_BLOCK: Final = 8_192


class _Parts(Struct):
    writes: tuple[Raw, ...] = ()
    items: tuple[Raw, ...] = ()


class _WithState(Struct):
    state: Any


class _WithValue(Struct):
    value: Any


_decode_parts = msgspec.json.Decoder(_Parts).decode
_decode_entry = msgspec.json.Decoder(Entry).decode
_decode_state = msgspec.json.Decoder(_WithState).decode
_decode_value = msgspec.json.Decoder(_WithValue).decode


def first_reference(offset: int) -> int:
    """Return the reference to the first part of the line at an offset; the next ones add 2."""
    return offset << _INDEX_BITS + 1


def part_references(offset: int, texts: Sequence[bytes]) -> Iterator[int]:
    """Yield the references to the parts of a long line, of which the first is at an offset."""
    for text in texts:
        place = (offset << _LENGTH_BITS | len(text)) << _CRC_BITS | crc32(text)
        yield place << 1 | 1
        offset += len(text) + 1


def kept_references(references: Iterable[int], kept: Iterable[bool]) -> list[Body | None]:
    """Return the references to the parts that carry a payload, and nothing for the others."""
    return [place if keep else None for place, keep in zip(references, kept, strict=True)]


class LogBodies:
    """The payloads in one log file, open for as long as anything refers to them."""

    __slots__ = ("_last", "_path", "fd")

    def __init__(self, fd: int, path: str) -> None:
        self.fd = fd
        self._path = path
        # The line that was read last: mostly the next payload is in it too.
        self._last: tuple[int, tuple[Raw, ...]] = (-1, ())

    def __del__(self) -> None:
        os.close(self.fd)

    def entry(self, row: EntryRow) -> Entry:
        body = row[6]
        if type(body) is not int:
            return PACKED.entry(row)
        found = _decode_entry(self._text(body, "entry", row[0]))
        if found.id != row[0]:
            raise self._damaged(f"entry {row[0]}", f"entry {found.id} is in its place")
        return found

    def state(self, task: Seq, body: Body) -> JsonObject:
        if type(body) is not int:
            return PACKED.state(task, body)
        found: JsonObject = _decode_state(self._text(body, "the state of task", task)).state
        return found

    def value(self, seq: Seq, body: Body) -> JsonValue:
        if type(body) is not int:
            return PACKED.value(seq, body)
        found: JsonValue = _decode_value(self._text(body, "the value of number", seq)).value
        return found

    def _text(self, body: int, what: str, seq: Seq) -> bytes | Raw:
        """Return the text of the part that a reference leads to."""
        try:
            if body & 1:
                return self._part(body >> 1)
            index = body >> 1
            offset = index >> _INDEX_BITS
            last, parts = self._last
            if last != offset:
                parts = self._parts(offset)
                self._last = (offset, parts)
            return parts[index & _INDEX_MASK]
        except BadLineError as error:
            raise self._damaged(f"{what} {seq}", str(error)) from error
        except OSError as error:
            raise StoreIOError(f"{self._path}: {what} {seq}: {error.strerror}") from error

    def _parts(self, offset: int) -> tuple[Raw, ...]:
        """Return the parts of a line, which goes on from the checksum of the one before it."""
        start = offset - SEAL_BYTES
        text = os.pread(self.fd, _BLOCK, start)
        while (end := text.find(b"\n", SEAL_BYTES)) < 0:
            more = os.pread(self.fd, LONG_LINE, start + len(text))
            if not more or len(text) > LONG_LINE + _BLOCK:
                raise BadLineError(f"the line at offset {offset} has no end")
            text += more
        line = text[SEAL_BYTES : end + 1]
        before = claimed_seal(text[:SEAL_BYTES])
        if before is None:
            raise BadLineError(f"the line before offset {offset} does not end in a checksum")
        check_seal(line, before)
        try:
            found = _decode_parts(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadLineError(f"the line at offset {offset}: {error}") from error
        return found.writes or found.items

    def _part(self, place: int) -> bytes:
        length = place >> _CRC_BITS & _LENGTH_MASK
        offset = place >> _CRC_BITS + _LENGTH_BITS
        text = os.pread(self.fd, length, offset)
        if crc32(text) != place & _CRC_MASK:
            raise BadLineError(f"{length} bytes at offset {offset} are not what was written")
        return text

    def _damaged(self, what: str, why: str) -> StoreDamagedError:
        return StoreDamagedError(f"{self._path}: {what}: {why}; run pico verify, restore a backup")
