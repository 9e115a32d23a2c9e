"""The model's own idea of strict JSON, written without looking at the one that is tested."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

DEPTH_MAX = 200
SIZE_MAX = 64 * 1024 * 1024
NAME_SIZE_MAX = 1_024


def faults(value: object, depth: int = 0) -> Iterator[str]:
    """Yield the clause that each offending part of a value breaks.

    Below the deepest level allowed nothing is looked at, so that a cycle ends there.
    """
    kind = type(value)
    if kind is list or kind is dict:
        if depth == DEPTH_MAX:
            yield "JSON-4"
            return
        if isinstance(value, dict):
            for key in value:
                if type(key) is not str:
                    yield "JSON-1"
                elif has_surrogate(key):
                    yield "JSON-3"
        parts = value.values() if isinstance(value, dict) else value
        for part in parts:  # type: ignore[attr-defined]
            yield from faults(part, depth + 1)
    elif kind is str:
        if has_surrogate(str(value)):
            yield "JSON-3"
    elif kind is float:
        if math.isnan(value) or math.isinf(value):  # type: ignore[arg-type]
            yield "JSON-2"
    elif kind is int:
        if not -(2**63) <= value < 2**64:  # type: ignore[operator]
            yield "JSON-2"
    elif value is not None and kind is not bool:
        yield "JSON-1"


def is_too_large(value: object) -> bool:
    """Tell whether a strict value is longer than allowed, as compact JSON."""
    return len(msgspec.json.encode(value)) > SIZE_MAX


def has_surrogate(text: str) -> bool:
    """Tell whether a string holds something that is no Unicode scalar value."""
    return any("\ud800" <= character <= "\udfff" for character in text)
