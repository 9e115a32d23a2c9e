"""DEL: what a deletion takes, what it leaves, and how far the deleted still reach."""

from __future__ import annotations

import re

from pico_conformance.rule import Lab, rule
from pico_conformance.rules.everything import assert_same, everything, now_and_reopened, untouched
from pico_conformance.rules.forks import shown
from pico_conformance.rules.scene import build_scene, moves, rewindable, sticky
from pico_store.address import Seq
from pico_store.batch import (
    DeleteConversation,
    ListAppend,
    ListRemove,
    MainWrite,
    ValueDelete,
    ValueSet,
)
from pico_store.query import BatchQuery, ConversationQuery, ListQuery, TaskQuery
from pico_store.records import Conversation, Entry, ForkPoint, Task
from pico_store.snapshot import DeletedConversation


def _delete(lab: Lab, conversation: Seq) -> None:
    lab.commit(DeleteConversation(conversation))


def _live(lab: Lab) -> list[Seq]:
    page = lab.storage.scan_conversations(ConversationQuery(limit=1_000))
    return [item.id for item in page.items]


def _reach(lab: Lab) -> dict[Seq, Seq]:
    """Return the reach of every deleted conversation that an export names."""
    items = lab.storage.export()
    return {
        item.conversation.id: item.through
        for item in items
        if isinstance(item, DeletedConversation)
    }


@rule("DEL-1", "TASK-5")
def test_a_deletion_takes_what_tasks_own_transitively(lab: Lab) -> None:
    root = lab.root()
    kept_task = lab.task(root)
    kept = lab.conversation(owner=kept_task)
    doomed = lab.conversation()
    task = lab.task(doomed)
    child = lab.conversation(owner=task)
    sibling = lab.conversation(owner=task)
    child_task = lab.task(child)
    cut = lab.entry(kept)
    grandchild = lab.fork(kept, cut, owner=child_task)
    for id in (task, child_task):
        lab.settle(id)
    before = lab.next

    _delete(lab, doomed)

    assert lab.next == before + 1, "a deletion is one write"
    for storage in now_and_reopened(lab):
        gone = [doomed, child, sibling, grandchild]
        assert list(storage.get_conversations(gone)) == [], "something of the subtree is left"
        assert storage.get_tasks([task, child_task]) == {}, "its tasks are left"
        tasks = [item.id for item in storage.scan_tasks(TaskQuery()).items]
        assert tasks == [kept_task], f"tasks left: {tasks}"
        assert _live(lab) == [root, kept], f"conversations left: {_live(lab)}"
    assert shown(lab, kept) == [cut], "what a deleted conversation was forked from is changed"


@rule("DEL-1")
def test_what_cannot_be_deleted(lab: Lab) -> None:
    scene = build_scene(lab)
    busy = lab.conversation()
    owner = lab.task(busy)
    child = lab.conversation(owner=owner)
    lab.settle(owner)
    live = lab.task(child)
    for id in (scene.root, scene.deleted, scene.user, Seq(10**6), busy, child):
        with untouched(lab, "DEL-1"):
            _delete(lab, id)
    with untouched(lab, "DEL-1"):
        task = Task(lab.next, scene.fork, "work", "x", "start", {"status": "x"})
        lab.commit(task, DeleteConversation(scene.fork))
    with untouched(lab, "DEL-1"):
        lab.commit(DeleteConversation(scene.fork), DeleteConversation(scene.fork))

    lab.settle(live)
    _delete(lab, busy)

    assert lab.storage.get_conversations([busy, child]) == {}, "the settled subtree is still there"


@rule("DEL-1", "DEL-2")
def test_forks_are_not_taken_with_their_parent(lab: Lab) -> None:
    root = lab.root()
    source = lab.conversation()
    cut = lab.entry(source)
    fork = lab.fork(source, cut)
    deeper = lab.fork(fork, cut)

    _delete(lab, source)

    assert _live(lab) == [root, fork, deeper], f"left: {_live(lab)}"
    record = lab.storage.get_conversations([fork])[fork]
    assert record.parent == ForkPoint(source, cut), "the fork forgot where it came from"
    by_parent = lab.storage.scan_conversations(ConversationQuery(parent=source)).items
    assert [item.id for item in by_parent] == [fork], "not found by its deleted parent"


