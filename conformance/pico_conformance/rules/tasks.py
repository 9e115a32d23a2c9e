"""TASK: tasks, their roles, abort marks and scratch."""

from __future__ import annotations

from msgspec import structs

from pico_conformance.rule import Lab, rule
from pico_conformance.rules.everything import exact, now_and_reopened, untouched
from pico_conformance.rules.scene import build_scene
from pico_store.address import ScratchAddress, Seq
from pico_store.batch import (
    DeleteConversation,
    ListAppend,
    ListClear,
    PatchTask,
    ScratchBatch,
    SettleTask,
    ValueDelete,
    ValueSet,
)
from pico_store.query import BatchQuery, ListQuery, TaskQuery, ValueQuery
from pico_store.records import JsonObject, Task


def _get(lab: Lab, id: Seq) -> Task:
    found = lab.storage.get_tasks([id])
    assert id in found, f"task {id} is not there"
    return found[id]


@rule("TASK-1", "TASK-7")
def test_a_task_is_read_back_as_it_was_written(lab: Lab) -> None:
    root = lab.root()
    first = lab.task(root)
    state: JsonObject = {"b": 1, "status": "ready", "a": [1.0, None]}
    full = Task(
        id=lab.next,
        conversation_id=root,
        kind="__proto__",
        status="ready",
        role="inflight",
        state=state,
        after=(first,),
        background=True,
        turn=True,
    )
    lab.commit(full)
    second = structs.replace(full, id=lab.next, after=(full.id, first), turn=False)
    lab.commit(second)

    for storage in now_and_reopened(lab):
        read = storage.get_tasks([full.id, second.id])
        assert exact(read[full.id]) == exact(full), f"read as {exact(read[full.id])}"
        assert exact(read[second.id]) == exact(second), f"read as {exact(read[second.id])}"
        assert read[second.id].after == (full.id, first), "the order of `after` changed"
        scanned = storage.scan_tasks(TaskQuery(after=first)).items
        assert exact(scanned) == exact([full, second]), f"scanned as {exact(scanned)}"


@rule("TASK-1", "TASK-2", "TASK-3", "TASK-5")
def test_a_task_of_another_form_is_refused(lab: Lab) -> None:
    scene = build_scene(lab)
    task = Task(lab.next, scene.root, "work", "x", "start", {"status": "x"})
    for clause, changed in (
        ("TASK-1", {"conversation_id": scene.user}),
        ("TASK-1", {"conversation_id": scene.deleted}),
        ("TASK-1", {"after": (lab.next,)}),
        ("TASK-1", {"after": (scene.user,)}),
        ("TASK-1", {"after": (scene.live, scene.done, scene.live)}),
        ("TASK-1", {"after": scene.live}),
        ("TASK-1", {"after": None}),
        ("TASK-1", {"background": 1}),
        ("TASK-1", {"turn": None}),
        ("TASK-2", {"role": "terminal"}),
        ("TASK-2", {"role": "Start"}),
        ("TASK-2", {"role": None}),
        ("TASK-2", {"state": {}}),
        ("TASK-2", {"state": {"status": "y"}}),
        ("TASK-2", {"state": {"status": None}}),
        ("TASK-2", {"state": [("status", "x")]}),
        ("TASK-2", {"state": None}),
        ("TASK-3", {"abort": True}),
        ("TASK-5", {"owns": (scene.child,)}),
        ("JSON-5", {"kind": ""}),
        ("JSON-5", {"status": "", "state": {"status": ""}}),
        ("JSON-5", {"status": 1, "state": {"status": 1}}),
        ("JSON-2", {"state": {"status": "x", "a": float("inf")}}),
    ):
        with untouched(lab, clause):
            lab.commit(structs.replace(task, **changed))


@rule("TASK-2")
def test_a_patch_replaces_the_whole_state(lab: Lab) -> None:
    root = lab.root()
    task = Task(lab.next, root, "work", "a", "start", {"status": "a", "old": 1})
    lab.commit(task)

    lab.commit(PatchTask(task.id, "b", "inflight", {"status": "b", "new": 2}))
    patched = _get(lab, task.id)
    lab.commit(PatchTask(task.id, "a", "start", {"status": "a"}))
    back = _get(lab, task.id)

    assert patched.state == {"status": "b", "new": 2}, f"the state is {patched.state}"
    assert (patched.status, patched.role) == ("b", "inflight"), f"patched to {patched}"
    assert (back.status, back.role, back.state) == ("a", "start", {"status": "a"}), f"{back}"
    by_role = [
        [found.id for found in lab.storage.scan_tasks(TaskQuery(role=role)).items]
        for role in ("start", "inflight", "terminal")
    ]
    assert by_role == [[task.id], [], []], f"an index kept an older role: {by_role}"


