"""The storage contract as protocols: a `Store` holds sessions, a `Storage` is one open session."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from pico_store.address import Address, ConversationAddress, Seq, Shape
from pico_store.batch import Batch
from pico_store.query import (
    BatchQuery,
    ConversationQuery,
    EntryQuery,
    ListQuery,
    TaskQuery,
    ValueQuery,
)
from pico_store.records import (
    At,
    BatchRange,
    Conversation,
    Element,
    Entry,
    JsonValue,
    Page,
    Task,
    ValuePage,
    Version,
)
from pico_store.snapshot import SnapshotItem

Durability: TypeAlias = Literal["power", "ordered", "process"]
"""What a commit survives once it returned (SPEC.md, DUR-1).

``power``: no acknowledged main commit is lost by a power cut; the newest scratch commits may be.
``ordered``: the newest acknowledged commits may be missing after a power cut; what is left is
complete batches. ``process``: a power cut may damage the store. None of the three loses an
acknowledged commit when only the process dies.
"""


@dataclass(slots=True)
class Counters:
    """What a handle did since it was opened; tests assert on these instead of on seconds."""

    commits: int = 0
    queries: int = 0
    """Statements or index probes sent to the engine by reads."""
    rows_decoded: int = 0
    """Payloads decoded by reads."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Who holds a session for writing."""

    pid: int
    host: str
    since_ms: int
    """Unix time in milliseconds; for people to read, never used to decide anything."""
    ended: bool = False
    """Whether its process is known to have ended; where that cannot be seen, as on another host or
    in another container, it is False. For people to read, too."""


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session as the store lists it."""

    id: str
    last_seq: Seq
    epoch: int
    """How often it was opened for writing."""
    owner: Owner | None
    """The owner that the store has on record, alive or not."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that ``verify`` found wrong."""

    session: str | None
    where: str
    """The record, row, line or page."""
    what: str


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What ``verify`` looked at and what is wrong with it."""

    records: int
    """Checksummed records that were read and compared."""
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class VacuumReport:
    """What ``vacuum`` gave back."""

    bytes_before: int
    bytes_after: int
    records_dropped: int


@dataclass(frozen=True, slots=True)
class OpenReport:
    """What ``open`` found that its caller should know."""

    dropped_bytes: int = 0
    """The length of an unfinished tail that was cut off."""
    dropped_at: int = 0
    """The offset where it began."""
    notes: tuple[str, ...] = field(default=())


class Storage(Protocol):
    """One open session.

    Guarantees:
        One committing thread and any number of reading threads may use it at once. A read sees
        whole batches only, and what it returns is a copy. After a refusal nothing has changed.
        Every method but ``close`` raises `StorageClosedError` after ``close``, and
        `StorageFaultedError` after a commit that ended uncertain.

    Source: SPEC.md.
    """

    @property
    def session_id(self) -> str:
        """The session's name in its store."""
        ...

    @property
    def last_seq(self) -> Seq:
        """The number of the last committed write; 0 in an empty session.

        Of a handle that was fenced (OWN-5) it may be the last number that the handle met.
        """
        ...

    @property
    def epoch(self) -> int:
        """The owner epoch of this handle: greater than that of every earlier writing open."""
        ...

    @property
    def read_only(self) -> bool:
        """Whether ``commit`` is refused."""
        ...

    @property
    def commit_waits(self) -> bool:
        """Whether each main commit waits for a disk or a network, so that loops should not run it.

        Where it is false, one may still wait now and then: when a log is made durable or written
        back.
        """
        ...

    @property
    def counters(self) -> Counters:
        """What this handle did so far."""
        ...

    @property
    def open_report(self) -> OpenReport:
        """What opening found."""
        ...

    def commit(self, batch: Batch, *, expected_first: Seq | None = None) -> BatchRange:
        """Make all writes of the batch durable and visible together, or none.

        Args:
            batch: 1 … 10,000 writes. Write ``i`` gets number ``last_seq + 1 + i``; a record whose
                id differs is refused.
            expected_first: The number that the first write was built for.

        Raises:
            RefusedError: The batch breaks a clause; nothing was written.
            StaleWriterError: ``expected_first`` is not ``last_seq + 1``.
            RetryableError: Nothing became durable; the same commit may succeed later.
            OwnershipLostError: Another open took the session over.
            CommitUncertainError: The outcome is unknown and the handle is faulted.
        """
        ...

    def get_conversations(self, ids: Iterable[Seq]) -> dict[Seq, Conversation]:
        """Return the named live conversations, in the order asked; unknown ids are left out."""
        ...

    def scan_conversations(self, query: ConversationQuery) -> Page[Conversation]:
        """Return a page of live conversations."""
        ...

    def get_entries(self, ids: Iterable[Seq]) -> dict[Seq, Entry]:
        """Return the named entries, in the order asked; unknown ids are left out.

        An entry of a deleted conversation is still returned while a live fork shows it.
        """
        ...

    def scan_entries(self, query: EntryQuery) -> Page[Entry]:
        """Return a page of the entries that a conversation shows, inherited ones included.

        Raises:
            UnknownConversationError: The conversation does not exist or was deleted.

        Cost: one index probe a fork level; decodes at most ``limit`` rows.
        """
        ...

    def newest_head(self, conversation: Seq, at: Seq) -> Entry | None:
        """Return the newest entry with a head that ``conversation`` shows at ``at``.

        Args:
            conversation: A live conversation.
            at: Inclusive; a position past ``last_seq`` reads as ``last_seq``.

        Raises:
            UnknownConversationError: The conversation does not exist or was deleted.

        Cost: one index probe a fork level; decodes at most one row.
        """
        ...

    def get_tasks(self, ids: Iterable[Seq]) -> dict[Seq, Task]:
        """Return the named tasks, live or terminal, in the order asked.

        Unknown ids and tasks of deleted conversations are left out.
        """
        ...

    def scan_tasks(self, query: TaskQuery) -> Page[Task]:
        """Return a page of tasks.

        Raises:
            UnknownConversationError: One of ``conversation_ids`` does not exist or was deleted.

        Cost: with ``live=True`` no terminal task is read.
        """
        ...

    def get_value(self, address: Address, at: At | None = None) -> Version[JsonValue] | None:
        """Return the value at an address, or ``None`` where it is absent.

        Args:
            address: Its policy must be the one that the address was first written with.
            at: A historical position; only for rewindable addresses.

        Raises:
            UnknownConversationError: The address names a conversation that does not exist.
            InvalidQueryError: ``at`` is not visible there, or the policy differs.

        Cost: one index probe a fork level; decodes at most one row.
        """
        ...

    def scan_values(self, query: ValueQuery) -> ValuePage:
        """Return a page of the present keyed values of one namespace."""
        ...

    def read_list(self, address: Address, query: ListQuery) -> Page[Element[JsonValue]]:
        """Return a page of the elements that a list shows.

        Raises:
            UnknownConversationError: The address names a conversation that does not exist.
            InvalidQueryError: ``at`` is not visible there, or the policy differs.
        """
        ...

    def rewind_policy(self, address: ConversationAddress, shape: Shape) -> bool | None:
        """Return the policy that the address's first write fixed, or ``None`` if unwritten.

        The policy in ``address`` itself is ignored.
        """
        ...

    def entry_kinds(self) -> frozenset[str]:
        """Return every entry kind that the session ever held, without reading entries."""
        ...

    def scan_batches(self, query: BatchQuery) -> Page[BatchRange]:
        """Return a page of batch boundaries: main batches and live tasks' scratch batches."""
        ...

    def export(self) -> Iterator[SnapshotItem]:
        """Yield the session's whole logical state in canonical order (SPEC.md, DUR-10).

        The iterator sees one state, whatever commits meanwhile.
        """
        ...

    def close(self) -> None:
        """Give the session back. Reads already running finish; a second close does nothing."""
        ...


