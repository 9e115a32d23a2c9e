"""Copies of what a builder is given, so that nobody can change it on its way to the store."""

from __future__ import annotations

from typing import TypeVar

R = TypeVar("R")

_FIXED = frozenset((str, int, float, bool, type(None)))


def own(value: R) -> R:
    """Copy what can change; what is no JSON stays what it is, for the storage to refuse."""
    try:
        return _copied(value)
    except RecursionError:
        # Too deep, or cyclic: the storage refuses it.
        return value


def _copied(value: R) -> R:
    # What cannot change is told apart here: a call for each of many small values would hold the
    # event loop for as long as their commit takes.
    if type(value) is dict:
        return {  # type: ignore[return-value]
            key: item if type(item) in _FIXED else _copied(item)
            for key, item in value.items()  # type: ignore[attr-defined]
        }
    if type(value) is list:
        return [item if type(item) in _FIXED else _copied(item) for item in value]  # type: ignore[return-value,attr-defined]
    return value
