"""A session with something in every tree, and the batches that tests write most."""

from __future__ import annotations

from pico_lmdb import LmdbStore
from pico_lmdb.storage import LmdbStorage
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
from pico_store.records import Conversation, Entry, ForkPoint, JsonValue, Task
from pico_store.snapshot import SnapshotItem

ROOT = Seq(1)
TASK = Seq(6)
ROOT_BATCH = MainBatch((Conversation(id=ROOT),))


def sticky(key: str | None = None, conversation: Seq = ROOT) -> ConversationAddress:
    """Return a sticky address."""
    return ConversationAddress(conversation, "sticky", key)


def rewindable(key: str | None = None, conversation: Seq = ROOT) -> ConversationAddress:
    """Return a rewindable address."""
    return ConversationAddress(conversation, "rewindable", key, rewind=True)


def scratch(key: str | None = None, task: Seq = TASK) -> ScratchAddress:
    """Return an address in a task's scratch."""
    return ScratchAddress(task, "scratch", key)


def entry(id: int, conversation: Seq = ROOT, *, data: JsonValue = None) -> Entry:
    """Return an entry without anything special."""
    return Entry(id=Seq(id), conversation_id=conversation, kind="note", data=data)


def task(id: int, conversation: Seq = ROOT) -> Task:
    """Return a new task."""
    state: dict[str, JsonValue] = {"status": "ready"}
    return Task(
        id=Seq(id),
        conversation_id=conversation,
        kind="work",
        status="ready",
        role="start",
        state=state,
    )


def setting(value: JsonValue, key: str | None = None) -> MainBatch:
    """Return a batch that sets a value of the session."""
    return MainBatch((ValueSet(SessionAddress("s", key), value),))


def noting(storage: LmdbStorage, *, data: JsonValue = None) -> MainBatch:
    """Return a batch that adds an entry to the root."""
    return MainBatch((entry(storage.last_seq + 1, data=data),))


HISTORY: tuple[Batch, ...] = (
    MainBatch(
        (
            Conversation(id=ROOT),
            ValueSet(rewindable("k" * 600), {"a": [1]}),
            ListAppend(rewindable(), "first"),
            ListAppend(sticky(), "second"),
            Entry(id=Seq(5), conversation_id=ROOT, kind="user", key="k", head=Seq(5)),
            task(TASK),
            task(7),
            Conversation(id=Seq(8), parent=ForkPoint(ROOT, Seq(5)), owner=Seq(7)),
            Conversation(id=Seq(9), parent=ForkPoint(ROOT, Seq(5))),
            entry(10, Seq(9), data="x" * 3_000),
        )
    ),
    ScratchBatch(TASK, (ListAppend(scratch(), 1), ValueSet(scratch("k"), 2))),
    ScratchBatch(TASK, (ListAppend(scratch(), 3),)),
    MainBatch(
        (
            ValueSet(sticky("k"), 4),
            ValueDelete(sticky("k")),
            ValueSet(SessionAddress("s", "k"), 5),
            ListRemove(rewindable(), Seq(3)),
            ListClear(sticky()),
            PatchTask(Seq(7), abort=True),
            SettleTask(Seq(7), "done", {"status": "done"}),
            Conversation(id=Seq(21), parent=ForkPoint(Seq(9), Seq(10))),
            DeleteConversation(Seq(9)),
        )
    ),
)


def fill(storage: LmdbStorage) -> None:
    """Commit the history to an empty session."""
    for batch in HISTORY:
        storage.commit(batch)


def exported(path: str, session: str = "a") -> list[SnapshotItem]:
    """Return what a store that is opened anew shows of a session."""
    store = LmdbStore(path)
    try:
        return list(store.open(session, read_only=True).export())
    finally:
        store.close()
