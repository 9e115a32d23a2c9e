"""Payloads that stay in the main log: rows hold where they are, and reads fetch them.

A payload is referred to by one integer: the offset of the write's text in the file, its length and
the CRC-32 of it. So a session of a million entries takes memory for their rows alone, and a text
that changed after it was read for the first time is noticed.
"""

from __future__ import annotations

import os
from typing import Any, Final
from zlib import crc32

import msgspec
from msgspec import Struct

from pico_memory.bodies import PACKED
from pico_memory.rows import Body, EntryRow
from pico_store.address import Seq
from pico_store.errors import StoreDamagedError, StoreIOError
from pico_store.records import Entry, JsonObject, JsonValue

LENGTH_BITS: Final = 28
CRC_BITS: Final = 32
_LENGTH_MASK: Final = (1 << LENGTH_BITS) - 1
_CRC_MASK: Final = (1 << CRC_BITS) - 1


class _WithState(Struct):
    state: Any


class _WithValue(Struct):
    value: Any


_decode_entry = msgspec.json.Decoder(Entry).decode
_decode_state = msgspec.json.Decoder(_WithState).decode
_decode_value = msgspec.json.Decoder(_WithValue).decode


def refer(offset: int, text: bytes) -> int:
    """Return the reference to a write's or item's text at an offset."""
    return (offset << LENGTH_BITS | len(text)) << CRC_BITS | crc32(text)


class LogBodies:
    """The payloads in one log file, open for as long as anything refers to them."""

    __slots__ = ("_path", "fd")

    def __init__(self, fd: int, path: str) -> None:
        self.fd = fd
        self._path = path

    def __del__(self) -> None:
        os.close(self.fd)

    def entry(self, row: EntryRow) -> Entry:
        body = row[6]
        if type(body) is not int:
            return PACKED.entry(row)
        return _decode_entry(self._text(body, "entry", row[0]))

    def state(self, task: Seq, body: Body) -> JsonObject:
        if type(body) is not int:
            return PACKED.state(task, body)
        found: JsonObject = _decode_state(self._text(body, "the state of task", task)).state
        return found

    def value(self, seq: Seq, body: Body) -> JsonValue:
        if type(body) is not int:
            return PACKED.value(seq, body)
        found: JsonValue = _decode_value(
            self._text(body, "the value that was written as", seq)
        ).value
        return found

    def _text(self, body: int, what: str, seq: Seq) -> bytes:
        crc = body & _CRC_MASK
        length = body >> CRC_BITS & _LENGTH_MASK
        offset = body >> CRC_BITS + LENGTH_BITS
        try:
            text = os.pread(self.fd, length, offset)
        except OSError as error:
            raise StoreIOError(f"{self._path}: {what} {seq}: {error.strerror}") from error
        if crc32(text) != crc:
            raise StoreDamagedError(
                f"{self._path}: {what} {seq}, at offset {offset}, is not what was written; "
                "run pico verify, restore a backup"
            )
        return text
