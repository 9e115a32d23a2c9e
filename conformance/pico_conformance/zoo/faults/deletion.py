"""Faults in deleting conversations: what goes, what stays, and what may be deleted."""

from __future__ import annotations

from collections.abc import Iterable

from pico_conformance.zoo.mutant import plant
from pico_conformance.zoo.wrapper import (
    AfterCommit,
    EntriesShown,
    Faulty,
    FaultyStore,
    Lenient,
    turned,
    walked,
)
from pico_memory.bodies import task_record
from pico_memory.state import SessionState
from pico_memory.storage import MemoryStorage
from pico_memory.view import MemoryView
from pico_store.address import Address, ConversationAddress, Seq
from pico_store.batch import Batch, DeleteConversation, MainWrite
from pico_store.errors import InvalidBatchError, UnknownConversationError
from pico_store.forks import inherited_through
from pico_store.query import EntryQuery
from pico_store.records import (
    At,
    BatchRange,
    Conversation,
    Entry,
    JsonValue,
    Page,
    Task,
    Version,
)
from pico_store.storage import Storage, VacuumReport

# --- What may be deleted ---


@plant("DEL-1")
class RootDeleted(Faulty):
    """A batch that deletes the root is accepted and does nothing."""

    def commit(self, batch: Batch, *, expected_first: Seq | None = None) -> BatchRange:
        try:
            return self.storage.commit(batch, expected_first=expected_first)
        except InvalidBatchError as error:
            if error.clause != "DEL-1" or "the root" not in error.problem:
                raise
            first = Seq(self.state.last_seq + 1)
            self.state.last_seq = Seq(self.state.last_seq + len(batch.writes))
            return BatchRange(first, self.state.last_seq)


class _NoLiveTasks(MemoryView):
    def live_tasks(self, conversation: Seq) -> list[Seq]:
        return []


@plant("DEL-1")
class LiveTasksDeleted(Lenient):
    """A conversation with live tasks may be deleted."""

    view = _NoLiveTasks


class _NothingOwned(MemoryView):
    def owned_conversations(self, conversation: Seq) -> list[Seq]:
        return []


@plant("DEL-1", "TASK-5")
class OwnedStay(Lenient):
    """Deleting a conversation leaves those that its tasks own."""

    view = _NothingOwned


class _OwnedOnce(MemoryView):
    def owned_conversations(self, conversation: Seq) -> list[Seq]:
        record = self.state.conversations.get(conversation)
        nested = record is not None and record.owner is not None
        return [] if nested else super().owned_conversations(conversation)


@plant("DEL-1", "TASK-5")
class OwnedByOwnedStay(Lenient):
    """Deleting a conversation takes what its tasks own, but not what the tasks of that own."""

    view = _OwnedOnce


class _DeletedKnown(MemoryView):
    def __init__(self, state: SessionState) -> None:
        super().__init__(state)
        self.conversation = self._known

    def _known(self, id: Seq) -> Conversation | None:
        return self.state.conversations.get(id) or self.state.deleted.get(id)


@plant("DEL-3", "FORK-1")
class DeletedTakesForks(Lenient):
    """A deleted conversation can be forked and written to."""

    view = _DeletedKnown


# --- What is gone and what stays ---


@plant("DEL-2", "FORK-2")
class InheritedEntriesGone(EntriesShown):
    """A fork loses the entries that it inherits from a deleted conversation."""

    def shown(self, conversation: Seq, items: list[Entry]) -> list[Entry]:
        live = self.storage.get_conversations(item.conversation_id for item in items)
        return [item for item in items if item.conversation_id in live]


@plant("DEL-2", "FORK-5")
class InheritedValuesGone(Faulty):
    """A fork loses the values that it inherits from a deleted conversation."""

    def get_value(self, address: Address, at: At | None = None) -> Version[JsonValue] | None:
        found = self.storage.get_value(address, at)
        if not isinstance(address, ConversationAddress) or not address.rewind:
            return found
        own = self.storage.rewind_policy(address, "value") is not None
        record = self.storage.get_conversations((address.conversation,))[address.conversation]
        orphan = record.parent is not None and self.parent(address.conversation) is None
        return None if orphan and not own else found


@plant("DEL-4", "DEL-2")
class DeletedEntriesStay(Faulty):
    """Every entry of a deleted conversation can still be read by its id."""

    def get_entries(self, ids: Iterable[Seq]) -> dict[Seq, Entry]:
        wanted = walked(ids)
        found = self.storage.get_entries(wanted)
        rows = self.state.entries
        return {
            id: found.get(id) or self.state.bodies.entry(rows[id]) for id in wanted if id in rows
        }


