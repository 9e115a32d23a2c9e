"""The executable specification: a session that is naive and obviously right.

It keeps the accepted writes and answers every read of the interface from them. It shares the
record types, queries and errors with what it is compared to, and no rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from pico_conformance import model_export, model_reads
from pico_conformance.model_rules import SEQ_MAX, Fault, Place, is_seq, write_faults
from pico_conformance.model_state import State
from pico_store.address import Address, ConversationAddress, Seq, Shape
from pico_store.batch import Batch, MainBatch, ScratchBatch
from pico_store.errors import InvalidBatchError, LimitExceededError, StaleWriterError
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

BATCH_WRITES_MAX = 10_000


class Accepted(NamedTuple):
    """A batch may be written: what it becomes."""

    range: BatchRange
    state: State


class Refused(NamedTuple):
    """A batch may not be written: every clause that it breaks at the first offending write.

    The contract does not say which of several clauses a refusal names.
    """

    faults: tuple[Fault, ...]
    write: int | None
    """The index of the offending write; ``None``: the batch as a whole."""


@dataclass(slots=True)
class Model:
    """One session."""

    state: State = field(default_factory=State)
    batches: list[BatchRange] = field(default_factory=list)
    """The boundaries of every accepted batch."""

    @property
    def last_seq(self) -> Seq:
        """The number of the last accepted write."""
        return Seq(self.state.last_seq)

    def judge(self, batch: Batch, expected_first: Seq | None = None) -> Accepted | Refused:
        """Decide about a batch without writing it."""
        refused = self._judge_whole(batch, expected_first)
        if refused is not None:
            return refused
        task = batch.task if isinstance(batch, ScratchBatch) else None
        state = self.state.copy()
        after_entry = False
        for index, write in enumerate(batch.writes):
            seq = Seq(state.last_seq + 1)
            faults = write_faults(write, Place(state, seq, task, after_entry))
            if faults:
                return Refused(tuple(faults), index)
            state.apply(seq, write)
            after_entry = after_entry or isinstance(write, Entry)
        first = Seq(self.state.last_seq + 1)
        return Accepted(BatchRange(first, Seq(state.last_seq), task), state)

    def accept(self, accepted: Accepted) -> None:
        """Write a batch that was judged."""
        self.state = accepted.state
        self.batches.append(accepted.range)

    def skip_to(self, seq: Seq) -> None:
        """Go on as if every number up to ``seq`` had been used by scratch that is retired now."""
        state = self.state.copy()
        state.last_seq = seq
        self.state = state
        self.batches.append(BatchRange(seq, seq))

    def copy(self) -> Model:
        """Return a model that can go on by itself."""
        return Model(self.state.copy(), list(self.batches))

    def _judge_whole(self, batch: object, expected_first: object) -> Refused | None:
        faults: list[Fault] = []
        first = self.state.last_seq + 1
        if expected_first is not None and expected_first != first:
            return Refused((Fault("SEQ-8", StaleWriterError),), None)
        if type(batch) is not MainBatch and type(batch) is not ScratchBatch:
            return Refused((Fault("SEQ-7"),), None)
        assert isinstance(batch, MainBatch | ScratchBatch)
        if type(batch.writes) not in (tuple, list):
            return Refused((Fault("SEQ-4"),), None)
        count = len(batch.writes)
        if count == 0:
            faults.append(Fault("SEQ-4"))
        if count > BATCH_WRITES_MAX:
            faults.append(Fault("JSON-5", LimitExceededError))
        if first + count - 1 > SEQ_MAX:
            faults.append(Fault("SEQ-2", InvalidBatchError))
        if isinstance(batch, ScratchBatch):
            if not is_seq(batch.task):
                faults.append(Fault("SEQ-2"))
            elif not self.state.is_live_task(batch.task):
                faults.append(Fault("TASK-4"))
        return Refused(tuple(faults), None) if faults else None

    # --- The reads of `Storage` ---

    def get_conversations(self, ids: Iterable[Seq]) -> dict[Seq, Conversation]:
        """As `Storage.get_conversations`."""
        return model_reads.get(ids, lambda id: model_reads.get_conversation(self.state, id))

    def scan_conversations(self, query: ConversationQuery) -> Page[Conversation]:
        """As `Storage.scan_conversations`."""
        return model_reads.scan_conversations(self.state, query)

    def get_entries(self, ids: Iterable[Seq]) -> dict[Seq, Entry]:
        """As `Storage.get_entries`."""
        return model_reads.get(ids, lambda id: model_reads.get_entry(self.state, id))

    def scan_entries(self, query: EntryQuery) -> Page[Entry]:
        """As `Storage.scan_entries`."""
        return model_reads.scan_entries(self.state, query)

    def newest_head(self, conversation: Seq, at: Seq) -> Entry | None:
        """As `Storage.newest_head`."""
        return model_reads.newest_head(self.state, conversation, at)

    def get_tasks(self, ids: Iterable[Seq]) -> dict[Seq, Task]:
        """As `Storage.get_tasks`."""
        return model_reads.get(ids, self.state.task)

    def scan_tasks(self, query: TaskQuery) -> Page[Task]:
        """As `Storage.scan_tasks`."""
        return model_reads.scan_tasks(self.state, query)

    def get_value(self, address: Address, at: At | None = None) -> Version[JsonValue] | None:
        """As `Storage.get_value`."""
        return model_reads.get_value(self.state, address, at)

    def scan_values(self, query: ValueQuery) -> ValuePage:
        """As `Storage.scan_values`."""
        return model_reads.scan_values(self.state, query)

    def read_list(self, address: Address, query: ListQuery) -> Page[Element[JsonValue]]:
        """As `Storage.read_list`."""
        return model_reads.read_list(self.state, address, query)

    def rewind_policy(self, address: ConversationAddress, shape: Shape) -> bool | None:
        """As `Storage.rewind_policy`."""
        return model_reads.rewind_policy(self.state, address, shape)

    def entry_kinds(self) -> frozenset[str]:
        """As `Storage.entry_kinds`."""
        return frozenset(entry.kind for entry in self.state.entries.values())

    def scan_batches(self, query: BatchQuery) -> Page[BatchRange]:
        """As `Storage.scan_batches`."""
        return model_reads.scan_batches(self.state, self.batches, query)

    def export(self) -> Iterator[SnapshotItem]:
        """As `Storage.export`."""
        return model_export.export(self.state, self.batches)
