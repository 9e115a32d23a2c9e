"""A session with something at every kind of place, and batches that touch all of it."""

from __future__ import annotations

from pico_memory import MemoryStore
from pico_memory.storage import MemoryStorage
from pico_store.address import ConversationAddress, ScratchAddress, Seq, SessionAddress
from pico_store.batch import (
    Batch,
    DeleteConversation,
    ListAppend,
    ListClear,
    ListRemove,
    MainBatch,
    PatchTask,
    ScratchBatch,
    SettleTask,
    ValueDelete,
    ValueSet,
)
from pico_store.query import ValueQuery
from pico_store.records import Conversation, Entry, ForkPoint, Omit, Task
from pico_store.snapshot import SnapshotItem

ROOT = Seq(1)
TASK = Seq(14)
OTHER_TASK = Seq(15)
CHILD = Seq(16)
CHILD_TASK = Seq(17)
FORK = Seq(19)


def memory_store() -> MemoryStore:
    """Return an empty store at a fixed time."""
    return MemoryStore(lambda: 1_700_000_000_000)


def sticky(key: str | None, conversation: Seq = ROOT) -> ConversationAddress:
    """Return a sticky address."""
    return ConversationAddress(conversation, "s", key)


def rewindable(key: str | None, conversation: Seq = ROOT) -> ConversationAddress:
    """Return a rewindable address."""
    return ConversationAddress(conversation, "v", key, rewind=True)


def scratch(key: str | None) -> ScratchAddress:
    """Return an address in the first task's scratch."""
    return ScratchAddress(TASK, "s", key)


def _task(id: int, conversation: Seq) -> Task:
    return Task(
        id=Seq(id),
        conversation_id=conversation,
        kind="work",
        status="ready",
        role="start",
        state={"status": "ready"},
    )


_HISTORY: tuple[Batch, ...] = (
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
            ValueSet(SessionAddress("s", "gone"), 5),
            Entry(id=Seq(13), conversation_id=ROOT, kind="user", key="k", head=Seq(13)),
            _task(TASK, ROOT),
            _task(OTHER_TASK, ROOT),
            Conversation(id=CHILD, owner=OTHER_TASK),
            _task(CHILD_TASK, CHILD),
            Entry(id=Seq(18), conversation_id=CHILD, kind="user"),
            Conversation(id=FORK, parent=ForkPoint(CHILD, Seq(18)), owner=CHILD_TASK),
            Conversation(id=Seq(20), parent=ForkPoint(CHILD, Seq(18))),
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
    MainBatch((SettleTask(CHILD_TASK, "done", {"status": "done"}),)),
)
LAST = Seq(25)


def history() -> list[SnapshotItem]:
    """Return the session as an export."""
    store = memory_store()
    storage = store.create("a")
    for batch in _HISTORY:
        storage.commit(batch)
    assert storage.last_seq == LAST
    return list(storage.export())


def opened(items: list[SnapshotItem]) -> MemoryStorage:
    """Return a new session with that history, its keys already in order for scans."""
    store = memory_store()
    store.load("a", items)
    storage = store.open("a")
    for scope in (SessionAddress("s"), sticky(None), rewindable(None), scratch(None)):
        storage.scan_values(ValueQuery(scope=scope))
    return storage


def batches() -> dict[str, Batch]:
    """Return batches that may follow, which together hold every kind of write to every place."""
    scratch_writes = ScratchBatch(
        TASK,
        (
            ListAppend(scratch(None), "second"),
            ListRemove(scratch(None), Seq(21)),
            ListAppend(scratch("new"), "first"),
            ListClear(scratch("full")),
            ValueSet(scratch("old"), 8),
            ValueSet(scratch("new"), 9),
            ValueDelete(scratch("gone")),
        ),
    )
    other = ScratchAddress(OTHER_TASK, "s")
    return {
        "state": _state_writes(),
        "records": _record_writes(LAST),
        "deletion": MainBatch((DeleteConversation(CHILD), DeleteConversation(Seq(20)))),
        "scratch": scratch_writes,
        "one append": ScratchBatch(TASK, (ListAppend(scratch(None), "second"),)),
        "first append": ScratchBatch(OTHER_TASK, (ListAppend(other, "first"),)),
        "first scratch": ScratchBatch(OTHER_TASK, (ListAppend(other, "first"), ValueSet(other, 1))),
    }


def _state_writes() -> Batch:
    return MainBatch(
        (
            *(ValueSet(make(key), key) for make in (sticky, rewindable) for key in ("old", "new")),
            ValueDelete(sticky("gone")),
            ValueDelete(rewindable("gone")),
            ValueDelete(rewindable("never")),
            ValueSet(SessionAddress("s", "old"), 1),
            ValueSet(SessionAddress("s", "new"), 1),
            ValueSet(SessionAddress("t", None), 1),
            ValueDelete(SessionAddress("s", "gone")),
            ListAppend(rewindable(None), "third"),
            ListRemove(rewindable(None), Seq(4)),
            ListClear(rewindable(None)),
            ListAppend(sticky(None), "third"),
            ListRemove(sticky(None), Seq(8)),
            ListRemove(sticky("full"), Seq(10)),
            ListClear(sticky(None)),
            ListAppend(rewindable("new"), "first"),
            ListAppend(SessionAddress("s", "new"), "first"),
            ValueSet(sticky("new", CHILD), 1),
        )
    )


def _record_writes(n: int) -> Batch:
    return MainBatch(
        (
            Entry(
                id=Seq(n + 1),
                conversation_id=ROOT,
                kind="assistant",
                key="k",
                head=Seq(n + 1),
                edits=(Omit(Seq(13)),),
            ),
            Entry(id=Seq(n + 2), conversation_id=ROOT, kind="user", key="k"),
            _task(n + 3, ROOT),
            Conversation(id=Seq(n + 4), parent=ForkPoint(ROOT, Seq(n + 2)), owner=Seq(n + 3)),
            PatchTask(OTHER_TASK, abort=True),
            PatchTask(OTHER_TASK, "busy", "inflight", {"status": "busy"}),
            SettleTask(TASK, "done", {"status": "done"}),
        )
    )
