"""How an error message shows what was found."""

from __future__ import annotations

from typing import Final

_INTEGER_BITS_MAX: Final = 256


def shown(value: object, width: int = 60) -> str:
    """Return a value's ``repr``, cut to a width; whatever it is, this does not fail.

    Python refuses to write out integers of thousands of digits, a nesting may be too deep to be
    walked, and an object of the caller's may raise what it likes.
    """
    if type(value) is int and value.bit_length() > _INTEGER_BITS_MAX:
        return f"an integer of {value.bit_length():,} bits"
    if isinstance(value, str | bytes):
        value = value[:width]
    try:
        return f"{value!r:.{width}}"
    except Exception:  # noqa: BLE001 - the caller's own code, and Python's limits
        return f"a value of type {type(value).__name__}"
