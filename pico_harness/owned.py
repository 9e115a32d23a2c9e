"""Copies of what goes in and out, so that nobody can change what is stored or kept."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from pico_store.records import Task

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


def own_task(task: Task) -> Task:
    """Copy a task that is kept in memory for somebody who may change what is in its state."""
    return msgspec.structs.replace(task, state=own(task.state))
