"""Reading values and lists: current ones, and rewindable ones through the fork chain."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import NamedTuple

from pico_lmdb.engine import Row
from pico_lmdb.layout import (
    ADDRESSES,
    LISTS,
    MAIN,
    VERSIONS,
    after_prefix,
    element,
    last_number,
    marker,
    pair,
    scratch_values,
    scratch_write,
    triple,
)
from pico_lmdb.memo import Memo, last_seq
from pico_lmdb.names import HEAD_BYTES, fit, rest, space, whole
from pico_lmdb.names import address as address_name
from pico_lmdb.record_reads import RecordReads
from pico_lmdb.rows import (
    AbsentRow,
    AddressRow,
    CurrentRow,
    ListRow,
    VersionedRow,
    decode_address,
    decode_scratch,
)
from pico_lmdb.snapshot import Snapshot
from pico_store.address import Address, ConversationAddress, ScratchAddress, Seq, Shape
from pico_store.errors import InvalidQueryError
from pico_store.limits import SEQ_MAX
from pico_store.query import ValueQuery
from pico_store.query_check import Window
from pico_store.records import (
    At,
    Conversation,
    Element,
    JsonValue,
    KeyedVersion,
    Page,
    ValuePage,
    Version,
)
from pico_store.shown import shown
from pico_store.storage import Counters
from pico_store.strict_json import unpack


class StateReads:
    """Answers questions about one session's state."""

    def __init__(self, memo: Memo, counters: Counters, records: RecordReads) -> None:
        self._memo = memo
        self._session = memo.session
        self._counters = counters
        self._records = records

    # --- Addresses ---

    def address_row(
        self, snapshot: Snapshot, tree: int, prefix: bytes, name: bytes
    ) -> tuple[bytes, AddressRow | None]:
        """Return the key of an address's row, and the row if there is one."""
        full = prefix + name
        key = fit(full)
        found = snapshot.read(tree, key, "address", name)
        if found is None:
            return key, None
        row = decode_address(found)
        if row.rest != rest(full):
            raise snapshot.damaged(f"address {name!r}")
        return key, row

    def address_key(self, address: ConversationAddress, shape: Shape) -> bytes:
        """Return the key of an address's row."""
        name = address_name(shape, address.namespace, address.key)
        return fit(pair(self._session, address.conversation) + name)

    def address_rows(
        self, snapshot: Snapshot, tree: int, start: bytes, stop: bytes
    ) -> Iterator[tuple[bytes, bytes, AddressRow]]:
        """Yield the whole key, LMDB's key and the row of addresses from one on and before another.

        In the order of whole keys: rows of long keys that begin alike are brought into order,
        which keeps the rows of as many of them as there are.
        """
        alike: list[tuple[bytes, bytes, AddressRow]] = []
        # Of long bounds, LMDB's keys have only the first bytes.
        end = stop if len(stop) <= HEAD_BYTES else after_prefix(stop[:HEAD_BYTES])
        for key, stored in snapshot.between(tree, start[:HEAD_BYTES], end):
            row = decode_address(snapshot.checked(tree, key, stored, "address", key[12:]))
            full = whole(key, row.rest)
            if alike and not (row.rest is not None and key.startswith(alike[0][1][:HEAD_BYTES])):
                yield from sorted(alike, key=lambda found: found[0])
                alike.clear()
            if not start <= full < stop:
                continue
            if row.rest is None:
                yield full, key, row
            else:
                alike.append((full, key, row))
        yield from sorted(alike, key=lambda found: found[0])

    def place(self, address: Address) -> tuple[int, bytes]:
        """Return the tree of an address that is no scratch list, and what its keys begin with."""
        if isinstance(address, ConversationAddress):
            return ADDRESSES, pair(self._session, address.conversation)
        if isinstance(address, ScratchAddress):
            known = 0 < address.task <= SEQ_MAX
            return MAIN, scratch_values(self._session, address.task if known else 0)
        return ADDRESSES, pair(self._session, 0)

    # --- Values ---

    def get_value(
        self, snapshot: Snapshot, address: Address, at: At | None
    ) -> Version[JsonValue] | None:
        """Return the version that an address shows."""
        name = address_name("value", address.namespace, address.key)
        if not isinstance(address, ConversationAddress):
            tree, prefix = self.place(address)
            return self._current(snapshot, tree, *self.address_row(snapshot, tree, prefix, name))
        reader = self._records.live(snapshot, address.conversation, "address.conversation")
        through = self._through(snapshot, reader, at)
        prefix = pair(self._session, reader.id)
        key, row = self.address_row(snapshot, ADDRESSES, prefix, name)
        if row is not None:
            self._check_policy(address, isinstance(row, VersionedRow))
        if not address.rewind:
            return self._current(snapshot, ADDRESSES, key, row)
        for part in self._records.segments(snapshot, reader, through):
            if part.conversation != reader.id:
                prefix = pair(self._session, part.conversation)
                row = self.address_row(snapshot, ADDRESSES, prefix, name)[1]
            if isinstance(row, VersionedRow):
                found = self._version_through(snapshot, row.number, part.through)
                if found is not None:
                    return self.version(snapshot, *found)
        return None

    def scan_values(self, snapshot: Snapshot, query: ValueQuery, limit: int) -> ValuePage:
        """Return a page of present keyed values by key."""
        scope = query.scope
        streams: list[Iterator[tuple[bytes, int, int, AddressRow]]] = []
        name = space("value", scope.namespace) + b"\1"
        if isinstance(scope, ConversationAddress):
            reader = self._records.live(snapshot, scope.conversation, "scope.conversation")
            for depth, part in enumerate(self._records.segments(snapshot, reader, SEQ_MAX)):
                prefix = pair(self._session, part.conversation)
                streams.append(
                    self._keys(snapshot, ADDRESSES, prefix, name, query.after, depth, part.through)
                )
        else:
            tree, prefix = self.place(scope)
            streams.append(self._keys(snapshot, tree, prefix, name, query.after, 0, SEQ_MAX))
        items: list[KeyedVersion[JsonValue]] = []
        more = None
        previous: bytes | None = None
        # The nearest write of a key comes first; the others are hidden by it.
        for key, _, through, row in heapq.merge(*streams, key=lambda found: found[:2]):
            if key == previous:
                continue
            found = None
            if isinstance(row, VersionedRow):
                found = self._version_through(snapshot, row.number, through)
                if found is None:
                    continue
            previous = key
            if isinstance(row, AbsentRow) or (found is not None and not found[1]):
                continue
            if len(items) == limit:
                more = items[-1].key
                break
            version = (
                self._current(snapshot, ADDRESSES, b"", row)
                if found is None
                else self.version(snapshot, *found)
            )
            if version is not None:
                items.append(KeyedVersion(key.decode(), version.seq, version.value))
        return ValuePage(items, last_seq(snapshot, self._session), more)

    def _keys(
        self,
        snapshot: Snapshot,
        tree: int,
        prefix: bytes,
        name: bytes,
        after: str | None,
        depth: int,
        through: int,
    ) -> Iterator[tuple[bytes, int, int, AddressRow]]:
        """Yield the keyed values of one level: key, level, the position it is read at, row."""
        first = prefix + name
        start = first if after is None else first + after.encode() + b"\0"
        # What comes behind the last key of the namespace.
        stop = first[:-1] + b"\2"
        for full, _, row in self.address_rows(snapshot, tree, start, stop):
            # An ancestor's sticky value is none of a fork's (VAL-10).
            if depth and not isinstance(row, VersionedRow):
                continue
            yield full[len(first) :], depth, through, row

    def _current(
        self, snapshot: Snapshot, tree: int, key: bytes, row: AddressRow | None
    ) -> Version[JsonValue] | None:
        if not isinstance(row, CurrentRow):
            return None
        self._counters.rows_decoded += 1
        return Version(row.seq, unpack(snapshot.plain(row.body)))

    def current_at(self, snapshot: Snapshot, tree: int, key: bytes, seq: int) -> JsonValue:
        """Return the current value in a row that was found before."""
        found = snapshot.read(tree, key, "value of write", seq)
        row = None if found is None else decode_address(found)
        if not isinstance(row, CurrentRow):
            # A damaged page shows a row to a walk and hides it from a search.
            raise snapshot.damaged(f"value of write {seq}")
        self._counters.rows_decoded += 1
        return unpack(snapshot.plain(row.body))

    def _version_through(
        self, snapshot: Snapshot, number: int, through: int
    ) -> tuple[Seq, bytes] | None:
        """Return the newest version at a position, not decoded; empty: a tombstone."""
        start = triple(self._session, number, 0)
        found = snapshot.newest(VERSIONS, start, triple(self._session, number, through + 1))
        if found is None:
            return None
        seq = Seq(last_number(found[0], 12)[0])
        return seq, snapshot.checked(VERSIONS, *found, "value of write", seq)

    def version(self, snapshot: Snapshot, seq: Seq, body: bytes) -> Version[JsonValue] | None:
        """Return a version; ``None`` for a tombstone."""
        if not body:
            return None
        self._counters.rows_decoded += 1
        return Version(seq, unpack(snapshot.plain(body)))

    # --- Lists ---

    def read_list(
        self, snapshot: Snapshot, address: Address, window: Window, at: At | None
    ) -> Page[Element[JsonValue]]:
        """Return a page of the elements that a list shows."""
        items: list[Element[JsonValue]] = []
        more = None
        for id, body in self._elements(snapshot, address, window, at):
            if len(items) == window.limit:
                more = items[-1].id
                break
            self._counters.rows_decoded += 1
            items.append(Element(id, unpack(snapshot.plain(body))))
        return Page(items, last_seq(snapshot, self._session), more)

    def element_visible(
        self, snapshot: Snapshot, address: Address, id: Seq, at: Seq | None
    ) -> bool:
        """Tell whether a list shows an element."""
        window = Window(id, id, newest_first=False, limit=1)
        # The rules also ask what a fork's source passes on, where a sticky list of its own is
        # looked past (VAL-10) and no mistake of the caller.
        found = self._elements(snapshot, address, window, at, any_policy=True)
        return next(found, None) is not None

    def _elements(
        self,
        snapshot: Snapshot,
        address: Address,
        window: Window,
        at: At | None,
        *,
        any_policy: bool = False,
    ) -> Iterator[tuple[Seq, bytes]]:
        """Yield the ids of visible elements and their payloads."""
        if isinstance(address, ScratchAddress):
            yield from self._scratch_elements(snapshot, address, window)
            return
        name = address_name("list", address.namespace, address.key)
        if isinstance(address, ConversationAddress):
            reader = self._records.live(snapshot, address.conversation, "address.conversation")
            through = self._through(snapshot, reader, at)
            own = self._list(snapshot, pair(self._session, reader.id), name)
            if own is not None and not any_policy:
                self._check_policy(address, own.rewind)
            if address.rewind:
                parts = self._list_parts(snapshot, reader, through, name)
                for part in parts if window.newest_first else reversed(parts):
                    yield from self._part_elements(snapshot, part, window)
                return
        else:
            own = self._list(snapshot, pair(self._session, 0), name)
        if own is not None:
            part = _Part(own.number, 1, SEQ_MAX, 0, frozenset())
            yield from self._part_elements(snapshot, part, window)

    def _list_parts(
        self, snapshot: Snapshot, reader: Conversation, through: int, name: bytes
    ) -> list[_Part]:
        """Return what each level of the fork chain contributes, the reader's own first."""
        parts: list[_Part] = []
        hidden: frozenset[int] = frozenset()
        for part in self._records.segments(snapshot, reader, through):
            found = self._list(snapshot, pair(self._session, part.conversation), name)
            if found is None or not found.rewind:
                continue
            number = found.number
            start = marker(self._session, number, 0, 0)
            stop = marker(self._session, number, 0, part.through + 1)
            clear = snapshot.newest(LISTS, start, stop)
            first = 1 if clear is None else _marked_at(snapshot, clear) + 1
            parts.append(_Part(number, first, part.through, part.through, hidden))
            if clear is not None:
                # It hides all that was inherited as well.
                break
            start = marker(self._session, number, 1, 0)
            stop = marker(self._session, number, part.conversation, 0)
            hidden |= {
                last_number(row[0], 13)[0]
                for row in snapshot.between(LISTS, start, stop)
                if _marked_at(snapshot, row) <= part.through
            }
        return parts

    def _part_elements(
        self, snapshot: Snapshot, part: _Part, window: Window
    ) -> Iterator[tuple[Seq, bytes]]:
        first, last = max(part.first, window.first), min(part.last, window.last)
        if first > last:
            return
        start = element(self._session, part.number, first)
        stop = element(self._session, part.number, last + 1)
        for key, stored in snapshot.between(LISTS, start, stop, newest_first=window.newest_first):
            id = last_number(key, 13)[0]
            if id in part.hidden or (part.through and self._removed(snapshot, part, id)):
                continue
            yield Seq(id), snapshot.checked(LISTS, key, stored, "list element", id)

    def _removed(self, snapshot: Snapshot, part: _Part, id: int) -> bool:
        start = marker(self._session, part.number, id, 0)
        stop = marker(self._session, part.number, id, part.through + 1)
        found = snapshot.newest(LISTS, start, stop)
        return found is not None and _marked_at(snapshot, found) > 0

    def _scratch_elements(
        self, snapshot: Snapshot, address: ScratchAddress, window: Window
    ) -> Iterator[tuple[Seq, bytes]]:
        if window.first > window.last or not 0 < address.task <= SEQ_MAX:
            return
        start = scratch_write(self._session, address.task, window.first)
        stop = scratch_write(self._session, address.task, window.last + 1)
        for key, stored in snapshot.between(MAIN, start, stop, newest_first=window.newest_first):
            id = Seq(last_number(key, 14)[0])
            row = decode_scratch(snapshot.checked(MAIN, key, stored, "list element", id))
            if row.namespace == address.namespace and row.key == address.key:
                yield id, bytes(row.body)

    def _list(self, snapshot: Snapshot, prefix: bytes, name: bytes) -> ListRow | None:
        row = self.address_row(snapshot, ADDRESSES, prefix, name)[1]
        return row if isinstance(row, ListRow) else None

    # --- Policies and positions ---

    def rewind_policy(
        self, snapshot: Snapshot, address: ConversationAddress, shape: Shape
    ) -> bool | None:
        """Return the policy that an address was first written with."""
        name = address_name(shape, address.namespace, address.key)
        prefix = pair(self._session, address.conversation)
        row = self.address_row(snapshot, ADDRESSES, prefix, name)[1]
        if isinstance(row, ListRow):
            return row.rewind
        return None if row is None else isinstance(row, VersionedRow)

    def _check_policy(self, address: ConversationAddress, policy: bool) -> None:  # noqa: FBT001
        if policy != address.rewind:
            problem = f"{address.rewind}; the first write of this address fixed {policy}"
            raise InvalidQueryError("VAL-1", "address.rewind", problem)

    def _through(self, snapshot: Snapshot, reader: Conversation, at: At | None) -> int:
        if at is None:
            return SEQ_MAX
        if at == "start":
            return 0
        if not self._records.entry_visible(snapshot, reader, at):
            problem = f"{shown(at)} is not an entry that conversation {reader.id} shows"
            raise InvalidQueryError("VAL-7", "at", problem)
        return at


class _Part(NamedTuple):
    """The elements of one conversation's own list that a reader may see."""

    number: int
    first: int
    last: int
    through: int
    """The greatest marker that counts; 0: there are none."""
    hidden: frozenset[int]
    """Removed by conversations nearer to the reader."""


def _marked_at(snapshot: Snapshot, row: Row) -> int:
    """Return the number of the write that a list's marker tells of."""
    key, stored = row
    seq = last_number(key, 21)[0]
    snapshot.checked(LISTS, key, stored, "list marker", seq)
    return int(seq)
