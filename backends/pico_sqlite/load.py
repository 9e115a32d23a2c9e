"""A session from another's snapshot: the inverse of the export."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import apsw
import msgspec
from msgspec import UNSET

from pico_sqlite.memo import OWNER, Memo
from pico_sqlite.numbers import EXTENT_BITS
from pico_sqlite.rows import Rows
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
from pico_store.strict_json import pack

# Up to here every extent is given to the session before its rows come; a sequence that is longer
# has used few of its extents, so that its items can be looked through for them first.
_DENSE_EXTENTS_MAX: Final = 65_536


def load_session(
    db: apsw.Connection,
    session: int,
    items: Iterable[SnapshotItem],
    compress: Callable[[bytes], bytes] | None,
) -> None:
    """Write the rows of a checked snapshot for a session that has none, inside a transaction."""
    _Loader(db, session, compress or _as_it_is).load(iter(items))


def _as_it_is(body: bytes) -> bytes:
    return body


class _Loader:
    def __init__(
        self, db: apsw.Connection, session: int, compress: Callable[[bytes], bytes]
    ) -> None:
        self._db = db
        self._compress = compress
        self._memo = Memo(session, db)
        self._rows = Rows(db, self._memo, epoch=0)
        self._scratch: dict[Seq, tuple[ScratchAddress, bytes]] = {}
        self._policies: list[AddressPolicy] = []

    def load(self, items: Iterator[SnapshotItem]) -> None:
        header = next(items, None)
        if not isinstance(header, SnapshotHeader):
            # The checks have refused this already, unless there was nothing at all.
            for _ in items:
                pass
            return
        high = header.last_seq >> EXTENT_BITS
        if high <= _DENSE_EXTENTS_MAX:
            self._add_extents(range(high + 1))
        else:
            kept = list(items)
            self._add_extents(sorted({0, high} | {n >> EXTENT_BITS for n in _numbers(kept)}))
            items = iter(kept)
        for kind in header.entry_kinds:
            self._rows.kind(kind, entries=True)
        for item in items:
            self._put(item)
        for policy in self._policies:
            self._put_sticky_policy(policy)
        self._link_owners()

    def _add_extents(self, highs: Iterable[int]) -> None:
        for high in highs:
            if not self._memo.numbers.holds(high << EXTENT_BITS):
                self._rows.add_extent(high)

    def _put(self, item: SnapshotItem) -> None:
        match item:
            case Conversation():
                self._rows.put_conversation(item, None)
            case DeletedConversation():
                self._rows.put_conversation(item.conversation, item.through)
            case Entry():
                self._rows.put_entry(item, item.id, self._compress(pack_entry(item)))
            case Task():
                self._rows.put_task(item, item.id, self._compress(pack(item.state, "state")))
            case AddressPolicy():
                if item.shape == "list":
                    self._rows.list_name(item.address)
                elif not item.address.rewind:
                    self._policies.append(item)
            case ValueVersion():
                body = None if item.value is UNSET else pack(item.value, "value")
                if body is not None and not isinstance(item.address, ScratchAddress):
                    body = self._compress(body)
                self._rows.put_value(item.address, item.seq, body)
            case ListItem():
                self._put_element(item.address, item.id, pack(item.value, "value"))
            case ListMarker():
                number = self._rows.list_name(item.address).list
                self._rows.put_marker(number, item.element or 0, item.seq)
            case BatchRange():
                self._put_batch(item)

    def _put_element(self, address: Address, id: Seq, body: bytes) -> None:
        if isinstance(address, ScratchAddress):
            # Its row also says where its batch begins, which comes last.
            self._scratch[id] = address, body
        else:
            number = self._rows.list_name(address).list
            self._rows.put_element(number, id, self._compress(body))

    def _put_batch(self, batch: BatchRange) -> None:
        writes = batch.last - batch.first + 1
        if batch.task is None:
            self._rows.put_boundary(batch.first, writes)
            return
        known = self._rows.scratch.begin(batch.task)
        for number in range(batch.first, batch.last + 1):
            seq = Seq(number)
            size = writes if seq == batch.first else 0
            spent = (ScratchAddress(batch.task, "-"), None)
            address, body = self._scratch.pop(seq, spent)
            self._rows.scratch.put(known, address, seq, size, body)

    def _put_sticky_policy(self, policy: AddressPolicy) -> None:
        """Keep the policy of a sticky address whose value was deleted."""
        if not self._rows.has_current(policy.address):
            # Any number will do: a tombstone's is never shown.
            self._rows.put_value(policy.address, policy.address.conversation, None)

    def _link_owners(self) -> None:
        session = (self._memo.session,)
        self._db.execute(
            "UPDATE conversations SET owner_conversation = "
            "(SELECT conversation FROM records WHERE id = owner) "
            "WHERE session = ? AND owner IS NOT NULL",
            session,
        )
        self._db.execute(
            f"UPDATE records SET flags = flags | {OWNER} WHERE id IN (SELECT owner FROM "
            "conversations WHERE session = ? AND owner IS NOT NULL)",
            session,
        )


def _numbers(items: list[SnapshotItem]) -> Iterator[int]:
    """Yield every number that an item's keys are made from."""
    for item in items:
        for part in (item, item.conversation if isinstance(item, DeletedConversation) else None):
            if part is not None:
                yield from _found_numbers(msgspec.structs.asdict(part))


def _found_numbers(fields: dict[str, object]) -> Iterator[int]:
    for name, value in fields.items():
        if name in ("data", "model", "edits", "state", "value"):
            continue
        if type(value) is int:
            yield value
        elif isinstance(value, msgspec.Struct):
            yield from _found_numbers(msgspec.structs.asdict(value))
