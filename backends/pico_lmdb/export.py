"""A session's logical state in canonical order.

All of it is read in one go, for a read transaction that outlived the call would keep the file from
using its free pages again and the map from growing. What is read waits in memory or, beyond a few
MiB, in an unnamed temporary file.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from tempfile import SpooledTemporaryFile
from typing import Final, NamedTuple

import msgspec
from msgspec import UNSET

from pico_lmdb.batch_reads import BatchReads
from pico_lmdb.layout import (
    ADDRESSES,
    CONVERSATIONS,
    LISTS,
    MAIN,
    RECORD,
    RECORDS,
    VERSIONS,
    after_prefix,
    element,
    elements,
    last_number,
    marker,
    of_session,
    pair,
    scratch_values,
    scratch_writes,
    triple,
)
from pico_lmdb.memo import Memo, last_seq, streams
from pico_lmdb.names import split
from pico_lmdb.record_reads import RecordReads
from pico_lmdb.rows import (
    CurrentRow,
    EntryRow,
    ListRow,
    VersionedRow,
    decode_conversation,
    decode_record,
    decode_scratch,
)
from pico_lmdb.snapshot import Snapshot
from pico_lmdb.state_reads import StateReads
from pico_lmdb.task_reads import TaskReads
from pico_store.address import Address, ConversationAddress, ScratchAddress, Seq, SessionAddress
from pico_store.limits import SEQ_MAX
from pico_store.query_check import Window
from pico_store.records import JsonValue
from pico_store.snapshot import (
    AddressPolicy,
    DeletedConversation,
    ListItem,
    ListMarker,
    SnapshotHeader,
    SnapshotItem,
    ValueVersion,
)
from pico_store.strict_json import unpack

_MEMORY_BYTES_MAX: Final = 4 << 20
_NUMBER_BITS: Final = 53
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(SnapshotItem).decode


def exported(
    reading: Callable[[], Snapshot],
    memo: Memo,
    records: RecordReads,
    tasks: TaskReads,
    state: StateReads,
) -> Iterator[SnapshotItem]:
    """Yield the items of `pico_store.snapshot` in their order, all of one state."""
    with SpooledTemporaryFile(max_size=_MEMORY_BYTES_MAX) as spool:
        with reading() as snapshot:
            for item in export_session(snapshot, memo, records, tasks, state):
                packed = _encode(item)
                spool.write(len(packed).to_bytes(8, "big"))
                spool.write(packed)
        spool.seek(0)
        while size := spool.read(8):
            item = _decode(spool.read(int.from_bytes(size, "big")))
            yield item


def export_session(
    snapshot: Snapshot, memo: Memo, records: RecordReads, tasks: TaskReads, state: StateReads
) -> Iterator[SnapshotItem]:
    """Yield the items as they are read."""
    kinds = tuple(sorted(memo.entry_kinds(snapshot)))
    yield SnapshotHeader(last_seq(snapshot, memo.session), kinds)
    exporter = _Exporter(snapshot, memo, records, state)
    yield from exporter.conversations()
    yield from exporter.entries()
    for id, row in tasks.every_row(snapshot):
        yield tasks.task(snapshot, id, row, owns=False)
    yield from exporter.policies()
    yield from exporter.values()
    yield from exporter.elements()
    yield from exporter.markers()
    everything = Window(1, SEQ_MAX, newest_first=False, limit=1)
    yield from BatchReads(memo).batches(snapshot, everything)


class _Place(NamedTuple):
    """An address, and up to which number its history is shown."""

    address: Address
    through: int


class _Exporter:
    """Goes through the trees; what is sorted by address there is sorted by number here."""

    def __init__(
        self,
        snapshot: Snapshot,
        memo: Memo,
        records: RecordReads,
        state: StateReads,
    ) -> None:
        self._snapshot = snapshot
        self._memo = memo
        self._session = memo.session
        self._records = records
        self._state = state
        self._through: dict[int, int] = {}
        """How far each conversation is shown, by id; those that are not are left out."""
        self._deleted: set[int] = set()
        self._current: list[tuple[int, int, bytes, Address]] = []
        """Number, tree, key and address of current values."""
        self._versioned: dict[int, _Place] = {}
        self._lists: dict[int, _Place] = {}

    def conversations(self) -> Iterator[SnapshotItem]:
        for key, stored in self._snapshot.under(CONVERSATIONS, of_session(RECORD, self._session)):
            id = Seq(last_number(key, 5)[0])
            row = decode_conversation(
                self._snapshot.checked(CONVERSATIONS, key, stored, "conversation", id)
            )
            if row.through is None:
                self._through[id] = SEQ_MAX
                yield self._records.conversation(id, row)
            elif row.through:
                self._through[id] = row.through
                self._deleted.add(id)
                yield DeletedConversation(self._records.conversation(id, row), Seq(row.through))

    def entries(self) -> Iterator[SnapshotItem]:
        for key, stored in self._snapshot.under(RECORDS, self._session.to_bytes(4, "big")):
            id = Seq(last_number(key, 4)[0])
            row = decode_record(self._snapshot.checked(RECORDS, key, stored, "entry", id))
            if isinstance(row, EntryRow) and id <= self._through.get(row.conversation, 0):
                yield self._records.entry(self._snapshot, id, row)

    def policies(self) -> Iterator[SnapshotItem]:
        """Yield the policies, and note what is at each address."""
        prefix = self._session.to_bytes(4, "big")
        rows = self._state.address_rows(self._snapshot, ADDRESSES, prefix, after_prefix(prefix))
        for full, key, row in rows:
            conversation = Seq(last_number(full, 4)[0])
            shape, namespace, name = split(full[12:])
            rewind = isinstance(row, VersionedRow) or (isinstance(row, ListRow) and row.rewind)
            through = SEQ_MAX
            address: Address = SessionAddress(namespace, name)
            if conversation:
                through = self._through.get(conversation, 0)
                if not through or (conversation in self._deleted and not rewind):
                    continue
                address = ConversationAddress(conversation, namespace, name, rewind=rewind)
                if conversation not in self._deleted:
                    yield AddressPolicy(address, shape)
            if isinstance(row, VersionedRow):
                self._versioned[row.number] = _Place(address, through)
            elif isinstance(row, ListRow):
                self._lists[row.number] = _Place(address, through)
            elif isinstance(row, CurrentRow):
                self._current.append((row.seq, ADDRESSES, key, address))

    def values(self) -> Iterator[SnapshotItem]:
        for task, _ in streams(self._snapshot, self._session):
            prefix = scratch_values(self._session, task)
            rows = self._state.address_rows(self._snapshot, MAIN, prefix, after_prefix(prefix))
            for full, key, row in rows:
                if isinstance(row, CurrentRow):
                    address = ScratchAddress(task, *split(full[14:])[1:])
                    self._current.append((row.seq, MAIN, key, address))
        self._current.sort(key=lambda found: found[0])
        versions = []
        for number, place in self._versioned.items():
            start = triple(self._session, number, 0)
            stop = triple(self._session, number, place.through + 1)
            for key in self._snapshot.keys(VERSIONS, start, stop):
                versions.append(last_number(key, 12)[0] << _NUMBER_BITS | number)
        versions.sort()
        yield from heapq.merge(
            self._current_values(), self._version_values(versions), key=lambda item: item.seq
        )

    def _current_values(self) -> Iterator[ValueVersion]:
        for seq, tree, key, address in self._current:
            value = self._state.current_at(self._snapshot, tree, key, seq)
            yield ValueVersion(Seq(seq), address, value)

    def _version_values(self, versions: list[int]) -> Iterator[ValueVersion]:
        for version in versions:
            seq, number = version >> _NUMBER_BITS, version & SEQ_MAX
            key = triple(self._session, number, seq)
            body = self._snapshot.read(VERSIONS, key, "value of write", seq)
            if body is None:
                raise self._snapshot.damaged(f"value of write {seq}")
            value: JsonValue | msgspec.UnsetType = (
                unpack(self._snapshot.plain(body)) if body else UNSET
            )
            yield ValueVersion(Seq(seq), self._versioned[number].address, value)

    def elements(self) -> Iterator[SnapshotItem]:
        found = []
        for number, place in self._lists.items():
            start = elements(self._session, number)
            stop = element(self._session, number, place.through + 1)
            for key in self._snapshot.keys(LISTS, start, stop):
                found.append(last_number(key, 13)[0] << _NUMBER_BITS | number)
        found.sort()
        yield from heapq.merge(
            self._list_items(found),
            *(self._scratch_items(task) for task, _ in streams(self._snapshot, self._session)),
            key=lambda item: item.id,
        )

    def _list_items(self, found: list[int]) -> Iterator[ListItem]:
        for one in found:
            id, number = one >> _NUMBER_BITS, one & SEQ_MAX
            key = element(self._session, number, id)
            body = self._snapshot.read(LISTS, key, "list element", id)
            if body is None:
                # A damaged page shows a row to a walk and hides it from a search.
                raise self._snapshot.damaged(f"list element {id}")
            yield ListItem(Seq(id), self._lists[number].address, unpack(self._snapshot.plain(body)))

    def _scratch_items(self, task: Seq) -> Iterator[ListItem]:
        for key, stored in self._snapshot.under(MAIN, scratch_writes(self._session, task)):
            id = Seq(last_number(key, 14)[0])
            row = decode_scratch(self._snapshot.checked(MAIN, key, stored, "list element", id))
            if row.namespace is not None:
                address = ScratchAddress(task, row.namespace, row.key)
                yield ListItem(id, address, unpack(bytes(row.body)))

    def markers(self) -> Iterator[SnapshotItem]:
        found = []
        for number, place in self._lists.items():
            address = place.address
            if isinstance(address, ConversationAddress) and address.rewind:
                start = marker(self._session, number, 0, 0)
                stop = pair(self._session, number) + b"\1"
                for key, stored in self._snapshot.between(LISTS, start, stop):
                    seq = last_number(key, 21)[0]
                    self._snapshot.checked(LISTS, key, stored, "list marker", seq)
                    if seq <= place.through:
                        found.append((seq, last_number(key, 13)[0], address))
        found.sort(key=lambda one: one[0])
        for seq, hidden, address in found:
            yield ListMarker(Seq(seq), address, Seq(hidden) if hidden else None)
