"""A session's logical state in canonical order, streamed from one state of the file."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from msgspec import UNSET

from pico_sqlite.checksum import checksum, scratch_checksum, scratch_start
from pico_sqlite.connection import Row
from pico_sqlite.memo import Memo
from pico_sqlite.readers import Snapshot
from pico_sqlite.record_reads import CONVERSATION, ENTRY, STREAM, TASK, RecordReads
from pico_sqlite.scratch_rows import STREAM_LAST
from pico_sqlite.state_reads import StateReads
from pico_store.address import Address, ConversationAddress, ScratchAddress, Seq, SessionAddress
from pico_store.limits import PAGE_ITEMS_MAX, SEQ_MAX
from pico_store.query_check import Window
from pico_store.records import BatchRange
from pico_store.snapshot import (
    AddressPolicy,
    DeletedConversation,
    ListItem,
    ListMarker,
    SnapshotHeader,
    SnapshotItem,
    ValueVersion,
)

# Where a row of state belongs; the numbers are internal to the statements below.
_STICKY, _REWIND, _SESSION, _SCRATCH = range(4)
# A deleted conversation shows its rewindable history up to `through`; NULL: not deleted.
_POLICIES = """
    SELECT l.scope, 'list', l.namespace, l.key, l.rewind
        FROM conversations c JOIN lists l ON l.scope = c.id
        WHERE c.session = :session AND c.through IS NULL
    UNION ALL SELECT v.scope, 'value', v.namespace, v.key, 0
        FROM conversations c JOIN current_values v ON v.scope = c.id
        WHERE c.session = :session AND c.through IS NULL
    UNION ALL SELECT DISTINCT v.scope, 'value', v.namespace, v.key, 1
        FROM conversations c JOIN value_versions v ON v.scope = c.id
        WHERE c.session = :session AND c.through IS NULL
    ORDER BY 1, 2, 3, 4"""
_VALUES = f"""
    SELECT v.seq, {_STICKY}, v.scope, v.namespace, v.key, v.checksum, v.body
        FROM conversations c JOIN current_values v ON v.scope = c.id
        WHERE c.session = :session AND c.through IS NULL AND v.body IS NOT NULL
    UNION ALL SELECT v.seq, {_REWIND}, v.scope, v.namespace, v.key, v.checksum, v.body
        FROM conversations c JOIN value_versions v ON v.scope = c.id
        WHERE c.session = :session AND (c.through IS NULL OR v.seq <= c.through)
    UNION ALL SELECT v.seq, {_SESSION}, v.scope, v.namespace, v.key, v.checksum, v.body
        FROM current_values v WHERE v.scope = :scope
    UNION ALL SELECT v.seq, {_SCRATCH}, v.scope, v.namespace, v.key, v.checksum, v.body
        FROM records t JOIN current_values v ON v.scope = -t.id
        WHERE t.live = :session
    ORDER BY 1"""
_ELEMENTS = f"""
    SELECT e.seq, iif(l.rewind, {_REWIND}, {_STICKY}), l.scope, l.namespace, l.key, e.checksum,
            e.body, l.list
        FROM conversations c JOIN lists l ON l.scope = c.id JOIN list_elements e ON e.list = l.list
        WHERE c.session = :session AND (c.through IS NULL OR l.rewind AND e.seq <= c.through)
    UNION ALL SELECT e.seq, {_SESSION}, l.scope, l.namespace, l.key, e.checksum, e.body, l.list
        FROM lists l JOIN list_elements e ON e.list = l.list WHERE l.scope = :scope
    ORDER BY 1"""
_FRAMES = f"""
    SELECT t.id + (s.id & {STREAM_LAST}), t.id, s.namespace, s.key, s.checksum, s.body, s.writes
        FROM records t JOIN scratch f ON f.task = t.id JOIN scratch s ON s.id BETWEEN {STREAM}
        WHERE t.live = :session AND s.body IS NOT NULL ORDER BY 1"""
_MARKERS = """
    SELECT m.seq, m.element, l.scope, l.namespace, l.key, l.list, m.checksum
        FROM conversations c JOIN lists l ON l.scope = c.id JOIN list_markers m ON m.list = l.list
        WHERE c.session = :session AND (c.through IS NULL OR m.seq <= c.through) ORDER BY 1"""


def export_session(
    snapshot: Snapshot, memo: Memo, records: RecordReads, state: StateReads
) -> Iterator[SnapshotItem]:
    """Yield the items of `pico_store.snapshot` in their order.

    Rows are sorted by SQLite, which uses temporary files for what exceeds its cache.
    """
    kinds = tuple(sorted(records.entry_kinds(snapshot)))
    yield SnapshotHeader(records.last_seq(snapshot), kinds)
    exporter = _Exporter(snapshot, memo, records, state)
    yield from exporter.conversations()
    yield from exporter.entries()
    yield from exporter.tasks()
    yield from exporter.policies()
    yield from exporter.values()
    yield from heapq.merge(exporter.elements(), exporter.frames(), key=lambda item: item.id)
    yield from exporter.markers()
    yield from exporter.batches()


class _Exporter:
    def __init__(
        self, snapshot: Snapshot, memo: Memo, records: RecordReads, state: StateReads
    ) -> None:
        self._snapshot = snapshot
        self._memo = memo
        self._records = records
        self._state = state

    def _rows(self, sql: str) -> Iterator[Row]:
        named = {"session": self._memo.session, "scope": self._memo.numbers.scope()}
        return self._snapshot.stream(sql, named)

    def conversations(self) -> Iterator[SnapshotItem]:
        sql = (
            f"SELECT {CONVERSATION} FROM conversations WHERE session = :session "
            "AND (through IS NULL OR through > 0) ORDER BY id"
        )
        for row in self._rows(sql):
            record = self._records.conversation(row)
            yield record if row[4] is None else DeletedConversation(record, Seq(row[4]))

    def entries(self) -> Iterator[SnapshotItem]:
        sql = (
            f"SELECT {ENTRY}, (SELECT through FROM conversations c WHERE c.id = e.conversation) "
            "FROM records e WHERE id BETWEEN ? AND ? AND role = 3 ORDER BY id"
        )
        for bounds in self._memo.numbers.ranges(1, SEQ_MAX, newest_first=False):
            for row in self._snapshot.stream(sql, bounds):
                if row[8] is None or self._memo.numbers.seq(row[0]) <= row[8]:
                    yield self._records.entry(row)

    def tasks(self) -> Iterator[SnapshotItem]:
        sql = (
            f"SELECT {TASK} FROM records t JOIN conversations c ON c.id = t.conversation "
            "WHERE t.id BETWEEN ? AND ? AND t.role < 3 AND c.through IS NULL ORDER BY t.id"
        )
        for bounds in self._memo.numbers.ranges(1, SEQ_MAX, newest_first=False):
            for row in self._snapshot.stream(sql, bounds):
                yield self._records.task(self._snapshot, row, owns=False)

    def policies(self) -> Iterator[SnapshotItem]:
        for scope, shape, namespace, key, rewind in self._rows(_POLICIES):
            address = self._address(_REWIND if rewind else _STICKY, scope, namespace, key)
            assert isinstance(address, ConversationAddress)
            yield AddressPolicy(address, shape)

    def values(self) -> Iterator[SnapshotItem]:
        for seq, kind, scope, namespace, key, sums, body in self._rows(_VALUES):
            version = self._state.version((seq, sums, body), scope, namespace, key)
            address = self._address(kind, scope, namespace, key)
            yield ValueVersion(seq, address, UNSET if version is None else version.value)

    def elements(self) -> Iterator[ListItem]:
        for seq, kind, scope, namespace, key, sums, body, number in self._rows(_ELEMENTS):
            element = self._state.decode(seq, checksum((seq, number, body)), sums, body)
            address = self._address(kind, scope, namespace, key)
            yield ListItem(element.id, address, element.value)

    def frames(self) -> Iterator[ListItem]:
        for id, task, namespace, key, sums, body, writes in self._rows(_FRAMES):
            address = self._address(_SCRATCH, task, namespace, key)
            assert isinstance(address, ScratchAddress)
            seq = self._memo.numbers.seq(id)
            start = scratch_start(address.task, writes, namespace, key)
            element = self._state.decode(seq, scratch_checksum(start, seq, body), sums, body)
            yield ListItem(element.id, address, element.value)

    def markers(self) -> Iterator[SnapshotItem]:
        for seq, element, scope, namespace, key, number, sums in self._rows(_MARKERS):
            self._state.check_marker(seq, element, number, sums)
            address = self._address(_REWIND, scope, namespace, key)
            assert isinstance(address, ConversationAddress)
            yield ListMarker(Seq(seq), address, Seq(element) if element else None)

    def batches(self) -> Iterator[BatchRange]:
        window = Window(1, SEQ_MAX, newest_first=False, limit=PAGE_ITEMS_MAX)
        while True:
            page = self._records.scan_batches(self._snapshot, window)
            yield from page.items
            if page.next is None:
                return
            window = window.narrowed(page.next + 1, SEQ_MAX)

    def _address(self, kind: int, scope: int, namespace: str, key: str) -> Address:
        name = key[1:] if key else None
        owner = self._memo.numbers.seq(abs(scope))
        if kind == _SESSION:
            return SessionAddress(namespace, name)
        if kind == _SCRATCH:
            return ScratchAddress(owner, namespace, name)
        return ConversationAddress(owner, namespace, name, rewind=kind == _REWIND)
