"""One open session of a JSONL store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NoReturn

from pico_jsonl.session import Session
from pico_memory.reads import Reads
from pico_memory.resident import Resident
from pico_store.address import Address, ConversationAddress, Seq, Shape
from pico_store.batch import Batch
from pico_store.errors import (
    CommitUncertainError,
    OwnershipLostError,
    StorageClosedError,
    StorageFaultedError,
    UnsupportedError,
)
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
from pico_store.storage import Counters, OpenReport


class JsonlStorage:
    """A `Storage` whose indexes are in memory and whose records are in a log.

    A read-only handle of a session that its own store has open for writing follows it; another
    one keeps the state that it was opened in.
    """

    def __init__(
        self,
        session_id: str,
        resident: Resident,
        *,
        epoch: int,
        session: Session | None,
        waits: bool,
        report: OpenReport,
        release: Callable[[JsonlStorage], None],
    ) -> None:
        """Make a handle.

        Args:
            session_id: Its session.
            resident: The state that it reads.
            epoch: Its owner epoch, or that of the owner whom it reads from.
            session: What it commits to; ``None``: it is read-only.
            waits: Whether a commit waits for the disk.
            report: What opening found.
            release: Is told when the handle is closed.
        """
        self._session_id = session_id
        self._session = session
        self._epoch = epoch
        self._waits = waits
        self._report = report
        self._release = release
        self._counters = Counters()
        self._reads = Reads(resident, self._counters)
        self._closed = ""

    @property
    def session_id(self) -> str:
        self._open()
        return self._session_id

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
        return self._session is None

    @property
    def commit_waits(self) -> bool:
        self._open()
        return self._waits

    @property
    def counters(self) -> Counters:
        self._open()
        return self._counters

    @property
    def open_report(self) -> OpenReport:
        self._open()
        return self._report

    def commit(self, batch: Batch, *, expected_first: Seq | None = None) -> BatchRange:
        session = self._session
        if session is None:
            self._refuse_commit()
        with session.lock:
            if session.committer != self._epoch or self._closed:
                self._refuse_commit()
            try:
                done = session.writer.commit(batch, expected_first)
            except (CommitUncertainError, OwnershipLostError):
                session.committer = 0
                raise
            self._counters.commits += 1
        return done

    def _refuse_commit(self) -> NoReturn:
        self._open()
        session = self._session
        if session is None:
            problem = "commit on a read-only handle; open the session for writing"
            raise UnsupportedError("OWN-2", "", problem)
        problem = f"another open took session {self._session_id!r:.60} over; reopen it"
        raise OwnershipLostError(session.lost if session.lost else problem)

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
        session = self._session
        if session is not None:
            # A commit that is at work ends first.
            with session.lock:
                self._close()
            session.close(self._epoch)
        self._close()
        self._release(self)

    def _close(self) -> None:
        # What was said of a fork stays said.
        if not self._closed:
            self._closed = "closed"

    def refuse_after_fork(self) -> None:
        """Refuse every call in a process that inherited this handle by ``fork``."""
        self._closed = "used after os.fork()"
        # Its lock may have been held by a thread that this process does not have.
        self._session = None

    def _open(self) -> Reads:
        if self._closed:
            problem = f"session {self._session_id!r:.60}: {self._closed}; open the session again"
            raise StorageClosedError(problem)
        session = self._session
        if session is not None and session.fault is not None:
            problem = f"session {self._session_id!r:.60}: faulted by an uncertain commit: "
            raise StorageFaultedError(f"{problem}{session.fault}")
        return self._reads
