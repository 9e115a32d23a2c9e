"""One open session of an LMDB store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NoReturn

from pico_lmdb.batch_reads import BatchReads
from pico_lmdb.environment import Environment
from pico_lmdb.export import exported
from pico_lmdb.layout import ADDRESSES
from pico_lmdb.memo import Memo, last_seq
from pico_lmdb.plan import Plan
from pico_lmdb.plan_scratch import ScratchPlan
from pico_lmdb.record_reads import RecordReads
from pico_lmdb.snapshot import Snapshot
from pico_lmdb.state_reads import StateReads
from pico_lmdb.task_reads import TaskReads
from pico_lmdb.view import View
from pico_lmdb.writer import Writer
from pico_store.address import Address, ConversationAddress, Seq, Shape
from pico_store.batch import Batch, ScratchBatch
from pico_store.check import check_batch, lone_append
from pico_store.errors import (
    CommitUncertainError,
    OwnershipLostError,
    PicoError,
    StorageClosedError,
    StorageFaultedError,
    UnsupportedError,
)
from pico_store.limits import SEQ_MAX
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
from pico_store.storage import Counters, Durability, OpenReport


class LmdbStorage:
    """A `Storage` on the trees of a shared environment."""

    def __init__(
        self,
        *,
        session: int,
        session_id: str,
        epoch: int,
        owner: OwnerRecord | None,
        environment: Environment,
        writer: Writer,
        durability: Durability,
        compress: Callable[[bytes], bytes] | None,
        release: Callable[[OwnerRecord, int, int], None],
    ) -> None:
        self._session = session
        self._session_id = session_id
        self._epoch = epoch
        self._epoch_bytes = epoch.to_bytes(8, "big")
        self.owner = owner
        self._environment = environment
        self._writer = writer
        self._durability = durability
        self._shares = durability == "power"
        self._compress = compress
        self._release = release
        self._counters = Counters()
        self._refusal: type[PicoError] | None = None
        self._reason = ""
        self._lost = ""
        self._may_commit = owner is not None
        self._memo: Memo
        self._records: RecordReads
        self._tasks: TaskReads
        self._state: StateReads
        self._batches: BatchReads
        self._view: View
        self._plan: Plan
        self._scratch: ScratchPlan
        self._remember()

    # --- What it is ---

    @property
    def session_id(self) -> str:
        return self._session_id

    @property
    def last_seq(self) -> Seq:
        self._check_usable()
        if self.owner is not None:
            return self._view.last_seq
        with self._snapshot() as snapshot:
            return last_seq(snapshot, self._session)

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def read_only(self) -> bool:
        return self.owner is None

    @property
    def commit_waits(self) -> bool:
        # With `ordered` LMDB syncs the pages of a commit before the one that makes it count.
        return self._durability != "process"

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
        view = self._view
        if type(batch) is ScratchBatch and expected_first is None and not self._shares:
            seq: Seq = view.last_seq + 1  # type: ignore[assignment]
            task = view.task(batch.task) if type(batch.task) is int else None
            body = None if task is None or seq > SEQ_MAX else lone_append(batch, task)
            if body is not None:
                try:
                    done = self._writer.write_frame(self._memo, self._epoch_bytes, batch, seq, body)
                except BaseException as error:
                    self._after_failure(error)
                    raise
                if done:
                    view.last_seq = seq
                    self._counters.commits += 1
                    return BatchRange(seq, seq, batch.task)
        checked = check_batch(batch, view, expected_first)
        try:
            if checked.task is None:
                changes = self._plan.main(checked)
            else:
                changes = self._plan.begin()
                self._scratch.fill(changes, checked)
            if self._shares:
                self._writer.write_together(changes, is_main=checked.task is None)
            else:
                self._writer.write(changes)
        except BaseException as error:
            self._after_failure(error)
            raise
        view.last_seq = last = checked.last
        self._counters.commits += 1
        return BatchRange(checked.first, last, checked.task)

    def _refuse_commit(self) -> NoReturn:
        self._check_usable()
        if self._lost:
            raise OwnershipLostError(self._lost)
        raise UnsupportedError("OWN-2", "", "opened read-only; open it for writing to commit")

    def _after_failure(self, error: BaseException) -> None:
        """Forget what the undone changes put into memory; see what became durable after all."""
        # Whoever was interrupted while another thread wrote for it does not know what came of it.
        interrupted = self._shares and not isinstance(error, PicoError)
        if interrupted or isinstance(error, CommitUncertainError):
            self._refuse(StorageFaultedError, f"faulted by an uncertain commit: {error!r}")
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
        with self._snapshot() as snapshot:
            self._memo = Memo(self._session, snapshot)
            last = last_seq(snapshot, self._session)
        counters = self._counters
        self._records = RecordReads(self._memo, counters)
        self._tasks = TaskReads(self._memo, counters, self._records)
        self._state = StateReads(self._memo, counters, self._records)
        self._batches = BatchReads(self._memo)
        self._view = View(
            self._memo,
            self._snapshot,
            self._records,
            self._tasks,
            self._state,
            partial(self._environment.holds, ADDRESSES),
            last,
        )
        self._plan = Plan(
            self._memo,
            self._epoch_bytes,
            self._snapshot,
            self._tasks,
            self._state,
            self._compress,
        )
        self._scratch = ScratchPlan(self._memo, self._snapshot, self._plan.put_value)

    # --- Reading ---

    def get_conversations(self, ids: Iterable[Seq]) -> dict[Seq, Conversation]:
        self._check_usable()
        # Outside of the read, whose errors are the store's: the ids come from the caller's code.
        wanted = check_ids(ids)
        with self._reading() as snapshot:
            return self._records.get_conversations(snapshot, wanted)

    def scan_conversations(self, query: ConversationQuery) -> Page[Conversation]:
        with self._reading() as snapshot:
            window = check_conversation_query(query)
            return self._records.scan_conversations(snapshot, query, window)

    def get_entries(self, ids: Iterable[Seq]) -> dict[Seq, Entry]:
        self._check_usable()
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
        wanted = check_ids(ids)
        with self._reading() as snapshot:
            return self._tasks.get_tasks(snapshot, wanted)

    def scan_tasks(self, query: TaskQuery) -> Page[Task]:
        with self._reading() as snapshot:
            window = check_task_query(query)
            return self._tasks.scan_tasks(snapshot, query, window)

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
            return self._memo.entry_kinds(snapshot)

    def scan_batches(self, query: BatchQuery) -> Page[BatchRange]:
        with self._reading() as snapshot:
            window = check_batch_query(query)
            return self._batches.scan_batches(snapshot, window)

    def export(self) -> Iterator[SnapshotItem]:
        self._check_usable()
        return exported(self._reading, self._memo, self._records, self._tasks, self._state)

    def _snapshot(self) -> Snapshot:
        return Snapshot(self._environment, self._counters, self._session_id)

    def _reading(self) -> Snapshot:
        self._check_usable()
        return Snapshot(self._environment, self._counters, self._session_id)

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
        self._reason = reason
        self._refusal = error
        self._may_commit = False

    def _check_usable(self) -> None:
        if self._refusal is not None:
            raise self._refusal(f"session {self._session_id!r}: {self._reason}")
