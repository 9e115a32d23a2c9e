"""One open session of a SQLite store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from pico_sqlite.export import export_session
from pico_sqlite.frames import Frames
from pico_sqlite.memo import Memo
from pico_sqlite.readers import Readers, Snapshot
from pico_sqlite.record_reads import RecordReads
from pico_sqlite.rows import Rows
from pico_sqlite.state_reads import StateReads
from pico_sqlite.view import View
from pico_sqlite.writer import Writer
from pico_store.address import Address, ConversationAddress, Seq, Shape
from pico_store.batch import Batch, ScratchBatch
from pico_store.check import CheckedBatch, check_batch
from pico_store.errors import (
    CommitUncertainError,
    OwnershipLostError,
    PicoError,
    RefusedError,
    StorageClosedError,
    StorageFaultedError,
    StoreDamagedError,
    UnknownSessionError,
    UnsupportedError,
)
from pico_store.ownership import OwnerRecord
from pico_store.query import (
    BatchQuery,
    ConversationQuery,
    EntryQuery,
    ListQuery,
    TaskQuery,
    ValueQuery,
)
from pico_store.query_check import (
    check_address,
    check_at,
    check_batch_query,
    check_conversation_id,
    check_conversation_query,
    check_entry_query,
    check_ids,
    check_list_query,
    check_policy_question,
    check_position,
    check_task_query,
    check_value_query,
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

# Commits between two looks at the size of the log, less one: all bits are set.
_LOOKS_EVERY = 1_023


class SqliteStorage:
    """A `Storage` on rows of a shared file."""

    def __init__(
        self,
        *,
        session: int,
        session_id: str,
        epoch: int,
        owner: OwnerRecord | None,
        writer: Writer,
        readers: Readers,
        plain: Callable[[bytes], bytes],
        compress: Callable[[CheckedBatch], None] | None,
        release: Callable[[OwnerRecord, int, int], None],
    ) -> None:
        self._session = session
        self._session_id = session_id
        self._epoch = epoch
        self.owner = owner
        self._writer = writer
        self._readers = readers
        self._plain = plain
        self._compress = compress
        self._release = release
        self._counters = Counters()
        self._refusal: type[PicoError] | None = None
        self._reason = ""
        self._lost = ""
        self._may_commit = owner is not None
        self._alone = not writer.shares
        self._memo: Memo
        self._records: RecordReads
        self._state: StateReads
        self._view: View
        self._rows: Rows
        self._frames: Frames
        self._remember()
        writer.users.add(self)
        if self._rows.db is not writer.db:
            self.attach()

    # --- What it is ---

    @property
    def session_id(self) -> str:
        return self._session_id

    @property
    def last_seq(self) -> Seq:
        self._check_usable()
        if self.owner is not None:
            return self._view.last_seq
        with self._reading() as snapshot:
            return self._records.last_seq(snapshot)

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def read_only(self) -> bool:
        return self.owner is None

    @property
    def commit_waits(self) -> bool:
        return self._writer.durability == "power"

    @property
    def counters(self) -> Counters:
        return self._counters

    @property
    def open_report(self) -> OpenReport:
        return OpenReport()

    # --- Committing ---

    def commit(self, batch: Batch, *, expected_first: Seq | None = None) -> BatchRange:
        if not self._may_commit:
            self._refuse_commit()
        if type(batch) is ScratchBatch and expected_first is None and self._alone:
            try:
                done = self._frames.commit(batch)
            except RefusedError:
                raise
            except BaseException as error:
                self._after_failure(error)
                raise
            if done is not None:
                counters = self._counters
                counters.commits = count = counters.commits + 1
                if not count & _LOOKS_EVERY:
                    self._writer.bound_log()
                return done
        self._frames.forget()
        checked = check_batch(batch, self._view, expected_first)
        if self._compress is not None:
            self._compress(checked)
        try:
            self._writer.write(self._rows, checked)
            self._view.last_seq = last = checked.last
        except BaseException as error:
            self._after_failure(error)
            raise
        counters = self._counters
        counters.commits = count = counters.commits + 1
        if not count & _LOOKS_EVERY:
            self._writer.bound_log()
        return BatchRange(checked.first, last, checked.task)

    def _refuse_commit(self) -> NoReturn:
        self._check_usable()
        if self._lost:
            raise OwnershipLostError(self._lost)
        raise UnsupportedError("OWN-2", "", "opened read-only; open it for writing to commit")

    def _after_failure(self, error: BaseException) -> None:
        """Forget what the undone rows put into memory; see what became durable after all."""
        if isinstance(error, CommitUncertainError):
            self._refuse(StorageFaultedError, f"faulted by an uncertain commit: {error}")
            return
        if isinstance(error, OwnershipLostError):
            self._lost = str(error)
            self._may_commit = False
        try:
            self._remember()
        except PicoError as cause:
            self._refuse(StorageFaultedError, f"faulted: cannot be read after {error}: {cause}")

    def _remember(self) -> None:
        """Read what the handle keeps in memory from the file."""
        with self._readers.snapshot() as snapshot:
            self._memo = Memo(self._session, snapshot.db)
            self._memo.kind_names.readers = self._readers
            self._records = RecordReads(self._memo, self._counters, self._session_id, self._plain)
            self._state = StateReads(self._memo, self._counters, self._records)
            last_seq = self._records.last_seq(snapshot)
        self._view = View(self._memo, self._readers, self._records, self._state, last_seq)
        self.attach()

    def attach(self) -> None:
        """Write through the writer's present connection; it calls this after each change of it."""
        self._rows = Rows(self._writer.db, self._memo, self._epoch)
        self._frames = Frames(self._writer, self._memo, self._view, self._epoch)

    # --- Reading ---

    def get_conversations(self, ids: Iterable[Seq]) -> dict[Seq, Conversation]:
        self._check_usable()
        # Outside of the read, whose errors are the file's: the ids come from the caller's code.
        wanted = check_ids(ids)
        with self._reading() as snapshot:
            return self._records.get_conversations(snapshot, wanted)

    def scan_conversations(self, query: ConversationQuery) -> Page[Conversation]:
        with self._reading() as snapshot:
            window = check_conversation_query(query)
            return self._records.scan_conversations(snapshot, query, window)

    def get_entries(self, ids: Iterable[Seq]) -> dict[Seq, Entry]:
        self._check_usable()
        # Outside of the read, whose errors are the file's: the ids come from the caller's code.
        wanted = check_ids(ids)
        with self._reading() as snapshot:
            return self._records.get_entries(snapshot, wanted)

    def scan_entries(self, query: EntryQuery) -> Page[Entry]:
        with self._reading() as snapshot:
            window = check_entry_query(query)
            return self._records.scan_entries(snapshot, query, window)

    def newest_head(self, conversation: Seq, at: Seq) -> Entry | None:
        with self._reading() as snapshot:
            check_conversation_id(conversation, "conversation")
            position = check_position(at)
            return self._records.newest_head(snapshot, conversation, position)

    def get_tasks(self, ids: Iterable[Seq]) -> dict[Seq, Task]:
        self._check_usable()
        # Outside of the read, whose errors are the file's: the ids come from the caller's code.
        wanted = check_ids(ids)
        with self._reading() as snapshot:
            return self._records.get_tasks(snapshot, wanted)

    def scan_tasks(self, query: TaskQuery) -> Page[Task]:
        with self._reading() as snapshot:
            window = check_task_query(query)
            return self._records.scan_tasks(snapshot, query, window)

    def get_value(self, address: Address, at: At | None = None) -> Version[JsonValue] | None:
        with self._reading() as snapshot:
            check_address(address)
            check_at(address, at)
            return self._state.get_value(snapshot, address, at)

    def scan_values(self, query: ValueQuery) -> ValuePage:
        with self._reading() as snapshot:
            limit = check_value_query(query)
            return self._state.scan_values(snapshot, query, limit)

    def read_list(self, address: Address, query: ListQuery) -> Page[Element[JsonValue]]:
        with self._reading() as snapshot:
            window = check_list_query(address, query)
            return self._state.read_list(snapshot, address, window, query.at)

    def rewind_policy(self, address: ConversationAddress, shape: Shape) -> bool | None:
        with self._reading() as snapshot:
            check_policy_question(address, shape)
            id = address.conversation
            if id not in self._records.get_conversations(snapshot, [id]):
                return None
            return self._state.rewind_policy(snapshot, address, shape)

    def entry_kinds(self) -> frozenset[str]:
        with self._reading() as snapshot:
            return self._records.entry_kinds(snapshot)

    def scan_batches(self, query: BatchQuery) -> Page[BatchRange]:
        with self._reading() as snapshot:
            window = check_batch_query(query)
            return self._records.scan_batches(snapshot, window)

    def export(self) -> Iterator[SnapshotItem]:
        self._check_usable()
        return self._exported()

    def _exported(self) -> Iterator[SnapshotItem]:
        with self._reading() as snapshot:
            yield from export_session(snapshot, self._memo, self._records, self._state)

    @contextmanager
    def _reading(self) -> Iterator[Snapshot]:
        self._check_usable()
        with self._readers.snapshot() as snapshot:
            try:
                if self.owner is None:
                    self._memo.refresh(snapshot.db)
                yield snapshot
            except KeyError as error:
                sql = "SELECT 1 FROM sessions WHERE session = ?"
                if not snapshot.rows(sql, (self._session,)):
                    problem = f"session {self._session_id!r:.80} was deleted; create it anew"
                    raise UnknownSessionError("OWN-6", "", problem) from error
                # Rows lead to rows that are not there; no read of a whole file gets here.
                problem = f"a row names {error}, which does not exist; run pico verify"
                raise StoreDamagedError(f"session {self._session_id!r}: {problem}") from error

    # --- Ending ---

    def close(self) -> None:
        if self._refusal is StorageClosedError:
            return
        self._refuse(StorageClosedError, "closed; open the session again")
        if self.owner is not None:
            self._release(self.owner, self._session, self._epoch)

    def refuse_after_fork(self) -> None:
        """Refuse every call in a process that inherited this handle by ``fork``."""
        self._refuse(StorageClosedError, "used after os.fork(); open the session in this process")

    def _refuse(self, error: type[PicoError], reason: str) -> None:
        if self._refusal is StorageClosedError:
            # A commit that failed because of the close must not say otherwise.
            return
        self._reason = reason
        self._refusal = error
        self._may_commit = False

    def _check_usable(self) -> None:
        if self._refusal is not None:
            raise self._refusal(f"session {self._session_id!r}: {self._reason}")
