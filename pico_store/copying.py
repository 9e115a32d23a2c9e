"""Copying sessions from one store to another, of any backend, with their digests compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from pico_store.address import Seq
from pico_store.digest import DigestingStream, digest
from pico_store.snapshot import SnapshotItem
from pico_store.storage import Storage, Store


@dataclass(frozen=True, slots=True)
class CopyReport:
    """What was copied, and whether it arrived."""

    session: str
    last_seq: Seq
    items: int
    """Records, values, elements and batch boundaries."""
    source_digest: str
    destination_digest: str

    @property
    def equal(self) -> bool:
        """Whether the destination holds what the source held."""
        return self.source_digest == self.destination_digest


def copy_session(
    source: Storage,
    destination: Store,
    session_id: str,
    watch: Callable[[Iterator[SnapshotItem]], Iterable[SnapshotItem]] = iter,
) -> CopyReport:
    """Make a session of another store's state, read it back and compare the digests.

    The copy is of one state of the source, whatever is committed there meanwhile. If anything
    fails before it is whole, the destination holds nothing of it.

    Args:
        source: A session that is open, read-only at best.
        destination: The store that gets it.
        session_id: The name it gets there.
        watch: Passes the items on and may count them.

    Raises:
        SessionExistsError: The destination holds that session already.
    """
    stream = DigestingStream(source.export())
    destination.load(session_id, watch(iter(stream)))
    copy = destination.open(session_id, read_only=True)
    try:
        return _report(session_id, copy, stream)
    finally:
        copy.close()


def compare_sessions(source: Storage, copy: Storage) -> CopyReport:
    """Read a session and what may be its copy, and compare the digests; nothing is written."""
    stream = DigestingStream(source.export())
    for _ in stream:
        pass
    return _report(source.session_id, copy, stream)


def _report(session_id: str, copy: Storage, stream: DigestingStream) -> CopyReport:
    return CopyReport(
        session=session_id,
        last_seq=copy.last_seq,
        items=stream.count,
        source_digest=stream.hexdigest(),
        destination_digest=digest(copy.export()),
    )
