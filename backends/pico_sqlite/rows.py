"""A checked batch as rows: what each write puts into, changes in or takes from the tables.

Everything here runs inside a transaction that the writer has begun.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any, Final
from zlib import crc32

import apsw
from msgspec.structs import replace

from pico_sqlite.checksum import BIAS, Column, checksum, coded_size, pack
from pico_sqlite.connection import Row
from pico_sqlite.memo import ABORT, BACKGROUND, OWNER, TURN, ListName, LiveTask, Memo
from pico_sqlite.numbers import EXTENT_BITS, LOW
from pico_sqlite.scratch_rows import ScratchRows, lost, stored_key
from pico_store.address import Address, ConversationAddress, ScratchAddress, Seq, SessionAddress
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
from pico_store.records import Conversation, Entry, ForkPoint, Task

ROLES: Final = {"start": 0, "inflight": 1, "terminal": 2}
TERMINAL: Final = ROLES["terminal"]

# Short texts: the driver hashes one at each call. The first row of a batch also says whether the
# handle still owns the session: another owner may have added the same rows.
_OWNED: Final = "FROM sessions WHERE session=? AND epoch=?"
_BOUNDARY: Final = "INSERT INTO records(id,writes) VALUES(?,?)"
_FIRST_BOUNDARY: Final = f"INSERT INTO records(id,writes) SELECT ?,? {_OWNED}"
_ENTRY: Final = "INSERT INTO records VALUES(?,NULL,3,?,?,?,?,?,?,NULL,NULL,NULL,NULL,NULL,?)"
_FIRST_ENTRY: Final = (
    "INSERT INTO records SELECT ?1,?9,3,?2,?3,?4,?5,?6,?7,NULL,NULL,NULL,NULL,NULL,?8 "
    "FROM sessions WHERE session=?10 AND epoch=?11"
)
_TASK: Final = "INSERT INTO records VALUES(?,NULL,?,?,?,?,NULL,NULL,NULL,?,?,?,?,?,?)"
_FIRST_TASK: Final = (
    "INSERT INTO records SELECT ?1,?12,?2,?3,?4,?5,NULL,NULL,NULL,?6,?7,?8,?9,?10,?11 "
    "FROM sessions WHERE session=?13 AND epoch=?14"
)
_PATCH: Final = "UPDATE records SET status=?,role=?,flags=?,checksum=?,body=? WHERE id=?"
_SETTLE: Final = "UPDATE records SET status=?,role=2,live=NULL,checksum=?,body=? WHERE id=?"
_CONVERSATION: Final = (
    "INSERT INTO conversations VALUES(?, ?, ?, ?, ?, "
    "(SELECT conversation FROM records WHERE id = ?), ?, ?)"
)
_CURRENT: Final = "REPLACE INTO current_values VALUES(?,?,?,?,?,?)"
_FORGET: Final = "DELETE FROM current_values WHERE scope=? AND namespace=? AND key=?"
_VERSION: Final = "INSERT INTO value_versions VALUES(?,?,?,?,?,?)"
_ELEMENT: Final = "INSERT INTO list_elements VALUES(?,?,?,?)"
_MARKER: Final = "INSERT INTO list_markers VALUES(?,?,?,?)"
_REMOVE: Final = "DELETE FROM list_elements WHERE list=? AND seq=?"


class Rows:
    """Writes the batches of one session."""

    def __init__(self, db: apsw.Connection, memo: Memo, epoch: int) -> None:
        self.db = db
        self._run = db.cursor().execute
        self._changes = db.changes
        self._memo = memo
        self._epoch = epoch
        # The coded size of a batch whose first row has not been written yet.
        self._size: int | None = None
        # What each deletion of the batch that is still to be written takes.
        self._taken: list[list[Seq]] = []
        self._passing: set[Seq] = set()
        self.scratch = ScratchRows(db, memo, self.put_value)

    def write(self, checked: CheckedBatch) -> None:
        """Write a batch.

        Raises:
            OwnershipLostError: Another open took the session over; nothing was written.
        """
        seq, writes = checked.first, checked.writes
        keys = self._memo.numbers.keys
        high = seq >> EXTENT_BITS
        if high not in keys or checked.last >> EXTENT_BITS != high or checked.task is not None:
            self._check_owned()
            for needed in range(high, (checked.last >> EXTENT_BITS) + 1):
                if needed not in keys:
                    self.add_extent(needed)
            if checked.task is not None:
                self.scratch.write(checked)
                return
        self._size = coded_size(seq, len(writes))
        self._passing = checked.passing
        if checked.deletions:
            self._taken = list(checked.deletions.values())
        try:
            if type(writes[0]) is not Entry and type(writes[0]) is not Task:
                self._open(_FIRST_BOUNDARY, (keys[high] | (seq & LOW),))
            for write, body in zip(writes, checked.bodies, strict=True):
                _WRITERS[type(write)](self, write, seq, body)
                seq += 1  # type: ignore[assignment]
        except apsw.ConstraintError:
            # Before its first row a record may need a kind, which another owner may have added.
            self._check_owned()
            raise

    def _open(self, sql: str, values: tuple[Column, ...]) -> None:
        """Insert the first row of a batch, if the handle owns the session."""
        self._run(sql, values + (self._size, self._memo.session, self._epoch))  # noqa: RUF005
        if not self._changes():
            raise lost(self._epoch)
        self._size = None

    def _check_owned(self) -> None:
        sql = f"SELECT 1 {_OWNED}"
        if not self._run(sql, (self._memo.session, self._epoch)).fetchall():
            raise lost(self._epoch)

    def add_extent(self, high: int) -> None:
        """Give the session another extent."""
        base = self._one("SELECT coalesce(max(base), -1) + 1 FROM extents")[0]
        session = self._memo.session
        values = (base, session, high, checksum((base, session, high)))
        self._run("INSERT INTO extents VALUES(?, ?, ?, ?)", values)
        self._memo.numbers.add(high, base)

    def kind(self, name: str, *, entries: bool) -> int:
        """Return the number of a kind, noting whether entries use it."""
        known = self._memo.kinds.get(name)
        if known is None:
            sql = "INSERT INTO kinds(session, name, entries, checksum) VALUES(?, ?, ?, ?)"
            self._run(sql, (self._memo.session, name, entries, checksum((name, int(entries)))))
            known = self.db.last_insert_rowid()
            self._memo.kinds[name] = known
            self._memo.kind_names[known] = name
        elif entries and name not in self._memo.entry_kinds:
            sql = "UPDATE kinds SET entries = 1, checksum = ? WHERE kind = ?"
            self._run(sql, (checksum((name, 1)), known))
        if entries:
            self._memo.entry_kinds[name] = known
        return known

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
                values = (scope, address.namespace, key, rewind)
                sums = checksum(list_columns(self._memo, *values))
                sql = "INSERT INTO lists(scope, namespace, key, rewind, checksum) "
                self._run(sql + "VALUES(?, ?, ?, ?, ?)", (*values, sums))
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
                checksum(conversation_columns(record, through)),
            ),
        )
        if owner is not None:
            sql = f"UPDATE records SET flags = flags | {OWNER} WHERE id = ?"
            self._run(sql, (numbers.key(owner),))
            known = self._memo.live_tasks.get(owner)
            if known is not None:
                self._memo.live_tasks[owner] = replace(known, flags=known.flags | OWNER)

    def _delete_conversation(self, write: DeleteConversation, seq: Seq, body: None) -> None:
        taken = self._taken.pop(0)
        open_ids = [-id for id in taken]
        for id in taken:
            self._memo.conversations.pop(id, None)
            self._set_through(self._stored_conversation(id), Seq(0))
        # What is still shown may shrink for the taken ones and for deleted ones above them. Forks
        # come before their source, which is older, so that each is looked at once; where nothing
        # shrinks, nothing above does.
        heapify(open_ids)
        new, last = set(taken), 0
        while open_ids:
            id = Seq(-heappop(open_ids))
            if id == last:
                continue
            last = id
            before = self._through(id)
            if before is None:
                continue
            through = self._inherited(id)
            if through == before and id not in new:
                continue
            record = self._stored_conversation(id)
            self._set_through(record, Seq(through))
            if record.parent is not None:
                heappush(open_ids, -record.parent.conversation_id)

    def _inherited(self, id: Seq) -> int:
        """Return the greatest number that live forks inherit, from what each fork is known to."""
        seq = self._memo.numbers.seq
        sql = "SELECT at, through FROM conversations WHERE parent = ?"
        greatest = 0
        rows: list[Row] = self._run(sql, (self._memo.numbers.key(id),)).fetchall()
        for at, through in rows:
            cut = seq(at)
            greatest = max(greatest, cut if through is None else min(cut, through))
        return greatest

    def _through(self, id: Seq) -> int | None:
        """Return how far a deleted conversation reaches; ``None`` for a live one."""
        sql = "SELECT through FROM conversations WHERE id = ?"
        through: int | None = self._one(sql, self._memo.numbers.key(id))[0]
        return through

    def _set_through(self, record: Conversation, through: Seq) -> None:
        columns = conversation_columns(record, through)
        sql = "UPDATE conversations SET through = ?, checksum = ? WHERE id = ?"
        self._run(sql, (through, checksum(columns), self._memo.numbers.key(record.id)))

    def _stored_conversation(self, id: Seq) -> Conversation:
        sql = "SELECT id, parent, at, owner FROM conversations WHERE id = ?"
        return conversation_record(self._memo, self._one(sql, self._memo.numbers.key(id)))

    # --- Entries and tasks ---

    # The hot ones do the arithmetic of numbers.py and of checksum.py themselves: a call takes as
    # long as what it does.

    def put_entry(self, write: Entry, seq: Seq, body: bytes) -> None:
        """Insert an entry."""
        memo, conversation, by, head = (
            self._memo,
            write.conversation_id,
            write.by_task_id,
            write.head,
        )
        keys, kind, name = memo.numbers.keys, write.kind, write.key
        number = memo.entry_kinds.get(kind)
        values = (
            keys[seq >> EXTENT_BITS] | (seq & LOW),
            keys[conversation >> EXTENT_BITS] | (conversation & LOW),
            self.kind(kind, entries=True) if number is None else number,
            crc32(pack((seq, conversation, kind, name, by, head, body))) - BIAS,
            name,
            None if by is None else keys[by >> EXTENT_BITS] | (by & LOW),
            None if head is None else keys[head >> EXTENT_BITS] | (head & LOW),
            body,
        )
        if self._size is None:
            self._run(_ENTRY, values)
        else:
            self._open(_FIRST_ENTRY, values)

    def put_boundary(self, first: Seq, writes: int) -> None:
        """Note where a batch of a snapshot begins, whose records are there already."""
        key, size = self._memo.numbers.key(first), coded_size(first, writes)
        self._run("UPDATE records SET writes = ? WHERE id = ?", (size, key))
        if not self._changes():
            self._run(_BOUNDARY, (key, size))

    def put_task(self, write: Task, seq: Seq, body: bytes) -> None:
        """Insert a task and, if it is live, remember it."""
        memo, conversation = self._memo, write.conversation_id
        keys, kind, status, role = memo.numbers.keys, write.kind, write.status, ROLES[write.role]
        flags = 0
        if write.background or write.turn or write.abort:
            flags = BACKGROUND * write.background | TURN * write.turn | ABORT * write.abort
        after = pack(write.after) if write.after else None
        number = memo.kinds.get(kind)
        session = memo.session
        values = (
            keys[seq >> EXTENT_BITS] | (seq & LOW),
            role,
            keys[conversation >> EXTENT_BITS] | (conversation & LOW),
            self.kind(kind, entries=False) if number is None else number,
            crc32(pack((seq, conversation, kind, status, role, flags, after, body))) - BIAS,
            session,
            status,
            None if role == TERMINAL else session,
            flags,
            after,
            body,
        )
        if self._size is None:
            self._run(_TASK, values)
        else:
            self._open(_FIRST_TASK, values)
        if role != TERMINAL:
            memo.live_tasks[seq] = LiveTask(conversation, True, kind, flags, after)

    def _patch(self, write: PatchTask, seq: Seq, body: bytes | None) -> None:
        id, keys = write.id, self._memo.numbers.keys
        known = self._memo.live_tasks[id]
        key = keys[id >> EXTENT_BITS] | (id & LOW)
        if write.abort and not known.flags & ABORT:
            known = replace(known, flags=known.flags | ABORT)
            self._memo.live_tasks[id] = known
        if body is None:
            status, role, body = self._one(
                "SELECT status, role, body FROM records WHERE id = ?", key
            )
        else:
            assert write.role is not None
            status, role = write.status, ROLES[write.role]
        sums = crc32(pack((id, *known.columns(status, role), body))) - BIAS
        self._run(_PATCH, (status, role, known.flags, sums, body, key))

    def _settle(self, write: SettleTask, seq: Seq, body: bytes) -> None:
        id, status, keys = write.id, write.status, self._memo.numbers.keys
        known = self._memo.live_tasks.pop(id)
        key = keys[id >> EXTENT_BITS] | (id & LOW)
        sums = crc32(pack((id, *known.columns(status, TERMINAL), body))) - BIAS
        self._run(_SETTLE, (status, sums, body, key))
        if known.stream is not None:
            self.scratch.retire(known, key)

    # --- Values and lists of a main batch ---

    def _set(self, write: ValueSet | ValueDelete, seq: Seq, body: bytes | None) -> None:
        self.put_value(write.address, seq, body)

    def put_value(self, address: Address, seq: Seq, body: bytes | None) -> None:
        """Give an address a version; without a body, make it absent.

        In a conversation a tombstone stays: for the history, or for the policy.
        """
        memo, namespace, name = self._memo, address.namespace, address.key
        keys, key = memo.numbers.keys, "" if name is None else ":" + name
        sql = _CURRENT
        owner = 0
        if type(address) is SessionAddress:
            scope = keys[0]
        elif type(address) is ConversationAddress:
            owner = address.conversation
            scope = keys[owner >> EXTENT_BITS] | (owner & LOW)
            memo.note_policy(address)
            if address.rewind:
                sql = _VERSION
        else:
            assert type(address) is ScratchAddress
            owner, scope = -address.task, self.scope(address)
        if body is None and type(address) is not ConversationAddress:
            self._run(_FORGET, (scope, namespace, key))
            return
        sums = crc32(pack((seq, owner, namespace, key, body))) - BIAS
        self._run(sql, (scope, namespace, key, seq, sums, body))

    def has_current(self, address: Address) -> bool:
        """Tell whether a sticky address has a row."""
        sql = "SELECT 1 FROM current_values WHERE scope = ? AND namespace = ? AND key = ?"
        values = (self.scope(address), address.namespace, stored_key(address.key))
        return bool(self._run(sql, values).fetchall())

    def _append(self, write: ListAppend, seq: Seq, body: bytes) -> None:
        name = self.list_name(write.address)
        if name.rewind or seq not in self._passing:
            self.put_element(name.list, seq, body)

    def put_element(self, list: int, seq: Seq, body: bytes) -> None:
        """Insert a list element."""
        self._run(_ELEMENT, (list, seq, crc32(pack((seq, list, body))) - BIAS, body))

    def put_marker(self, list: int, element: int, seq: Seq) -> None:
        """Insert a removal or, with element 0, a clear."""
        self._run(_MARKER, (list, element, seq, checksum((seq, element, list))))

    def _remove(self, write: ListRemove, seq: Seq, body: None) -> None:
        name = self.list_name(write.address)
        if name.rewind:
            self.put_marker(name.list, write.element, seq)
        elif write.element not in self._passing:
            self._run(_REMOVE, (name.list, write.element))

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


def list_columns(
    memo: Memo, scope: int, namespace: str, key: str, rewind: int
) -> tuple[int | str, ...]:
    """Return what the checksum of a list's row covers."""
    return (memo.numbers.seq(scope), namespace, key, int(rewind))


def value_columns(
    memo: Memo, seq: Seq, scope: int, namespace: str, key: str
) -> tuple[int | str, ...]:
    """Return what a value's checksum covers beside its body."""
    owner = memo.numbers.seq(abs(scope))
    return (seq, owner if scope >= 0 else -owner, namespace, key)


_WRITERS: Final[dict[type, Callable[[Rows, Any, Seq, Any], None]]] = {
    ValueSet: Rows._set,
    ValueDelete: Rows._set,
    ListAppend: Rows._append,
    ListRemove: Rows._remove,
    ListClear: Rows._clear,
    Conversation: Rows._conversation,
    DeleteConversation: Rows._delete_conversation,
    Entry: Rows.put_entry,
    Task: Rows.put_task,
    PatchTask: Rows._patch,
    SettleTask: Rows._settle,
}
