"""A session with something at every kind of place, and batches that touch all of it."""

from __future__ import annotations

from pico_sqlite import SqliteStore
from pico_sqlite.storage import SqliteStorage
from pico_store.address import ConversationAddress, ScratchAddress, Seq, SessionAddress
from pico_store.batch import (
    Batch,
    DeleteConversation,
    ListAppend,
    ListClear,
    ListRemove,
    MainBatch,
    MainWrite,
    PatchTask,
    ScratchBatch,
    SettleTask,
    ValueDelete,
    ValueSet,
)
from pico_store.records import Conversation, Entry, ForkPoint, JsonValue, Omit, Task
from pico_store.snapshot import SnapshotItem

ROOT = Seq(1)
TASK = Seq(14)
OTHER_TASK = Seq(15)
CHILD = Seq(16)
CHILD_TASK = Seq(17)
FORK = Seq(19)
SIBLING = Seq(20)
GONE = Seq(21)
LAST = Seq(32)
ROOT_BATCH = MainBatch((Conversation(id=ROOT),))


def sticky(key: str | None, conversation: Seq = ROOT) -> ConversationAddress:
    """Return a sticky address."""
    return ConversationAddress(conversation, "s", key)


def rewindable(key: str | None, conversation: Seq = ROOT) -> ConversationAddress:
    """Return a rewindable address."""
    return ConversationAddress(conversation, "v", key, rewind=True)


def scratch(key: str | None, task: Seq = TASK) -> ScratchAddress:
    """Return an address in a task's scratch."""
    return ScratchAddress(task, "s", key)


def entry(id: int, conversation: Seq = ROOT, *, data: JsonValue = None) -> Entry:
    """Return an entry without anything special."""
    return Entry(id=Seq(id), conversation_id=conversation, kind="note", data=data)


def task(id: int, conversation: Seq = ROOT) -> Task:
    """Return a new task."""
    return Task(
        id=Seq(id),
        conversation_id=conversation,
        kind="work",
        status="ready",
        role="start",
        state={"status": "ready"},
    )


def setting(value: JsonValue, key: str | None = None) -> MainBatch:
    """Return a batch that sets a value of the session."""
    return MainBatch((ValueSet(SessionAddress("s", key), value),))


def noting(storage: SqliteStorage, *, data: JsonValue = None) -> MainBatch:
    """Return a batch that adds an entry to the root."""
    return MainBatch((entry(storage.last_seq + 1, data=data),))


HISTORY: tuple[Batch, ...] = (
    MainBatch(
        (
            Conversation(id=ROOT),
            ValueSet(rewindable("old"), 1),
            ValueSet(rewindable("gone"), {"a": [1]}),
            ListAppend(rewindable(None), "first"),
            ListAppend(rewindable(None), "second"),
            ValueSet(sticky("old"), 2),
            ValueSet(sticky("gone"), 3),
            ListAppend(sticky(None), "first"),
            ListAppend(sticky(None), "second"),
            ListAppend(sticky("full"), "only"),
            ValueSet(SessionAddress("s", "old"), 4),
            ListAppend(SessionAddress("s", "gone"), 5),
            Entry(id=Seq(13), conversation_id=ROOT, kind="user", key="k", head=Seq(13)),
            task(TASK),
            task(OTHER_TASK),
            Conversation(id=CHILD, owner=OTHER_TASK),
            task(CHILD_TASK, CHILD),
            Entry(id=Seq(18), conversation_id=CHILD, kind="user", by_task_id=OTHER_TASK),
            Conversation(id=FORK, parent=ForkPoint(CHILD, Seq(18)), owner=CHILD_TASK),
            Conversation(id=SIBLING, parent=ForkPoint(CHILD, Seq(18))),
            Conversation(id=GONE, parent=ForkPoint(ROOT, Seq(13))),
            entry(22, GONE),
        )
    ),
    ScratchBatch(
        TASK,
        (
            ListAppend(scratch(None), "first"),
            ListAppend(scratch("full"), "only"),
            ValueSet(scratch("old"), 6),
            ValueSet(scratch("gone"), 7),
        ),
    ),
    ScratchBatch(TASK, (ListAppend(scratch("full"), "one"),)),
    MainBatch((SettleTask(CHILD_TASK, "done", {"status": "done"}),)),
    MainBatch(
        (
            ListRemove(rewindable(None), Seq(4)),
            ListAppend(rewindable("gone", SIBLING), "x"),
            ListClear(rewindable("gone", SIBLING)),
            DeleteConversation(GONE),
        )
    ),
)


def fill(storage: SqliteStorage) -> None:
    """Commit the history to an empty session."""
    for batch in HISTORY:
        storage.commit(batch)
    assert storage.last_seq == LAST


def exported(path: str, session: str = "a") -> list[SnapshotItem]:
    """Return what a store that is opened anew shows of a session."""
    store = SqliteStore(path)
    try:
        return list(store.open(session, read_only=True).export())
    finally:
        store.close()


def batches(n: int) -> dict[str, Batch]:
    """Return batches that may follow number ``n``: every kind of write, to every place."""
    return {
        "state": _state_writes(),
        "records": _record_writes(n),
        "deletion": MainBatch((DeleteConversation(CHILD), DeleteConversation(SIBLING))),
        "scratch": ScratchBatch(
            TASK,
            (
                ListAppend(scratch(None), "second"),
                ListRemove(scratch(None), Seq(23)),
                ListAppend(scratch("new"), "first"),
                ListClear(scratch("full")),
                ValueSet(scratch("old"), 8),
                ValueSet(scratch("new"), 9),
                ValueDelete(scratch("gone")),
            ),
        ),
        "one append": ScratchBatch(TASK, (ListAppend(scratch(None), "second"),)),
        "first scratch": ScratchBatch(
            OTHER_TASK, (ListAppend(scratch(None, OTHER_TASK), "first"),)
        ),
    }


def _state_writes() -> Batch:
    return MainBatch(
        (
            *(ValueSet(make(key), key) for make in (sticky, rewindable) for key in ("old", "new")),
            ValueDelete(sticky("gone")),
            ValueDelete(rewindable("gone")),
            ValueDelete(rewindable("never")),
            ValueSet(SessionAddress("s", "old"), 1),
            ValueSet(SessionAddress("t", None), 1),
            ValueDelete(SessionAddress("s", "old")),
            ListAppend(rewindable(None), "third"),
            ListRemove(rewindable(None), Seq(5)),
            ListClear(rewindable(None)),
            ListRemove(sticky(None), Seq(8)),
            ListRemove(sticky("full"), Seq(10)),
            ListClear(sticky(None)),
            ListAppend(SessionAddress("s", "new"), "first"),
            ValueSet(sticky("new", CHILD), 1),
        )
    )


def _record_writes(n: int) -> Batch:
    writes: tuple[MainWrite, ...] = (
        Entry(
            id=Seq(n + 1),
            conversation_id=ROOT,
            kind="assistant",
            key="k",
            head=Seq(n + 1),
            edits=(Omit(Seq(13)),),
        ),
        Entry(id=Seq(n + 2), conversation_id=ROOT, kind="user", key="k"),
        task(n + 3),
        Conversation(id=Seq(n + 4), parent=ForkPoint(ROOT, Seq(n + 2)), owner=Seq(n + 3)),
        PatchTask(OTHER_TASK, abort=True),
        PatchTask(OTHER_TASK, "busy", "inflight", {"status": "busy"}),
        SettleTask(TASK, "done", {"status": "done"}),
    )
    return MainBatch(writes)
