"""What engines do with the workload when nothing stands between a plain loop and them.

These loops check nothing, copy nothing and cannot be read back in another order. They are what
the figures of the full interface are compared with.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import apsw
import msgspec

from pico_bench.turns import entry_payload
from pico_store.batch import (
    Batch,
    ListAppend,
    ListRemove,
    MainWrite,
    PatchTask,
    ScratchBatch,
    SettleTask,
    ValueSet,
)
from pico_store.records import Conversation, Entry, Task

RawWrite: TypeAlias = tuple[Any, ...]
"""A code, then what the loop needs, in the order that its statement binds; the payload is last."""
RawCommit: TypeAlias = tuple[int, int, list[RawWrite]]
"""The last number, the task of a frame or 0, and the writes."""

ENTRY, TASK, PATCH, SETTLE, SET, APPEND, REMOVE, FRAME, CONVERSATION = range(9)
_ROLES: Final = {"start": 0, "inflight": 1, "terminal": 2}
_pack = msgspec.msgpack.Encoder().encode

# A row a record, and the indexes that the questions of the interface need: a conversation's
# entries, entries by key, heads, live tasks.
_SCHEMA: Final = """
CREATE TABLE entries(
    id INTEGER PRIMARY KEY, conversation INT, kind TEXT, key TEXT, task INT, head INT, body BLOB);
CREATE INDEX entry_conversation ON entries(conversation, id);
CREATE INDEX entry_key ON entries(conversation, kind, key) WHERE key IS NOT NULL;
CREATE INDEX entry_head ON entries(conversation, id) WHERE head IS NOT NULL;
CREATE TABLE tasks(
    id INTEGER PRIMARY KEY, conversation INT, kind TEXT, status TEXT, role INT, after BLOB,
    body BLOB);
CREATE INDEX task_live ON tasks(conversation, role) WHERE role < 2;
CREATE TABLE current(
    scope INT, namespace TEXT, key TEXT, seq INT, body BLOB,
    PRIMARY KEY(scope, namespace, key)) WITHOUT ROWID;
CREATE TABLE elements(
    scope INT, namespace TEXT, id INT, body BLOB,
    PRIMARY KEY(scope, namespace, id)) WITHOUT ROWID;
CREATE TABLE frames(
    task INT, namespace TEXT, id INT, body BLOB,
    PRIMARY KEY(task, namespace, id)) WITHOUT ROWID;
CREATE TABLE position(one INTEGER PRIMARY KEY, last INT);
INSERT INTO position VALUES(1, 1);
"""


def raw_commits(first: int, batches: list[Batch]) -> list[RawCommit]:
    """Return batches as plain tuples."""
    commits = []
    for batch in batches:
        writes = [_raw_write(seq, write) for seq, write in enumerate(batch.writes, first)]
        first += len(writes)
        task = batch.task if isinstance(batch, ScratchBatch) else 0
        commits.append((first - 1, task, writes))
    return commits


def _raw_write(seq: int, write: MainWrite) -> RawWrite:
    match write:
        case Entry():
            return (ENTRY, seq, write.kind, write.key, write.by_task_id, entry_payload(write))
        case Task():
            role = _ROLES[write.role]
            return (TASK, seq, write.kind, write.status, role, write.after, write.state)
        case PatchTask():
            assert write.role is not None
            return (PATCH, write.status, _ROLES[write.role], write.id, write.state)
        case SettleTask():
            return (SETTLE, write.status, write.id, write.state)
        case ValueSet():
            return (SET, write.address.namespace, write.address.key or "", seq, write.value)
        case ListAppend():
            return (APPEND, write.address.namespace, seq, write.value)
        case ListRemove():
            return (REMOVE, write.address.namespace, write.element)
        case Conversation():
            return (CONVERSATION, seq)
    raise AssertionError(write)


def sqlite_loop(folder: Path) -> tuple[Callable[[RawCommit], None], Callable[[], None]]:
    """Return a function that commits to a new SQLite file with WAL and NORMAL, and its close."""
    db = apsw.Connection(str(folder / "raw.db"))
    db.pragma("journal_mode", "wal")
    db.pragma("synchronous", "normal")
    db.execute(_SCHEMA)
    run = db.cursor().execute
    pack = _pack
    entry = "INSERT INTO entries(id, conversation, kind, key, task, body) VALUES(?, 1, ?, ?, ?, ?)"
    task_row = "INSERT INTO tasks VALUES(?, 1, ?, ?, ?, ?, ?)"
    patch = "UPDATE tasks SET status = ?, role = ?, body = ? WHERE id = ?"
    settle = "UPDATE tasks SET status = ?, role = 2, body = ? WHERE id = ?"
    retire = "DELETE FROM frames WHERE task = ?"
    value = "INSERT OR REPLACE INTO current VALUES(1, ?, ?, ?, ?)"
    append = "INSERT INTO elements VALUES(1, ?, ?, ?)"
    remove = "DELETE FROM elements WHERE scope = 1 AND namespace = ? AND id = ?"
    frame = "INSERT INTO frames VALUES(?, 'frames', ?, ?)"
    position = "UPDATE position SET last = ?"

    def commit(commit: RawCommit) -> None:
        last, task, writes = commit
        if task:
            # The greatest number is that of the position or of the last frame.
            run(frame, (task, last, pack(writes[0][3])))
            return
        run("BEGIN IMMEDIATE")
        for w in writes:
            code = w[0]
            if code == ENTRY:
                run(entry, (w[1], w[2], w[3], w[4], pack(w[5])))
            elif code == TASK:
                after = pack(w[5]) if w[5] else None
                run(task_row, (w[1], w[2], w[3], w[4], after, pack(w[6])))
            elif code == PATCH:
                run(patch, (w[1], w[2], pack(w[4]), w[3]))
            elif code == SETTLE:
                run(settle, (w[1], pack(w[3]), w[2]))
                run(retire, (w[2],))
            elif code == SET:
                run(value, (w[1], w[2], w[3], pack(w[4])))
            elif code == APPEND:
                run(append, (w[1], w[2], pack(w[3])))
            elif code == REMOVE:
                run(remove, (w[1], w[2]))
        run(position, (last,))
        run("COMMIT")

    return commit, db.close


def dictionary_loop() -> Callable[[RawCommit], None]:
    """Return a function that keeps the caller's objects in bare dictionaries."""
    entries: dict[int, RawWrite] = {}
    by_key: dict[tuple[str, str], RawWrite] = {}
    tasks: dict[int, RawWrite] = {}
    live: set[int] = set()
    values: dict[tuple[str, str], RawWrite] = {}
    lists: dict[str, dict[int, object]] = {}
    frames: dict[int, dict[int, object]] = {}

    def commit(commit: RawCommit) -> None:
        last, task, writes = commit
        if task:
            frames.setdefault(task, {})[last] = writes[0][3]
            return
        for w in writes:
            code = w[0]
            if code == ENTRY:
                entries[w[1]] = w
                if w[3] is not None:
                    by_key[w[2], w[3]] = w
            elif code == TASK:
                tasks[w[1]] = w
                live.add(w[1])
            elif code == PATCH:
                tasks[w[3]] = w
            elif code == SETTLE:
                tasks[w[2]] = w
                live.discard(w[2])
                frames.pop(w[2], None)
            elif code == SET:
                values[w[1], w[2]] = w
            elif code == APPEND:
                lists.setdefault(w[1], {})[w[2]] = w[3]
            elif code == REMOVE:
                lists[w[1]].pop(w[2], None)

    return commit
