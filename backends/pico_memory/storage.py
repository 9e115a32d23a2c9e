"""One open session in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from weakref import ref

from pico_memory.apply import apply
from pico_memory.reads import Reads
from pico_memory.resident import Resident
from pico_store.address import Address, ConversationAddress, Seq, Shape
from pico_store.batch import Batch
from pico_store.check import check_batch
from pico_store.errors import OwnershipLostError, StorageClosedError, UnsupportedError
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
from pico_store.storage import Counters, OpenReport, Owner


@dataclass(slots=True)
class Session:
    """A session as its store keeps it."""

    id: str
    resident: Resident
    epoch: int = 0
    owner: Owner | None = None
    """Who opened it for writing last and has not closed it."""
    holder: ref[MemoryStorage] | None = None
    """The owner's handle."""

    def live_owner(self) -> Owner | None:
        """Return the owner; a handle that was dropped without a close owns nothing any more."""
        held = self.holder is not None and self.holder() is not None
        return self.owner if held else None


class MemoryStorage:
    """A `Storage` whose records live as long as its store; a commit never waits."""

    __slots__ = (
        "__weakref__",
        "_closed",
        "_counters",
        "_epoch",
        "_lock",
        "_read_only",
        "_reads",
        "_release",
        "_resident",
        "_session",
    )

    def __init__(
        self,
        session: Session,
        release: Callable[[MemoryStorage], None],
        *,
        read_only: bool,
    ) -> None:
        self._session = session
        self._resident = session.resident
        self._lock = session.resident.lock
        self._release = release
        self._read_only = read_only
        self._epoch = session.epoch
        self._counters = Counters()
        self._reads = Reads(session.resident, self._counters)
        self._closed = False

    @property
    def session_id(self) -> str:
        self._open()
        return self._session.id

    @property
    def last_seq(self) -> Seq:
        return self._open().last_seq()

    @property
    def epoch(self) -> int:
        self._open()
        return self._epoch

    @property
    def read_only(self) -> bool:
        self._open()
        return self._read_only

    @property
    def commit_waits(self) -> bool:
        self._open()
        return False

    @property
    def counters(self) -> Counters:
        self._open()
        return self._counters

    @property
    def open_report(self) -> OpenReport:
        self._open()
        return OpenReport()

    def commit(self, batch: Batch, *, expected_first: Seq | None = None) -> BatchRange:
        # One lock from the verdict to the last change: neither another handle of the session nor
        # a take-over can come between.
        with self._lock:
            if self._closed or self._read_only or self._session.epoch != self._epoch:
                self._refuse()
            view = self._resident.view
            if view.state.journal:
                view.state.recover()
            done = apply(view.state, check_batch(batch, view, expected_first))
            self._counters.commits += 1
        return done

    def _refuse(self) -> None:
        self._open()
        if self._read_only:
            problem = "commit on a read-only handle; open the session for writing"
            raise UnsupportedError("OWN-2", "", problem)
        problem = f"another open took session {self._session.id!r:.60} over; reopen it"
        raise OwnershipLostError(problem)

    def get_conversations(self, ids: Iterable[Seq]) -> dict[Seq, Conversation]:
        return self._open().get_conversations(ids)

    def scan_conversations(self, query: ConversationQuery) -> Page[Conversation]:
        return self._open().scan_conversations(query)

    def get_entries(self, ids: Iterable[Seq]) -> dict[Seq, Entry]:
        return self._open().get_entries(ids)

    def scan_entries(self, query: EntryQuery) -> Page[Entry]:
        return self._open().scan_entries(query)

    def newest_head(self, conversation: Seq, at: Seq) -> Entry | None:
        return self._open().newest_head(conversation, at)

    def get_tasks(self, ids: Iterable[Seq]) -> dict[Seq, Task]:
        return self._open().get_tasks(ids)

    def scan_tasks(self, query: TaskQuery) -> Page[Task]:
        return self._open().scan_tasks(query)

    def get_value(self, address: Address, at: At | None = None) -> Version[JsonValue] | None:
        return self._open().get_value(address, at)

    def scan_values(self, query: ValueQuery) -> ValuePage:
        return self._open().scan_values(query)

    def read_list(self, address: Address, query: ListQuery) -> Page[Element[JsonValue]]:
        return self._open().read_list(address, query)

    def rewind_policy(self, address: ConversationAddress, shape: Shape) -> bool | None:
        return self._open().rewind_policy(address, shape)

    def entry_kinds(self) -> frozenset[str]:
        return self._open().entry_kinds()

    def scan_batches(self, query: BatchQuery) -> Page[BatchRange]:
        return self._open().scan_batches(query)

    def export(self) -> Iterator[SnapshotItem]:
        return self._open().export()

    def close(self) -> None:
        # A commit that holds the lock ends first; an interrupted close can be repeated.
        with self._lock:
            self._closed = True
        self._release(self)

    def owns(self, session: Session) -> bool:
        """Tell whether the session is this handle's to give back."""
        return not self._read_only and self._epoch == session.epoch

    def _open(self) -> Reads:
        if self._closed:
            problem = f"session {self._session.id!r:.60} was closed here; open it again"
            raise StorageClosedError(problem)
        return self._reads
