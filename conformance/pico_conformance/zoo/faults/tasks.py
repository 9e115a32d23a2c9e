"""Faults in tasks: their filters, what a patch or settlement changes, and their scratch."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from msgspec.structs import replace

from pico_conformance.zoo.mutant import plant
from pico_conformance.zoo.wrapper import AfterCommit, Faulty, Lenient, Rewritten, every, turned
from pico_memory.state import SessionState
from pico_memory.view import MemoryView
from pico_store.address import Address, ScratchAddress, Seq
from pico_store.batch import Batch, MainWrite, PatchTask, SettleTask
from pico_store.errors import InvalidQueryError
from pico_store.query import ConversationQuery, ListQuery, TaskQuery
from pico_store.records import (
    At,
    BatchRange,
    Conversation,
    Element,
    JsonValue,
    Page,
    Task,
    Version,
)
from pico_store.storage import Storage
from pico_store.view import TaskFacts

# --- Finding tasks ---


@plant("PAGE-8", "TASK-2")
class RoleIndexStale(Faulty):
    """Tasks are found by the role that they were created with, until they are settled."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage)
        self._roles = {task.id: task.role for task in every(storage.scan_tasks, TaskQuery())}

    def commit(self, batch: Batch, *, expected_first: Seq | None = None) -> BatchRange:
        done = self.storage.commit(batch, expected_first=expected_first)
        for write in batch.writes:
            if isinstance(write, Task | SettleTask):
                self._roles[write.id] = write.role
        return done

    def scan_tasks(self, query: TaskQuery) -> Page[Task]:
        right = self.storage.scan_tasks(query)
        items = every(self.storage.scan_tasks, replace(query, role=None))
        if query.role is not None:
            items = [item for item in items if self._roles.get(item.id) == query.role]
        return turned(items, query, right.read_at)


@plant("TASK-6", "PAGE-8")
class LiveIndexStale(Faulty):
    """A task that was settled is still found as a live one until the session is reopened."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage)
        self._settled: set[Seq] = set()

    def commit(self, batch: Batch, *, expected_first: Seq | None = None) -> BatchRange:
        done = self.storage.commit(batch, expected_first=expected_first)
        self._settled |= {write.id for write in batch.writes if isinstance(write, SettleTask)}
        return done

    def scan_tasks(self, query: TaskQuery) -> Page[Task]:
        right = self.storage.scan_tasks(query)
        if query.live is not True:
            return right
        items = every(self.storage.scan_tasks, replace(query, live=None))
        shown = [item for item in items if item.role != "terminal" or item.id in self._settled]
        return turned(shown, query, right.read_at)


@plant("TASK-6", "PAGE-12")
class TerminalTasksRead(Faulty):
    """A scan for live tasks decodes the terminal ones, too."""

    def scan_tasks(self, query: TaskQuery) -> Page[Task]:
        right = self.storage.scan_tasks(query)
        every(self.storage.scan_tasks, replace(query, live=None))
        return right


@plant("PAGE-8")
class AbortFalseIsAny(Faulty):
    """The filter for tasks without an abort mark finds all tasks."""

    def scan_tasks(self, query: TaskQuery) -> Page[Task]:
        right = self.storage.scan_tasks(query)
        if query.abort is not False:
            return right
        return self.storage.scan_tasks(replace(query, abort=None))


@plant("PAGE-8")
class LiveFalseIsAny(Faulty):
    """The filter for terminal tasks finds all tasks."""

    def scan_tasks(self, query: TaskQuery) -> Page[Task]:
        right = self.storage.scan_tasks(query)
        return (
            right if query.live is not False else self.storage.scan_tasks(replace(query, live=None))
        )


@plant("PAGE-8")
class BackgroundFilterIgnored(Faulty):
    """The filter for background tasks finds all tasks."""

    def scan_tasks(self, query: TaskQuery) -> Page[Task]:
        self.storage.scan_tasks(query)
        return self.storage.scan_tasks(replace(query, background=None))


@plant("PAGE-8")
class TurnFilterIgnored(Faulty):
    """The filter for tasks of a turn finds all tasks."""

    def scan_tasks(self, query: TaskQuery) -> Page[Task]:
        self.storage.scan_tasks(query)
        return self.storage.scan_tasks(replace(query, turn=None))


@plant("PAGE-8")
class KindFilterOfLive(Faulty):
    """The filter for a kind of tasks is ignored where live ones are asked for."""

    def scan_tasks(self, query: TaskQuery) -> Page[Task]:
        right = self.storage.scan_tasks(query)
        return self.storage.scan_tasks(replace(query, kind=None)) if query.live else right


@plant("TASK-6", "PAGE-1")
class TasksByConversation(Faulty):
    """Tasks of several conversations come conversation by conversation, not by id."""

    def scan_tasks(self, query: TaskQuery) -> Page[Task]:
        page = self.storage.scan_tasks(query)
        if query.conversation_ids is None:
            return page
        return replace(page, items=sorted(page.items, key=lambda task: task.conversation_id))


# --- What is written ---


@plant("TASK-2")
class StatusNotPatched(AfterCommit):
    """A patch replaces a task's state, but not the status that is kept beside it."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage)
        self._status: dict[Seq, str] = {}

    def after(self, write: MainWrite, seq: Seq) -> None:
        if isinstance(write, Task):
            self._status[write.id] = write.status
        row = self.state.tasks.get(write.id) if isinstance(write, PatchTask) else None
        if row is not None and isinstance(write, PatchTask) and row[3] != "terminal":
            status = self._status.setdefault(write.id, row[2])
            self.state.tasks[write.id] = (*row[:2], status, *row[3:])


