"""Committed state as the shared checks see it, answered from memory where it can be."""

from __future__ import annotations

from collections.abc import Callable

from pico_lmdb.memo import Memo
from pico_lmdb.record_reads import RecordReads
from pico_lmdb.snapshot import Snapshot
from pico_lmdb.state_reads import StateReads
from pico_lmdb.task_reads import TaskReads, known_task
from pico_store.address import Address, ConversationAddress, Seq, Shape
from pico_store.limits import SEQ_MAX
from pico_store.query import ConversationQuery
from pico_store.query_check import Window
from pico_store.records import Conversation
from pico_store.view import TaskFacts


class View:
    """A `CommittedView` of one session for the handle that owns it."""

    def __init__(
        self,
        memo: Memo,
        snapshot: Callable[[], Snapshot],
        records: RecordReads,
        tasks: TaskReads,
        state: StateReads,
        holds: Callable[[bytes], bool],
        last_seq: Seq,
    ) -> None:
        self._memo = memo
        self._snapshot = snapshot
        self._records = records
        self._tasks = tasks
        self._state = state
        self._holds = holds
        self.last_seq = last_seq
        """The handle moves it on after each commit."""

    def conversation(self, id: Seq) -> Conversation | None:
        known = self._memo.conversations.get(id)
        if known is None:
            with self._snapshot() as snapshot:
                known = self._records.get_conversations(snapshot, (id,)).get(id)
            if known is not None:
                self._memo.conversations.keep(id, known)
        return known

    def task(self, id: Seq) -> TaskFacts | None:
        facts = self._memo.live_facts.get(id)
        if facts is not None:
            return facts
        with self._snapshot() as snapshot:
            row = self._tasks.row(snapshot, id)
        if row is None:
            return None
        if row.role == 2:
            return TaskFacts(row.conversation, live=False)
        self._memo.keep_task(id, known_task(row))
        return self._memo.live_facts[id]

    def entry_visible(self, conversation: Seq, entry: Seq) -> bool:
        with self._snapshot() as snapshot:
            reader = self._records.live(snapshot, conversation, "")
            return self._records.entry_visible(snapshot, reader, entry)

    def head_boundary(self, conversation: Seq, at: Seq) -> Seq | None:
        with self._snapshot() as snapshot:
            entry = self._records.newest_head(snapshot, conversation, at)
        return None if entry is None else entry.head

    def element_visible(self, address: Address, element: Seq, at: Seq | None) -> bool:
        with self._snapshot() as snapshot:
            return self._state.element_visible(snapshot, address, element, at)

    def rewind_policy(self, address: ConversationAddress, shape: Shape) -> bool | None:
        name = (address.conversation, address.namespace, address.key)
        if shape == "list":
            known = self._memo.lists.get(name)
            if known is not None:
                return known.rewind
        else:
            number = self._memo.policies.get(name)
            if number is not None:
                return number > 0
        # Mostly an address is asked for here because it is new.
        if not self._holds(self._state.address_key(address, shape)):
            return None
        with self._snapshot() as snapshot:
            return self._state.rewind_policy(snapshot, address, shape)

    def owned_conversations(self, conversation: Seq) -> list[Seq]:
        query = ConversationQuery(owner_conversation=conversation)
        everything = Window(1, SEQ_MAX, newest_first=False, limit=2**31)
        with self._snapshot() as snapshot:
            page = self._records.scan_conversations(snapshot, query, everything)
        return [record.id for record in page.items]

    def live_tasks(self, conversation: Seq) -> list[Seq]:
        with self._snapshot() as snapshot:
            return self._tasks.live_ids(snapshot, conversation)
