"""Reading values and lists: current ones, and rewindable ones through the fork chain."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from pico_sqlite.checksum import checksum, scratch_checksum, scratch_start
from pico_sqlite.connection import Row
from pico_sqlite.memo import Memo
from pico_sqlite.readers import Snapshot
from pico_sqlite.record_reads import RecordReads, stream_rows
from pico_sqlite.rows import list_columns, value_columns
from pico_sqlite.scratch_rows import STREAM_LAST, stored_key
from pico_store.address import Address, ConversationAddress, ScratchAddress, Seq, Shape
from pico_store.compression import COMPRESSED
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

_NOBODY: Final = -(1 << 62)


class _Part(NamedTuple):
    """The elements of one conversation's own list that a reader may see."""

    list: int
    first: int
    last: int
    through: int
    """The greatest marker that counts."""
    hidden: frozenset[int]
    """Removed by conversations nearer to the reader."""


class StateReads:
    """Answers questions about one session's state."""

    def __init__(self, memo: Memo, counters: Counters, records: RecordReads) -> None:
        self._memo = memo
        self._counters = counters
        self._records = records

    # --- Values ---

    def get_value(
        self, snapshot: Snapshot, address: Address, at: At | None
    ) -> Version[JsonValue] | None:
        """Return the version that an address shows."""
        key = stored_key(address.key)
        if not isinstance(address, ConversationAddress):
            return self._current(snapshot, self._scope(address), address.namespace, key)
        reader = self._records.live(snapshot, address.conversation, "address.conversation")
        through = self._through(snapshot, reader, at)
        self._check_policy(snapshot, address, "value")
        if not address.rewind:
            return self._current(snapshot, self._scope(address), address.namespace, key)
        sql = (
            "SELECT seq, checksum, body FROM value_versions "
            "WHERE scope = ? AND namespace = ? AND key = ? AND seq <= ? ORDER BY seq DESC LIMIT 1"
        )
        for part in self._records.segments(snapshot, reader, through):
            scope = self._memo.numbers.key(part.conversation)
            values = (scope, address.namespace, key, part.through)
            for row in self._records.fetch(snapshot, sql, values):
                return self.version(row, scope, address.namespace, key)
        return None

    def scan_values(self, snapshot: Snapshot, query: ValueQuery, limit: int) -> ValuePage:
        """Return a page of present keyed values by key."""
        scope, namespace = query.scope, query.scope.namespace
        after = "" if query.after is None else stored_key(query.after)
        streams: list[Iterator[tuple[str, int, int, int]]] = []
        if isinstance(scope, ConversationAddress):
            reader = self._records.live(snapshot, scope.conversation, "scope.conversation")
            for depth, part in enumerate(self._records.segments(snapshot, reader, SEQ_MAX)):
                ancestor = self._memo.numbers.key(part.conversation)
                sql = (
                    "SELECT key, ?, max(seq), scope FROM value_versions WHERE scope = ? "
                    "AND namespace = ? AND key > ? AND seq <= ? GROUP BY key ORDER BY key"
                )
                values = (depth, ancestor, namespace, after, part.through)
                streams.append(self._stream(snapshot, sql, values))
        sql = (
            "SELECT key, -1, seq, scope FROM current_values WHERE scope = ? AND namespace = ? "
            "AND key > ? ORDER BY key"
        )
        streams.append(self._stream(snapshot, sql, (self._scope(scope), namespace, after)))
        items: list[KeyedVersion[JsonValue]] = []
        more = None
        previous = ""
        # The nearest write of a key comes first; the others are hidden by it.
        for key, depth, seq, holder in heapq.merge(*streams):
            if key == previous:
                continue
            previous = key
            version = self._at(snapshot, holder, namespace, key, None if depth < 0 else seq)
            if version is None:
                continue
            if len(items) == limit:
                more = items[-1].key
                break
            items.append(KeyedVersion(key[1:], version.seq, version.value))
        return ValuePage(items, self._records.last_seq(snapshot), more)

    def _stream(
        self, snapshot: Snapshot, sql: str, values: tuple[int | str, ...]
    ) -> Iterator[tuple[str, int, int, int]]:
        self._counters.queries += 1
        return snapshot.stream(sql, values)

    def _at(
        self, snapshot: Snapshot, scope: int, namespace: str, key: str, seq: int | None
    ) -> Version[JsonValue] | None:
        if seq is None:
            return self._current(snapshot, scope, namespace, key)
        sql = (
            "SELECT seq, checksum, body FROM value_versions "
            "WHERE scope = ? AND namespace = ? AND key = ? AND seq = ?"
        )
        (row,) = self._records.fetch(snapshot, sql, (scope, namespace, key, seq))
        return self.version(row, scope, namespace, key)

    def _current(
        self, snapshot: Snapshot, scope: int, namespace: str, key: str
    ) -> Version[JsonValue] | None:
        sql = (
            "SELECT seq, checksum, body FROM current_values "
            "WHERE scope = ? AND namespace = ? AND key = ?"
        )
        for row in self._records.fetch(snapshot, sql, (scope, namespace, key)):
            return self.version(row, scope, namespace, key)
        return None

    def version(self, row: Row, scope: int, namespace: str, key: str) -> Version[JsonValue] | None:
        """Return a version from its row; ``None`` for a tombstone."""
        seq, sums, body = row
        if checksum((*value_columns(self._memo, seq, scope, namespace, key), body)) != sums:
            raise self._records.damaged(f"value {namespace!r} {key[1:]!r} of write {seq}")
        if body is None:
            return None
        self._counters.rows_decoded += 1
        plain = self._records.plain(body) if body[0] in COMPRESSED else body
        return Version(Seq(seq), unpack(plain))

    # --- Lists ---

    def read_list(
        self, snapshot: Snapshot, address: Address, window: Window, at: At | None
    ) -> Page[Element[JsonValue]]:
        """Return a page of the elements that a list shows."""
        items: list[Element[JsonValue]] = []
        more = None
        for item in self._elements(snapshot, address, window, at):
            if len(items) == window.limit:
                more = items[-1].id
                break
            items.append(item())
        return Page(items, self._records.last_seq(snapshot), more)

    def element_visible(
        self, snapshot: Snapshot, address: Address, element: Seq, at: Seq | None
    ) -> bool:
        """Tell whether a list shows an element."""
        window = Window(element, element, newest_first=False, limit=1)
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
    ) -> Iterator[_Undecoded]:
        if isinstance(address, ScratchAddress):
            yield from self._scratch_elements(snapshot, address, window)
            return
        if isinstance(address, ConversationAddress):
            reader = self._records.live(snapshot, address.conversation, "address.conversation")
            through = self._through(snapshot, reader, at)
            if not any_policy:
                self._check_policy(snapshot, address, "list")
            if address.rewind:
                parts = self._list_parts(snapshot, address, reader, through, window)
                for part in parts if window.newest_first else reversed(parts):
                    yield from self._part_elements(snapshot, part, window)
                return
        if (found := self._list(snapshot, address)) is not None:
            part = _Part(found, 1, SEQ_MAX, 0, frozenset())
            yield from self._part_elements(snapshot, part, window)

    def _list_parts(
        self,
        snapshot: Snapshot,
        address: ConversationAddress,
        reader: Conversation,
        through: int,
        window: Window,
    ) -> list[_Part]:
        """Return what each level of the fork chain contributes, the reader's own first.

        Of what a level removed of its ancestors' lists, what is in the window.
        """
        parts: list[_Part] = []
        hidden: frozenset[int] = frozenset()
        cleared = "SELECT max(seq) FROM list_markers WHERE list = ? AND element = 0 AND seq <= ?"
        removed = (
            "SELECT element FROM list_markers WHERE list = ? AND element BETWEEN ? AND ? "
            "AND seq <= ?"
        )
        for part in self._records.segments(snapshot, reader, through):
            own = msgspec.structs.replace(address, conversation=part.conversation)
            found = self._list(snapshot, own)
            if found is None:
                continue
            (clear,) = self._records.fetch(snapshot, cleared, (found, part.through))[0]
            parts.append(_Part(found, (clear or 0) + 1, part.through, part.through, hidden))
            if clear is not None:
                # It hides all that was inherited as well.
                break
            first, last = window.first, min(part.conversation - 1, window.last)
            if first <= last:
                values = (found, first, last, part.through)
                hidden |= {row[0] for row in self._records.fetch(snapshot, removed, values)}
        return parts

    def _part_elements(
        self, snapshot: Snapshot, part: _Part, window: Window
    ) -> Iterator[_Undecoded]:
        first, last = max(part.first, window.first), min(part.last, window.last)
        if first > last:
            return
        sql = (
            "SELECT seq, checksum, body FROM list_elements e WHERE list = ? AND seq BETWEEN ? "
            "AND ? AND NOT EXISTS (SELECT 1 FROM list_markers m WHERE m.list = e.list "
            "AND m.element = e.seq AND m.seq <= ?) "
            f"ORDER BY seq{' DESC' * window.newest_first}"
        )
        self._counters.queries += 1
        rows = snapshot.stream(sql, (part.list, first, last, part.through))
        for seq, sums, body in rows:
            if seq not in part.hidden:
                yield _Undecoded(self, seq, checksum((seq, part.list, body)), sums, body)

    def _scratch_elements(
        self, snapshot: Snapshot, address: ScratchAddress, window: Window
    ) -> Iterator[_Undecoded]:
        if window.first > window.last:
            return
        numbers = self._memo.numbers
        key = stored_key(address.key)
        task = numbers.find(address.task)
        stream = self._records.stream(snapshot, task)
        if stream is None:
            return
        sql = (
            "SELECT id, writes, checksum, body FROM scratch WHERE id BETWEEN ? AND ? "
            f"AND namespace = ? AND key = ? ORDER BY id{' DESC' * window.newest_first}"
        )
        bounds = (numbers.at_least(window.first), numbers.through(window.last))
        values = (*stream_rows(task, stream, *bounds), address.namespace, key)
        self._counters.queries += 1
        for id, writes, sums, body in snapshot.stream(sql, values):
            seq = numbers.seq(task + (id & STREAM_LAST))
            start = scratch_start(address.task, writes, address.namespace, key)
            yield _Undecoded(self, seq, scratch_checksum(start, seq, body), sums, body)

    def decode(self, seq: Seq, expected: int, sums: int, body: bytes) -> Element[JsonValue]:
        """Return an element whose row should have a checksum and has another or the same."""
        if expected != sums:
            raise self._records.damaged(f"list element {seq}")
        self._counters.rows_decoded += 1
        plain = self._records.plain(body) if body[0] in COMPRESSED else body
        return Element(seq, unpack(plain))

    # --- Policies and positions ---

    def rewind_policy(
        self, snapshot: Snapshot, address: ConversationAddress, shape: Shape
    ) -> bool | None:
        """Return the policy that an address was first written with."""
        scope = self._scope(address)
        values = (scope, address.namespace, stored_key(address.key))
        if shape == "list":
            found = self._list_row(snapshot, address)
            return None if found is None else bool(found[1])
        where = "WHERE scope = ? AND namespace = ? AND key = ? LIMIT 1"
        if self._records.fetch(snapshot, f"SELECT 1 FROM current_values {where}", values):
            return False
        if self._records.fetch(snapshot, f"SELECT 1 FROM value_versions {where}", values):
            return True
        return None

    def has_values(
        self, snapshot: Snapshot, conversation: Seq, namespace: str
    ) -> tuple[bool, bool]:
        """Tell whether a conversation has sticky, and rewindable, values in a namespace."""
        values = (self._memo.numbers.find(conversation), namespace)
        where = "WHERE scope = ? AND namespace = ? LIMIT 1"
        sticky = self._records.fetch(snapshot, f"SELECT 1 FROM current_values {where}", values)
        versions = self._records.fetch(snapshot, f"SELECT 1 FROM value_versions {where}", values)
        return bool(sticky), bool(versions)

    def _check_policy(self, snapshot: Snapshot, address: ConversationAddress, shape: Shape) -> None:
        policy = self.rewind_policy(snapshot, address, shape)
        if policy is not None and policy != address.rewind:
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

    def _list(self, snapshot: Snapshot, address: Address) -> int | None:
        # An ancestor's sticky list of the name is none of a fork's (VAL-10).
        rewind = isinstance(address, ConversationAddress) and address.rewind
        found = self._list_row(snapshot, address)
        return None if found is None or found[1] < rewind else int(found[0])

    def _list_row(self, snapshot: Snapshot, address: Address) -> Row | None:
        """Return the number and policy of a list, if it was ever written."""
        sql = (
            "SELECT list, rewind, checksum FROM lists WHERE scope = ? AND namespace = ? AND key = ?"
        )
        values = (self._scope(address), address.namespace, stored_key(address.key))
        for list, rewind, sums in self._records.fetch(snapshot, sql, values):
            self.check_list(list, *values, rewind, sums)
            return (list, rewind)
        return None

    def check_list(
        self, list: int, scope: int, namespace: str, key: str, rewind: int, sums: int
    ) -> None:
        """Compare a list's row with its checksum."""
        if checksum(list_columns(self._memo, scope, namespace, key, rewind)) != sums:
            raise self._records.damaged(f"list {list}")

    def check_marker(self, seq: Seq, element: int, list: int, sums: int) -> None:
        """Compare a marker's row with its checksum."""
        if checksum((seq, element, list)) != sums:
            raise self._records.damaged(f"list marker {seq}")

    def _scope(self, address: Address) -> int:
        numbers = self._memo.numbers
        if isinstance(address, ConversationAddress):
            return numbers.find(address.conversation)
        if isinstance(address, ScratchAddress):
            # Negative, so that a conversation's number names nobody's scratch.
            known = address.task > 0 and numbers.holds(address.task)
            return -numbers.key(address.task) if known else _NOBODY
        return numbers.scope()


class _Undecoded(NamedTuple):
    """A list element whose payload nobody has asked for yet."""

    reads: StateReads
    seq: Seq
    expected: int
    sums: int
    body: bytes

    def __call__(self) -> Element[JsonValue]:
        return self.reads.decode(self.seq, self.expected, self.sums, self.body)