@plant("TASK-2")
class PatchMerges(Rewritten):
    """A patch keeps the members of the old state that the new one lacks."""

    def write(self, write: MainWrite) -> MainWrite:
        if not isinstance(write, PatchTask) or type(write.state) is not dict:
            return write
        id = write.id if type(write.id) is int else Seq(0)
        old = self.storage.get_tasks((id,)).get(id)
        return write if old is None else replace(write, state={**old.state, **write.state})


@plant("TASK-3")
class AbortClearedByPatch(AfterCommit):
    """A patch of the state without an abort mark clears the mark."""

    def after(self, write: MainWrite, seq: Seq) -> None:
        row = self.state.tasks.get(write.id) if isinstance(write, PatchTask) else None
        if row is not None and isinstance(write, PatchTask) and not write.abort:
            self.state.tasks[write.id] = (*row[:7], False, row[8])


@plant("TASK-3", "TASK-7")
class AbortClearedBySettlement(AfterCommit):
    """A settled task has no abort mark any more."""

    def after(self, write: MainWrite, seq: Seq) -> None:
        row = self.state.tasks.get(write.id) if isinstance(write, SettleTask) else None
        if row is not None and isinstance(write, SettleTask):
            self.state.tasks[write.id] = (*row[:7], False, row[8])


@plant("TASK-1", "TASK-7")
class AfterSorted(Rewritten):
    """The tasks that a task waits for are kept in the order of their ids."""

    def write(self, write: MainWrite) -> MainWrite:
        plain = isinstance(write, Task) and type(write.after) is tuple
        if not plain or any(type(id) is not int for id in write.after):  # type: ignore[union-attr]
            return write
        return replace(write, after=tuple(sorted(write.after)))  # type: ignore[union-attr]


@plant("TASK-7", "PAGE-6")
class TerminalTasksGone(Faulty):
    """A task cannot be read any more once it is settled."""

    def get_tasks(self, ids: Iterable[Seq]) -> dict[Seq, Task]:
        found = self.storage.get_tasks(ids)
        return {id: task for id, task in found.items() if task.role != "terminal"}


class _AllLive(MemoryView):
    def __init__(self, state: SessionState) -> None:
        super().__init__(state)
        self.task = self._live

    def _live(self, id: Seq) -> TaskFacts | None:
        facts = self.state.facts.get(id)
        return None if facts is None else TaskFacts(facts.conversation, live=True)


@plant("TASK-2", "TASK-4")
class TerminalTaskWritten(Lenient):
    """A settled task takes patches, settlements and scratch."""

    view = _AllLive


# --- Scratch ---