@rule("TASK-2")
def test_what_a_patch_and_a_settlement_refuse(lab: Lab) -> None:
    scene = build_scene(lab)
    patch = PatchTask(scene.live, "x", "start", {"status": "x"})
    settle = SettleTask(scene.live, "x", {"status": "x"})
    changes: tuple[dict[str, object], ...] = (
        {"role": "terminal"},
        {"role": None},
        {"status": None},
        {"state": None},
        {"state": {"status": "y"}},
        {"state": {}},
        {"status": None, "role": None, "state": None},
        {"id": scene.done},
        {"id": Seq(10**6)},
        {"id": scene.user},
    )
    for changed in changes:
        with untouched(lab, "TASK-2"):
            lab.commit(structs.replace(patch, **changed))
    changes = (
        {"role": "start"},
        {"role": "inflight"},
        {"role": None},
        {"state": {"status": "y"}},
        {"state": None},
        {"id": scene.done},
        {"id": Seq(10**6)},
    )
    for changed in changes:
        with untouched(lab, "TASK-2"):
            lab.commit(structs.replace(settle, **changed))
    with untouched(lab, "TASK-2"):
        lab.commit(settle, patch)
    with untouched(lab, "TASK-2"):
        lab.commit(settle, settle)


@rule("TASK-3")
def test_an_abort_mark_is_never_cleared(lab: Lab) -> None:
    root = lab.root()
    one, two = lab.task(root), lab.task(root)
    lab.commit(PatchTask(one, abort=True))
    marked = _get(lab, one)
    lab.commit(PatchTask(one, "x", "inflight", {"status": "x"}))
    patched = _get(lab, one)
    lab.commit(PatchTask(one, abort=True))
    lab.commit(PatchTask(two, "y", "start", {"status": "y"}, abort=True))
    both = _get(lab, two)
    lab.settle(one)
    lab.reopen()

    assert marked.abort, "the mark is not set"
    assert (marked.status, marked.role) == ("ready", "start"), "the mark changed the state"
    assert patched.abort, "a later patch cleared the mark"
    assert both.abort, "a patch with state and mark did not set it"
    assert both.status == "y", "a patch with state and mark lost the state"
    assert _get(lab, one).abort, "the settlement cleared the mark"
    found = [task.id for task in lab.storage.scan_tasks(TaskQuery(abort=True)).items]
    assert found == [one, two], f"marked tasks: {found}"
    with untouched(lab, "TASK-3"):
        lab.commit(structs.replace(PatchTask(two, abort=True), abort=1))


# --- Scratch ---


@rule("TASK-4", "VAL-8")
def test_scratch_holds_values_and_lists_of_one_task(lab: Lab) -> None:
    root = lab.root()
    one, two = lab.task(root), lab.task(root)
    partial, frames = ScratchAddress(one, "p", "k"), ScratchAddress(one, "f")
    lab.scratch(one, ValueSet(partial, "a"), ListAppend(frames, 1), ListAppend(frames, 2))
    lab.scratch(two, ValueSet(ScratchAddress(two, "p", "k"), "other"))
    set_at = lab.scratch(one, ValueSet(partial, "b"), ListClear(frames), ListAppend(frames, 3))

    for storage in now_and_reopened(lab):
        value = storage.get_value(partial)
        assert value is not None, "the scratch value is absent"
        assert (value.seq, value.value) == (set_at.first, "b"), f"the scratch value: {value}"
        items = storage.read_list(frames, ListQuery()).items
        assert [item.value for item in items] == [3], f"the scratch list: {items}"
        keyed = storage.scan_values(ValueQuery(scope=ScratchAddress(one, "p"))).items
        assert [(item.key, item.value) for item in keyed] == [("k", "b")], f"keyed: {keyed}"
    lab.scratch(one, ValueDelete(partial))
    assert lab.storage.get_value(partial) is None, "a deleted scratch value is still there"
    assert lab.storage.get_value(ScratchAddress(two, "p", "k")) is not None, "and took another's"


@rule("TASK-4", "SEQ-9")
def test_a_settlement_retires_the_scratch_in_its_own_commit(lab: Lab) -> None:
    root = lab.root()
    task, other = lab.task(root), lab.task(root)
    for id in (task, other):
        lab.scratch(
            id,
            ValueSet(ScratchAddress(id, "p"), "partial"),
            ValueSet(ScratchAddress(id, "p", "k"), "partial"),
            ListAppend(ScratchAddress(id, "f"), "frame"),
        )
    last = lab.settle(task)

    for storage in now_and_reopened(lab):
        assert storage.get_value(ScratchAddress(task, "p")) is None, "a scratch value survived"
        page = storage.read_list(ScratchAddress(task, "f"), ListQuery())
        assert page.items == [], "a scratch list survived"
        keyed = storage.scan_values(ValueQuery(scope=ScratchAddress(task, "p")))
        assert keyed.items == [], "a keyed scratch value survived"
        owners = {batch.task for batch in storage.scan_batches(BatchQuery()).items}
        assert owners == {None, other}, f"scratch batches of {owners} are listed"
        assert storage.get_value(ScratchAddress(other, "p")) is not None, "another's is gone"
        assert storage.last_seq == last, f"last_seq went back to {storage.last_seq}"
    with untouched(lab, "TASK-4"):
        lab.scratch(task, ListAppend(ScratchAddress(task, "f"), "late"))