@rule("DEL-2", "FORK-2", "FORK-5")
def test_forks_keep_all_that_they_showed(lab: Lab) -> None:
    root = lab.root()
    first = lab.entry(root, head="self")
    source = lab.fork(root, first)
    lab.set(rewindable(source), "then")
    lab.set(rewindable(source, "k"), "then")
    lab.append(moves(source), "a")
    lab.set(sticky(source, "s"), "sticky")
    second = lab.entry(source, kind="x", key="k", head="self")
    middle = lab.fork(source, second)
    lab.unset(rewindable(middle, "k"))
    element = lab.append(moves(middle), "b")
    third = lab.entry(middle)
    fork = lab.fork(middle, third)
    lab.set(rewindable(source), "later")
    lab.entry(source, head="self")
    before = everything(lab.storage)
    # The sticky addresses that are looked at follow from the source's, which is about to go.
    kept = {
        label
        for label in before
        if f"conversation {fork}:" in label
        or (f'"conversation":{fork},' in label and '"rewind":true' in label)
    }

    _delete(lab, source)
    one = everything(lab.storage)
    _delete(lab, middle)
    lab.store.vacuum()
    lab.reopen()
    two = everything(lab.storage)

    for after, what in ((one, "deleting the source"), (two, "deleting both and vacuum")):
        assert_same(_without_position(before, kept), _without_position(after, kept), what)
    lab.commit(ListRemove(moves(fork), element), ValueDelete(rewindable(fork)))
    items = lab.storage.read_list(moves(fork), ListQuery()).items
    assert [item.value for item in items] == ["a"], "an inherited element cannot be removed"


def _without_position(seen: dict[str, str], labels: set[str]) -> dict[str, str]:
    return {label: re.sub(r'"read_at":\d+', "", seen[label]) for label in labels}


@rule("DEL-3")
def test_nothing_is_written_to_a_deleted_conversation(lab: Lab) -> None:
    scene = build_scene(lab)
    gone, entry = scene.deleted, scene.deleted_entry
    at = lab.next
    state = {"status": "x"}
    writes: list[tuple[str, MainWrite]] = [
        ("FORK-1", Conversation(at, ForkPoint(gone, entry))),
        ("ENT-1", Entry(at, gone, "x")),
        ("TASK-1", Task(at, gone, "x", "x", "start", state)),  # type: ignore[arg-type]
        ("VAL-1", ValueSet(rewindable(gone), 1)),
        ("VAL-1", ListAppend(sticky(gone), 1)),
        ("DEL-1", DeleteConversation(gone)),
    ]
    for clause, write in writes:
        with untouched(lab, clause):
            lab.commit(write)
    with untouched(lab, "ENT-1"):
        lab.commit(DeleteConversation(scene.heir), Entry(Seq(at + 1), scene.heir, "x"))
    with untouched(lab, "FORK-1"):
        point = ForkPoint(scene.heir, entry)
        lab.commit(DeleteConversation(scene.heir), Conversation(Seq(at + 1), point))

    fork = lab.fork(scene.heir, entry)

    assert shown(lab, fork)[-1] == entry, "a live heir of the deleted cannot be forked"
    lab.store.vacuum()
    assert lab.conversation() > gone, "the id of a deleted conversation was used again"


@rule("DEL-3", "TASK-5")
def test_tasks_of_a_deleted_conversation_cannot_be_named(lab: Lab) -> None:
    root = lab.root()
    gone = lab.conversation()
    task = lab.task(gone)
    lab.settle(task)
    entry = lab.commit(Entry(lab.next, root, "x", by_task_id=task)).first
    after = lab.commit(Task(lab.next, root, "x", "x", "start", {"status": "x"}, (task,))).first
    _delete(lab, gone)

    with untouched(lab, "TASK-5"):
        lab.conversation(owner=task)
    with untouched(lab, "ENT-1"):
        lab.commit(Entry(lab.next, root, "x", by_task_id=task))
    with untouched(lab, "TASK-1"):
        lab.task(root, after=(task,))
    assert lab.storage.get_entries([entry])[entry].by_task_id == task, "an entry was changed"
    assert lab.storage.get_tasks([after])[after].after == (task,), "a task was changed"