class Store(Protocol):
    """What a URL names: a place that holds sessions."""

    @property
    def url(self) -> str:
        """The URL that opens it again."""
        ...

    def sessions(self) -> list[SessionInfo]:
        """Return the sessions by id in code point order; takes no ownership."""
        ...

    def create(self, session_id: str) -> Storage:
        """Create a session and open it for writing.

        Raises:
            SessionExistsError: The store holds that session already.
            InvalidBatchError: The id is empty or not a string.
            LimitExceededError: The id is longer than 1,024 bytes of UTF-8.
        """
        ...

    def open(self, session_id: str, *, read_only: bool = False, take_over: bool = False) -> Storage:
        """Open a session.

        Args:
            session_id: An id that ``sessions`` lists.
            read_only: Take no ownership and disturb no owner.
            take_over: Take the session from a live owner, whose next commit is then refused; not
                with ``read_only``.

        Raises:
            RefusedError: ``read_only`` and ``take_over`` at once (OWN-5).
            UnknownSessionError: The store holds no such session.
            SessionOwnedError: A live owner, named in the message, holds it.
        """
        ...

    def delete(self, session_id: str) -> None:
        """Remove a session and all that it holds.

        Raises:
            UnknownSessionError: The store holds no such session.
            SessionOwnedError: A live owner holds it.
        """
        ...

    def load(self, session_id: str, items: Iterable[SnapshotItem]) -> None:
        """Create a session from another's ``export``; all of it or nothing.

        Args:
            session_id: The new session's name.
            items: What ``export`` yields. Taking them must not write to this store, whose writes
                wait until all are there.

        Raises:
            SessionExistsError: The store holds that session already.
            RefusedError: The items are not in canonical order or do not fit together.
        """
        ...

    def verify(self) -> VerifyReport:
        """Read everything and compare checksums, links and numbers; changes nothing."""
        ...

    def vacuum(self) -> VacuumReport:
        """Give back the room of what no live conversation shows any more."""
        ...

    def backup(self, path: str) -> None:
        """Write a consistent copy of the whole store to ``path`` while writers work.

        Raises:
            UnsupportedError: The store has nothing that a file could hold.
            StoreIOError: The path exists or cannot be written.
        """
        ...

    def close(self) -> None:
        """Close every session and the store; a second close does nothing."""
        ...
