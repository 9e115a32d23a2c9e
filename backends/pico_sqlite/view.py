"""Committed state as the shared checks see it, answered from memory where it can be."""

from __future__ import annotations

from pico_sqlite.memo import Memo
from pico_sqlite.readers import Readers
from pico_sqlite.record_reads import RecordReads
from pico_sqlite.rows import ROLES
from pico_sqlite.scratch_rows import stored_key
from pico_sqlite.state_reads import StateReads
from pico_store.address import Address, ConversationAddress, Seq, Shape
from pico_store.query import ConversationQuery, TaskQuery
from pico_store.query_check import Window, check_window
from pico_store.records import Conversation
from pico_store.view import TaskFacts


class View:
    """A `CommittedView` of one session for the handle that owns it."""

    def __init__(
        self,
        memo: Memo,
        readers: Readers,
        records: RecordReads,
        state: StateReads,
        last_seq: Seq,
    ) -> None:
        self._memo = memo
        self._readers = readers
        self._records = records
        self._state = state
        self.last_seq = last_seq
        """The handle moves it on after each commit."""

    def conversation(self, id: Seq) -> Conversation | None:
        known = self._memo.conversations.get(id)
        if known is None:
            with self._readers.snapshot() as snapshot:
                known = self._records.get_conversations(snapshot, (id,)).get(id)
            if known is not None:
                self._memo.conversations.keep(id, known)
        return known

    def task(self, id: Seq) -> TaskFacts | None:
        live = self._memo.live_tasks.get(id)
        if live is not None:
            return live
        with self._readers.snapshot() as snapshot:
            row = self._records.task_row(snapshot, id)
            stream = None if row is None else self._records.stream(snapshot, row[0])
        if row is None:
            return None
        known = self._records.live_task(row, stream)
        if row[4] == ROLES["terminal"]:
            return TaskFacts(known.conversation, live=False)
        self._memo.live_tasks[id] = known
        return known

    def entry_visible(self, conversation: Seq, entry: Seq) -> bool:
        with self._readers.snapshot() as snapshot:
            reader = self._records.live(snapshot, conversation, "")
            return self._records.entry_visible(snapshot, reader, entry)

    def head_boundary(self, conversation: Seq, at: Seq) -> Seq | None:
        with self._readers.snapshot() as snapshot:
            entry = self._records.newest_head(snapshot, conversation, at)
        return None if entry is None else entry.head

    def element_visible(self, address: Address, element: Seq, at: Seq | None) -> bool:
        with self._readers.snapshot() as snapshot:
            return self._state.element_visible(snapshot, address, element, at)

    def rewind_policy(self, address: ConversationAddress, shape: Shape) -> bool | None:
        if shape == "list":
            scope = self._memo.numbers.key(address.conversation)
            name = (scope, address.namespace, stored_key(address.key))
            known = self._memo.lists.get(name)
            if known is not None:
                return known.rewind
        else:
            policy = (address.conversation, address.namespace, address.key)
            fixed = self._memo.policies.get(policy)
            if fixed is not None:
                return fixed
            sticky, rewindable = self._namespace(address.conversation, address.namespace)
            if not (sticky if address.rewind else rewindable):
                # Written or not, no value here has another policy than the one that is asked
                # for, which is all that the checks want to know.
                return None
        with self._readers.snapshot() as snapshot:
            return self._state.rewind_policy(snapshot, address, shape)

    def _namespace(self, conversation: Seq, namespace: str) -> tuple[bool, bool]:
        """Tell whether a conversation has sticky, and rewindable, values in a namespace."""
        known = self._memo.namespaces.get((conversation, namespace))
        if known is None:
            with self._readers.snapshot() as snapshot:
                known = self._state.has_values(snapshot, conversation, namespace)
            self._memo.namespaces.keep((conversation, namespace), known)
        return known

    def owned_conversations(self, conversation: Seq) -> list[Seq]:
        found: list[Seq] = []
        after: Seq | None = None
        with self._readers.snapshot() as snapshot:
            while True:
                query = ConversationQuery(owner_conversation=conversation, after=after)
                page = self._records.scan_conversations(snapshot, query, check_window(query))
                found += [record.id for record in page.items]
                if page.next is None:
                    return found
                after = page.next

    def live_tasks(self, conversation: Seq) -> list[Seq]:
        query = TaskQuery(conversation_ids=(conversation,), live=True)
        everything = Window(1, 2**53, newest_first=False, limit=2**31)
        with self._readers.snapshot() as snapshot:
            page = self._records.scan_tasks(snapshot, query, everything)
        return [task.id for task in page.items]
