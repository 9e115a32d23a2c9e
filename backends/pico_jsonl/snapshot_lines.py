"""A snapshot at the beginning of a main log: what is left of the batches before it.

The items are those of an export, several a line. What follows from others is left out: the policy
of an address that has a version or element, and the names of main batches' boundaries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from msgspec import UNSET

from pico_jsonl.lines import (
    ITEMS_START,
    BadLineError,
    SnapshotEnd,
    encode,
    open_body,
    seal,
)
from pico_memory.bodies import Bodies
from pico_memory.build import Builder
from pico_memory.rows import Body
from pico_memory.state import SessionState
from pico_store.address import ConversationAddress, Seq, Shape
from pico_store.entry_body import pack_entry
from pico_store.errors import RefusedError
from pico_store.limits import SEQ_MAX
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

_LINE_BYTES: Final = 24_576
_LINE_BATCHES: Final = 2_048


class SnapshotWriter:
    """Turns items in canonical order into lines, and hands each line on."""

    def __init__(self, write: Callable[[bytes], object], crc: int) -> None:
        """Begin behind a line whose checksum is given."""
        self._write = write
        self.crc = crc
        self._texts: list[bytes] = []
        self._size = 0
        self._count = 0
        self._last_seq = Seq(0)
        self._policies: dict[tuple[ConversationAddress, Shape], None] = {}
        self._boundaries: list[int] = []
        self._position = 0

    def add(self, item: SnapshotItem) -> None:
        """Take the next item."""
        match item:
            case SnapshotHeader():
                self._last_seq = item.last_seq
                self._line(open_body({"snapshot": item}))
            case AddressPolicy():
                self._policies[item.address, item.shape] = None
            case BatchRange(task=None):
                self._add_boundaries(item)
            case _:
                self._add_text(encode(item))
                self._forget_policy(item)

    def finish(self) -> None:
        """Write what is still held back, and the end."""
        for address, shape in self._policies:
            self._add_text(encode(AddressPolicy(address, shape)))
        self._flush_texts()
        self._flush_boundaries()
        self._line(open_body({"end": SnapshotEnd(self._last_seq, self._count)}))

    def _forget_policy(self, item: SnapshotItem) -> None:
        """Leave out the policy that this item tells as well."""
        match item:
            case ValueVersion(address=ConversationAddress() as address):
                self._policies.pop((address, "value"), None)
            case ListItem(address=ConversationAddress() as address):
                self._policies.pop((address, "list"), None)
            case ListMarker(address=address):
                self._policies.pop((address, "list"), None)

    def _add_text(self, text: bytes) -> None:
        self._texts.append(text)
        self._size += len(text)
        self._count += 1
        if self._size >= _LINE_BYTES:
            self._flush_texts()

    def _flush_texts(self) -> None:
        if self._texts:
            self._line(b"%b[%b]" % (ITEMS_START, b",".join(self._texts)))
            self._texts.clear()
            self._size = 0

    def _add_boundaries(self, item: BatchRange) -> None:
        self._boundaries += (item.first - self._position - 1, item.last - item.first + 1)
        self._position = item.last
        if len(self._boundaries) >= _LINE_BATCHES:
            self._flush_boundaries()

    def _flush_boundaries(self) -> None:
        if self._boundaries:
            self._line(open_body({"batches": self._boundaries}))
            self._boundaries.clear()

    def _line(self, body: bytes) -> None:
        line, self.crc = seal(body, self.crc)
        self._write(line)


class SnapshotReader:
    """Puts a state together from the lines of a snapshot."""

    def __init__(self, header: SnapshotHeader, bodies: Bodies) -> None:
        self._build = Builder(bodies)
        self._build.header(header)
        self._count = 0
        self._position = 0

    def items(self, items: Iterable[SnapshotItem], bodies: Iterable[Body | None]) -> None:
        """Take the items of a line, each with its payload in stored form.

        Raises:
            BadLineError: They do not fit to those before them.
        """
        try:
            for item, body in zip(items, bodies, strict=True):
                self._add(item, body)
                self._count += 1
        except (KeyError, AssertionError) as error:
            raise BadLineError(f"an item does not fit to those before it ({error})") from error

    def _add(self, item: SnapshotItem, body: Body | None) -> None:
        build = self._build
        match item:
            case Entry():
                assert body is not None
                build.entry(item, body)
            case Task():
                assert body is not None
                build.task(item, body)
            case ListItem():
                assert body is not None
                build.element(item, body)
            case ValueVersion():
                build.version(item, body)
            case ListMarker():
                build.marker(item)
            case Conversation():
                build.conversation(item)
            case DeletedConversation():
                build.deleted(item.conversation)
            case AddressPolicy():
                build.policy(item)
            case BatchRange():
                assert item.task is not None, "a main batch among the items"
                build.batch(item)
            case SnapshotHeader():
                raise BadLineError("a second beginning of the snapshot")

    def batches(self, numbers: tuple[int, ...]) -> None:
        """Take boundaries of main batches.

        Raises:
            BadLineError: They are no pairs of counts.
        """
        if len(numbers) % 2:
            raise BadLineError("boundaries that are not in pairs")
        pairs = iter(numbers)
        for skipped, count in zip(pairs, pairs, strict=True):
            if skipped < 0 or count < 1 or self._position > SEQ_MAX:
                raise BadLineError(f"boundaries {skipped}, {count}; allowed: at least 0 and 1")
            first = self._position + skipped + 1
            self._position = first + count - 1
            self._build.batch(BatchRange(Seq(first), Seq(self._position)))

    def finish(self, end: SnapshotEnd) -> SessionState:
        """Return the state.

        Raises:
            BadLineError: Items are missing, or their links lead nowhere.
        """
        state = self._build.state
        if end.items != self._count or end.last_seq != state.last_seq:
            raise BadLineError(
                f"the end of {end.items} items at {end.last_seq}; "
                f"there were {self._count} and {state.last_seq}"
            )
        try:
            for record in state.conversations.values():
                self._build.own(record)
        except KeyError as error:
            raise BadLineError(f"a conversation of an owner that is no task: {error}") from error
        return state


def has_body(item: object) -> bool:
    """Tell whether an item carries a payload."""
    kind = type(item)
    if kind is ValueVersion:
        return item.value is not UNSET  # type: ignore[attr-defined]
    return kind is Entry or kind is Task or kind is ListItem


def packed_bodies(items: Iterable[SnapshotItem]) -> Iterator[Body | None]:
    """Yield the payloads of a line that was written by somebody else, packed.

    Raises:
        BadLineError: One may not be stored.
    """
    try:
        for item in items:
            if isinstance(item, Entry):
                yield pack_entry(item)
            elif isinstance(item, Task):
                yield pack(item.state, "state")
            elif has_body(item):
                assert isinstance(item, (ValueVersion, ListItem))
                yield pack(item.value, "value")  # type: ignore[arg-type]  # it is set
            else:
                yield None
    except RefusedError as error:
        raise BadLineError(str(error)) from error
