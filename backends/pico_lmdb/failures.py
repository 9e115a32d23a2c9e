"""The engine's errors, and the errors of ours that say what the caller can do about them."""

from __future__ import annotations

from typing import Final

import lmdb

from pico_store.errors import (
    PicoError,
    StoreBusyError,
    StoreDamagedError,
    StoreFullError,
    StoreIOError,
)

READERS_MAX: Final = 1_024
"""Reads of all processes at once."""
DAMAGE: Final = (
    lmdb.CorruptedError,
    lmdb.PageNotFoundError,
    lmdb.InvalidError,
    lmdb.VersionMismatchError,
    lmdb.ProblemError,
    lmdb.IncompatibleError,
    lmdb.BadDbiError,
)
_FULL: Final = (28, 27, 122)
"""ENOSPC, EFBIG, EDQUOT."""


def is_full(error: lmdb.Error) -> bool:
    """Tell whether there was no room."""
    return isinstance(error, lmdb.DiskError) or error.code in _FULL


def translate(path: str, act: str, error: lmdb.Error) -> PicoError:
    """Return the error of ours that says what the caller can do about one of the engine's."""
    if is_full(error):
        return StoreFullError(f"{path}: {act}: no room left; make room and try again")
    if isinstance(error, lmdb.ReadersFullError):
        return StoreBusyError(f"{path}: {act}: {READERS_MAX} reads are under way; try again")
    if isinstance(error, DAMAGE):
        return StoreDamagedError(f"{path}: {act}: {error}; run pico verify, restore a backup")
    return StoreIOError(f"{path}: {act}: {error}; check the disk and permissions, then try again")
