"""A checked batch as rows: what each write puts into, changes in or takes from the tables.

Everything here runs inside a transaction that the writer has begun.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import apsw
import msgspec

from pico_sqlite.checksum import checksum
from pico_sqlite.connection import Row
from pico_sqlite.memo import ABORT, BACKGROUND, OWNER, SHOWN, TURN, ListName, LiveTask, Memo
from pico_sqlite.numbers import EXTENT_BITS
from pico_sqlite.scratch_rows import ScratchRows, lost, stored_key
from pico_store.address import Address, ConversationAddress, ScratchAddress, Seq
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
from pico_store.forks import inherited_through
from pico_store.records import Conversation, Entry, ForkPoint, Task

ROLES: Final = {"start": 0, "inflight": 1, "terminal": 2}
_pack = msgspec.msgpack.Encoder().encode

_BOUNDARY = "INSERT INTO records(id, writes) VALUES(?, ?)"
_ENTRY = (
    "INSERT INTO records(id, writes, role, conversation, kind, checksum, key, by_task, head, body) "
    "VALUES(?, ?, 3, ?, ?, ?, ?, ?, ?, ?)"
)
_TASK = (
    "INSERT INTO records(id, writes, role, conversation, kind, checksum, session, live, status, "
    "flags, after, body) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_SETTLE = (
    "UPDATE records SET status = ?, role = 2, live = NULL, checksum = ?, body = ? WHERE id = ?"
)
_CONVERSATION = (
    "INSERT INTO conversations VALUES(?, ?, ?, ?, ?, "
    "(SELECT conversation FROM records WHERE id = ?), ?, ?)"
)
_PATCH = "UPDATE records SET status = ?, role = ?, flags = ?, checksum = ?, body = ? WHERE id = ?"
_CURRENT = "INSERT OR REPLACE INTO current_values VALUES(?, ?, ?, ?, ?, ?)"
_FORGET = "DELETE FROM current_values WHERE scope = ? AND namespace = ? AND key = ?"
_VERSION = "INSERT INTO value_versions VALUES(?, ?, ?, ?, ?, ?)"
_ELEMENT = "INSERT INTO list_elements VALUES(?, ?, ?, ?)"
_MARKER = "INSERT INTO list_markers VALUES(?, ?, ?)"


class Rows:
    """Writes the batches of one session."""

    def __init__(self, db: apsw.Connection, memo: Memo, epoch: int) -> None:
        self.db = db
        self._run = db.cursor().execute
        self._memo = memo
        self._epoch = epoch
        # The size of a batch whose first row has not been written yet.
        self._writes: int | None = None
        self.scratch = ScratchRows(db, memo, self.put_value)

    def write(self, checked: CheckedBatch) -> None:
        """Write a batch.

        Raises:
            OwnershipLostError: Another open took the session over; nothing was written.
        """
        # First of all: another owner may have added the same rows.
        sql = "SELECT 1 FROM sessions WHERE session = ? AND epoch = ?"
        if not self._run(sql, (self._memo.session, self._epoch)).fetchall():
            raise lost(self._epoch)
        seq = checked.first
        numbers = self._memo.numbers
        for high in range(seq >> EXTENT_BITS, (checked.last >> EXTENT_BITS) + 1):
            if high not in numbers.keys:
                self.add_extent(high)
        if checked.task is not None:
            self.scratch.write(checked)
            return
        self._writes = len(checked.writes)
        if type(checked.writes[0]) not in (Entry, Task):
            self._run(_BOUNDARY, (numbers.key(seq), self._writes))
            self._writes = None
        for write, body in zip(checked.writes, checked.bodies, strict=True):
            if type(write) is DeleteConversation:
                self._delete_conversations(checked.deletions[seq - checked.first])
            else:
                _WRITERS[type(write)](self, write, seq, body)
            seq += 1  # type: ignore[assignment]

    def add_extent(self, high: int) -> None:
        """Give the session another extent."""
        base = self._one("SELECT coalesce(max(base), -1) + 1 FROM extents")[0]
        self._run("INSERT INTO extents VALUES(?, ?, ?)", (base, self._memo.session, high))
        self._memo.numbers.add(high, base)

    def kind(self, name: str, *, entries: bool) -> int:
        """Return the number of a kind, noting whether entries use it."""
        known = self._memo.kinds.get(name)
        if known is not None and known[1] >= entries:
            return known[0]
        if known is None:
            sql = "INSERT INTO kinds(session, name, entries) VALUES(?, ?, ?)"
            self._run(sql, (self._memo.session, name, entries))
            kind = self.db.last_insert_rowid()
        else:
            kind = known[0]
            self._run("UPDATE kinds SET entries = 1 WHERE kind = ?", (kind,))
        self._memo.kinds[name] = kind, entries
        self._memo.kind_names[kind] = name
        return kind

    def list_name(self, address: Address) -> ListName:
        """Return the row of a list, making it at the list's first write."""
        scope = self.scope(address)
        key = stored_key(address.key)
        known = self._memo.lists.get((scope, address.namespace, key))
        if known is None:
            sql = "SELECT list, rewind FROM lists WHERE scope = ? AND namespace = ? AND key = ?"
            found: list[Row] = self._run(sql, (scope, address.namespace, key)).fetchall()
            if not found:
                rewind = type(address) is ConversationAddress and address.rewind
                sql = "INSERT INTO lists(scope, namespace, key, rewind) VALUES(?, ?, ?, ?)"
                self._run(sql, (scope, address.namespace, key, rewind))
                found = [(self.db.last_insert_rowid(), rewind)]
            known = ListName(int(found[0][0]), bool(found[0][1]))
            self._memo.lists.keep((scope, address.namespace, key), known)
        return known

    def _one(self, sql: str, *values: int) -> Row:
        rows: list[Row] = self._run(sql, values).fetchall()
        assert rows, f"a row that the checks found is gone: {sql} {values}"
        return rows[0]

    def scope(self, address: Address) -> int:
        """Return the key of what an address belongs to."""
        if type(address) is ConversationAddress:
            return self._memo.numbers.key(address.conversation)
        if type(address) is ScratchAddress:
            return -self._memo.numbers.key(address.task)
        return self._memo.numbers.scope()

    # --- Conversations ---

    def _conversation(self, write: Conversation, seq: Seq, body: None) -> None:
        self.put_conversation(write, None)
        self._memo.conversations.keep(write.id, write)

    def put_conversation(self, record: Conversation, through: Seq | None) -> None:
        """Insert a conversation, a deleted one with what is still shown of it."""
        numbers, parent, owner = self._memo.numbers, record.parent, record.owner
        self._run(
            _CONVERSATION,
            (
                numbers.key(record.id),
                self._memo.session,
                None if parent is None else numbers.key(parent.conversation_id),
                None if parent is None else numbers.key(parent.at),
                None if owner is None else numbers.key(owner),
                None if owner is None else numbers.key(owner),
                through,
                checksum(conversation_columns(record, through), None),
            ),
        )
        if owner is not None:
            sql = f"UPDATE records SET flags = flags | {OWNER} WHERE id = ?"
            self._run(sql, (numbers.key(owner),))
            known = self._memo.live_tasks.get(owner)
            if known is not None:
                self._memo.live_tasks[owner] = known._replace(flags=known.flags | OWNER)

    def _delete_conversations(self, taken: list[Seq]) -> None:
        for id in taken:
            self._memo.conversations.pop(id, None)
            self._set_through(self._stored_conversation(id), Seq(0))
        # What is still shown may shrink for the taken ones and for deleted ones above them.
        for id in taken:
            source: Seq | None = id
            while source is not None and not self._is_live(source):
                through = inherited_through(source, self._forks, self._is_live)
                record = self._stored_conversation(source)
                self._set_through(record, Seq(through))
                source = record.parent.conversation_id if record.parent else None

    def _set_through(self, record: Conversation, through: Seq) -> None:
        columns = conversation_columns(record, through)
        sql = "UPDATE conversations SET through = ?, checksum = ? WHERE id = ?"
        self._run(sql, (through, checksum(columns, None), self._memo.numbers.key(record.id)))

    def _stored_conversation(self, id: Seq) -> Conversation:
        sql = "SELECT id, parent, at, owner FROM conversations WHERE id = ?"
        return conversation_record(self._memo, self._one(sql, self._memo.numbers.key(id)))

    def _forks(self, id: Seq) -> list[Conversation]:
        sql = "SELECT id, parent, at, owner FROM conversations WHERE parent = ?"
        rows = self._run(sql, (self._memo.numbers.key(id),)).fetchall()
        return [conversation_record(self._memo, row) for row in rows]

    def _is_live(self, id: Seq) -> bool:
        sql = "SELECT 1 FROM conversations WHERE id = ? AND through IS NULL"
        return bool(self._run(sql, (self._memo.numbers.key(id),)).fetchall())

    # --- Entries and tasks ---

    def _entry(self, write: Entry, seq: Seq, body: bytes) -> None:
        self.put_entry(write, body)

    def put_entry(self, write: Entry, body: bytes) -> None:
        """Insert an entry."""
        numbers = self._memo.numbers
        columns = (
            write.id,
            write.conversation_id,
            write.kind,
            write.key,
            write.by_task_id,
            write.head,
        )
        self._run(
            _ENTRY,
            (
                numbers.key(write.id),
                self._writes,
                numbers.key(write.conversation_id),
                self.kind(write.kind, entries=True),
                checksum(columns, body),
                write.key,
                None if write.by_task_id is None else numbers.key(write.by_task_id),
                None if write.head is None else numbers.key(write.head),
                body,
            ),
        )
        self._writes = None

    def put_boundary(self, first: Seq, writes: int) -> None:
        """Note where a batch of a snapshot begins, whose records are there already."""
        key = self._memo.numbers.key(first)
        self._run("UPDATE records SET writes = ? WHERE id = ?", (writes, key))
        if not self.db.changes():
            self._run(_BOUNDARY, (key, writes))

    def _task(self, write: Task, seq: Seq, body: bytes) -> None:
        self._memo.keep_task(seq, self.put_task(write, body))

    def put_task(self, write: Task, body: bytes) -> LiveTask:
        """Insert a task; return what a later change needs to know."""
        numbers = self._memo.numbers
        flags = BACKGROUND * write.background | TURN * write.turn | ABORT * write.abort
        after = _pack(write.after) if write.after else None
        known = LiveTask(write.conversation_id, write.kind, flags, after, None, 0, has_values=False)
        session = self._memo.session
        self._run(
            _TASK,
            (
                numbers.key(write.id),
                self._writes,
                ROLES[write.role],
                numbers.key(write.conversation_id),
                self.kind(write.kind, entries=False),
                checksum(task_columns(write.id, write.status, write.role, known), body),
                session,
                None if write.role == "terminal" else session,
                write.status,
                flags,
                after,
                body,
            ),
        )
        self._writes = None
        return known

    def _patch(self, write: PatchTask, seq: Seq, body: bytes | None) -> None:
        known = self._memo.live_tasks[write.id]
        if write.abort:
            known = known._replace(flags=known.flags | ABORT)
        status, role = write.status, write.role
        key = self._memo.numbers.key(write.id)
        if body is None:
            sql = "SELECT status, role, body FROM records WHERE id = ?"
            status, stored, body = self._one(sql, key)
            role = "start" if stored == 0 else "inflight"
        assert status is not None
        assert role is not None
        assert body is not None
        sums = checksum(task_columns(write.id, status, role, known), body)
        self._run(_PATCH, (status, ROLES[role], known.flags, sums, body, key))
        self._memo.live_tasks[write.id] = known

    def _settle(self, write: SettleTask, seq: Seq, body: bytes) -> None:
        known = self._memo.drop_task(write.id)
        key = self._memo.numbers.key(write.id)
        sums = checksum(task_columns(write.id, write.status, "terminal", known), body)
        self._run(_SETTLE, (write.status, sums, body, key))
        self.scratch.retire(known, key)

    # --- Values and lists of a main batch ---

    def _set(self, write: ValueSet, seq: Seq, body: bytes) -> None:
        self.put_value(write.address, seq, body)

    def _delete(self, write: ValueDelete, seq: Seq, body: None) -> None:
        self.put_value(write.address, seq, None)

    def put_value(self, address: Address, seq: Seq, body: bytes | None) -> None:
        """Give an address a version; without a body, make it absent.

        In a conversation a tombstone stays: for the history, or for the policy.
        """
        rewind = type(address) is ConversationAddress and address.rewind
        key = stored_key(address.key)
        scope = self.scope(address)
        if body is None and type(address) is not ConversationAddress:
            self._run(_FORGET, (scope, address.namespace, key))
            return
        sums = checksum(value_columns(self._memo, seq, scope, address.namespace, key), body)
        sql = _VERSION if rewind else _CURRENT
        self._run(sql, (scope, address.namespace, key, seq, sums, body))
        if type(address) is ConversationAddress:
            policy = (address.conversation, address.namespace, address.key)
            self._memo.policies.keep(policy, address.rewind)
            found = self._memo.namespaces.get(policy[:2])
            if found is not None:
                sticky, rewindable = found
                found = (True, rewindable) if not address.rewind else (sticky, True)
                self._memo.namespaces[policy[:2]] = found

    def has_current(self, address: Address) -> bool:
        """Tell whether a sticky address has a row."""
        sql = "SELECT 1 FROM current_values WHERE scope = ? AND namespace = ? AND key = ?"
        values = (self.scope(address), address.namespace, stored_key(address.key))
        return bool(self._run(sql, values).fetchall())

    def _append(self, write: ListAppend, seq: Seq, body: bytes) -> None:
        self.put_element(self.list_name(write.address).list, seq, body)

    def put_element(self, list: int, seq: Seq, body: bytes) -> None:
        """Insert a list element."""
        self._run(_ELEMENT, (list, seq, checksum((seq, list), body), body))

    def put_marker(self, list: int, element: int, seq: Seq) -> None:
        """Insert a removal or, with element 0, a clear."""
        self._run(_MARKER, (list, element, seq))

    def _remove(self, write: ListRemove, seq: Seq, body: None) -> None:
        name = self.list_name(write.address)
        if name.rewind:
            self.put_marker(name.list, write.element, seq)
        else:
            sql = "DELETE FROM list_elements WHERE list = ? AND seq = ?"
            self._run(sql, (name.list, write.element))

    def _clear(self, write: ListClear, seq: Seq, body: None) -> None:
        name = self.list_name(write.address)
        if name.rewind:
            self.put_marker(name.list, 0, seq)
        else:
            self._run("DELETE FROM list_elements WHERE list = ?", (name.list,))