@plant("TASK-4")
class ScratchOutlivesTask(Faulty):
    """The scratch of a task stays when the task is settled."""

    def commit(self, batch: Batch, *, expected_first: Seq | None = None) -> BatchRange:
        scratch = dict(self.state.scratch)
        done = self.storage.commit(batch, expected_first=expected_first)
        for write in batch.writes:
            if isinstance(write, SettleTask) and write.id in scratch:
                self.state.scratch[write.id] = scratch[write.id]
        return done


@plant("TASK-4", "VAL-1")
class ScratchShared(Faulty):
    """Tasks of one session read one another's scratch values."""

    def get_value(self, address: Address, at: At | None = None) -> Version[JsonValue] | None:
        found = self.storage.get_value(address, at)
        if found is None and isinstance(address, ScratchAddress):
            for task in every(self.storage.scan_tasks, TaskQuery(live=True)):
                found = found or self.storage.get_value(replace(address, task=task.id))
        return found


@plant("TASK-4", "PAGE-6")
class ScratchOfNoTaskRefused(Faulty):
    """Reading the scratch of a task that is not live is refused."""

    def read_list(self, address: Address, query: ListQuery) -> Page[Element[JsonValue]]:
        page = self.storage.read_list(address, query)
        if isinstance(address, ScratchAddress) and address.task not in self.state.live:
            raise InvalidQueryError("TASK-4", "address.task", f"{address.task} is not live")
        return page


@plant("TASK-4", "VAL-5")
class ScratchListTrimmed(Faulty):
    """A scratch list keeps its newest thousand elements."""

    def read_list(self, address: Address, query: ListQuery) -> Page[Element[JsonValue]]:
        page = self.storage.read_list(address, query)
        if not isinstance(address, ScratchAddress):
            return page
        items = every(partial(self.storage.read_list, address), query)
        return turned(items[-1_000:], query, page.read_at)


# --- Owned conversations ---


@plant("TASK-5")
class OwnsNotDerived(Faulty):
    """A task names no conversation that it owns."""

    def get_tasks(self, ids: Iterable[Seq]) -> dict[Seq, Task]:
        found = self.storage.get_tasks(ids)
        return {id: replace(task, owns=()) for id, task in found.items()}


@plant("TASK-5", "DEL-2")
class OwnsDeleted(Faulty):
    """A task still names a conversation that was deleted."""

    def get_tasks(self, ids: Iterable[Seq]) -> dict[Seq, Task]:
        found = self.storage.get_tasks(ids)
        for record in self.state.deleted.values():
            task = None if record.owner is None else found.get(record.owner)
            if task is not None:
                found[task.id] = replace(task, owns=tuple(sorted({*task.owns, record.id})))
        return found


@plant("TASK-5")
class OwnsNewestFirst(Faulty):
    """A task names the conversations that it owns newest first."""

    def get_tasks(self, ids: Iterable[Seq]) -> dict[Seq, Task]:
        found = self.storage.get_tasks(ids)
        return {id: replace(task, owns=task.owns[::-1]) for id, task in found.items()}


@plant("PAGE-9")
class FiltersEitherOr(Faulty):
    """Of the filters for parent and owner only the owner's applies."""

    def scan_conversations(self, query: ConversationQuery) -> Page[Conversation]:
        right = self.storage.scan_conversations(query)
        if query.owner is None or query.parent is None:
            return right
        return self.storage.scan_conversations(replace(query, parent=None))


@plant("PAGE-9")
class ParentFilterReachesDown(Faulty):
    """The filter for a parent finds forks of its forks, too."""

    def scan_conversations(self, query: ConversationQuery) -> Page[Conversation]:
        right = self.storage.scan_conversations(query)
        if query.parent is None:
            return right
        items, sources = [], {query.parent}
        for record in every(self.storage.scan_conversations, replace(query, parent=None)):
            if record.parent is not None and record.parent.conversation_id in sources:
                items.append(record)
                sources.add(record.id)
        return turned(items, query, right.read_at)


@plant("PAGE-9", "TASK-5")
class OwnerConversationIsParent(Faulty):
    """The filter for an owner's conversation finds its forks instead."""

    def scan_conversations(self, query: ConversationQuery) -> Page[Conversation]:
        right = self.storage.scan_conversations(query)
        owner = query.owner_conversation
        if owner is None or query.parent is not None:
            return right
        return self.storage.scan_conversations(
            replace(query, owner_conversation=None, parent=owner)
        )
