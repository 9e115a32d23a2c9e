"""The bounds of names, paths and numbers, checked alike wherever they come in."""

from __future__ import annotations

import os
from typing import Final

from pico_store.errors import InvalidBatchError, InvalidQueryError, LimitExceededError
from pico_store.limits import NAME_BYTES_MAX, SEQ_MAX
from pico_store.shown import shown

_KNOWN_MAX: Final = 1_024
known_names: Final[set[str]] = set()
"""Names found right before, at most 1,024: kinds, statuses and namespaces are few. What is looked
for here must be a ``str`` itself: one of a subclass may equal another."""


def check_common_name(text: object, path: str) -> None:
    """Refuse what is no name that is not empty; remember one that is."""
    check_name(text, path)
    assert isinstance(text, str)
    if len(known_names) >= _KNOWN_MAX:
        known_names.clear()
    known_names.add(text)


def check_name(text: object, path: str, *, empty: bool = False) -> None:
    """Refuse what is not a string of at most 1,024 bytes of UTF-8.

    Args:
        text: A namespace, kind, key, status, session id or request id.
        path: What it is, for the message.
        empty: Whether ``""`` is allowed.

    Source: SPEC.md, JSON-3 and JSON-5.
    """
    if type(text) is str:
        if text.isascii():
            size = len(text)
            if 0 < size <= NAME_BYTES_MAX:
                return
        else:
            try:
                size = len(text.encode())
            except UnicodeEncodeError:
                problem = "lone surrogate; allowed: Unicode scalar values"
                raise InvalidBatchError("JSON-3", path, problem) from None
        if size > NAME_BYTES_MAX:
            problem = f"{size:,} bytes of UTF-8; allowed: at most {NAME_BYTES_MAX:,}"
            raise LimitExceededError("JSON-5", path, problem)
        if size or empty:
            return
        raise InvalidBatchError("JSON-5", path, "empty; allowed: 1 to 1,024 bytes of UTF-8")
    raise InvalidBatchError("JSON-5", path, f"{type(text).__name__}; allowed: str")


def check_path(path: object) -> None:
    """Refuse what cannot be the path of a backup."""
    problem = ""
    if type(path) is not str:
        problem = type(path).__name__
    elif not path:
        problem = "empty"
    elif "\0" in path:
        problem = "U+0000"
    else:
        try:
            path.encode()
        except UnicodeEncodeError:
            problem = "lone surrogate"
    if problem:
        raise InvalidQueryError("DUR-7", "path", f"{problem}; allowed: a str that names a new file")


def check_outside(path: str, folder: str) -> None:
    """Refuse a backup within the folder of the store that it is of."""
    if os.path.realpath(path).startswith(os.path.realpath(folder) + os.sep):
        problem = f"{path} is within the store {folder}; allowed: a place outside of it"
        raise InvalidQueryError("DUR-7", "path", problem)


def check_seq(value: object, path: str) -> None:
    """Refuse what is not an integer from 1 to 2^53-1 (SPEC.md, SEQ-2)."""
    if type(value) is not int or not 0 < value <= SEQ_MAX:
        problem = f"{shown(value)}; allowed: an integer from 1 to 2^53-1"
        raise InvalidBatchError("SEQ-2", path, problem)
