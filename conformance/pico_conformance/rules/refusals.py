"""SEQ-5: refusals of every kind leave no trace, wherever in the batch the offence stands."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from pico_conformance.rule import Lab, rule
from pico_conformance.rules.everything import assert_same, everything
from pico_conformance.rules.scene import Scene, build_scene, moves, rewindable, sticky
from pico_store.address import ScratchAddress, Seq, SessionAddress
from pico_store.batch import (
    DeleteConversation,
    ListAppend,
    ListClear,
    ListRemove,
    MainBatch,
    MainWrite,
    PatchTask,
    ScratchBatch,
    SettleTask,
    StateWrite,
    ValueSet,
)
from pico_store.errors import RefusedError
from pico_store.records import Conversation, Entry, ForkPoint, JsonValue, Omit, Task

FRESH = SessionAddress("refused", "fresh")


def _good(lab: Lab, scene: Scene) -> list[MainWrite]:
    """Return writes that leave a mark in every index, none of which may stay."""
    first = lab.next
    return [
        ValueSet(FRESH, 1),
        ListAppend(FRESH, 1),
        ListRemove(moves(scene.root), scene.elements[1]),
        ValueSet(rewindable(scene.root, "refused"), 1),
        ValueSet(sticky(scene.root, "refused"), 1),
        Task(Seq(first + 5), scene.root, "refused", "x", "start", {"status": "x"}),
        PatchTask(scene.live, "refused", "start", {"status": "refused"}),
        Conversation(Seq(first + 7), owner=scene.live),
        Entry(Seq(first + 8), scene.root, "refused", "key", head=Seq(first + 8)),
    ]


def _offences(at: Seq, scene: Scene) -> Iterator[tuple[str, MainWrite]]:
    """Yield writes that are refused at number ``at``, with the clause."""
    root, unknown = scene.root, Seq(at + 1000)
    entry = Entry(at, root, "note")
    task = Task(at, root, "work", "x", "start", {"status": "x"})
    yield "SEQ-1", structs.replace(entry, id=Seq(at + 1))
    yield "SEQ-7", ValueSet(ScratchAddress(scene.live, "p"), 1)
    yield "VAL-1", ValueSet(structs.replace(rewindable(root, "k"), rewind=False), 1)
    yield "VAL-1", ValueSet(sticky(unknown), 1)
    yield "VAL-5", ListRemove(moves(root), scene.elements[0])
    yield "VAL-5", ListRemove(moves(scene.fork), scene.elements[1])
    yield "ENT-1", structs.replace(entry, conversation_id=scene.deleted)
    yield "ENT-1", structs.replace(entry, by_task_id=unknown)
    yield "ENT-2", structs.replace(entry, head=scene.fork_entry)
    yield "ENT-4", structs.replace(entry, edits=(Omit(scene.fork_entry),))
    yield "FORK-1", Conversation(at, parent=ForkPoint(root, scene.fork_entry))
    yield "FORK-1", Conversation(at, parent=ForkPoint(scene.deleted, scene.user))
    yield "TASK-1", structs.replace(task, after=(at,))
    yield "TASK-2", structs.replace(task, role="terminal")
    yield "TASK-2", PatchTask(scene.done, abort=True)
    yield "TASK-2", SettleTask(scene.live, "done", {"status": "other"})
    yield "TASK-3", structs.replace(task, abort=True)
    yield "TASK-5", structs.replace(task, owns=(scene.child,))
    yield "TASK-5", Conversation(at, owner=unknown)
    yield "DEL-1", DeleteConversation(root)
    yield "DEL-1", DeleteConversation(scene.deleted)
    yield "JSON-1", ListAppend(FRESH, structs.replace(ValueSet(FRESH, 1), value={1, 2}).value)
    yield "JSON-2", ValueSet(FRESH, [float("nan")])
    yield "JSON-3", ValueSet(FRESH, {"a": "\ud800"})
    yield "JSON-3", ValueSet(SessionAddress("\udfff"), 1)
    yield "JSON-4", ValueSet(FRESH, _nested(201))
    yield "JSON-5", structs.replace(entry, kind="k" * 1025)
    yield "JSON-5", structs.replace(entry, kind="")


def _nested(depth: int) -> JsonValue:
    value: JsonValue = []
    for _ in range(depth - 1):
        value = [value]
    return value


@rule("SEQ-5", "SEQ-6")
def test_a_batch_with_one_bad_write_leaves_no_trace(lab: Lab) -> None:
    scene = build_scene(lab)
    before = everything(lab.storage)
    good = _good(lab, scene)
    rewindable_ones = 4
    for place in (0, rewindable_ones, len(good)):
        at = Seq(lab.next + place)
        # Before the entry of the good writes, and after what an offence must not meet first.
        head = good[:place]
        for clause, bad in _offences(at, scene):
            if place == len(good) and (clause == "ENT-2" or _is_rewindable(bad)):
                continue
            label = f"{clause} at writes[{place}] ({type(bad).__name__})"
            refusal = _refusal(lab, MainBatch((*head, bad)))
            assert refusal.clause == clause, f"{label} was refused otherwise: {refusal}"
            assert refusal.path.startswith(f"writes[{place}]"), f"{label}: path {refusal.path!r}"
            assert_same(before, everything(lab.storage), label)

    made = lab.commit(*good)

    assert made.last == made.first + len(good) - 1, "the good batch was not written whole"


def _is_rewindable(write: MainWrite) -> bool:
    address = getattr(write, "address", None)
    return bool(getattr(address, "rewind", False)) or type(write) is ListRemove


def _refusal(lab: Lab, batch: MainBatch | ScratchBatch) -> RefusedError:
    try:
        made = lab.storage.commit(batch)
    except RefusedError as error:
        return error
    raise AssertionError(f"accepted as {made}: {batch!r:.300}")


@rule("SEQ-5", "TASK-4")
def test_a_refused_scratch_batch_leaves_no_trace(lab: Lab) -> None:
    scene = build_scene(lab)
    before = everything(lab.storage)
    mine = ScratchAddress(scene.live, "p", "refused")
    good: tuple[StateWrite, ...] = (
        ValueSet(mine, 1),
        ListAppend(mine, 1),
        ListClear(ScratchAddress(scene.live, "frames")),
    )
    offences: list[tuple[str, StateWrite]] = [
        ("SEQ-7", ValueSet(SessionAddress("s"), 1)),
        ("SEQ-7", ValueSet(ScratchAddress(scene.done, "p"), 1)),
        ("VAL-5", ListRemove(mine, Seq(1))),
        ("JSON-2", ListAppend(mine, float("inf"))),
        ("JSON-5", ValueSet(ScratchAddress(scene.live, ""), 1)),
    ]
    for clause, bad in offences:
        refusal = _refusal(lab, ScratchBatch(scene.live, (*good, bad)))
        assert refusal.clause == clause, f"{bad!r:.80} was refused otherwise: {refusal}"
        assert_same(before, everything(lab.storage), f"{clause} in a scratch batch")
    for task in (scene.done, scene.root, Seq(10**6)):
        refusal = _refusal(lab, ScratchBatch(task, (ValueSet(ScratchAddress(task, "p"), 1),)))
        assert refusal.clause == "TASK-4", f"scratch of {task} was refused otherwise: {refusal}"
        assert_same(before, everything(lab.storage), "scratch of a task that is not live")

    made = lab.scratch(scene.live, *good)

    assert made.first == Seq(int(before["last_seq"]) + 1), "the refusals moved the numbers on"


@rule("SEQ-5", "ENT-2", "ENT-4")
def test_a_refusal_after_many_good_writes_uses_no_number(lab: Lab) -> None:
    root = lab.root()
    for count in (1, 10, 999):
        first = lab.next
        good = tuple(Entry(Seq(first + i), root, "refused") for i in range(count))
        bad = Entry(Seq(first + count), root, "refused", head=Seq(first + count + 1))
        refusal = _refusal(lab, MainBatch((*good, bad)))

        assert refusal.clause == "ENT-2", f"refused otherwise: {refusal}"
        assert lab.storage.last_seq == root, f"{count} refused writes moved last_seq"
        assert lab.storage.entry_kinds() == frozenset(), "a refused entry left its kind behind"