def conversation_record(memo: Memo, row: Row) -> Conversation:
    """Return a conversation from its columns id, parent, at and owner."""
    seq = memo.numbers.seq
    id, parent, at, owner = row
    return Conversation(
        id=seq(id),
        parent=None if parent is None else ForkPoint(seq(parent), seq(at)),
        owner=None if owner is None else seq(owner),
    )


def conversation_columns(record: Conversation, through: int | None) -> tuple[int | None, ...]:
    """Return what a conversation's checksum covers."""
    parent = record.parent
    fork = (None, None) if parent is None else (parent.conversation_id, parent.at)
    return (record.id, *fork, record.owner, through)


def task_columns(
    id: Seq, status: str, role: str, known: LiveTask
) -> tuple[int | str | bytes | None, ...]:
    """Return what a task's checksum covers beside its state."""
    shown = known.flags & SHOWN
    return (id, known.conversation, known.kind, status, ROLES[role], shown, known.after)


def value_columns(
    memo: Memo, seq: Seq, scope: int, namespace: str, key: str
) -> tuple[int | str, ...]:
    """Return what a value's checksum covers beside its body."""
    owner = memo.numbers.seq(abs(scope))
    return (seq, owner if scope >= 0 else -owner, namespace, key)


_WRITERS: Final[dict[type, Callable[[Rows, Any, Seq, Any], None]]] = {
    ValueSet: Rows._set,
    ValueDelete: Rows._delete,
    ListAppend: Rows._append,
    ListRemove: Rows._remove,
    ListClear: Rows._clear,
    Conversation: Rows._conversation,
    Entry: Rows._entry,
    Task: Rows._task,
    PatchTask: Rows._patch,
    SettleTask: Rows._settle,
}
