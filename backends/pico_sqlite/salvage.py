"""What is whole of each session of a damaged file, row by row."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

import apsw

from pico_sqlite.checksum import checksum, coded_size, scratch_checksum, scratch_start
from pico_sqlite.connection import Bindings, Row
from pico_sqlite.memo import Memo
from pico_sqlite.readers import Readers, Snapshot
from pico_sqlite.record_reads import CONVERSATION, ENTRY, STREAM, TASK, RecordReads
from pico_sqlite.scratch_rows import STREAM_LAST
from pico_sqlite.state_reads import StateReads
from pico_sqlite.verify import DAMAGE, readable_rows
from pico_store.address import Address, ConversationAddress, ScratchAddress, Seq, SessionAddress
from pico_store.errors import MissingDriverError, PicoError, StoreDamagedError
from pico_store.limits import SEQ_MAX
from pico_store.names import check_name
from pico_store.records import BatchRange, Conversation, Entry, Task
from pico_store.remnant import EVERY_NUMBER
from pico_store.salvage import Readable
from pico_store.snapshot import (
    AddressPolicy,
    DeletedConversation,
    ListItem,
    ListMarker,
    SnapshotHeader,
    SnapshotItem,
    ValueVersion,
)
from pico_store.storage import Counters, Problem

T = TypeVar("T")
_Plain = Callable[[bytes], bytes]

# By the keys of the session's extents, and not by way of its conversations: a damaged one would
# take along what its forks show.
_WITHIN: Final = "BETWEEN x.base << 20 AND (x.base << 20) + 1048575"
_CONVERSATIONS: Final = f"SELECT {CONVERSATION} FROM conversations WHERE id"
_ENTRIES: Final = f"SELECT {ENTRY} FROM records WHERE role = 3 AND id"
# A role that is none is looked at here.
_TASKS: Final = f"SELECT {TASK} FROM records t WHERE t.role != 3 AND t.id"
_SIZES: Final = "SELECT id, writes FROM records WHERE writes NOT NULL AND id"
_TOMBSTONES: Final = f"""
    SELECT v.seq, v.checksum, v.body, v.scope, v.namespace, v.key
        FROM extents x JOIN current_values v ON v.scope {_WITHIN}
        WHERE x.session = :session AND v.body IS NULL"""
_LISTS: Final = f"""
    SELECT l.list, l.scope, l.namespace, l.key, l.rewind, l.checksum
        FROM extents x JOIN lists l ON l.scope {_WITHIN} WHERE x.session = :session"""
_VALUES: Final = f"""
    SELECT v.seq, v.checksum, v.body, v.scope, v.namespace, v.key, 0
        FROM extents x JOIN current_values v ON v.scope {_WITHIN}
        WHERE x.session = :session AND v.body IS NOT NULL
    UNION ALL SELECT v.seq, v.checksum, v.body, v.scope, v.namespace, v.key, 0
        FROM extents x JOIN current_values v
        ON v.scope BETWEEN -((x.base << 20) + 1048575) AND -(x.base << 20)
        WHERE x.session = :session AND v.scope < 0 AND v.body IS NOT NULL
    UNION ALL SELECT v.seq, v.checksum, v.body, v.scope, v.namespace, v.key, 1
        FROM extents x JOIN value_versions v ON v.scope {_WITHIN} WHERE x.session = :session
    ORDER BY 1"""
_ELEMENTS: Final = f"""
    SELECT e.seq, e.list, e.checksum, e.body FROM extents x JOIN lists l ON l.scope {_WITHIN}
        JOIN list_elements e ON e.list = l.list WHERE x.session = :session ORDER BY 1"""
_MARKERS: Final = f"""
    SELECT m.seq, m.element, m.list, m.checksum FROM extents x JOIN lists l ON l.scope {_WITHIN}
        JOIN list_markers m ON m.list = l.list WHERE x.session = :session ORDER BY 1"""
_FRAMES: Final = f"""
    SELECT t.id + (s.id & {STREAM_LAST}), t.id, s.writes, s.namespace, s.key, s.checksum, s.body
        FROM extents x JOIN records t ON t.id {_WITHIN} JOIN scratch f ON f.task = t.id
        JOIN scratch s ON s.id BETWEEN {STREAM}
        WHERE x.session = :session AND t.role < 2 ORDER BY 1"""


def salvage_file(readers: Readers, plain: _Plain) -> Iterator[Readable]:
    """Yield the sessions by name; change nothing.

    Each is read once to find out what of it is damaged.
    """
    with readers.snapshot() as snapshot:
        # Names as bytes: one may be no text any more.
        sql = "SELECT session, CAST(name AS BLOB), epoch, checksum FROM sessions ORDER BY name"
        sessions = snapshot.rows(sql)
    for session, stored, epoch, sums in sessions:
        name = stored.decode(errors="replace")
        left_out: list[Problem] = []
        if checksum((name, epoch)) != sums:
            what = "its checksum differs; it may have had another name"
            left_out.append(Problem(name, f"session row {session}", what))
        yield _readable(readers, plain, session, name, left_out)


def _readable(
    readers: Readers, plain: _Plain, session: int, name: str, left_out: list[Problem]
) -> Readable:
    try:
        check_name(name, "sessionId")
        with readers.snapshot() as snapshot:
            rows = _Rows(snapshot, session, name, plain)
            for _ in rows.items():
                pass
    except MissingDriverError:
        raise
    except PicoError as error:
        return Readable(name, None, (*left_out, Problem(name, "session", str(error))))

    def items() -> Iterator[SnapshotItem]:
        with readers.snapshot() as snapshot:
            yield from _Rows(snapshot, session, name, plain).items()

    left_out += (Problem(name, *problem) for problem in rows.problems.items())
    lost = rows.lost if rows.is_lost_known else EVERY_NUMBER
    return Readable(name, items, tuple(left_out), lost)


class _Rows:
    """Reads every row of a session by itself, and notes those that are not whole."""

    def __init__(self, snapshot: Snapshot, session: int, name: str, plain: _Plain) -> None:
        self.problems: dict[str, str] = {}
        """What is not whole, and why."""
        self.lost: set[int] = set()
        """The numbers of records that are not."""
        self.is_lost_known = True
        self._snapshot = snapshot
        self._memo = Memo(session, snapshot.db, self._damaged)
        self._numbers = self._memo.numbers
        self._records = RecordReads(self._memo, Counters(), name, plain)
        self._state = StateReads(self._memo, Counters(), self._records)
        self._through: dict[Seq, int] = {}
        """How far each whole deleted conversation is shown."""
        self._lists: dict[int, Address] = {}

    def items(self) -> Iterator[SnapshotItem]:
        """Yield what is whole, in canonical order but for the policies."""
        yield SnapshotHeader(self._last_seq(), tuple(sorted(self._memo.entry_kinds)))
        conversations: Iterator[Conversation | DeletedConversation]
        conversations = self._keyed(_CONVERSATIONS, "conversation", self._conversation)
        yield from conversations
        yield from self._keyed(_ENTRIES, "entry", self._entry)
        yield from self._keyed(_TASKS, "task", self._task)
        yield from self._rows(_LISTS, "list", self._list)
        yield from self._rows(_TOMBSTONES, "deleted value of write", self._tombstone)
        yield from self._rows(_VALUES, "value of write", self._value)
        elements = self._rows(_ELEMENTS, "list element", self._element)
        frames = self._rows(_FRAMES, "scratch write", self._frame, key=True)
        yield from heapq.merge(elements, frames, key=lambda item: item.id)
        yield from self._rows(_MARKERS, "list marker", self._marker)
        main: Iterator[BatchRange] = self._keyed(_SIZES, "size of batch", self._batch)
        scratch = self._rows(_FRAMES, "scratch write", self._scratch_batch, key=True)
        yield from heapq.merge(main, scratch, key=lambda batch: batch.first)

    # --- Rows, and what becomes of those that are not whole ---

    def _keyed(self, sql: str, what: str, make: Callable[[Row], T | None]) -> Iterator[T]:
        """Yield what is made of the rows whose key, the first column, is one of the session."""
        for bounds in self._numbers.ranges(1, SEQ_MAX, newest_first=False):
            for row, item in self._made(f"{sql} BETWEEN ? AND ? ORDER BY 1", bounds, what, make):
                if item is not None:
                    yield item
                elif row is not None:
                    self.lost.add(self._numbers.seq(row[0]))

    def _rows(
        self, sql: str, what: str, make: Callable[[Row], T | None], *, key: bool = False
    ) -> Iterator[T]:
        named = {"session": self._memo.session}
        for _, item in self._made(sql, named, what, make, key=key):
            if item is not None:
                yield item

    def _made(
        self,
        sql: str,
        values: Bindings,
        what: str,
        make: Callable[[Row], T | None],
        *,
        key: bool = True,
    ) -> Iterator[tuple[Row | None, T | None]]:
        """Yield what is made of rows; the row alone where it is not whole."""
        where = f"the first {what}"
        try:
            for row in readable_rows(self._snapshot.stream(sql, values)):
                if isinstance(row, UnicodeDecodeError):
                    self._note(where, f"a text in its row is none any more: {row}")
                    self.is_lost_known = False
                    continue
                where = f"the {what} after {self._numbers.seq(row[0]) if key else row[0]}"
                try:
                    item = make(row)
                except MissingDriverError:
                    # What cannot be read here is not damaged.
                    raise
                except DAMAGE as error:
                    number = self._numbers.seq(row[0]) if key else row[0]
                    self._note(f"{what} {number}", _reason(error))
                    yield row, None
                else:
                    if item is not None:
                        yield None, item
        except apsw.Error as error:
            self._note(f"rows of {what}s", f"{error}; those behind cannot be read")
            self.is_lost_known = False

    def _note(self, where: str, what: str) -> None:
        self.problems.setdefault(where, what)

    def _damaged(self, error: StoreDamagedError) -> None:
        what, _, _ = str(error).partition(" is damaged")
        self._note(what, _reason(error))
        self.is_lost_known = False

    def _last_seq(self) -> Seq:
        try:
            return self._records.last_seq(self._snapshot)
        except (*DAMAGE, apsw.Error):
            # What is read tells it; that it is damaged is found where it is.
            return Seq(0)

    # --- What is made of each row ---

    def _conversation(self, row: Row) -> Conversation | DeletedConversation | None:
        record = self._records.conversation(row)
        through = row[4]
        if through is None:
            return record
        self._through[record.id] = through
        return DeletedConversation(record, Seq(through)) if through else None

    def _entry(self, row: Row) -> Entry | None:
        entry = self._records.entry(row)
        return entry if self._is_shown(entry.conversation_id, entry.id) else None

    def _task(self, row: Row) -> Task | None:
        task = self._records.task(self._snapshot, row, owns=False)
        return None if task.conversation_id in self._through else task

    def _list(self, row: Row) -> AddressPolicy | None:
        self._state.check_list(*row)
        number, scope, namespace, key, rewind, _ = row
        address = self._address(scope, namespace, key, rewind=bool(rewind))
        self._lists[number] = address
        if not isinstance(address, ConversationAddress) or address.conversation in self._through:
            return None
        return AddressPolicy(address, "list")

    def _tombstone(self, row: Row) -> AddressPolicy | None:
        self._state.version(row[:3], *row[3:])
        address = self._address(*row[3:], rewind=False)
        if not isinstance(address, ConversationAddress) or address.conversation in self._through:
            return None
        return AddressPolicy(address, "value")

    def _value(self, row: Row) -> ValueVersion | None:
        version = self._state.version(row[:3], *row[3:6])
        address = self._address(*row[3:6], rewind=bool(row[6]))
        if not self._is_kept(address, row[0]):
            return None
        if version is None:
            return ValueVersion(Seq(row[0]), address)
        return ValueVersion(version.seq, address, version.value)

    def _element(self, row: Row) -> ListItem | None:
        seq, number, sums, body = row
        element = self._state.decode(seq, checksum((seq, number, body)), sums, body)
        address = self._lists.get(number)
        if address is None:
            raise StoreDamagedError(f"its list, {number}, is lost")
        return ListItem(seq, address, element.value) if self._is_kept(address, seq) else None

    def _frame(self, row: Row) -> ListItem | None:
        seq, address, body, sums = self._checked_frame(row)
        if address is None:
            return None
        return ListItem(seq, address, self._state.decode(seq, sums, sums, body).value)

    def _checked_frame(self, row: Row) -> tuple[Seq, ScratchAddress | None, bytes, int]:
        id, key, writes, namespace, name, sums, body = row
        seq, task = self._numbers.seq(id), self._numbers.seq(key)
        if body is None:
            self._records.check_spent(seq, task, writes, sums)
            return seq, None, b"", sums
        if scratch_checksum(scratch_start(task, writes, namespace, name), seq, body) != sums:
            raise self._records.damaged(f"scratch write {seq}")
        return seq, ScratchAddress(task, namespace, name[1:] if name else None), body, sums

    def _marker(self, row: Row) -> ListMarker | None:
        self._state.check_marker(*row)
        seq, element, number, _ = row
        address = self._lists.get(number)
        if not isinstance(address, ConversationAddress):
            raise StoreDamagedError(f"its list, {number}, is lost")
        if not self._is_kept(address, seq):
            return None
        return ListMarker(seq, address, Seq(element) if element else None)

    def _batch(self, row: Row) -> BatchRange:
        first, size = self._numbers.seq(row[0]), row[1] >> 16
        if coded_size(first, size) != row[1]:
            raise self._records.damaged(f"the size of batch {first}")
        return BatchRange(first, Seq(first + size - 1))

    def _scratch_batch(self, row: Row) -> BatchRange | None:
        seq, _, _, _ = self._checked_frame(row)
        writes = row[2]
        if not writes:
            return None
        return BatchRange(seq, Seq(seq + writes - 1), self._numbers.seq(row[1]))

    def _is_shown(self, conversation: Seq, number: int) -> bool:
        """Tell whether a number is shown, as far as its conversation's row tells."""
        return number <= self._through.get(conversation, SEQ_MAX)

    def _is_kept(self, address: Address, number: int) -> bool:
        if not isinstance(address, ConversationAddress):
            return True
        if not address.rewind and address.conversation in self._through:
            return False
        return self._is_shown(address.conversation, number)

    def _address(self, scope: int, namespace: str, key: str, *, rewind: bool) -> Address:
        name = key[1:] if key else None
        owner = self._numbers.seq(abs(scope))
        if scope < 0:
            return ScratchAddress(owner, namespace, name)
        if owner == 0:
            return SessionAddress(namespace, name)
        return ConversationAddress(owner, namespace, name, rewind=rewind)


def _reason(error: Exception) -> str:
    text, _, _ = str(error).partition("; run pico verify")
    _, damaged, checksum_differs = text.partition(" is damaged: ")
    return checksum_differs if damaged else text or repr(error)
