"""SEQ: numbers, batches, and what each kind of batch carries."""

from __future__ import annotations

import threading

from msgspec import structs

from pico_conformance.rule import Lab, rule
from pico_conformance.rules.everything import untouched, walk
from pico_conformance.rules.scene import build_scene, moves, rewindable, sticky
from pico_store.address import ScratchAddress, Seq, SessionAddress
from pico_store.batch import (
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
from pico_store.errors import InvalidBatchError, RefusedError, StaleWriterError
from pico_store.limits import SEQ_MAX
from pico_store.query import BatchQuery, EntryQuery
from pico_store.records import BatchRange, Conversation, Entry, ForkPoint, Task
from pico_store.snapshot import SnapshotHeader, SnapshotItem

NAME = SessionAddress("s", "name")


def _entry(id: int, conversation: int = 1, kind: str = "note") -> Entry:
    return Entry(id=Seq(id), conversation_id=Seq(conversation), kind=kind)


def _task(id: int, conversation: int = 1) -> Task:
    state = {"status": "ready"}
    return Task(Seq(id), Seq(conversation), "work", "ready", "start", state)  # type: ignore[arg-type]


# --- Numbers ---


@rule("SEQ-1")
def test_write_i_gets_the_ith_number_after_the_last(lab: Lab) -> None:
    lab.root()

    made = lab.commit(ValueSet(NAME, 1), _entry(3), _task(4), ListAppend(SessionAddress("l"), "x"))

    assert made == BatchRange(first=Seq(2), last=Seq(5)), f"commit returned {made}"
    assert lab.storage.last_seq == 5, f"last_seq is {lab.storage.last_seq} after five writes"
    assert list(lab.storage.get_entries([Seq(3)])) == [3], "the entry is not at its number"
    assert list(lab.storage.get_tasks([Seq(4)])) == [4], "the task is not at its number"
    value = lab.storage.get_value(NAME)
    assert value is not None, "the value is absent"
    assert value.seq == 2, f"the value carries number {value.seq}, not its write's, 2"


@rule("SEQ-1")
def test_a_record_whose_id_is_not_its_number_is_refused(lab: Lab) -> None:
    root = lab.root()
    for record in (Conversation(id=Seq(2)), _entry(2, root), _task(2, root)):
        for wrong in (1, 3, 0, -2, True, 2.0, "2", None):
            with untouched(lab, "SEQ-1"):
                lab.commit(structs.replace(record, id=wrong))


@rule("SEQ-1", "SEQ-5")
def test_one_id_created_twice_in_a_batch_is_refused(lab: Lab) -> None:
    lab.root()
    with untouched(lab, "SEQ-1"):
        lab.commit(_entry(2), _entry(2))

    assert lab.commit(_entry(2)).first == 2, "the refusal moved the numbers on"


@rule("SEQ-1", "VAL-3", "VAL-5")
def test_a_write_that_changes_nothing_takes_a_number_too(lab: Lab) -> None:
    lab.root()

    lab.commit(ValueDelete(NAME), ListClear(SessionAddress("l")))

    assert lab.storage.last_seq == 3, f"last_seq is {lab.storage.last_seq} after three writes"


@rule("SEQ-2")
def test_a_write_that_names_no_number_is_refused(lab: Lab) -> None:
    scene = build_scene(lab)
    replace = structs.replace
    for wrong in (0, -1, True, 1.0, "1", 2**53):
        with untouched(lab, "SEQ-2"):
            lab.commit(replace(PatchTask(scene.live, abort=True), id=wrong))
        with untouched(lab, "SEQ-2"):
            lab.commit(replace(DeleteConversation(scene.fork), id=wrong))
        with untouched(lab, "SEQ-2"):
            lab.commit(replace(_entry(lab.next), conversation_id=wrong))
        with untouched(lab, "SEQ-2"):
            lab.commit(replace(_entry(lab.next), head=wrong))
        with untouched(lab, "SEQ-2"):
            lab.commit(replace(_entry(lab.next), by_task_id=wrong))
        with untouched(lab, "SEQ-2"):
            lab.commit(replace(_task(lab.next), after=(wrong,)))
        with untouched(lab, "SEQ-2"):
            lab.commit(replace(Conversation(id=lab.next), owner=wrong))
        with untouched(lab, "SEQ-2"):
            point = replace(ForkPoint(scene.root, scene.user), at=wrong)
            lab.commit(Conversation(id=lab.next, parent=point))
        with untouched(lab, "SEQ-2"):
            lab.commit(replace(ListRemove(moves(scene.root), scene.elements[1]), element=wrong))
        with untouched(lab, "SEQ-2"):
            lab.commit(ValueSet(replace(sticky(scene.root, "s"), conversation=wrong), 1))


@rule("SEQ-2", "DUR-11", needs=("many_sessions",))
def test_the_last_number_is_used_and_none_beyond_it(lab: Lab) -> None:
    items: list[SnapshotItem] = [
        SnapshotHeader(Seq(SEQ_MAX - 2), ()),
        Conversation(id=Seq(1)),
        BatchRange(Seq(1), Seq(1)),
        BatchRange(Seq(SEQ_MAX - 2), Seq(SEQ_MAX - 2)),
    ]
    lab.storage.close()
    lab.store.load("full", items)
    storage = lab.storage = lab.store.open("full")
    with untouched(lab, "SEQ-2"):
        storage.commit(MainBatch((ValueSet(NAME, 1), ValueSet(NAME, 2), ValueSet(NAME, 3))))

    made = storage.commit(MainBatch((_entry(SEQ_MAX - 1), ValueSet(NAME, 5))))

    assert made.last == SEQ_MAX, f"the last write got {made.last}, not 2^53-1"
    with untouched(lab, "SEQ-2"):
        storage.commit(MainBatch((ValueSet(NAME, 6),)))
    value = storage.get_value(NAME)
    assert value is not None, "a full session lost its value"
    assert value.value == 5, f"a full session shows {value.value}, not what was committed"


# --- The first write ---


@rule("SEQ-3")
def test_an_empty_session_takes_nothing_but_its_root(lab: Lab) -> None:
    for write in (
        _entry(1),
        _task(1),
        ValueSet(NAME, 1),
        ListAppend(NAME, 1),
        PatchTask(Seq(1), abort=True),
        DeleteConversation(Seq(1)),
        Conversation(id=Seq(1), parent=ForkPoint(Seq(1), Seq(1))),
        Conversation(id=Seq(1), owner=Seq(1)),
    ):
        with untouched(lab, "SEQ-3"):
            lab.commit(write)
    with untouched(lab, "TASK-4"):
        lab.scratch(Seq(1), ValueSet(ScratchAddress(Seq(1), "p"), 1))

    assert lab.root() == 1, "the root is not number 1"


@rule("SEQ-3")
def test_an_empty_session_shows_nothing(lab: Lab) -> None:
    storage = lab.storage

    assert storage.last_seq == 0, f"last_seq is {storage.last_seq} in an empty session"
    assert storage.entry_kinds() == frozenset(), "an empty session has entry kinds"
    assert list(storage.export()) == [SnapshotHeader(Seq(0), ())], "its export is not a bare header"
    assert storage.get_value(NAME) is None, "an empty session has a value"


@rule("SEQ-3", "SEQ-6")
def test_the_root_may_be_used_in_the_batch_that_creates_it(lab: Lab) -> None:
    lab.commit(Conversation(id=Seq(1)), _entry(2), ValueSet(sticky(Seq(1)), 1))

    page = lab.storage.scan_entries(EntryQuery(conversation_id=Seq(1)))
    assert [entry.id for entry in page.items] == [2], f"the root shows {page.items}"


@rule("SEQ-4")
def test_an_empty_batch_is_refused(lab: Lab) -> None:
    root = lab.root()
    task = lab.task(root)
    with untouched(lab, "SEQ-4"):
        lab.commit()
    with untouched(lab, "SEQ-4"):
        lab.scratch(task)
    with untouched(lab, "SEQ-4"):
        lab.storage.commit(structs.replace(MainBatch(()), writes=None))
    with untouched(lab, "SEQ-4"):
        lab.storage.commit(structs.replace(MainBatch(()), writes=iter([ValueSet(NAME, 1)])))


# --- Order within a batch ---


@rule("SEQ-6")
def test_what_a_batch_creates_it_may_use(lab: Lab) -> None:
    root = lab.root()

    lab.commit(
        Conversation(id=Seq(2)),
        _task(3, 2),
        ValueSet(rewindable(Seq(2)), "at the cut"),
        ListAppend(moves(Seq(2)), "a"),
        ListRemove(moves(Seq(2)), Seq(5)),
        Entry(id=Seq(7), conversation_id=Seq(2), kind="x", by_task_id=Seq(3), head=Seq(7)),
        Conversation(id=Seq(8), parent=ForkPoint(Seq(2), Seq(7)), owner=Seq(3)),
        Entry(id=Seq(9), conversation_id=Seq(8), kind="x", head=Seq(7)),
        PatchTask(Seq(3), "busy", "inflight", {"status": "busy"}),
        SettleTask(Seq(3), "done", {"status": "done"}),
        Conversation(id=Seq(12), parent=ForkPoint(Seq(8), Seq(7))),
        DeleteConversation(Seq(2)),
    )

    live = lab.storage.get_conversations([root, Seq(2), Seq(8), Seq(12)])
    assert list(live) == [1, 12], f"live afterwards: {list(live)}; 2 and what it owned is deleted"
    shown = lab.storage.scan_entries(EntryQuery(conversation_id=Seq(12))).items
    assert [entry.id for entry in shown] == [7], f"the surviving fork shows {shown}"
    value = lab.storage.get_value(rewindable(Seq(12)))
    assert value is not None, "the surviving fork lost the value at its cut"
    assert value.seq == 4, f"the surviving fork shows version {value.seq}, not 4"
    assert lab.storage.get_tasks([Seq(3)]) == {}, "the deleted conversation's task is still there"


@rule("SEQ-6", "SEQ-5")
def test_nothing_is_used_before_it_is_created(lab: Lab) -> None:
    lab.root()
    with untouched(lab, "ENT-1"):
        lab.commit(_entry(2, 3), Conversation(id=Seq(3)))
    with untouched(lab, "TASK-2"):
        lab.commit(PatchTask(Seq(3), abort=True), _task(3))
    with untouched(lab, "VAL-5"):
        lab.commit(ListRemove(NAME, Seq(3)), ListAppend(NAME, 1))
    with untouched(lab, "FORK-1"):
        lab.commit(Conversation(id=Seq(2), parent=ForkPoint(Seq(1), Seq(3))), _entry(3))


@rule("SEQ-6")
def test_the_first_offence_is_the_one_reported(lab: Lab) -> None:
    lab.root()
    refusal: RefusedError | None = None
    try:
        lab.commit(ValueSet(NAME, 1), _entry(3, 99), _entry(77))
    except RefusedError as error:
        refusal = error

    assert isinstance(refusal, InvalidBatchError), f"raised {refusal!r}, not InvalidBatchError"
    assert refusal.path == "writes[1].conversationId", f"the path is {refusal.path!r}"
    assert "writes[1]" in str(refusal), f"the message does not say where: {refusal}"
    assert refusal.clause in str(refusal), f"the message does not name the clause: {refusal}"


# --- What each batch carries ---


@rule("SEQ-7", "TASK-4")
def test_main_and_scratch_do_not_mix(lab: Lab) -> None:
    root = lab.root()
    mine, other = lab.task(root), lab.task(root)
    scratch = ScratchAddress(mine, "p")
    with untouched(lab, "SEQ-7"):
        lab.commit(_entry(lab.next), ValueSet(scratch, 1))
    for write in (
        ValueSet(NAME, 1),
        ListAppend(sticky(root), 1),
        ValueDelete(ScratchAddress(other, "p")),
    ):
        with untouched(lab, "SEQ-7"):
            lab.scratch(mine, ValueSet(scratch, 1), write)
    batch = ScratchBatch(mine, (ValueSet(scratch, 1),))
    for foreign in (_entry(lab.next + 1), _task(lab.next + 1), PatchTask(mine, abort=True)):
        with untouched(lab, "SEQ-7"):
            lab.storage.commit(structs.replace(batch, writes=(*batch.writes, foreign)))

    assert lab.storage.commit(batch).task == mine, "the range does not name the scratch's task"


@rule("SEQ-7")
def test_rewindable_state_comes_before_entries(lab: Lab) -> None:
    root = lab.root()
    other = lab.conversation()
    element = lab.append(moves(root), 1)
    for late in (
        ValueSet(rewindable(root), 1),
        ValueDelete(rewindable(other)),
        ListAppend(moves(root), 1),
        ListRemove(moves(root), element),
        ListClear(moves(other)),
    ):
        with untouched(lab, "SEQ-7"):
            lab.commit(_entry(lab.next, root), late)


@rule("SEQ-7")
def test_other_state_may_follow_an_entry(lab: Lab) -> None:
    root = lab.root()

    lab.commit(
        ValueSet(rewindable(root), 1),
        _entry(3, root),
        ValueSet(sticky(root), 1),
        ListAppend(NAME, 1),
        _task(6),
        Conversation(id=Seq(7)),
        SettleTask(Seq(6), "done", {"status": "done"}),
    )

    assert lab.storage.last_seq == 8, "not all of the batch was written"


@rule("SEQ-7")
def test_what_is_no_batch_or_write_is_refused(lab: Lab) -> None:
    lab.root()
    good = MainBatch((ValueSet(NAME, 1),))
    for foreign in (None, 1, "value.set", BatchRange(Seq(2), Seq(2)), good, good.writes):
        with untouched(lab, "SEQ-7"):
            lab.storage.commit(structs.replace(good, writes=(*good.writes, foreign)))
    with untouched(lab, "SEQ-7"):
        lab.storage.commit(good.writes)  # type: ignore[arg-type]


@rule("SEQ-8")
def test_a_stale_writer_is_refused_and_nothing_merged(lab: Lab) -> None:
    root = lab.root()
    lab.storage.commit(MainBatch((_entry(2, root),)), expected_first=Seq(2))
    for stale in (2, 1, 4, 0, -1):
        with untouched(lab, "SEQ-8"):
            lab.storage.commit(MainBatch((ValueSet(NAME, 1),)), expected_first=Seq(stale))
    caught: Exception | None = None
    try:
        lab.storage.commit(MainBatch((_entry(2, 99),)), expected_first=Seq(2))
    except RefusedError as error:
        caught = error

    assert isinstance(caught, StaleWriterError), f"raised {caught!r}; staleness is judged first"
    lab.storage.commit(MainBatch((_entry(3, root),)), expected_first=Seq(3))


# --- Boundaries and readers ---


@rule("SEQ-9", "TASK-4")
def test_batch_boundaries_are_listed(lab: Lab) -> None:
    root = lab.root()
    lab.commit(_entry(2, root), _task(3), _entry(4, root))
    lab.scratch(
        Seq(3),
        ValueSet(ScratchAddress(Seq(3), "p"), 1),
        ValueDelete(ScratchAddress(Seq(3), "p", "k")),
    )
    lab.commit(ValueSet(NAME, 1))
    main = [BatchRange(Seq(1), Seq(1)), BatchRange(Seq(2), Seq(4)), BatchRange(Seq(7), Seq(7))]

    with_scratch = lab.storage.scan_batches(BatchQuery()).items
    lab.settle(Seq(3))
    without = lab.storage.scan_batches(BatchQuery()).items

    expected = [*main[:2], BatchRange(Seq(5), Seq(6), Seq(3)), main[2]]
    assert with_scratch == expected, f"with a live task's scratch: {with_scratch}"
    expected = [*main, BatchRange(Seq(8), Seq(8))]
    assert without == expected, f"after the settlement retired it: {without}"


@rule("SEQ-9", "PAGE-1")
def test_batches_page_by_their_first_number(lab: Lab) -> None:
    root = lab.root()
    for _ in range(4):
        lab.commit(_entry(lab.next, root), ValueSet(NAME, 1))

    def firsts(query: BatchQuery) -> list[int]:
        return [batch.first for batch in lab.storage.scan_batches(query).items]

    assert firsts(BatchQuery(after=Seq(2), limit=2)) == [4, 6], "after 2"
    assert firsts(BatchQuery(after=Seq(3), limit=2)) == [4, 6], "after 3, inside a batch"
    assert firsts(BatchQuery(before=Seq(6), limit=2)) == [4, 2], "before 6"
    paged = walk(lab.storage.scan_batches, BatchQuery(limit=2))
    assert [batch.first for batch in paged] == [1, 2, 4, 6, 8], "all pages"


@rule("SEQ-10")
def test_a_reader_sees_whole_batches(lab: Lab) -> None:
    root = lab.root()
    batches, size = 100, 3
    done = threading.Event()
    wrong: list[str] = []

    def read() -> None:
        query = EntryQuery(conversation_id=root, limit=10_000)
        try:
            while not done.is_set():
                page = lab.storage.scan_entries(query)
                if len(page.items) != page.read_at - 1 or len(page.items) % size:
                    wrong.append(f"{len(page.items)} entries at {page.read_at}")
                items = list(lab.storage.export())
                header = items[0]
                entries = sum(isinstance(item, Entry) for item in items)
                if not isinstance(header, SnapshotHeader) or entries != header.last_seq - 1:
                    wrong.append(f"an export of {entries} entries with header {header}")
        except Exception as error:  # noqa: BLE001 - reported by the thread that asserts
            wrong.append(f"a read raised {error!r}")

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for _ in range(batches):
            first = lab.next
            lab.commit(*(_entry(first + i, root) for i in range(size)))
    finally:
        done.set()
        for reader in readers:
            reader.join()

    assert not wrong, f"half a batch was seen, or worse: {wrong[:3]}"


@rule("SEQ-10", "DUR-10")
def test_an_export_sees_one_state_whatever_commits_meanwhile(lab: Lab) -> None:
    scene = build_scene(lab)
    before = list(lab.storage.export())
    stream = lab.storage.export()
    seen = [next(stream)]

    lab.commit(ValueSet(rewindable(scene.root), "new"), _entry(lab.next + 1, scene.root, "new"))
    lab.settle(scene.live)
    seen += stream

    assert seen == before, "an export that had begun shows a commit that came after it"
