"""Strict JSON: the one rule for what a value may hold, and its compact stored form."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import isfinite
from typing import Final

import msgspec

from pico_store.errors import InvalidValueError, LimitExceededError
from pico_store.limits import DEPTH_MAX, INT_MAX, INT_MIN, VALUE_BYTES_MAX
from pico_store.records import JsonValue
from pico_store.shown import shown

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode
_text = msgspec.json.Encoder().encode

# JSON text is at most six times as long as msgpack (a control character in a string is one byte
# there and \u001f here), so that shorter packed values need no second encoding to be measured.
_PACKED_SAFE: Final = VALUE_BYTES_MAX // 6
# Values of at most so many parts are looked at one by one: too few to be nested too deep.
_QUICK_PARTS: Final = DEPTH_MAX - 1
# A level-by-level walk costs least for larger ones but keeps a level in memory; past this many
# nodes the walk that keeps one path takes over.
_LEVEL_NODES: Final = 1_000_000
_PLAIN: Final = frozenset((str, int, bool, type(None)))
_TEXT: Final = frozenset((str,))


def pack(value: JsonValue, path: str) -> bytes:
    """Return a value's stored form, MessagePack, after checking that it is strict JSON.

    Args:
        value: ``None``, ``bool``, ``int``, finite ``float``, ``str``, ``list`` or ``dict`` with
            ``str`` keys, exactly these types, nested at most 200 levels.
        path: What the value is, for messages: ``writes[2].value``.

    Raises:
        InvalidValueError: A part is something else; the message names its path.
        LimitExceededError: The value is longer than 64 MiB as JSON.

    Source: SPEC.md, JSON-1 to JSON-6.
    """
    # The look at a flat object stands here, not in a function: most commits are one small value,
    # and calls are most of what they cost.
    if type(value) is dict and len(value) <= _QUICK_PARTS:
        parts: list[object] | None = None
        for key, item in value.items():
            if type(key) is not str:
                _refuse(value, path)
            if type(item) is not str and type(item) is not int:
                if parts is None:
                    parts = [item]
                else:
                    parts.append(item)
        if parts is not None:
            _look_at(parts, _QUICK_PARTS - len(value), value, path)
    else:
        _look_at([value], _QUICK_PARTS, value, path)
    try:
        packed = _pack(value)
    except (UnicodeEncodeError, OverflowError, ValueError, TypeError, RecursionError) as error:
        _refuse(value, path)
        raise InvalidValueError("JSON-4", path, f"cannot be encoded: {error}") from error
    if len(packed) > _PACKED_SAFE and (size := len(_text(value))) > VALUE_BYTES_MAX:
        raise LimitExceededError(
            "JSON-5", path, f"{size:,} bytes as JSON; allowed: {VALUE_BYTES_MAX:,}"
        )
    return packed


def unpack(packed: bytes) -> JsonValue:
    """Return a fresh value from its stored form."""
    value: JsonValue = _unpack(packed)
    return value


def json_size(value: JsonValue) -> int:
    """Return the length of a strict value as compact JSON, in bytes."""
    return len(_text(value))


def _look_at(parts: list[object], left: int, value: JsonValue, path: str) -> None:
    """Check the types in parts of a value; strings and integers are left to the encoder.

    Args:
        parts: Grows by the parts of these parts.
        left: How many more parts the value may have to be looked at one by one. A container is
            never deeper than there are parts before it.
        value: What all of it is.
        path: What the value is, for messages.
    """
    for part in parts:
        if type(part) is dict:
            left -= len(part)
            if left < 0:
                _look_closer(value, path)
                return
            for key, item in part.items():
                if type(key) is not str:
                    _refuse(value, path)
                if type(item) is not str and type(item) is not int:
                    parts.append(item)
        elif type(part) is list:
            left -= len(part)
            if left < 0:
                _look_closer(value, path)
                return
            for item in part:
                if type(item) is not str and type(item) is not int:
                    parts.append(item)
        elif type(part) not in _PLAIN and (type(part) is not float or not isfinite(part)):
            _refuse(value, path)


def _look_closer(value: object, path: str) -> None:
    """Check the types in a large value; strings and integers are left to the encoder."""
    if not _is_plain_by_level(value):
        _refuse(value, path)


def _is_plain_by_level(value: object) -> bool:
    """Tell whether all types are allowed; answers no, too, where there is too much to look at."""
    level: list[object] = [value]
    nodes = 0
    for _ in range(DEPTH_MAX):
        below: list[object] = []
        for part in level:
            kind = type(part)
            if kind is dict:
                if not _TEXT.issuperset(map(type, part)):  # type: ignore[call-overload]
                    return False
                items: Collection[object] = part.values()  # type: ignore[attr-defined]
            elif kind is list:
                items = part  # type: ignore[assignment]
            elif kind is float and isfinite(part):  # type: ignore[arg-type]
                continue
            else:
                return False
            nodes += len(items)
            if nodes > _LEVEL_NODES:
                return False
            if not _PLAIN.issuperset(map(type, items)):
                below += [item for item in items if type(item) not in _PLAIN]
        if not below:
            return True
        level = below
    return all(type(part) is float and isfinite(part) for part in level)


def _refuse(value: object, path: str) -> None:
    """Raise for the first offending part in depth-first order; return if there is none."""
    stack: list[Iterator[tuple[str, object]]] = [iter([(path, value)])]
    nodes = 0
    while stack:
        step = next(stack[-1], None)
        if step is None:
            stack.pop()
            continue
        where, part = step
        nodes += 1
        if nodes > VALUE_BYTES_MAX:
            problem = f"more than {VALUE_BYTES_MAX:,} parts; allowed: 64 MiB as JSON"
            raise LimitExceededError("JSON-5", path, problem)
        if type(part) is dict or type(part) is list:
            if len(stack) > DEPTH_MAX:
                problem = f"nested deeper than {DEPTH_MAX} levels, or cyclic"
                raise InvalidValueError("JSON-4", f"{where:.80}...", problem)
            stack.append(_parts(where, part))
        else:
            _refuse_scalar(where, part)


def _parts(where: str, part: object) -> Iterator[tuple[str, object]]:
    if isinstance(part, list):
        yield from ((f"{where}[{index}]", item) for index, item in enumerate(part))
        return
    assert isinstance(part, dict)
    for key, item in part.items():
        if type(key) is not str:
            problem = f"key {shown(key)} of type {_type_name(key)}; allowed: str"
            raise InvalidValueError("JSON-1", where, problem)
        _refuse_surrogate(f"{where} (key {key!r:.60})", key)
        if not key.isidentifier():
            yield f"{where}[{key!r:.60}]", item
        else:
            yield (f"{where}.{key}" if where else key), item


def _refuse_scalar(where: str, part: object) -> None:
    kind = type(part)
    if kind is str:
        _refuse_surrogate(where, str(part))
    elif kind is int:
        assert isinstance(part, int)
        if not INT_MIN <= part <= INT_MAX:
            size = part if part.bit_length() < 80 else f"an integer of {part.bit_length()} bits"
            raise InvalidValueError("JSON-2", where, f"{size}; allowed: -2^63 to 2^64-1")
    elif kind is float:
        assert isinstance(part, float)
        if not isfinite(part):
            raise InvalidValueError("JSON-2", where, f"{part!r}; allowed: finite numbers")
    elif part is not None and kind is not bool:
        problem = f"{_type_name(part)}; allowed: exactly None, bool, int, float, str, list and dict"
        if isinstance(part, (bytes, bytearray, memoryview)):
            problem += "; encode bytes as base64 text"
        raise InvalidValueError("JSON-1", where, problem)


def _refuse_surrogate(where: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        problem = (
            f"lone surrogate U+{ord(text[error.start]):04X} at character {error.start}; "
            "allowed: Unicode scalar values"
        )
        where = where.encode("utf-8", "backslashreplace").decode()
        raise InvalidValueError("JSON-3", where, problem) from None


def _type_name(part: object) -> str:
    kind = type(part)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return module + kind.__qualname__
