"""The digest of a session: one short text for its whole logical state."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from pico_store.snapshot import SnapshotItem

# Sorted members make equal objects equal texts, whatever order their keys were written in (JSON-6).
_encode = msgspec.json.Encoder(order="sorted").encode


def digest(items: Iterable[SnapshotItem]) -> str:
    """Return the SHA-256, in hexadecimal, of an export in canonical JSON.

    Each item is one line: compact UTF-8 JSON with members sorted by name, then byte 0x0A. The
    digest is equal on every backend for equal histories, before and after ``vacuum``, and after
    ``copy``.

    Source: SPEC.md, DUR-9.
    """
    sha = hashlib.sha256()
    for item in items:
        sha.update(_encode(item))
        sha.update(b"\n")
    return sha.hexdigest()
