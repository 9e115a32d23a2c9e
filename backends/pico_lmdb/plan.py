"""A checked batch as changes: what each write puts into, changes in or takes from the trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from zlib import crc32

from msgspec import Raw

from pico_lmdb.changes import Changes
from pico_lmdb.layout import (
    ADDRESSES,
    BATCHES,
    ELEMENT,
    HEADS,
    KEYS,
    KIND,
    LISTS,
    LIVE,
    MAIN,
    RECORDS,
    SCRATCH,
    TASKS,
    TRANSCRIPTS,
    VERSIONS,
    element,
    elements,
    keyed,
    list_row,
    marker,
    of_session,
    pair,
    task_row,
    triple,
)
from pico_lmdb.memo import ListName, LiveTask, Memo
from pico_lmdb.names import address as address_name
from pico_lmdb.names import entry_key, fit, rest
from pico_lmdb.plan_conversation import ConversationPlan
from pico_lmdb.rows import (
    ABORT,
    BACKGROUND,
    ROLES,
    TURN,
    AddressRow,
    KindRow,
    ListRow,
    TaskRow,
    VersionedRow,
    decode_address,
    decode_task,
    four,
    pack,
    packed_kind,
    seal,
)
from pico_lmdb.snapshot import Snapshot
from pico_lmdb.state_reads import StateReads
from pico_lmdb.task_reads import TaskReads, known_task
from pico_store.address import Address, ConversationAddress, ScratchAddress, Seq, Shape
from pico_store.batch import (
    DeleteConversation,
    ListAppend,
    ListClear,
    ListRemove,
    PatchTask,
    SettleTask,
    ValueDelete,
    ValueSet,
)
from pico_store.check import CheckedBatch
from pico_store.records import Conversation, Entry, Task

BOUNDARIES_A_ROW: Final = 32


class Plan:
    """Works out the changes of the main batches of one session.

    What it finds out it also notes in the memo, as if the batch were committed: after a commit
    that failed the memo is made anew.
    """

    def __init__(
        self,
        memo: Memo,
        epoch: bytes,
        snapshot: Callable[[], Snapshot],
        tasks: TaskReads,
        state: StateReads,
    ) -> None:
        self._memo = memo
        self._session = memo.session
        self._snapshot = snapshot
        self._tasks = tasks
        self._state = state
        self.changes = Changes(memo.epoch_key, epoch)
        """Those of the batch; what it holds is gone when the next one begins."""
        self._conversations = ConversationPlan(memo, snapshot, self.changes)

    def begin(self) -> Changes:
        """Begin with no changes."""
        self.changes.empty()
        return self.changes

    def main(self, checked: CheckedBatch) -> Changes:
        """Return the changes of a main batch."""
        changes = self.begin()
        first = seq = checked.first
        for write, body in zip(checked.writes, checked.bodies, strict=True):
            if type(write) is DeleteConversation:
                self._conversations.delete(checked.deletions[seq - first])
            else:
                _WRITERS[type(write)](self, write, seq, body)
            seq += 1  # type: ignore[assignment]
        self.put_boundary(first, len(checked.writes))
        return changes

    def put_boundary(self, first: Seq, writes: int) -> None:
        """Note where a main batch begins and how long it is."""
        memo = self._memo
        if len(memo.tail) >= 2 * BOUNDARIES_A_ROW:
            key = pair(self._session, memo.tail_first)
            self.changes.others[BATCHES, key] = seal(BATCHES, key, pack(memo.tail))
            memo.tail = []
        if not memo.tail:
            memo.tail_first = first
            memo.tail += (0, writes)
        else:
            memo.tail += (first - memo.last_main - 1, writes)
        memo.last_main = first + writes - 1
        row = pack((memo.last_main, memo.tail_first, memo.tail))
        key = memo.tail_key
        self.changes.main[key] = row + four(crc32(row, crc32(key, MAIN)))

    def kind(self, name: str, *, entries: bool) -> int:
        """Return the number of a kind, noting whether entries use it."""
        known = self._memo.kinds.get(name)
        if known is not None and known[1] >= entries:
            return known[0]
        number = len(self._memo.kinds) if known is None else known[0]
        key = of_session(KIND, self._session) + number.to_bytes(4, "big")
        self.changes.main[key] = seal(MAIN, key, pack(KindRow(name, entries)))
        self._memo.kinds[name] = number, entries
        self._memo.kind_names[number] = name
        return number

    # --- Entries and tasks ---

    def _conversation(self, write: Conversation, seq: Seq, body: None) -> None:
        source = None
        if write.owner is not None:
            source = self._task(write.owner).conversation
        self._conversations.put(write, None, source)
        self._memo.conversations.keep(write.id, write)

    def put_conversation(self, record: Conversation, through: Seq | None) -> None:
        """Put a conversation, whose owner may not be known yet."""
        self._conversations.put(record, through, None)

    def put_entry(self, write: Entry, seq: Seq, body: bytes) -> None:
        """Put an entry."""
        session, conversation, changes = self._session, write.conversation_id, self.changes
        found = self._memo.kinds.get(write.kind)
        if found is not None and found[1]:
            kind = found[0]
        else:
            kind = self.kind(write.kind, entries=True)
        key = pair(session, seq)
        row = pack((0, conversation, kind, write.key, write.by_task_id, write.head, Raw(body)))
        changes.records[key] = row + four(crc32(row, crc32(key, RECORDS)))
        place = triple(session, conversation, seq)
        changes.others[TRANSCRIPTS, place] = packed_kind(kind)
        if write.key is not None:
            digest = entry_key(write.kind, write.key)
            changes.others[KEYS, keyed(session, conversation, digest, seq)] = b""
        if write.head is not None:
            changes.others[HEADS, place] = b""

    def put_task(self, write: Task, seq: Seq, body: bytes) -> None:
        """Put a task, live or terminal."""
        memo, conversation = self._memo, write.conversation_id
        flags = BACKGROUND * write.background | TURN * write.turn | ABORT * write.abort
        found = memo.kinds.get(write.kind)
        kind = self.kind(write.kind, entries=False) if found is None else found[0]
        known = LiveTask(conversation, kind, flags, tuple(write.after))
        if write.role == "terminal":
            self._put_terminal(seq, known, write.status, body)
            return
        memo.keep_task(seq, known)
        memo.bare.add(seq)
        self._put_live(seq, known, write.status, ROLES[write.role], body)

    def _put_live(self, id: Seq, known: LiveTask, status: str, role: int, body: bytes) -> None:
        key = task_row(LIVE, self._session, id)
        conversation, kind, flags, after = known
        row = pack((1, conversation, kind, status, role, flags, after, Raw(body)))
        self.changes.main[key] = row + four(crc32(row, crc32(key, MAIN)))

    def _put_terminal(self, id: Seq, known: LiveTask, status: str, body: bytes) -> None:
        key = pair(self._session, id)
        conversation, kind, flags, after = known
        row = pack((1, conversation, kind, status, 2, flags, after, Raw(body)))
        self.changes.records[key] = row + four(crc32(row, crc32(key, RECORDS)))
        self.changes.others[TASKS, triple(self._session, conversation, id)] = b""

    def _patch(self, write: PatchTask, seq: Seq, body: bytes | None) -> None:
        known = self._task(write.id)
        if write.abort:
            known = known._replace(flags=known.flags | ABORT)
            self._memo.keep_task(write.id, known)
        if body is not None:
            assert write.status is not None
            assert write.role is not None
            self._put_live(write.id, known, write.status, ROLES[write.role], body)
            return
        row = self._stored_task(write.id)
        self._put_live(write.id, known, row.status, row.role, bytes(row.body))

    def _settle(self, write: SettleTask, seq: Seq, body: bytes) -> None:
        known, id, memo = self._task(write.id), write.id, self._memo
        session, changes = self._session, self.changes
        if id not in memo.bare:
            changes.prefixes.append((MAIN, task_row(SCRATCH, session, id)))
        memo.drop_task(id)
        changes.main[task_row(LIVE, session, id)] = None
        self._put_terminal(id, known, write.status, body)

    def _task(self, id: Seq) -> LiveTask:
        known = self._memo.live_tasks.get(id)
        if known is None:
            settled = self.changes.records.get(pair(self._session, id))
            if settled is not None:
                return known_task(decode_task(settled[:-4]))
            with self._snapshot() as snapshot:
                row = self._tasks.row(snapshot, id)
            assert row is not None, f"task {id} is gone, which the checks found"
            known = known_task(row)
        return known

    def _stored_task(self, id: Seq) -> TaskRow:
        pending = self.changes.main.get(task_row(LIVE, self._session, id))
        if pending is not None:
            return decode_task(pending[:-4])
        with self._snapshot() as snapshot:
            row = self._tasks.live_row(snapshot, id)
        assert row is not None, f"task {id} is gone, which the checks found"
        return row

    # --- Values and lists ---

    def _set(self, write: ValueSet, seq: Seq, body: bytes) -> None:
        self.put_value(write.address, seq, body)

    def _delete(self, write: ValueDelete, seq: Seq, body: None) -> None:
        self.put_value(write.address, seq, None)

    def put_value(self, address: Address, seq: Seq, body: bytes | None) -> None:
        """Give an address a version; without a body, make it absent.

        In a conversation something stays of an absent one: a tombstone for the history, or a row
        for the policy.
        """
        others = self.changes.others
        full = self._full(address, "value")
        key = fit(full)
        behind = None if key is full else rest(full)
        if type(address) is ConversationAddress:
            if address.rewind:
                self._put_version(address, full, key, seq, body)
                return
            self._memo.policies.keep((address.conversation, address.namespace, address.key), 0)
            row = pack((1, behind, seq) if body is None else (0, behind, seq, Raw(body)))
            others[ADDRESSES, key] = row + four(crc32(row, crc32(key, ADDRESSES)))
        elif type(address) is ScratchAddress:
            row = b"" if body is None else pack((0, behind, seq, Raw(body)))
            self.changes.main[key] = seal(MAIN, key, row) if row else None
        elif body is None:
            others[ADDRESSES, key] = None
        else:
            row = pack((0, behind, seq, Raw(body)))
            others[ADDRESSES, key] = row + four(crc32(row, crc32(key, ADDRESSES)))

    def _put_version(
        self, address: ConversationAddress, full: bytes, key: bytes, seq: Seq, body: bytes | None
    ) -> None:
        name = (address.conversation, address.namespace, address.key)
        number = self._memo.policies.get(name)
        if number is None:
            row = self._stored_address(full, key)
            if isinstance(row, VersionedRow):
                number = row.number
            else:
                number = seq
                packed = pack(VersionedRow(rest(full), number))
                self.changes.others[ADDRESSES, key] = seal(ADDRESSES, key, packed)
            self._memo.policies.keep(name, number)
        place = triple(self._session, number, seq)
        self.changes.others[VERSIONS, place] = seal(VERSIONS, place, body or b"")

    def _stored_address(self, full: bytes, key: bytes) -> AddressRow | None:
        pending = self.changes.others.get((ADDRESSES, key))
        if pending is not None:
            return decode_address(pending[:-4])
        with self._snapshot() as snapshot:
            return self._state.address_row(snapshot, ADDRESSES, full[:12], full[12:])[1]

    def list_name(self, address: Address, seq: int) -> ListName:
        """Return what a list is called, which is named after its first write."""
        scope = address.conversation if type(address) is ConversationAddress else 0
        name = (scope, address.namespace, address.key)
        known = self._memo.lists.get(name)
        if known is None:
            full = self._full(address, "list")
            key = fit(full)
            row = self._stored_address(full, key)
            if isinstance(row, ListRow):
                known = ListName(row.number, row.rewind)
            else:
                known = ListName(seq, type(address) is ConversationAddress and address.rewind)
                packed = pack(ListRow(rest(full), known.number, known.rewind))
                self.changes.others[ADDRESSES, key] = seal(ADDRESSES, key, packed)
            self._memo.lists.keep(name, known)
        return known

    def _full(self, address: Address, shape: Shape) -> bytes:
        name = address_name(shape, address.namespace, address.key)
        if type(address) is ConversationAddress:
            return pair(self._session, address.conversation) + name
        return self._state.place(address)[1] + name

    def _append(self, write: ListAppend, seq: Seq, body: bytes) -> None:
        number = self.list_name(write.address, seq)[0]
        key = list_row(self._session, number, ELEMENT, seq)
        self.changes.others[LISTS, key] = body + four(crc32(body, crc32(key, LISTS)))

    def put_element(self, number: int, seq: Seq, body: bytes) -> None:
        """Put a list element."""
        key = element(self._session, number, seq)
        self.changes.others[LISTS, key] = seal(LISTS, key, body)

    def put_marker(self, number: int, hidden: int, seq: Seq) -> None:
        """Put a removal or, with ``hidden`` 0, a clear."""
        key = marker(self._session, number, hidden, seq)
        self.changes.others[LISTS, key] = seal(LISTS, key, b"")

    def _remove(self, write: ListRemove, seq: Seq, body: None) -> None:
        name = self.list_name(write.address, seq)
        if name.rewind:
            self.put_marker(name.number, write.element, seq)
        else:
            key = element(self._session, name.number, write.element)
            if self.changes.others.pop((LISTS, key), None) is None:
                self.changes.others[LISTS, key] = None

    def _clear(self, write: ListClear, seq: Seq, body: None) -> None:
        name = self.list_name(write.address, seq)
        if name.rewind:
            self.put_marker(name.number, 0, seq)
        else:
            self.changes.clear(LISTS, elements(self._session, name.number))


_WRITERS: Final[dict[type, Callable[[Plan, Any, Seq, Any], None]]] = {
    ValueSet: Plan._set,
    ValueDelete: Plan._delete,
    ListAppend: Plan._append,
    ListRemove: Plan._remove,
    ListClear: Plan._clear,
    Conversation: Plan._conversation,
    Entry: Plan.put_entry,
    Task: Plan.put_task,
    PatchTask: Plan._patch,
    SettleTask: Plan._settle,
}
