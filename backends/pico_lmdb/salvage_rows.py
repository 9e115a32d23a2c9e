"""The rows of one session in a damaged folder, each read by itself."""

from __future__ import annotations

import heapq
import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, TypeVar

from msgspec import UNSET, Raw

from pico_lmdb.layout import (
    ADDRESSES,
    BATCHES,
    CONVERSATIONS,
    ELEMENT,
    KIND,
    LISTS,
    LIVE,
    MAIN,
    RECORD,
    RECORDS,
    SCRATCH,
    TAIL,
    VERSIONS,
    WRITE,
    after_prefix,
    is_sealed,
    last_number,
    of_session,
)
from pico_lmdb.names import split, whole
from pico_lmdb.rows import (
    ABORT,
    BACKGROUND,
    ROLE_NAMES,
    TURN,
    AddressRow,
    CurrentRow,
    EntryRow,
    ListRow,
    ScratchRow,
    TailRow,
    TaskRow,
    VersionedRow,
    boundaries,
    conversation_record,
    decode_address,
    decode_boundaries,
    decode_conversation,
    decode_kind,
    decode_record,
    decode_scratch,
    decode_tail,
    decode_task,
    unseal,
)
from pico_lmdb.snapshot import Snapshot
from pico_store.address import Address, ConversationAddress, ScratchAddress, Seq, SessionAddress
from pico_store.compression import is_compressed
from pico_store.entry_body import EntryColumns, unpack_entry
from pico_store.errors import MissingDriverError, PicoError, StoreDamagedError
from pico_store.limits import SEQ_MAX
from pico_store.records import BatchRange, Conversation, Entry, JsonValue, Task
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

T = TypeVar("T")
_Found = tuple[int, int, bytes, Address]
"""Number, tree, key and address of state."""
DAMAGE: Final = (PicoError, LookupError, ValueError, TypeError, struct.error, AssertionError)
"""What decoding a damaged row may raise."""


