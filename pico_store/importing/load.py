"""Writing a transcript into a store as a new session: all of it or nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from pico_store.address import Seq, SessionAddress
from pico_store.entry_body import pack_entry
from pico_store.errors import RefusedError
from pico_store.importing.branch import branches
from pico_store.importing.errors import TranscriptError
from pico_store.importing.transcript import NOTE_KIND_PREFIX, Draft, Transcript
from pico_store.limits import BATCH_WRITES_MAX, NAME_BYTES_MAX
from pico_store.records import BatchRange, Conversation, Entry, ForkPoint
from pico_store.snapshot import SnapshotHeader, SnapshotItem, ValueVersion
from pico_store.snapshot_check import check_snapshot
from pico_store.storage import Store

PROVENANCE = SessionAddress("import")
"""Where an imported session says what it was made from."""
# Far below what a batch may hold, so that no size as JSON comes near that bound.
_BATCH_PACKED_MAX = 32 << 20


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import wrote."""

    session: str
    format: str
    last_seq: Seq
    lines: int
    conversations: int
    kinds: dict[str, int]
    """Entries by kind."""
    replaced: int
    """Lone surrogates that were replaced by U+FFFD."""
    repeated: int
    """Records that the file held twice; taken once."""
    lost_parents: int
    """Records whose parent the file lacks; each follows the last message above it."""

    @property
    def entries(self) -> int:
        """All entries."""
        return sum(self.kinds.values())

    @property
    def notes(self) -> dict[str, int]:
        """Records that are no messages, by type; kept as entries that the model does not see."""
        cut = len(NOTE_KIND_PREFIX)
        found = {k[cut:]: n for k, n in self.kinds.items() if k.startswith(NOTE_KIND_PREFIX)}
        return dict(sorted(found.items()))


def import_transcript(transcript: Transcript, store: Store, session_id: str) -> ImportReport:
    """Make a new session of a transcript; all of it or nothing.

    The session's root conversation is the transcript's main path; its other branches are forks.

    Raises:
        TranscriptError: Something in the file cannot be stored; nothing was written.
        SessionExistsError: The store holds that session already.
    """
    return PreparedImport(transcript).load(store, session_id)


class PreparedImport:
    """A transcript that was checked whole and numbered: what is left is to write it.

    Raises:
        TranscriptError: Something in the file cannot be stored.
    """

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._session = _Session(transcript)
        for _ in check_snapshot(self._session.items()):
            pass

    def load(self, store: Store, session_id: str) -> ImportReport:
        """Make the session; all of it or nothing.

        Raises:
            SessionExistsError: The store holds that session already.
        """
        session, transcript = self._session, self._transcript
        store.load(session_id, session.items())
        return ImportReport(
            session=session_id,
            format=transcript.format,
            last_seq=session.last_seq,
            lines=transcript.lines,
            conversations=len(session.conversations),
            kinds=dict(sorted(session.kinds.items())),
            replaced=transcript.replaced,
            repeated=transcript.repeated,
            lost_parents=transcript.lost_parents,
        )


@dataclass(slots=True)
class _Numbering:
    """Hands out numbers and groups them into batches."""

    last: int = 0
    batches: list[BatchRange] = field(default_factory=list)
    _first: int = 1
    _size: int = 0

    def take(self, size: int) -> Seq:
        full = self.last - self._first + 1 >= BATCH_WRITES_MAX
        if self.last >= self._first and (full or self._size + size > _BATCH_PACKED_MAX):
            self.close()
        self.last += 1
        self._size += size
        return Seq(self.last)

    def close(self) -> None:
        if self.last >= self._first:
            self.batches.append(BatchRange(Seq(self._first), Seq(self.last)))
        self._first = self.last + 1
        self._size = 0


class _Session:
    """The records of a new session, numbered as commits would number them."""

    def __init__(self, transcript: Transcript) -> None:
        self.conversations: list[Conversation] = []
        self.entries: list[Entry] = []
        self.kinds: Counter[str] = Counter()
        self._numbers = _Numbering()
        # By node: its conversation and its last entry, where a fork of it leaves.
        self._ends: dict[int, ForkPoint] = {}
        for branch in branches(transcript.nodes):
            follows = branch.follows
            parent = self._ends[follows] if follows is not None else None
            conversation = Conversation(id=self._numbers.take(64), parent=parent)
            if not self.conversations:
                self._origin = ValueVersion(
                    self._numbers.take(256),
                    PROVENANCE,
                    {"format": transcript.format, "lines": transcript.lines},
                )
                for draft in transcript.preface:
                    self._add(conversation.id, draft)
            self.conversations.append(conversation)
            for index in branch.path:
                node = transcript.nodes[index]
                for draft in node.drafts:
                    self._add(conversation.id, draft)
                self._ends[index] = ForkPoint(conversation.id, self.entries[-1].id)
                for draft in node.notes:
                    self._add(conversation.id, draft)
        self._numbers.close()
        self.last_seq = Seq(self._numbers.last)

    def items(self) -> Iterator[SnapshotItem]:
        """Yield the session in canonical order."""
        yield SnapshotHeader(last_seq=self.last_seq, entry_kinds=tuple(sorted(self.kinds)))
        yield from self.conversations
        yield from self.entries
        yield self._origin
        yield from self._numbers.batches

    def _add(self, conversation: Seq, draft: Draft) -> None:
        kind = _name(draft.kind, "type", draft.line)
        key = draft.key
        if key is not None and len(key.encode()) > NAME_BYTES_MAX:
            key = None
        shape = Entry(
            id=Seq(0), conversation_id=conversation, kind=kind, data=draft.data, model=draft.model
        )
        try:
            size = len(pack_entry(shape))
        except RefusedError as error:
            raise TranscriptError(f"cannot be stored: {error}", draft.line) from error
        number = self._numbers.take(size)
        self.kinds[kind] += 1
        self.entries.append(
            Entry(
                id=number,
                conversation_id=conversation,
                kind=kind,
                key=key,
                data=draft.data,
                model=draft.model,
                head=number if draft.starts_context else None,
            )
        )


def _name(text: str, what: str, line: int) -> str:
    size = len(text.encode())
    if size > NAME_BYTES_MAX:
        problem = f"a {what} of {size:,} bytes; allowed: {NAME_BYTES_MAX:,} with its prefix"
        raise TranscriptError(problem, line)
    return text