@rule("TASK-4", "DEL-2")
def test_the_very_batch_that_was_right_is_refused_once_its_task_is_not_live(lab: Lab) -> None:
    root = lab.root()
    forked = lab.conversation()
    settled, taken = lab.task(root), lab.task(forked)
    batches = [
        ScratchBatch(id, (ListAppend(ScratchAddress(id, "f"), 1),)) for id in (settled, taken)
    ]
    for batch in batches:
        for _ in range(2):
            lab.storage.commit(batch)
    lab.settle(settled)

    lab.storage.commit(batches[1])
    with untouched(lab, "TASK-4"):
        lab.storage.commit(batches[0])
    lab.settle(taken)
    lab.commit(DeleteConversation(forked))
    for batch in batches:
        with untouched(lab, "TASK-4"):
            lab.storage.commit(batch)


@rule("TASK-4", "PAGE-6")
def test_scratch_of_no_live_task_reads_as_empty(lab: Lab) -> None:
    scene = build_scene(lab)
    storage = lab.storage
    for task in (scene.done, scene.root, Seq(10**6), Seq(0), Seq(2**70)):
        address = ScratchAddress(task, "p")
        assert storage.get_value(address) is None, f"scratch of {task} has a value"
        assert storage.read_list(address, ListQuery()).items == [], f"scratch of {task}: a list"
        keyed = storage.scan_values(ValueQuery(scope=address))
        assert keyed.items == [], f"scratch of {task} has keyed values"


@rule("TASK-4", "SEQ-1")
def test_numbers_of_retired_scratch_are_not_used_again(lab: Lab) -> None:
    root = lab.root()
    task = lab.task(root)
    lab.scratch(task, *(ListAppend(ScratchAddress(task, "f"), n) for n in range(100)))
    live = lab.storage.last_seq
    assert lab.reopen().last_seq == live, "live scratch is not counted after reopening"
    lab.scratch(task, ListClear(ScratchAddress(task, "f")))
    lab.settle(task)
    lab.store.vacuum()

    assert lab.reopen().last_seq == live + 2, "numbers of retired scratch came back"
    assert lab.entry(root) == live + 3, "the next write got a number that was used"


# --- Ownership ---


@rule("TASK-5", "DEL-2")
def test_what_a_task_owns_follows_from_conversations(lab: Lab) -> None:
    root = lab.root()
    task, other = lab.task(root), lab.task(root)
    a = lab.conversation(owner=task)
    b = lab.conversation(owner=task)
    c = lab.conversation(owner=other)
    before = _get(lab, task).owns
    lab.settle(task)
    late = lab.conversation(owner=task)
    lab.commit(DeleteConversation(a))
    lab.reopen()

    assert before == (a, b), f"owns is {before} while the task is live"
    assert _get(lab, task).owns == (b, late), f"owns is {_get(lab, task).owns} after a delete"
    assert _get(lab, other).owns == (c,), "another task's"
    scanned = {found.id: found.owns for found in lab.storage.scan_tasks(TaskQuery()).items}
    assert scanned == {task: (b, late), other: (c,)}, f"in a scan: {scanned}"
    with untouched(lab, "TASK-5"):
        lab.conversation(owner=a)
    with untouched(lab, "TASK-5"):
        lab.conversation(owner=lab.next)


# --- Reads ---


@rule("TASK-6", "PAGE-4")
def test_live_tasks_are_found_without_reading_terminal_ones(lab: Lab) -> None:
    root = lab.root()
    first = lab.task(root)
    for _ in range(50):
        at = lab.next
        ids = [Seq(at + 2 * i) for i in range(10)]
        lab.commit(
            *(
                write
                for id in ids
                for write in (
                    Task(id, root, "work", "x", "start", {"status": "x"}),
                    SettleTask(id, "done", {"status": "done"}),
                )
            )
        )
    last = lab.task(root)
    storage = lab.reopen()
    for query in (TaskQuery(live=True), TaskQuery(conversation_ids=(root,), live=True)):
        before = storage.counters.rows_decoded
        found = [task.id for task in storage.scan_tasks(query).items]
        decoded = storage.counters.rows_decoded - before

        assert found == [first, last], f"live: {found}"
        assert decoded <= 3, f"{decoded} payloads decoded to find two live tasks among 502"


@rule("TASK-7", "TASK-2")
def test_terminal_tasks_stay_as_they_were_settled(lab: Lab) -> None:
    root = lab.root()
    task = lab.task(root)
    lab.commit(SettleTask(task, "failed", {"status": "failed", "error": "none\x00"}))
    lab.entry(root)
    lab.store.vacuum()

    for storage in now_and_reopened(lab):
        found = storage.get_tasks([task])[task]
        assert (found.status, found.role) == ("failed", "terminal"), f"settled as {found}"
        assert found.state == {"status": "failed", "error": "none\x00"}, f"state {found.state}"
        listed = [item.id for item in storage.scan_tasks(TaskQuery(live=False)).items]
        assert listed == [task], f"terminal tasks: {listed}"