@rule("DEL-4", "DUR-10")
def test_the_deleted_reach_as_far_as_a_live_fork_inherits(lab: Lab) -> None:
    root = lab.root()
    source = lab.conversation()
    entries = [lab.entry(source) for _ in range(4)]
    near = lab.fork(source, entries[0])
    far = lab.fork(source, entries[2])
    own = lab.entry(far)
    through = lab.fork(far, entries[1])
    at_own = lab.fork(far, own)

    def readable() -> list[Seq]:
        return list(lab.storage.get_entries([*entries, own]))

    _delete(lab, source)
    assert readable() == [*entries[:3], own], f"with every fork: {readable()}"
    assert _reach(lab) == {source: entries[2]}, f"reach: {_reach(lab)}"
    _delete(lab, far)
    assert readable() == [*entries[:3], own], f"through the deleted fork: {readable()}"
    assert _reach(lab) == {source: entries[2], far: own}, f"reach: {_reach(lab)}"
    _delete(lab, at_own)
    assert readable() == entries[:2], f"the farther one is gone: {readable()}"
    assert _reach(lab) == {source: entries[1], far: entries[1]}, f"reach: {_reach(lab)}"
    _delete(lab, through)
    assert readable() == entries[:1], f"the nearer one is left: {readable()}"
    assert _reach(lab) == {source: entries[0]}, f"reach: {_reach(lab)}"
    _delete(lab, near)
    assert readable() == [], f"nobody is left: {readable()}"
    assert _reach(lab) == {}, f"reach: {_reach(lab)}"
    assert _live(lab) == [root], f"left: {_live(lab)}"


@rule("DEL-4", "FORK-2")
def test_the_least_cut_on_the_way_counts(lab: Lab) -> None:
    root = lab.root()
    one, two = lab.entry(root), lab.entry(root)
    source = lab.fork(root, two)
    own = lab.entry(source)
    middle = lab.fork(source, own)
    heir = lab.fork(middle, one)

    lab.commit(DeleteConversation(middle), DeleteConversation(source))

    assert shown(lab, heir) == [one], f"the heir shows {shown(lab, heir)}"
    assert list(lab.storage.get_entries([own])) == [], "an entry beyond the least cut is readable"
    assert _reach(lab) == {source: one, middle: one}, f"reach: {_reach(lab)}"


@rule("DEL-4", "PAGE-10", "SEQ-9")
def test_a_deletion_forgets_neither_kinds_nor_batches(lab: Lab) -> None:
    lab.root()
    gone = lab.conversation()
    entry = lab.entry(gone, kind="gone")
    lab.set(rewindable(gone), 1)
    _delete(lab, gone)
    lab.store.vacuum()
    lab.reopen()

    assert lab.storage.entry_kinds() == {"gone"}, f"kinds: {lab.storage.entry_kinds()}"
    batches = [batch.first for batch in lab.storage.scan_batches(BatchQuery()).items]
    assert batches == [1, 2, 3, 4, 5], f"batches: {batches}"
    assert lab.storage.get_entries([entry]) == {}, "the entry of a conversation without heirs"
    assert lab.storage.last_seq == 5, f"last_seq is {lab.storage.last_seq}"


@rule("DEL-5", "DUR-9")
def test_vacuum_changes_nothing_that_can_be_read(lab: Lab) -> None:
    scene = build_scene(lab)
    before = everything(lab.storage)

    report = lab.store.vacuum()
    open_session = everything(lab.storage)
    lab.storage.close()
    lab.store.vacuum()
    lab.storage = lab.store.open("session")

    assert report.records_dropped >= 0, f"{report}"
    assert_same(before, open_session, "vacuum of an open session")
    assert_same(before, everything(lab.reopen()), "vacuum of a closed session")
    assert lab.entry(scene.heir) == int(before["last_seq"]) + 1, "vacuum moved the numbers"


@rule("DEL-1", "DEL-2")
def test_a_long_chain_of_deleted_forks_keeps_its_end(lab: Lab) -> None:
    root = lab.root()
    reader, cut = root, lab.entry(root)
    entries, forks = [cut], []
    for _ in range(60):
        reader = lab.fork(reader, cut)
        cut = lab.entry(reader)
        forks.append(reader)
        entries.append(cut)
    for fork in forks[:-1]:
        _delete(lab, fork)

    assert shown(lab, reader) == entries, "the end of the chain lost something"
    assert len(_reach(lab)) == 59, f"{len(_reach(lab))} deleted conversations still reach"
    _delete(lab, reader)
    assert _reach(lab) == {}, "something is left although nobody inherits"
