"""The lines of a foreign JSONL file, each one strict JSON object."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from pico_store.codec import parse_json
from pico_store.errors import InvalidValueError, RefusedError
from pico_store.importing.errors import TranscriptError
from pico_store.limits import DEPTH_MAX
from pico_store.records import JsonObject, JsonValue
from pico_store.strict_json import pack

LINE_BYTES_MAX = 256 << 20
_BOM = b"\xef\xbb\xbf"
_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstandard", b"PK\x03\x04": "zip"}
_REPLACEMENT = "\ufffd"


@dataclass(frozen=True, slots=True)
class Line:
    """One line and its object."""

    number: int
    """Counted from 1; blank lines count too."""
    record: JsonObject
    replaced: int = 0
    """Lone surrogates that were replaced in it."""


def read_lines(stream: BinaryIO) -> Iterator[Line]:
    """Yield the objects of a JSONL file in order; lines end at byte 0x0A only.

    Lone surrogates, which some agents write as escapes, are replaced by U+FFFD and counted.

    Raises:
        TranscriptError: A line is not strict JSON, not an object or larger than what can be
            stored; the message names it.
    """
    number = 0
    while line := stream.readline(LINE_BYTES_MAX):
        number += 1
        if number == 1:
            line = line.removeprefix(_BOM)
            _refuse_binary(line)
        if line.isspace() or not line:
            continue
        yield _parse(line, number)


def _refuse_binary(line: bytes) -> None:
    for magic, name in _COMPRESSED.items():
        if line.startswith(magic):
            raise TranscriptError(f"the file is compressed ({name}); unpack it first")
    zero = line.find(b"\0")
    if zero >= 0:
        problem = f"a binary file (a zero byte at offset {zero}); allowed: JSON lines in UTF-8"
        raise TranscriptError(problem)


def _parse(line: bytes, number: int) -> Line:
    whole = line.endswith(b"\n")
    if not whole and len(line) == LINE_BYTES_MAX:
        raise TranscriptError(f"longer than {LINE_BYTES_MAX:,} bytes", number)
    try:
        value = parse_json(line)
    except InvalidValueError as error:
        problem = error.problem
        if not whole:
            problem = f"the file ends inside this line, {len(line):,} bytes in; {problem}"
        raise TranscriptError(problem, number) from None
    replaced = 0
    # A lone surrogate can only come from an escape; text that is UTF-8 has none.
    if b"\\ud" in line or b"\\uD" in line:
        scrub = _Scrub(number)
        value = scrub.clean(value, 0)
        replaced = scrub.replaced
    if not isinstance(value, dict):
        problem = f"holds {name_of(value)}; allowed: an object on each line"
        raise TranscriptError(problem, number)
    try:
        # Here, where the line is known: an answer is put together from several.
        pack(value, "")
    except RefusedError as error:
        raise TranscriptError(f"cannot be stored: {error}", number) from error
    return Line(number, value, replaced)


def name_of(value: JsonValue) -> str:
    """Return what a JSON value is, with its article, for messages."""
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "a list"
        case _:
            return "an object"


class _Scrub:
    """Replaces lone surrogates in one line's value and counts them."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.replaced = 0

    def clean(self, value: JsonValue, depth: int) -> JsonValue:
        if depth > DEPTH_MAX:
            raise TranscriptError(f"nested deeper than {DEPTH_MAX} levels", self._number)
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, list):
            return [self.clean(item, depth + 1) for item in value]
        if isinstance(value, dict):
            found: JsonObject = {}
            for key, item in value.items():
                name = self._text(key)
                # Two keys that differ in their surrogates only must not become one.
                while name in found:
                    name += _REPLACEMENT
                found[name] = self.clean(item, depth + 1)
            return found
        return value

    def _text(self, text: str) -> str:
        try:
            text.encode()
        except UnicodeEncodeError:
            scrubbed = "".join(_REPLACEMENT if "\ud800" <= c <= "\udfff" else c for c in text)
            self.replaced += sum("\ud800" <= c <= "\udfff" for c in text)
            return scrubbed
        return text
