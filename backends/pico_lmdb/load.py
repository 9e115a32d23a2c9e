"""A session from another's snapshot: the inverse of the export.

It is written in many transactions, so that none of them holds up others for long, to a session that
nobody sees until the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from msgspec import UNSET

from pico_lmdb.changes import Changes
from pico_lmdb.environment import Environment
from pico_lmdb.layout import (
    ADDRESSES,
    BY_OWNER_CONVERSATION,
    CONVERSATIONS,
    link,
    scratch_write,
)
from pico_lmdb.memo import Memo
from pico_lmdb.names import address as address_name
from pico_lmdb.names import fit, rest
from pico_lmdb.plan import Plan
from pico_lmdb.plan_scratch import put_element, spent
from pico_lmdb.record_reads import RecordReads
from pico_lmdb.rows import AbsentRow, pack, seal, seal_key
from pico_lmdb.snapshot import Snapshot
from pico_lmdb.state_reads import StateReads
from pico_lmdb.task_reads import TaskReads
from pico_lmdb.writer import Writer
from pico_store.address import Address, ScratchAddress, Seq
from pico_store.entry_body import pack_entry
from pico_store.records import BatchRange, Conversation, Entry, Task
from pico_store.snapshot import (
    AddressPolicy,
    DeletedConversation,
    ListItem,
    ListMarker,
    SnapshotHeader,
    SnapshotItem,
    ValueVersion,
)
from pico_store.storage import Counters
from pico_store.strict_json import pack as pack_value

_BYTES_A_TRANSACTION: Final = 4 << 20
_ROW_BYTES: Final = 100
"""What a row weighs beside its payload."""


def load_session(
    environment: Environment,
    writer: Writer,
    session: int,
    items: Iterable[SnapshotItem],
    compress: Callable[[bytes], bytes] | None,
) -> None:
    """Write the rows of a checked snapshot for a session that has none."""
    loader = _Loader(environment, writer, session, compress)
    for item in items:
        loader.put(item)
    loader.finish()


class _Loader:
    def __init__(
        self,
        environment: Environment,
        writer: Writer,
        session: int,
        compress: Callable[[bytes], bytes] | None,
    ) -> None:
        self._environment = environment
        self._writer = writer
        self._session = session
        self._counters = Counters()
        with self._snapshot() as snapshot:
            self._memo = Memo(session, snapshot)
        records = RecordReads(self._memo, self._counters)
        self._tasks = TaskReads(self._memo, self._counters, records)
        state = StateReads(self._memo, self._counters, records)
        self._state = state
        self._plan = Plan(self._memo, bytes(8), self._snapshot, self._tasks, state, compress)
        self._changes: Changes = self._plan.begin()
        self._weight = 0
        self._lists = 0
        self._owned: list[tuple[Seq, Seq]] = []
        self._scratch: dict[Seq, tuple[ScratchAddress, bytes]] = {}

    def _snapshot(self) -> Snapshot:
        return Snapshot(self._environment, self._counters, "")

    def put(self, item: SnapshotItem) -> None:
        """Take an item; write what came together when it is enough."""
        self._put(item)
        if self._weight >= _BYTES_A_TRANSACTION:
            self._flush()

    def finish(self) -> None:
        """Write the rest, and what follows from several items."""
        self._flush()
        with self._snapshot() as snapshot:
            for id, owner in self._owned:
                row = self._tasks.row(snapshot, owner)
                if row is not None:
                    key = link(BY_OWNER_CONVERSATION, self._session, row.conversation, id)
                    self._changes.others[CONVERSATIONS, key] = seal_key(CONVERSATIONS, key)
        self._flush()

    def _flush(self) -> None:
        self._writer.write(self._changes)
        self._changes = self._plan.begin()
        self._weight = 0

    def _put(self, item: SnapshotItem) -> None:
        plan = self._plan
        body = b""
        match item:
            case SnapshotHeader():
                for kind in item.entry_kinds:
                    plan.kind(kind, entries=True)
            case Conversation():
                self._put_conversation(item, None)
            case DeletedConversation():
                self._put_conversation(item.conversation, item.through)
            case Entry():
                body = pack_entry(item)
                plan.put_entry(item, item.id, body)
            case Task():
                body = pack_value(item.state, "state")
                plan.put_task(item, item.id, body)
            case AddressPolicy():
                self._put_policy(item)
            case ValueVersion():
                if item.value is not UNSET:
                    body = pack_value(item.value, "value")
                plan.put_value(item.address, item.seq, body or None)
            case ListItem():
                body = pack_value(item.value, "value")
                self._put_element(item.address, item.id, body)
            case ListMarker():
                plan.put_marker(self._list(item.address), item.element or 0, item.seq)
            case BatchRange():
                self._put_batch(item)
        self._weight += len(body) + _ROW_BYTES

    def _put_conversation(self, record: Conversation, through: Seq | None) -> None:
        self._plan.put_conversation(record, through)
        if record.owner is not None:
            self._owned.append((record.id, record.owner))

    def _put_policy(self, item: AddressPolicy) -> None:
        if item.shape == "list":
            self._list(item.address)
        elif not item.address.rewind:
            # As of a value that was deleted; a current one takes its place.
            name = address_name("value", item.address.namespace, item.address.key)
            full = self._state.place(item.address)[1] + name
            row = pack(AbsentRow(rest(full), item.address.conversation))
            key = fit(full)
            self._changes.others[ADDRESSES, key] = seal(ADDRESSES, key, row)

    def _list(self, address: Address) -> int:
        """Return the number of a list; they are counted, since their first writes are not known."""
        name = self._plan.list_name(address, self._lists + 1)
        self._lists = max(self._lists, name.number)
        return name.number

    def _put_element(self, address: Address, id: Seq, body: bytes) -> None:
        if isinstance(address, ScratchAddress):
            # Its row also says where its batch begins, which comes last.
            self._scratch[id] = address, body
        else:
            self._plan.put_element(self._list(address), id, body)

    def _put_batch(self, batch: BatchRange) -> None:
        writes = batch.last - batch.first + 1
        if batch.task is None:
            self._plan.put_boundary(batch.first, writes)
            return
        for number in range(batch.first, batch.last + 1):
            seq = Seq(number)
            size = writes if seq == batch.first else 0
            found = self._scratch.pop(seq, None)
            if found is None:
                key = scratch_write(self._session, batch.task, seq)
                self._changes.main[key] = spent(key, size)
            else:
                key, row = put_element(self._session, found[0], seq, size, found[1])
                self._changes.main[key] = row
