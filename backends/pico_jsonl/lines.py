"""The lines of a log: their forms, their checksums, and telling whether one is as it was written.

A line is one JSON object in UTF-8 whose last member is ``crc32``. What stands before that member
is the line's *body*; the checksum is the CRC-32 of the bodies of all lines of the file so far, one
after another, so that a line that was lost, repeated or moved is found out like a flipped bit.

Source: docs/reference/format-jsonl.md.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, Literal
from zlib import crc32

import msgspec
from msgspec import Struct

from pico_store.address import Address, Seq
from pico_store.batch import MainBatch, MainWrite, ScratchBatch, StateWrite
from pico_store.codec import parse_json
from pico_store.errors import InvalidValueError
from pico_store.records import JsonObject
from pico_store.snapshot import SnapshotHeader, SnapshotItem

FORMAT: Final = "pico-jsonl"
VERSION: Final = 1
SEAL_BYTES: Final = len(b',"crc32":"00000000"}\n')
_SEAL: Final = re.compile(rb',"crc32":"([0-9a-f]{8})"\}\n')

encode: Final = msgspec.json.Encoder().encode


class BadLineError(Exception):
    """A complete line is not what may stand there. Never leaves the package."""


class Header(Struct, frozen=True, omit_defaults=True):
    """The first line of every file."""

    format: str
    version: int
    session: str
    task: Seq | None = None
    """The task whose scratch the file holds; none: the main log."""


class SnapshotEnd(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What the last line of a snapshot says."""

    last_seq: Seq
    items: int
    """How many items stand before it."""


class MainLine(Struct, frozen=True, forbid_unknown_fields=True):
    """A main batch."""

    first: Seq
    kind: Literal["main"]
    writes: tuple[MainWrite, ...]
    crc32: str


class ScratchLine(Struct, frozen=True, forbid_unknown_fields=True):
    """A scratch batch."""

    first: Seq
    kind: Literal["scratch"]
    task: Seq
    writes: tuple[StateWrite, ...]
    crc32: str


class SnapshotLine(Struct, frozen=True, forbid_unknown_fields=True):
    """The beginning of a snapshot."""

    snapshot: SnapshotHeader
    crc32: str


class ItemsLine(Struct, frozen=True, forbid_unknown_fields=True):
    """Some items of a snapshot."""

    items: tuple[SnapshotItem, ...]
    crc32: str


class BatchesLine(Struct, frozen=True, forbid_unknown_fields=True):
    """Boundaries of main batches: by turns how many numbers are skipped and how many belong."""

    batches: tuple[int, ...]
    crc32: str


class EndLine(Struct, frozen=True, forbid_unknown_fields=True):
    """The end of a snapshot."""

    end: SnapshotEnd
    crc32: str


# --- Writing ---


def seal(body: bytes, crc: int) -> tuple[bytes, int]:
    """Return a body as a line, and the checksum that the next line goes on from."""
    crc = crc32(body, crc)
    return b'%b,"crc32":"%08x"}\n' % (body, crc), crc


def open_body(value: object) -> bytes:
    """Return an object as a body that ends where the checksum is to stand."""
    return encode(value)[:-1]


def header_body(session: str, task: Seq | None) -> bytes:
    """Return the body of a file's first line."""
    return open_body(Header(FORMAT, VERSION, session, task))


def main_start(first: int) -> bytes:
    """Return the beginning of a main batch's body, up to its writes."""
    return b'{"first":%d,"kind":"main","writes":' % first


def scratch_start(first: int, task: int) -> bytes:
    """Return the beginning of a scratch batch's body, up to its writes."""
    return b'{"first":%d,"kind":"scratch","task":%d,"writes":' % (first, task)


def frame_middle(task: int, address: Address) -> bytes:
    """Return what stands between the number and the value of a scratch batch of one append."""
    return (b'"kind":"scratch","task":%d,"writes":[{"type":"list.append","address":%b,"value":') % (
        task,
        encode(address),
    )


ITEMS_START: Final = b'{"items":'


# --- Reading ---


def check_seal(line: bytes, crc: int) -> int:
    """Return the checksum that the next line goes on from.

    Raises:
        BadLineError: The line has none, or another one.
    """
    sealed = _SEAL.fullmatch(line, max(len(line) - SEAL_BYTES, 0))
    if sealed is None:
        raise BadLineError("does not end in a checksum")
    found = crc32(memoryview(line)[:-SEAL_BYTES], crc)
    if int(sealed[1], 16) != found:
        raise BadLineError(f"checksum {sealed[1].decode()}; its bytes have {found:08x}")
    return found


def claimed_seal(line: bytes) -> int | None:
    """Return the checksum that a line says it has, true or not."""
    sealed = _SEAL.fullmatch(line, max(len(line) - SEAL_BYTES, 0))
    return None if sealed is None else int(sealed[1], 16)


def claimed_first(line: bytes) -> int | None:
    """Return the number that a batch's line, perhaps a damaged one, begins with."""
    found = re.match(rb'\{"first":([0-9]{1,16}),', line)
    return None if found is None else int(found[1])


def is_as_written(line: bytes, start: bytes, parts: Sequence[object]) -> bool:
    """Tell whether a line is exactly as this writes it.

    Encoding what was decoded and comparing costs a third of a careful parse, and proves as much:
    a repeated key, a second spelling or a blank anywhere would make another text.

    Args:
        line: As read.
        start: What its body has to begin with, up to the parts.
        parts: What was decoded.
    """
    return start + encode(parts) == line[:-SEAL_BYTES]


def parse_object(line: bytes) -> JsonObject:
    """Return a sealed line's object, parsed strictly, without its checksum.

    Raises:
        BadLineError: The line is no strict JSON object.
    """
    try:
        found = parse_json(line)
    except InvalidValueError as error:
        raise BadLineError(error.problem) from error
    if not isinstance(found, dict):
        raise BadLineError("not an object")
    del found["crc32"]
    return found


def convert(value: object, type: Any) -> Any:
    """Return parsed JSON as an object of ours.

    Raises:
        BadLineError: It has not the form.
    """
    try:
        return msgspec.convert(value, type)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        # The latter: a lone surrogate where one of a few names is to stand.
        raise BadLineError(str(error)) from error


def parse_batch(line: bytes, task: Seq | None) -> tuple[Seq, MainBatch | ScratchBatch]:
    """Return the first number and the batch of a sealed line, parsed strictly.

    Args:
        line: As read.
        task: The task whose scratch the file holds; ``None``: the main log.

    Raises:
        BadLineError: It is not a batch that may stand in the file.
    """
    found = parse_object(line)
    first: Seq = convert(found.pop("first", None), Seq)
    batch: MainBatch | ScratchBatch = convert(found, MainBatch | ScratchBatch)
    owner = batch.task if isinstance(batch, ScratchBatch) else None
    if owner != task:
        raise BadLineError("a batch that belongs in another file")
    return first, batch


def parse_header(line: bytes) -> Header:
    """Return a file's first line, whose checksum was looked at or matters less than its version.

    Raises:
        BadLineError: It is not one.
    """
    try:
        return msgspec.json.decode(line, type=Header)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadLineError(f"not a header: {error}") from error
