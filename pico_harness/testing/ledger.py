"""What durable batches say of tasks, conversations and inputs, kept without the harness's code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pico_harness.losses import CRASHES
from pico_store.address import ConversationAddress, ScratchAddress, Seq
from pico_store.batch import Batch, MainBatch, PatchTask, SettleTask, ValueDelete, ValueSet
from pico_store.records import (
    BatchRange,
    Conversation,
    Entry,
    JsonObject,
    JsonValue,
    Task,
    TaskRole,
)

_RESULT = "pi.inputResult"
_QUEUED_TO = ("running", "placed", "done", "failed", "cancelled", "stopped")


@dataclass(eq=False, slots=True)
class Fact:
    """What is known of one task."""

    id: Seq
    conversation: Seq
    kind: str
    after: tuple[Seq, ...]
    background: bool
    status: str
    role: TaskRole
    state: JsonObject
    abort: bool = False
    losses: int | None = None
    """The durable count of losses in flight; ``None``: there is none."""


@dataclass(eq=False, slots=True)
class Ledger:
    """The facts of a session, from its durable batches alone."""

    tell: Callable[[str], None]
    """Told of what no batch may do."""
    tasks: dict[Seq, Fact] = field(default_factory=dict)
    live: dict[Seq, Fact] = field(default_factory=dict)
    owners: dict[Seq, Seq | None] = field(default_factory=dict)
    """The owner of each conversation."""
    foreground: dict[Seq, int] = field(default_factory=dict)
    inputs: dict[tuple[Seq, str], str] = field(default_factory=dict)
    """The status of each input, by conversation and key."""
    entries: list[tuple[str, JsonValue]] = field(default_factory=list)
    """Kind and data of every entry that carries data."""
    batches: int = 0

    def apply(self, batch: Batch, written: BatchRange) -> None:
        """Take over a batch that became durable."""
        self.batches += 1
        if not isinstance(batch, MainBatch):
            fact = self.live.get(batch.task)
            if fact is None:
                self.tell(f"scratch of task {batch.task}, which is not live")
                return
            for change in batch.writes:
                self._count(fact, change)
            return
        for write in batch.writes:
            kind = type(write)
            if kind is ValueSet:
                self._value(write)  # type: ignore[arg-type]
            elif kind is Entry:
                self._entry(write)  # type: ignore[arg-type]
            elif kind is PatchTask:
                self._patch(write)  # type: ignore[arg-type]
            elif kind is Task:
                self._create(write)  # type: ignore[arg-type]
            elif kind is SettleTask:
                self._settle(write)  # type: ignore[arg-type]
            elif kind is Conversation:
                self.owners[write.id] = write.owner  # type: ignore[union-attr]

    def _count(self, fact: Fact, write: object) -> None:
        if isinstance(write, ValueSet | ValueDelete):
            address = write.address
            if isinstance(address, ScratchAddress) and address.namespace == CRASHES:
                value = write.value if isinstance(write, ValueSet) else None
                fact.losses = value if isinstance(value, int) else None

    def _entry(self, entry: Entry) -> None:
        if isinstance(entry.data, list | dict):
            self.entries.append((entry.kind, entry.data))

    def _create(self, task: Task) -> None:
        fact = Fact(
            task.id,
            task.conversation_id,
            task.kind,
            task.after,
            task.background,
            task.status,
            task.role,
            task.state,
        )
        self.tasks[task.id] = self.live[task.id] = fact
        if not task.background:
            known = self.foreground.get(task.conversation_id, 0)
            self.foreground[task.conversation_id] = known + 1

    def _patch(self, write: PatchTask) -> None:
        fact = self.tasks[write.id]
        if write.status is not None and write.role is not None and write.state is not None:
            fact.status, fact.role, fact.state = write.status, write.role, write.state
        fact.abort = fact.abort or write.abort

    def _settle(self, write: SettleTask) -> None:
        fact = self.live.pop(write.id, None)
        if fact is None:
            self.tell(f"task {write.id} settled twice")
            return
        fact.status, fact.role, fact.state = write.status, "terminal", write.state
        fact.losses = None
        if not fact.background:
            self.foreground[fact.conversation] -= 1

    def _value(self, write: ValueSet) -> None:
        address = write.address
        if not isinstance(address, ConversationAddress) or address.namespace != _RESULT:
            return
        assert address.key is not None
        assert isinstance(write.value, dict)
        key = (address.conversation, address.key)
        before, status = self.inputs.get(key), str(write.value["status"])
        allowed: tuple[str, ...] = ("queued",)
        if before == "queued":
            allowed = _QUEUED_TO
        elif before is not None:
            allowed = _QUEUED_TO[1:] if before == "running" else ()
        if status not in allowed:
            self.tell(f"input {key} went from {before} to {status}")
        self.inputs[key] = status

    # --- Questions ---

    def foreground_total(self) -> int:
        """Return how many live tasks are not in the background."""
        return sum(self.foreground.values())

    def above(self, conversation: Seq) -> Seq | None:
        """Return the conversation of the task that owns one."""
        owner = self.owners.get(conversation)
        return None if owner is None else self.tasks[owner].conversation

    def ready(self, fact: Fact) -> bool:
        """Tell whether everything that a task is after is terminal."""
        return not any(id in self.live for id in fact.after)