class WholeRows:
    """Reads every row of a session by itself, and notes those that are not whole."""

    def __init__(self, reading: Callable[[], Snapshot], session: int) -> None:
        """Take what lends a state: a new one for each walk, for an error may end one."""
        self.problems: dict[str, str] = {}
        """What is not whole, and why."""
        self.lost: set[int] = set()
        """The numbers of records that are not."""
        self.is_lost_known = True
        self._reading = reading
        self._session = session
        self._of_session = session.to_bytes(4, "big")
        self._kinds: dict[int, str] = {}
        self._through: dict[Seq, int] = {}
        """How far each whole deleted conversation is shown."""
        self._values: list[_Found] = []
        self._markers: list[_Found] = []
        self._places: dict[int, Address] = {}
        """The addresses of rewindable values and of lists, by their numbers."""

    def items(self) -> Iterator[SnapshotItem]:
        """Yield what is whole, in canonical order but for the policies."""
        kinds: list[str] = []
        for key, row in self._rows(MAIN, of_session(KIND, self._session), _kind, decode_kind):
            self._kinds[int.from_bytes(key[5:], "big")] = row.name
            kinds += [row.name] * row.entries
        tails = list(self._rows(MAIN, of_session(TAIL, self._session), _tail, decode_tail))
        last = tails[0][1].last if tails else Seq(0)
        yield SnapshotHeader(last, tuple(sorted(kinds)))
        yield from self._conversations()
        yield from self._entries()
        live, terminal = self._live_tasks(), self._terminal_tasks()
        yield from heapq.merge(live, terminal, key=lambda task: task.id)
        yield from self._addresses()
        yield from self._state_values()
        yield from self._list_items()
        yield from self._list_markers()
        main, scratch = self._main_batches(tails[0][1] if tails else None), self._scratch_batches()
        yield from heapq.merge(main, scratch, key=lambda batch: batch.first)

    # --- Rows, and what becomes of those that are not whole ---

    def _rows(
        self, tree: int, prefix: bytes, where: Callable[[bytes], str], make: Callable[[bytes], T]
    ) -> Iterator[tuple[bytes, T]]:
        """Yield the keys of whole rows, and what is made of these."""
        stop, last = after_prefix(prefix), b""
        strays: list[bytes] = []
        try:
            with self._reading() as snapshot:
                for key, stored in snapshot.around(tree, prefix):
                    row = unseal(tree, key, stored) if is_sealed(tree, key) else stored
                    if row is None and key.startswith(prefix):
                        self._lose(tree, key, where(key), "its checksum differs")
                    elif row is None and last:
                        strays.append(key)
                    if row is None or key < prefix or key <= last:
                        # A damaged key says nothing of where the walk has come to, and a damaged
                        # page may be come to twice.
                        continue
                    if key >= stop:
                        break
                    last = key
                    self._note_strays(tree, strays)
                    found = self._made(partial(make, row), tree, key, where)
                    if found is not None:
                        yield key, found
        except MissingDriverError:
            raise
        except PicoError as error:
            what = f"{reason(error)}; what is behind it cannot be read"
            self.problems.setdefault(f"rows from {prefix!r} on", what)
            self.is_lost_known = False

    def _note_strays(self, tree: int, strays: list[bytes]) -> None:
        """Note rows whose keys are damaged so far that they seem to be of others, among ours."""
        for key in strays:
            self.problems.setdefault(f"row {key!r} of tree {tree}", "its checksum differs")
            self.is_lost_known = False
        strays.clear()

    def _made(
        self, make: Callable[[], T], tree: int, key: bytes, where: Callable[[bytes], str]
    ) -> T | None:
        try:
            return make()
        except MissingDriverError:
            # What cannot be read here is not damaged.
            raise
        except DAMAGE as error:
            self._lose(tree, key, where(key), reason(error))
            return None

    def _lose(self, tree: int, key: bytes, where: str, what: str) -> None:
        self.problems.setdefault(where, what)
        if tree in (RECORDS, CONVERSATIONS) or key.startswith(LIVE):
            self.lost.add(last_number(key, len(key) - 8)[0])
        elif tree == MAIN and key.startswith(KIND):
            self.is_lost_known = False

    def _again(self, tree: int, key: bytes, where: Callable[[bytes], str]) -> bytes | None:
        """Return a whole row that a walk found."""
        try:
            with self._reading() as snapshot:
                stored = snapshot.get(tree, key)
        except PicoError:
            stored = None
        row = None if stored is None else unseal(tree, key, stored)
        if row is None:
            # A damaged page shows a row to a walk and hides it from a search.
            self._lose(tree, key, where(key), "its checksum differs, or it is not found again")
        return row

    def _plain(self, body: bytes | Raw) -> JsonValue:
        return unpack(self._text(body))

    def _text(self, body: bytes | Raw) -> bytes:
        if not is_compressed(bytes(body)):
            return bytes(body)
        with self._reading() as snapshot:
            return snapshot.plain(body)

    # --- Records ---

    def _conversations(self) -> Iterator[Conversation | DeletedConversation]:
        prefix = of_session(RECORD, self._session)
        for key, row in self._rows(CONVERSATIONS, prefix, _conversation, decode_conversation):
            record = conversation_record(Seq(last_number(key, 5)[0]), row)
            if row.through is None:
                yield record
                continue
            self._through[record.id] = row.through
            if row.through:
                yield DeletedConversation(record, Seq(row.through))

    def _entries(self) -> Iterator[Entry]:
        for key, row in self._rows(RECORDS, self._of_session, _record, decode_record):
            if isinstance(row, EntryRow):
                entry = self._made(partial(self._entry, key, row), RECORDS, key, _record)
                if entry is not None and self._is_shown(entry.conversation_id, entry.id):
                    yield entry

    def _entry(self, key: bytes, row: EntryRow) -> Entry:
        id, kind = Seq(last_number(key, 4)[0]), self._kind(row.kind)
        columns = EntryColumns(id, row.conversation, kind, row.key, row.by_task, row.head)
        return unpack_entry(columns, self._text(row.body))

    def _live_tasks(self) -> Iterator[Task]:
        for key, row in self._rows(MAIN, of_session(LIVE, self._session), _task, decode_task):
            yield from self._task(MAIN, key, row)

    def _terminal_tasks(self) -> Iterator[Task]:
        for key, row in self._rows(RECORDS, self._of_session, _record, decode_record):
            if isinstance(row, TaskRow):
                yield from self._task(RECORDS, key, row)

    def _task(self, tree: int, key: bytes, row: TaskRow) -> Iterator[Task]:
        if row.conversation in self._through:
            return

        def make() -> Task:
            state = self._plain(row.body)
            assert isinstance(state, dict)
            return Task(
                id=Seq(last_number(key, len(key) - 8)[0]),
                conversation_id=row.conversation,
                kind=self._kind(row.kind),
                status=row.status,
                role=ROLE_NAMES[row.role],
                state=state,
                after=row.after,
                background=bool(row.flags & BACKGROUND),
                turn=bool(row.flags & TURN),
                abort=bool(row.flags & ABORT),
            )

        task = self._made(make, tree, key, _record if tree == RECORDS else _task)
        if task is not None:
            yield task

    def _kind(self, number: int) -> str:
        name = self._kinds.get(number)
        if name is None:
            raise StoreDamagedError(f"its kind, {number}, is lost")
        return name

    # --- State ---

    def _addresses(self) -> Iterator[AddressPolicy]:
        """Yield the policies, and note what is at each address."""
        for key, row in self._rows(ADDRESSES, self._of_session, _address, decode_address):
            conversation = Seq(last_number(key, 4)[0])
            shape, namespace, name = split(whole(key, row.rest)[12:])
            rewind = isinstance(row, VersionedRow) or (isinstance(row, ListRow) and row.rewind)
            address: Address = SessionAddress(namespace, name)
            if conversation:
                address = ConversationAddress(conversation, namespace, name, rewind=rewind)
            if isinstance(row, (VersionedRow, ListRow)):
                self._places[row.number] = address
            elif isinstance(row, CurrentRow) and self._is_kept(address, row.seq):
                self._values.append((row.seq, ADDRESSES, key, address))
            if isinstance(address, ConversationAddress) and conversation not in self._through:
                yield AddressPolicy(address, shape)
        for key, current in self._scratch_rows():
            if isinstance(current, CurrentRow):
                _, namespace, name = split(whole(key, current.rest)[14:])
                address = ScratchAddress(Seq(last_number(key, 5)[0]), namespace, name)
                self._values.append((current.seq, MAIN, key, address))

    def _scratch_rows(self) -> Iterator[tuple[bytes, ScratchRow | AddressRow]]:
        prefix = of_session(SCRATCH, self._session)
        for key, row in self._rows(MAIN, prefix, _scratch, bytes):
            decode: Callable[[bytes], ScratchRow | AddressRow]
            decode = decode_scratch if key[13:14] == WRITE else decode_address
            found = self._made(partial(decode, row), MAIN, key, _scratch)
            if found is not None:
                yield key, found

    def _state_values(self) -> Iterator[ValueVersion]:
        for key, _ in self._rows(VERSIONS, self._of_session, _value, bytes):
            number, seq = last_number(key, 4)[0], last_number(key, 12)[0]
            address = self._placed(VERSIONS, key, number, _value)
            if address is not None and self._is_kept(address, seq):
                self._values.append((seq, VERSIONS, key, address))
        self._values.sort(key=lambda found: found[0])
        for seq, tree, key, address in self._values:
            where = _value if tree == VERSIONS else partial(_current, seq)
            row = self._again(tree, key, where)
            if row is not None:
                make = partial(self._version, tree, row, address, Seq(seq))
                version = self._made(make, tree, key, where)
                if version is not None:
                    yield version

    def _version(self, tree: int, row: bytes, address: Address, seq: Seq) -> ValueVersion:
        if tree == VERSIONS:
            return ValueVersion(seq, address, self._plain(row) if row else UNSET)
        current = decode_address(row)
        assert isinstance(current, CurrentRow)
        return ValueVersion(seq, address, self._plain(current.body))

    def _list_items(self) -> Iterator[ListItem]:
        found: list[_Found] = []
        for key, _ in self._rows(LISTS, self._of_session, _list, bytes):
            id = last_number(key, len(key) - 8)[0]
            address = self._placed(LISTS, key, last_number(key, 4)[0], _list)
            if address is not None and self._is_kept(address, id):
                found.append((id, LISTS, key, address))
        # Markers come when the elements did.
        self._markers = [one for one in found if one[2][12:13] != ELEMENT]
        found = [one for one in found if one[2][12:13] == ELEMENT]
        for key, row in self._scratch_rows():
            if isinstance(row, ScratchRow) and row.namespace is not None:
                address = ScratchAddress(Seq(last_number(key, 5)[0]), row.namespace, row.key)
                found.append((last_number(key, 14)[0], MAIN, key, address))
        found.sort(key=lambda one: one[0])
        for id, tree, key, address in found:
            where = _list if tree == LISTS else _scratch
            row_again = self._again(tree, key, where)
            if row_again is not None:
                make = partial(self._element, tree, row_again, address, Seq(id))
                element = self._made(make, tree, key, where)
                if element is not None:
                    yield element

    def _element(self, tree: int, row: bytes, address: Address, id: Seq) -> ListItem:
        if tree == LISTS:
            return ListItem(id, address, self._plain(row))
        return ListItem(id, address, self._plain(decode_scratch(row).body))

    def _list_markers(self) -> Iterator[ListMarker]:
        for seq, _, key, address in sorted(self._markers, key=lambda one: one[0]):
            hidden = last_number(key, 13)[0]
            if isinstance(address, ConversationAddress):
                yield ListMarker(Seq(seq), address, Seq(hidden) if hidden else None)

    def _placed(
        self, tree: int, key: bytes, number: int, where: Callable[[bytes], str]
    ) -> Address | None:
        address = self._places.get(number)
        if address is None:
            self._lose(tree, key, where(key), "its address is lost")
        return address

    def _is_shown(self, conversation: Seq, number: int) -> bool:
        """Tell whether a number is shown, as far as its conversation's row tells."""
        return number <= self._through.get(conversation, SEQ_MAX)

    def _is_kept(self, address: Address, number: int) -> bool:
        if not isinstance(address, ConversationAddress):
            return True
        if not address.rewind and address.conversation in self._through:
            return False
        return self._is_shown(address.conversation, number)

    # --- Batches ---

    def _main_batches(self, tail: TailRow | None) -> Iterator[BatchRange]:
        for key, row in self._rows(BATCHES, self._of_session, _boundaries, decode_boundaries):
            first = last_number(key, 4)[0]
            found = self._made(partial(boundaries, first, row), BATCHES, key, _boundaries)
            yield from (BatchRange(*batch) for batch in found or ())
        if tail is not None:
            for batch in boundaries(tail.first, tail.boundaries):
                yield BatchRange(*batch)

    def _scratch_batches(self) -> Iterator[BatchRange]:
        found = []
        for key, row in self._scratch_rows():
            if isinstance(row, ScratchRow) and row.writes:
                first = Seq(last_number(key, 14)[0])
                last = Seq(first + row.writes - 1)
                found.append(BatchRange(first, last, Seq(last_number(key, 5)[0])))
        found.sort(key=lambda batch: batch.first)
        yield from found


