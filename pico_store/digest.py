"""The digest of a session: one short text for its whole logical state."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

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
    stream = DigestingStream(items)
    for _ in stream:
        pass
    return stream.hexdigest()


class DigestingStream:
    """Passes the items of an export on, and digests and counts them on the way."""

    def __init__(self, items: Iterable[SnapshotItem]) -> None:
        self._items = items
        self._sha = hashlib.sha256()
        self.count = 0
        """Items that were passed on so far."""

    def __iter__(self) -> Iterator[SnapshotItem]:
        for item in self._items:
            self._sha.update(_encode(item))
            self._sha.update(b"\n")
            self.count += 1
            yield item

    def hexdigest(self) -> str:
        """Return the digest of what was passed on so far."""
        return self._sha.hexdigest()
