"""SQL-2: every query of the interface uses an index that fits it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from pico_conformance.rules.everything import everything
from pico_sqlite import SqliteStore
from pico_sqlite.storage import SqliteStorage
from pico_store.address import Seq, SessionAddress
from pico_store.batch import MainBatch, PatchTask
from pico_store.query import (
    BatchQuery,
    ConversationQuery,
    EntryQuery,
    ListQuery,
    TaskQuery,
    ValueQuery,
)
from tests.backends.sqlite.scene import (
    CHILD,
    FORK,
    ROOT,
    TASK,
    batches,
    fill,
    rewindable,
    scratch,
    sticky,
)
from tests.backends.sqlite.statements import plan, statements

Read = Callable[[SqliteStorage], object]

_RECORD_RANGE: Final = "USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"
_VALUE: Final = "USING PRIMARY KEY (scope=? AND namespace=? AND key=?"
# Each read, and how SQLite must find what is asked for: a whole record by its key, a page by an
# index whose columns are those of the filter and whose order is that of the page.
READS: Final[dict[str, tuple[Read, str]]] = {
    "get_conversations": (
        lambda s: s.get_conversations([ROOT]),
        "conversations USING INTEGER PRIMARY KEY (rowid=?)",
    ),
    "scan_conversations": (
        lambda s: s.scan_conversations(ConversationQuery()),
        "conversation_session (session=? AND rowid>? AND rowid<?)",
    ),
    "conversations by parent": (
        lambda s: s.scan_conversations(ConversationQuery(parent=CHILD, before=Seq(99))),
        "conversation_parent (parent=? AND rowid>? AND rowid<?)",
    ),
    "conversations by owner": (
        lambda s: s.scan_conversations(ConversationQuery(owner=TASK)),
        "conversation_owner (owner=? AND rowid>? AND rowid<?)",
    ),
    "conversations by the owner's": (
        lambda s: s.scan_conversations(ConversationQuery(owner_conversation=ROOT)),
        "conversation_owner_conversation (owner_conversation=? AND rowid>? AND rowid<?)",
    ),
    "conversations by parent and owner": (
        lambda s: s.scan_conversations(ConversationQuery(parent=ROOT, owner=TASK)),
        "conversations USING INDEX conversation_",
    ),
    "get_entries": (
        lambda s: s.get_entries([Seq(13)]),
        "e USING INTEGER PRIMARY KEY (rowid=?)",
    ),
    "scan_entries": (
        lambda s: s.scan_entries(EntryQuery(conversation_id=FORK)),
        "entry_conversation (conversation=? AND id>? AND id<?)",
    ),
    "the newest entries": (
        lambda s: s.scan_entries(EntryQuery(conversation_id=FORK, before=Seq(99))),
        "entry_conversation (conversation=? AND id>? AND id<?)",
    ),
    "entries of a kind": (
        lambda s: s.scan_entries(EntryQuery(conversation_id=ROOT, kind="user", from_=Seq(2))),
        "entry_conversation (conversation=? AND id>? AND id<?)",
    ),
    "entries of a key": (
        lambda s: s.scan_entries(EntryQuery(conversation_id=ROOT, kind="user", key="k")),
        "entry_key (conversation=? AND kind=? AND key=? AND rowid>? AND rowid<?)",
    ),
    "the newest entries of a key": (
        lambda s: s.scan_entries(
            EntryQuery(conversation_id=ROOT, kind="user", key="k", before=Seq(99))
        ),
        "entry_key (conversation=? AND kind=? AND key=? AND rowid>? AND rowid<?)",
    ),
    "newest_head": (
        lambda s: s.newest_head(FORK, Seq(99)),
        "entry_head (conversation=? AND rowid<?)",
    ),
    "get_tasks": (
        lambda s: s.get_tasks([TASK]),
        "t USING INTEGER PRIMARY KEY (rowid=?)",
    ),
    "scan_tasks": (
        lambda s: s.scan_tasks(TaskQuery()),
        f"t {_RECORD_RANGE}",
    ),
    "live tasks": (
        lambda s: s.scan_tasks(TaskQuery(live=True)),
        "task_live (live=?",
    ),
    "live tasks of a role, kind and mark": (
        lambda s: s.scan_tasks(TaskQuery(role="inflight", kind="work", abort=True, turn=False)),
        "task_live (live=?",
    ),
    "tasks of conversations": (
        lambda s: s.scan_tasks(TaskQuery(conversation_ids=(ROOT, CHILD), background=False)),
        "task_conversation (conversation=? AND rowid>? AND rowid<?)",
    ),
    "terminal tasks of a conversation": (
        lambda s: s.scan_tasks(TaskQuery(conversation_ids=(ROOT,), live=False, before=Seq(99))),
        "task_conversation (conversation=? AND rowid>? AND rowid<?)",
    ),
    "get_value, sticky": (
        lambda s: s.get_value(sticky("old")),
        f"current_values {_VALUE})",
    ),
    "get_value, rewindable": (
        lambda s: s.get_value(rewindable("old", FORK), Seq(18)),
        f"value_versions {_VALUE} AND seq<?)",
    ),
    "get_value, session": (
        lambda s: s.get_value(SessionAddress("s", "old")),
        f"current_values {_VALUE})",
    ),
    "get_value, scratch": (
        lambda s: s.get_value(scratch("old")),
        f"current_values {_VALUE})",
    ),
    "scan_values": (
        lambda s: s.scan_values(ValueQuery(scope=rewindable(None, FORK), after="a")),
        "value_versions USING PRIMARY KEY (scope=? AND namespace=? AND key>?)",
    ),
    "scan_values, session": (
        lambda s: s.scan_values(ValueQuery(scope=SessionAddress("s"))),
        "current_values USING PRIMARY KEY (scope=? AND namespace=? AND key>?)",
    ),
    "read_list, rewindable": (
        lambda s: s.read_list(rewindable(None), ListQuery(at=Seq(13), before=Seq(99))),
        "e USING PRIMARY KEY (list=? AND seq>? AND seq<?)",
    ),
    "read_list, sticky": (
        lambda s: s.read_list(sticky(None), ListQuery(limit=1)),
        "e USING PRIMARY KEY (list=? AND seq>? AND seq<?)",
    ),
    "read_list, scratch": (
        lambda s: s.read_list(scratch(None), ListQuery()),
        "scratch USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
    ),
    "rewind_policy": (
        lambda s: s.rewind_policy(sticky(None), "list"),
        "lists USING INDEX sqlite_autoindex_lists_1 (scope=? AND namespace=? AND key=?)",
    ),
    "entry_kinds": (
        lambda s: s.entry_kinds(),
        "kinds USING INDEX sqlite_autoindex_kinds_1 (session=?)",
    ),
    "scan_batches": (
        lambda s: s.scan_batches(BatchQuery(after=Seq(2))),
        f"records {_RECORD_RANGE}",
    ),
    "the newest batches": (
        lambda s: s.scan_batches(BatchQuery(before=Seq(99))),
        f"records {_RECORD_RANGE}",
    ),
}
# Statements whose whole purpose is to go through a table, or that sort what is live.
_MAY_SCAN: Final = ("sqlite_schema",)
_MAY_SORT: Final = ("SELECT t.id FROM records t WHERE t.live = ?",)


def _faults(sql: str, steps: list[str], *, may_sort: bool) -> list[str]:
    """Return what must not be part of a plan."""
    scans = [
        step
        for step in steps
        if step.startswith("SCAN ") and not any(table in step for table in _MAY_SCAN)
    ]
    if may_sort or sql.startswith(_MAY_SORT):
        return scans
    return scans + [step for step in steps if "TEMP B-TREE" in step]


@pytest.mark.parametrize("name", READS)
def test_a_read_finds_its_rows_by_an_index(name: str, path: str) -> None:
    read, expected = READS[name]
    with statements() as seen:
        store = SqliteStore(path)
        storage = store.create("a")
        fill(storage)
        seen.clear()
        read(storage)
        store.close()

    plans = {sql: plan(path, sql, bindings) for sql, bindings in seen.items() if _explains(sql)}

    assert any(expected in step for steps in plans.values() for step in steps), plans
    for sql, steps in plans.items():
        assert _faults(sql, steps, may_sort=False) == [], sql


def test_nothing_is_scanned_in_a_session_s_life(path: str) -> None:
    """Every statement of commits, reads, opening, export and deletion; the export may sort."""
    with statements() as seen:
        store = SqliteStore(path)
        storage = store.create("a")
        fill(storage)
        before_export = set(seen)
        items = list(storage.export())
        of_export = set(seen) - before_export
        everything(storage)
        for name in ("state", "scratch", "first scratch", "deletion", "records"):
            storage.commit(batches(storage.last_seq)[name])
        storage.commit(MainBatch((PatchTask(Seq(storage.last_seq - 4), abort=True),)))
        storage.close()
        storage = store.open("a")
        storage.close()
        before_load = set(seen)
        store.load("b", items)
        store.sessions()
        # They go through the sessions and through what is loaded.
        of_load = set(seen) - before_load
        store.delete("a")
        store.close()

    assert len(seen) > 60
    faults = {
        sql: found
        for sql, bindings in seen.items()
        if _explains(sql) and sql not in of_load
        if (found := _faults(sql, plan(path, sql, bindings), may_sort=sql in of_export))
    }
    assert faults == {}


def _explains(sql: str) -> bool:
    return sql.split()[0] in ("SELECT", "INSERT", "UPDATE", "DELETE")