# --- How rows are called ---


def _number(key: bytes) -> int:
    return int(last_number(key, len(key) - 8)[0])


def _kind(key: bytes) -> str:
    return f"kind {int.from_bytes(key[5:], 'big')}"


def _tail(key: bytes) -> str:
    return "batch boundaries at the end"


def _conversation(key: bytes) -> str:
    return f"conversation {_number(key)}"


def _record(key: bytes) -> str:
    return f"record {_number(key)}"


def _task(key: bytes) -> str:
    return f"task {_number(key)}"


def _address(key: bytes) -> str:
    return f"address {key[12:]!r} of conversation {last_number(key, 4)[0]}"


def _value(key: bytes) -> str:
    return f"value of write {_number(key)}"


def _current(seq: int, key: bytes) -> str:
    return f"value of write {seq}"


def _list(key: bytes) -> str:
    what = "element" if key[12:13] == ELEMENT else "marker"
    return f"list {what} {_number(key)}"


def _scratch(key: bytes) -> str:
    if key[13:14] == WRITE:
        return f"scratch write {_number(key)}"
    return f"scratch value {key[14:]!r} of task {last_number(key, 5)[0]}"


def _boundaries(key: bytes) -> str:
    return f"batch boundaries from {_number(key)}"


def reason(error: Exception) -> str:
    """Return what is wrong, without the advice to do what is being done."""
    text, _, _ = str(error).partition("; run pico verify")
    return text or repr(error)
