"""Batches and records as JSON text with the design's camelCase names: the wire and file form."""

from __future__ import annotations

import json
from typing import NoReturn

import msgspec

from pico_store.batch import Batch
from pico_store.errors import InvalidValueError
from pico_store.records import JsonValue
from pico_store.snapshot import SnapshotItem

_encode = msgspec.json.Encoder().encode


def encode_batch(batch: Batch) -> bytes:
    """Return a batch as one line of compact JSON, without the line's end.

    The batch is not checked; ``commit`` checks.
    """
    return _encode(batch)


def decode_batch(text: bytes) -> Batch:
    """Return the batch that a JSON text describes.

    Raises:
        InvalidValueError: The text is not strict JSON or not of a batch's form; the message says
            where.
    """
    try:
        batch: Batch = msgspec.convert(parse_json(text), Batch)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        # The latter: a lone surrogate where one of a few names is to stand.
        raise InvalidValueError("JSON-1", "batch", str(error)) from error
    return batch


def encode_item(item: SnapshotItem) -> bytes:
    """Return a snapshot item as one line of compact JSON, without the line's end."""
    return _encode(item)


def decode_item(text: bytes) -> SnapshotItem:
    """Return the snapshot item that a JSON text describes.

    Raises:
        InvalidValueError: The text is not strict JSON or not of an item's form.
    """
    try:
        item: SnapshotItem = msgspec.convert(parse_json(text), SnapshotItem)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        # The latter: a lone surrogate where one of a few names is to stand.
        raise InvalidValueError("JSON-1", "item", str(error)) from error
    return item


def parse_json(text: bytes) -> JsonValue:
    """Return the value of a JSON text, strictly.

    Refuses repeated keys, ``NaN`` and infinities, numbers that only an infinity could hold, text
    that is not UTF-8, and nesting that the interpreter cannot follow. Lone surrogates and the
    bounds of integers are left to `strict_json.pack`, which every value passes before it is
    stored.

    Raises:
        InvalidValueError: Anything of the above, with the offset where the parser knows it.

    Source: SPEC.md, JSON-2, JSON-4 and JSON-6.
    """
    try:
        value: JsonValue = json.loads(
            text.decode(),
            object_pairs_hook=_object,
            parse_constant=_constant,
            parse_float=_float,
            parse_int=_int,
        )
    except UnicodeDecodeError as error:
        problem = f"not UTF-8 at byte {error.start}"
        raise InvalidValueError("JSON-3", "", problem) from None
    except json.JSONDecodeError as error:
        problem = f"not JSON: {error.msg} at character {error.pos}"
        raise InvalidValueError("JSON-1", "", problem) from None
    except RecursionError:
        raise InvalidValueError("JSON-4", "", "nested deeper than 200 levels") from None
    return value


def _object(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise InvalidValueError("JSON-6", "", f"key {key!r:.60} repeated in one object")
            seen.add(key)
    return found


def _constant(text: str) -> NoReturn:
    raise InvalidValueError("JSON-2", "", f"{text}; allowed: finite numbers")


def _float(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise InvalidValueError("JSON-2", "", f"{text:.60} is too large; allowed: finite numbers")
    return value


def _int(text: str) -> int:
    # Longer texts are refused before int() spends time on them, whatever the interpreter's limit.
    if len(text) > 40:
        raise InvalidValueError("JSON-2", "", f"an integer of {len(text)} digits; allowed: 20")
    return int(text)
