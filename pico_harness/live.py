"""The live index: what committed batches make of the tasks that are not terminal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from pico_store.address import Seq
from pico_store.batch import Batch, DeleteConversation, MainBatch, PatchTask, SettleTask
from pico_store.records import Conversation, Task

K = TypeVar("K")


@dataclass(eq=False, slots=True)
class LiveTask:
    """A task that is not terminal.

    The first four follow from batches. What is lost in flight is found when the session is opened,
    and changed by the scheduler and the driver as the task goes on.
    """

    task: Task
    epoch: int = 0
    """How many changes of status were committed since it was met (design §6.1).

    It is of this task and this process; the epoch of a session is the storage's.
    """
    waits_for: set[Seq] = field(default_factory=set)
    """Its dependencies that are live."""
    dependents: dict[Seq, None] = field(default_factory=dict)
    """Live tasks that wait for it; a dictionary used as a set that keeps its order."""
    crashes: int = 0
    """How often it was lost in flight, counting the one before this open (TASKS-5)."""
    counted: bool = False
    """Whether its scratch holds such a count."""
    seeded: bool = False
    """Whether it was live when the session was opened, and that loss is not in its scratch yet."""


class Changes:
    """What a batch changed, in the order of its writes."""

    # Written out: one is made for every commit, and the factories of a dataclass cost more than
    # all that most batches change.
    __slots__ = ("changed", "created", "deleted", "freed", "marked", "settled")

    def __init__(self) -> None:
        self.created: list[Seq] = []
        self.changed: list[Seq] = []
        """Live before and after, with another status or state."""
        self.marked: list[Seq] = []
        self.settled: list[Task] = []
        """As they were before, but for what they settled to, which is not kept."""
        self.freed: list[Seq] = []
        """Live tasks that waited for one that settled."""
        self.deleted: list[Seq] = []
        """Conversations that were named for deletion."""


class LiveIndex:
    """The live tasks of a session; who waits for whom, and who owns what, kept from batches alone.

    Guarantees:
        After every batch it equals one that is built from storage. What is not named by a batch is
        not looked at, but for a deletion.

    Source: design §6.1.
    """

    def __init__(self, tasks: Iterable[Task] = ()) -> None:
        """Take the live tasks of a session, in any order."""
        self._tasks: dict[Seq, LiveTask] = {}
        self._conversations: dict[Seq, dict[Seq, None]] = {}
        self._foreground: dict[Seq, int] = {}
        self._kinds: dict[str, dict[Seq, None]] = {}
        self.foreground_total = 0
        """How many live tasks are not in the background."""
        found = list(tasks)
        for task in found:
            self._tasks[task.id] = LiveTask(task, seeded=True)
        for task in found:
            self._add_links(self._tasks[task.id])

    # --- Reads ---

    def __contains__(self, id: Seq) -> bool:
        return id in self._tasks

    def __len__(self) -> int:
        return len(self._tasks)

    def get(self, id: Seq) -> LiveTask | None:
        """Return a live task, or ``None`` if it is terminal or unknown."""
        return self._tasks.get(id)

    def __getitem__(self, id: Seq) -> LiveTask:
        return self._tasks[id]

    def ids(self) -> list[Seq]:
        """Return all live tasks, in the order in which they became known."""
        return list(self._tasks)

    def of_conversation(self, conversation: Seq) -> list[Seq]:
        """Return the live tasks of a conversation, in the order in which they became known."""
        return list(self._conversations.get(conversation, ()))

    def conversations(self) -> list[Seq]:
        """Return the conversations that have live tasks."""
        return list(self._conversations)

    def kinds(self) -> list[str]:
        """Return the names of the kinds that have live tasks."""
        return list(self._kinds)

    def of_kind(self, name: str) -> list[Seq]:
        """Return the live tasks of a kind."""
        return list(self._kinds.get(name, ()))

    def has_kind(self, name: str) -> bool:
        """Tell whether a kind has live tasks."""
        return name in self._kinds

    def foreground(self, conversation: Seq) -> int:
        """Return how many live foreground tasks a conversation has."""
        return self._foreground.get(conversation, 0)

    def foreground_ids(self, conversation: Seq) -> list[Seq]:
        """Return the live foreground tasks of a conversation."""
        return [
            id for id in self.of_conversation(conversation) if not self._tasks[id].task.background
        ]

    # --- Batches ---

    def apply(self, batch: Batch, first: Seq) -> Changes:
        """Take over what a committed batch did.

        Args:
            batch: As it was committed.
            first: The number of its first write.
        """
        changes = Changes()
        if not isinstance(batch, MainBatch):
            return changes
        for write in batch.writes:
            kind = type(write)
            if kind is Task:
                self._create(write, changes)  # type: ignore[arg-type]
            elif kind is PatchTask:
                self._patch(write, changes)  # type: ignore[arg-type]
            elif kind is SettleTask:
                self._settle(write, changes)  # type: ignore[arg-type]
            elif kind is Conversation:
                self._own(write)  # type: ignore[arg-type]
            elif kind is DeleteConversation:
                changes.deleted.append(write.id)  # type: ignore[union-attr]
                self._disown(write.id)  # type: ignore[union-attr]
        return changes

    def _create(self, task: Task, changes: Changes) -> None:
        live = self._tasks[task.id] = LiveTask(task)
        self._add_links(live)
        changes.created.append(task.id)

    def _add_links(self, live: LiveTask) -> None:
        task = live.task
        self._conversations.setdefault(task.conversation_id, {})[task.id] = None
        self._kinds.setdefault(task.kind, {})[task.id] = None
        if not task.background:
            self.foreground_total += 1
            known = self._foreground.get(task.conversation_id, 0)
            self._foreground[task.conversation_id] = known + 1
        for dependency in task.after:
            # One that is not live is terminal: it was there when the task was created.
            above = self._tasks.get(dependency)
            if above is not None:
                live.waits_for.add(dependency)
                above.dependents[task.id] = None

    def _patch(self, write: PatchTask, changes: Changes) -> None:
        live = self._tasks[write.id]
        task = live.task
        if write.status is not None:
            assert write.role is not None
            assert write.state is not None
            if write.status != task.status:
                live.epoch += 1
            abort = task.abort or write.abort
            live.task = msgspec.structs.replace(
                task, status=write.status, role=write.role, state=write.state, abort=abort
            )
            changes.changed.append(write.id)
        elif not task.abort:
            live.task = msgspec.structs.replace(task, abort=True)
        if write.abort and not task.abort:
            changes.marked.append(write.id)

    def _settle(self, write: SettleTask, changes: Changes) -> None:
        live = self._tasks.pop(write.id)
        task = live.task
        members = self._conversations[task.conversation_id]
        del members[task.id]
        if not members:
            del self._conversations[task.conversation_id]
        alike = self._kinds[task.kind]
        del alike[task.id]
        if not alike:
            del self._kinds[task.kind]
        if not task.background:
            self.foreground_total -= 1
            _count_down(self._foreground, task.conversation_id)
        for id in live.dependents:
            below = self._tasks.get(id)
            if below is not None:
                below.waits_for.discard(task.id)
                changes.freed.append(id)
        for id in live.waits_for:
            # An aborted task settles while it still waits.
            del self._tasks[id].dependents[task.id]
        changes.settled.append(task)

    def _own(self, conversation: Conversation) -> None:
        owner = self._tasks.get(conversation.owner) if conversation.owner is not None else None
        if owner is not None:
            owner.task = msgspec.structs.replace(
                owner.task, owns=(*owner.task.owns, conversation.id)
            )

    def _disown(self, conversation: Seq) -> None:
        """Take a conversation from the live task that owned it, if one did.

        Looks at every live task: deletions are rare, and nothing else asks who owns what.
        """
        for live in self._tasks.values():
            if conversation in live.task.owns:
                left = tuple(id for id in live.task.owns if id != conversation)
                live.task = msgspec.structs.replace(live.task, owns=left)
                return


def _count_down(counts: dict[K, int], key: K) -> None:
    if counts[key] == 1:
        del counts[key]
    else:
        counts[key] -= 1