@plant("DEL-4")
class ReachNeverShrinks(Faulty):
    """A deleted conversation reaches as far as forks inherit that are deleted by now."""

    def get_entries(self, ids: Iterable[Seq]) -> dict[Seq, Entry]:
        wanted = walked(ids)
        found, state = self.storage.get_entries(wanted), self.state
        for id in dict.fromkeys(wanted):
            row = state.entries.get(id)
            if row is not None and id not in found:
                reach = inherited_through(
                    row[1], lambda source: state.forks.get(source, ()), lambda fork: True
                )
                if id <= reach:
                    found[id] = state.bodies.entry(row)
        return found


@plant("DEL-4")
class ReachOfDirectForks(Faulty):
    """A deleted conversation reaches only as far as live forks of its own inherit."""

    def get_entries(self, ids: Iterable[Seq]) -> dict[Seq, Entry]:
        found, state = self.storage.get_entries(ids), self.state
        for entry in list(found.values()):
            source = entry.conversation_id
            forks = [fork for fork in state.forks.get(source, ()) if fork.id in state.conversations]
            reach = max((fork.parent.at for fork in forks if fork.parent), default=0)
            if source in state.deleted and entry.id > reach:
                del found[entry.id]
        return found


@plant("DEL-2", "TASK-7")
class DeletedTasksStay(Faulty):
    """The tasks of a deleted conversation can still be read."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage)
        self._gone: dict[Seq, Task] = {}

    def commit(self, batch: Batch, *, expected_first: Seq | None = None) -> BatchRange:
        before = dict(self.state.tasks)
        done = self.storage.commit(batch, expected_first=expected_first)
        gone, bodies = [id for id in before if id not in self.state.tasks], self.state.bodies
        self._gone.update({id: task_record(bodies, id, before[id], ()) for id in gone})
        return done

    def get_tasks(self, ids: Iterable[Seq]) -> dict[Seq, Task]:
        wanted = walked(ids)
        found = {**self.storage.get_tasks(wanted), **self._gone}
        return {id: found[id] for id in wanted if id in found}


@plant("DEL-2", "PAGE-6")
class DeletedScanned(Faulty):
    """A deleted conversation's own entries can still be scanned."""

    def scan_entries(self, query: EntryQuery) -> Page[Entry]:
        try:
            return self.storage.scan_entries(query)
        except UnknownConversationError:
            transcript = self.state.transcripts.get(query.conversation_id)
            if transcript is None:
                raise
            rows = [self.state.bodies.entry(self.state.entries[id]) for id in transcript.ids]
            return turned(rows, query, self.storage.last_seq)


@plant("DEL-2")
class ForksGoAlong(Faulty):
    """The forks of a deleted conversation cannot be read any more."""

    def get_conversations(self, ids: Iterable[Seq]) -> dict[Seq, Conversation]:
        found = self.storage.get_conversations(ids)
        return {
            id: record
            for id, record in found.items()
            if record.parent is None or self.parent(id) is not None
        }


@plant("DEL-2", "FORK-7")
class ParentForgotten(Faulty):
    """A fork whose parent was deleted does not name it any more."""

    def get_conversations(self, ids: Iterable[Seq]) -> dict[Seq, Conversation]:
        found = self.storage.get_conversations(ids)
        return {
            id: record if self.parent(id) is not None else Conversation(id, None, record.owner)
            for id, record in found.items()
        }


@plant("PAGE-10", "DEL-2")
class KindsForgotten(Faulty):
    """An entry kind is forgotten with the last entry of it."""

    def entry_kinds(self) -> frozenset[str]:
        kinds = self.storage.entry_kinds()
        return kinds & {item.kind for item in self.storage.export() if isinstance(item, Entry)}


@plant("SEQ-9", "DEL-4")
class BoundariesGoAlong(AfterCommit):
    """The boundary of the batch that created a conversation goes when that is deleted."""

    def after(self, write: MainWrite, seq: Seq) -> None:
        if isinstance(write, DeleteConversation):
            batches = self.state.batches
            batches[:] = [batch for batch in batches if batch.first != write.id]


@plant("DEL-5", "DEL-2")
class VacuumTakesInherited(FaultyStore):
    """Vacuum drops what a deleted conversation held, inherited or not."""

    def vacuum(self) -> VacuumReport:
        report = self.store.vacuum()
        for info in self.store.sessions():
            reader = self.store.open(info.id, read_only=True)
            assert isinstance(reader, MemoryStorage)
            state = reader._resident.settled()
            for id in state.deleted:
                state.transcripts.pop(id, None)
            reader.close()
        return report


@plant("DEL-5", "SEQ-1")
class VacuumRenumbers(FaultyStore):
    """Vacuum takes back the numbers after the last record."""

    def vacuum(self) -> VacuumReport:
        report = self.store.vacuum()
        for info in self.store.sessions():
            reader = self.store.open(info.id, read_only=True)
            assert isinstance(reader, MemoryStorage)
            state = reader._resident.settled()
            state.last_seq = max(
                (*state.entries, *state.conversations, *state.tasks), default=Seq(0)
            )
            reader.close()
        return report
