"""Writes of other types, and numbers that Python does not write out: refused like any mistake."""

from __future__ import annotations

from msgspec import structs

from pico_conformance.rule import Lab, rule
from pico_conformance.rules.everything import assert_same, everything, untouched
from pico_store.address import ConversationAddress, ScratchAddress, Seq, SessionAddress
from pico_store.batch import (
    DeleteConversation,
    ListAppend,
    ListRemove,
    MainBatch,
    PatchTask,
    ScratchBatch,
    SettleTask,
    ValueSet,
)
from pico_store.errors import RefusedError
from pico_store.records import Conversation, Entry, ForkPoint, Omit, Task


class _Word(str):
    """A text that is equal to one that is allowed."""


@rule("TASK-2", "TASK-3", "TASK-5")
def test_a_part_of_a_task_that_is_only_like_an_allowed_one_is_refused(lab: Lab) -> None:
    root = lab.root()
    task = lab.task(root)
    good = Task(lab.next, root, "work", "s", "start", {"status": "s"})
    likes: tuple[tuple[str, str, tuple[object, ...]], ...] = (
        ("abort", "TASK-3", (None, 0, "", (), True)),
        ("owns", "TASK-5", (None, 0, "", False, {}, (root,))),
        ("role", "TASK-2", (_Word("start"), None, 1, [])),
    )
    for part, clause, values in likes:
        for value in values:
            with untouched(lab, clause):
                lab.commit(structs.replace(good, **{part: value}))
    with untouched(lab, "TASK-2"):
        lab.commit(PatchTask(task, "s", _Word("start"), {"status": "s"}))  # type: ignore[arg-type]
    with untouched(lab, "TASK-2"):
        lab.commit(SettleTask(task, "s", {"status": "s"}, _Word("terminal")))  # type: ignore[arg-type]


@rule("SEQ-7", "SEQ-2")
def test_a_scratch_batch_of_no_task_is_no_main_batch(lab: Lab) -> None:
    root = lab.root()
    for write in (Entry(lab.next, root, "note"), ValueSet(SessionAddress("s"), 1)):
        with untouched(lab, "SEQ-2"):
            lab.storage.commit(ScratchBatch(None, (write,)))  # type: ignore[arg-type]


@rule("SEQ-8")
def test_a_number_that_is_only_equal_to_the_next_is_stale(lab: Lab) -> None:
    lab.root()
    batch = MainBatch((ValueSet(SessionAddress("s"), 1),))
    for expected in (float(lab.next), 10**5_000, -(10**5_000), "2"):
        with untouched(lab, "SEQ-8"):
            lab.storage.commit(batch, expected_first=expected)  # type: ignore[arg-type]


@rule("SEQ-1", "SEQ-2")
def test_a_number_too_long_to_be_written_out_is_refused(lab: Lab) -> None:
    root = lab.root()
    task, element = lab.task(root), lab.append(SessionAddress("l"), 1)
    note = lab.entry(root)
    huge = Seq(10**5_000)
    batches: tuple[MainBatch | ScratchBatch, ...] = (
        MainBatch((Conversation(huge),)),
        MainBatch((Conversation(lab.next, owner=huge),)),
        MainBatch((Conversation(lab.next, ForkPoint(huge, note)),)),
        MainBatch((Conversation(lab.next, ForkPoint(root, huge)),)),
        MainBatch((Entry(lab.next, huge, "k"),)),
        MainBatch((Entry(lab.next, root, "k", by_task_id=huge),)),
        MainBatch((Entry(lab.next, root, "k", head=huge),)),
        MainBatch((Entry(lab.next, root, "k", edits=(Omit(huge),)),)),
        MainBatch((Entry(lab.next, root, "k", data={huge: 1}),)),  # type: ignore[dict-item]
        MainBatch((Task(lab.next, root, "k", "s", "start", {"status": "s"}, (huge,)),)),
        MainBatch((PatchTask(huge, abort=True),)),
        MainBatch((PatchTask(task, "s", "start", {"status": huge}),)),
        MainBatch((SettleTask(huge, "s", {"status": "s"}),)),
        MainBatch((DeleteConversation(huge),)),
        MainBatch((ListRemove(SessionAddress("l"), huge),)),
        MainBatch((ValueSet(ConversationAddress(huge, "v"), 1),)),
        MainBatch((ValueSet(SessionAddress("v"), [huge]),)),
        ScratchBatch(huge, (ListAppend(ScratchAddress(huge, "f"), 1),)),
        ScratchBatch(task, (ListAppend(ScratchAddress(huge, "f"), 1),)),
    )
    before, last = everything(lab.storage), lab.next - 1
    assert element < last
    for batch in batches:
        try:
            lab.storage.commit(batch)
        except RefusedError:
            assert lab.storage.last_seq == last, "a refusal consumed a number"
            continue
        raise AssertionError(f"accepted: {type(batch).__name__} {type(batch.writes[0]).__name__}")
    assert_same(before, everything(lab.storage), "refused batches")
