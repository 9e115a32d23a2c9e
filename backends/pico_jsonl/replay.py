"""Reading a main log from its beginning: the state that its lines lead to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from pico_jsonl.bodies import (
    LONG_LINE,
    LogBodies,
    first_reference,
    kept_references,
    part_references,
)
from pico_jsonl.lines import (
    FORMAT,
    ITEMS_START,
    VERSION,
    BadLineError,
    ItemsLine,
    MainLine,
    SnapshotEnd,
    check_seal,
    claimed_first,
    convert,
    encode,
    is_as_written,
    main_start,
    parse_batch,
    parse_header,
    parse_object,
)
from pico_jsonl.snapshot_lines import SnapshotReader, has_body, packed_bodies
from pico_memory.apply import apply
from pico_memory.state import SessionState
from pico_memory.view import MemoryView
from pico_store.address import ConversationAddress, Seq
from pico_store.batch import (
    DeleteConversation,
    ListAppend,
    MainBatch,
    MainWrite,
    PatchTask,
    ScratchBatch,
    SettleTask,
    ValueSet,
)
from pico_store.check import CheckedBatch, check_batch
from pico_store.errors import (
    NewerFormatError,
    NotAStoreError,
    RefusedError,
    StoreDamagedError,
)
from pico_store.limits import SEQ_MAX
from pico_store.records import Conversation, Entry, JsonObject, Task
from pico_store.snapshot import SnapshotHeader, SnapshotItem

_BUFFER_BYTES: Final = 1 << 20
_WITH_BODY: Final = frozenset((ValueSet, ListAppend, Entry, Task, SettleTask))
# What is raised where a line speaks of something that is not there.
_MISFITS: Final = (KeyError, IndexError, AssertionError)

_decode_main = msgspec.json.Decoder(MainLine).decode
_decode_items = msgspec.json.Decoder(ItemsLine).decode


def check_header(line: bytes, path: str, session: str, task: Seq | None = None) -> None:
    """Refuse a file that is of another format, session or task.

    Raises:
        NewerFormatError: A newer pico wrote it.
        NotAStoreError: It is none of ours.
        StoreDamagedError: It is not where it belongs.
    """
    try:
        header = parse_header(line)
    except BadLineError as error:
        raise NotAStoreError(f"{path}: {error}; nothing was changed") from error
    if header.format != FORMAT:
        raise NotAStoreError(f"{path}: format {header.format!r:.40}; nothing was changed")
    if header.version > VERSION:
        raise NewerFormatError(
            f"{path}: version {header.version}, written by a newer pico; this one reads up to "
            f"{VERSION}: upgrade pico; nothing was changed"
        )
    if header.session != session or header.task != task:
        of = f"session {header.session!r:.60}" + (f", task {header.task}" if header.task else "")
        raise StoreDamagedError(f"{path}: the file of {of}; put it back where it belongs")


class MainReplay:
    """Takes the lines of a main log in order, as far as they go.

    Attributes:
        bodies: Has the file open.
        state: What the lines that were taken lead to.
        end: The offset behind the last line that was taken.
        crc: The checksum that the next line goes on from.
        count: How many lines were taken.
        torn: The length of an unfinished line at the end.
        folded: The last number that the snapshot holds, scratch included; 0 without one.
    """

    def __init__(self, bodies: LogBodies, path: str, session: str, *, strict: bool = False) -> None:
        """Begin at the beginning.

        Args:
            bodies: Has the file open.
            path: For messages.
            session: Whose file it must be.
            strict: Parse and check every line as if a stranger had written it.
        """
        self.bodies = bodies
        self._path = path
        self._session = session
        self._strict = strict
        self._snapshot: SnapshotReader | None = None
        self.state = SessionState(bodies)
        self.view = MemoryView(self.state)
        self.end = 0
        self.crc = 0
        self.count = 0
        self.torn = 0
        self.folded = Seq(0)

    def run(self) -> None:
        """Take all complete lines that are there by now.

        Raises:
            BadLineError: The one at ``end`` is none that may stand there.
            StoreUnusableError: It is not a log of this session.
        """
        with open(self.bodies.fd, "rb", buffering=_BUFFER_BYTES, closefd=False) as file:
            file.seek(self.end)
            for line in file:
                if line[-1] != 0x0A:
                    self.torn = len(line)
                    return
                self.take(line)
        self.torn = 0

    def peek(self) -> list[bytes]:
        """Return the complete lines that follow those that were taken."""
        with open(self.bodies.fd, "rb", closefd=False) as file:
            file.seek(self.end)
            return [line for line in file if line[-1] == 0x0A]

    def take(self, line: bytes) -> None:
        """Take one line.

        Raises:
            BadLineError: It may not stand there; nothing was changed.
        """
        if self.count == 0:
            check_header(line, self._path, self._session)
        crc = check_seal(line, self.crc)
        if line.startswith(b'{"first":'):
            self._take_batch(line)
        elif self.count:
            self._take_other(line)
        self.crc = crc
        self.end += len(line)
        self.count += 1

    @property
    def is_whole(self) -> bool:
        """Whether the lines that were taken make a session: not nothing, nor half a snapshot."""
        return self.count > 0 and self._snapshot is None

    def next_number(self, line: bytes) -> str:
        """Return which numbers a line that cannot be read is about."""
        after = self.state.last_seq
        first = claimed_first(line)
        if first is not None and first > after:
            return f"the batch of number {first}"
        return f"what follows number {after}, from {after + 1} on"

    # --- Batches ---

    def _take_batch(self, line: bytes) -> None:
        if self._snapshot is not None:
            raise BadLineError("a batch within the snapshot")
        if not self._strict:
            try:
                found = _decode_main(line)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                # The careful way says what is wrong, or finds that nothing is.
                pass
            else:
                start = main_start(found.first)
                if is_as_written(line, start, found.writes):
                    self._apply(
                        found.first, found.writes, self._references(line, start, found.writes)
                    )
                    return
        self._apply_strictly(line)

    def _references(self, line: bytes, start: bytes, parts: Sequence[object]) -> Iterable[int]:
        """Return the references to the parts of a line that is as this writes it."""
        if len(line) > LONG_LINE:
            return part_references(self.end + len(start) + 1, list(map(encode, parts)))
        first = first_reference(self.end)
        return range(first, first + 2 * len(parts), 2)

    def _apply_strictly(self, line: bytes) -> None:
        first, batch = parse_batch(line, None)
        apply(self.state, self._check(first, batch))

    def _apply(self, first: Seq, writes: tuple[MainWrite, ...], references: Iterable[int]) -> None:
        state = self.state
        self._check_numbers(first, len(writes))
        kinds = set(map(type, writes))
        if DeleteConversation in kinds or not state.last_seq:
            checked = self._check(first, MainBatch(writes))
        else:
            checked = CheckedBatch(first, Seq(first + len(writes) - 1), None, writes, [])
        bodies = kept_references(references, map(_has_payload, writes))
        if DeleteConversation not in kinds:
            self._check_names(first, writes)
        try:
            apply(state, checked, bodies)
        except _MISFITS as error:
            raise BadLineError(f"a write does not fit to what is there ({error!r})") from error

    def _check_names(self, first: Seq, writes: tuple[MainWrite, ...]) -> None:
        """Refuse a batch that names what does not exist; the checksum vouches for the rest."""
        known = self.state.conversations
        for seq, write in enumerate(writes, first):
            kind = type(write)
            conversation: Seq | None = None
            if kind is Entry or kind is Task:
                conversation = write.conversation_id  # type: ignore[union-attr]
                fits = write.id == seq  # type: ignore[union-attr]
            elif kind is PatchTask or kind is SettleTask:
                continue
            elif kind is Conversation:
                parent = write.parent  # type: ignore[union-attr]
                fits = write.id == seq  # type: ignore[union-attr]
                # Or else who goes from fork to parent might never come to an end.
                fits = fits and (parent is None or parent.conversation_id < seq)
            else:
                address = write.address  # type: ignore[union-attr]
                fits = True
                if type(address) is ConversationAddress:
                    conversation = address.conversation
            if conversation is not None and conversation not in known:
                # Made by this very batch, or nowhere.
                made = first <= conversation < seq
                fits = fits and made and type(writes[conversation - first]) is Conversation
            if not fits:
                raise BadLineError(f"write {seq} does not fit to what is there")

    def _check(self, first: Seq, batch: MainBatch | ScratchBatch) -> CheckedBatch:
        """Return a batch after all checks that its commit had to pass."""
        self._check_numbers(first, 1)
        before = self.state.last_seq
        # Numbers may be missing before it: those of scratch.
        self.state.last_seq = Seq(first - 1)
        try:
            return check_batch(batch, self.view)
        except RefusedError as error:
            raise BadLineError(str(error)) from error
        except _MISFITS as error:
            # What earlier lines say of the tree of forks may be as wrong.
            raise BadLineError(f"a write does not fit to what is there ({error!r})") from error
        finally:
            self.state.last_seq = before

    def _check_numbers(self, first: Seq, count: int) -> None:
        last_seq = self.state.last_seq
        if first <= last_seq:
            raise BadLineError(f"begins at number {first}; the batch before it ends at {last_seq}")
        if not count or first + count - 1 > SEQ_MAX or (not last_seq and first != 1):
            raise BadLineError(f"{count} writes from number {first} on")

    # --- Snapshots ---

    def _take_other(self, line: bytes) -> None:
        if not self._strict and line.startswith(ITEMS_START) and self._snapshot is not None:
            try:
                found = _decode_items(line)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                pass
            else:
                if is_as_written(line, ITEMS_START, found.items):
                    references = self._references(line, ITEMS_START, found.items)
                    bodies = kept_references(references, map(has_body, found.items))
                    self._snapshot.items(found.items, bodies)
                    return
        parts = parse_object(line)
        if "first" in parts:
            self._take_spaced_batch(line)
        elif self._snapshot is None:
            self._begin_snapshot(parts)
        else:
            self._go_on_with_snapshot(self._snapshot, parts)

    def _take_spaced_batch(self, line: bytes) -> None:
        if self._snapshot is not None:
            raise BadLineError("a batch within the snapshot")
        self._apply_strictly(line)

    def _begin_snapshot(self, parts: JsonObject) -> None:
        if self.count != 1 or set(parts) != {"snapshot"}:
            raise BadLineError(f"members {', '.join(parts):.60}; allowed here: a batch")
        header: SnapshotHeader = convert(parts["snapshot"], SnapshotHeader)
        self._snapshot = SnapshotReader(header, self.bodies)

    def _go_on_with_snapshot(self, snapshot: SnapshotReader, parts: JsonObject) -> None:
        match parts:
            case {"items": items} if len(parts) == 1:
                found: tuple[SnapshotItem, ...] = convert(items, tuple[SnapshotItem, ...])
                snapshot.items(found, packed_bodies(found))
            case {"batches": numbers} if len(parts) == 1:
                snapshot.batches(convert(numbers, tuple[int, ...]))
            case {"end": end} if len(parts) == 1:
                self.state = snapshot.finish(convert(end, SnapshotEnd))
                self.view = MemoryView(self.state)
                self._snapshot = None
                self.folded = self.state.last_seq
            case _:
                raise BadLineError(f"members {', '.join(parts):.60}; allowed: those of a snapshot")


def _has_payload(write: MainWrite) -> bool:
    kind = type(write)
    return kind in _WITH_BODY or (kind is PatchTask and write.state is not None)  # type: ignore[union-attr]
