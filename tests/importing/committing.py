"""Committing what an export holds, as its own history did."""

from msgspec import UNSET

from pico_store.batch import MainBatch, MainWrite, ValueSet
from pico_store.records import BatchRange, Conversation, Entry
from pico_store.snapshot import SnapshotItem, ValueVersion
from pico_store.storage import Storage


def commit_all(storage: Storage, items: list[SnapshotItem]) -> None:
    """Commit what an export holds, batch by batch."""
    writes = dict(found for item in items if (found := _write(item)) is not None)
    for item in items:
        if isinstance(item, BatchRange):
            numbers = range(item.first, item.last + 1)
            storage.commit(MainBatch(tuple(writes[n] for n in numbers)), expected_first=item.first)


def _write(item: SnapshotItem) -> tuple[int, MainWrite] | None:
    """Return the write that made an item, and its number."""
    match item:
        case Conversation() | Entry():
            return item.id, item
        case ValueVersion() if item.value is not UNSET:
            return item.seq, ValueSet(item.address, item.value)
    return None
