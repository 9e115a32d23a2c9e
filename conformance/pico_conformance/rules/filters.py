"""PAGE: bounds and filters of scans, and the entry kinds."""

from __future__ import annotations

from msgspec import structs

from pico_conformance.rule import Lab, rule
from pico_conformance.rules.everything import untouched
from pico_conformance.rules.pages import five_entries, page_ids
from pico_store.address import Seq
from pico_store.batch import PatchTask
from pico_store.query import ConversationQuery, EntryQuery, TaskQuery
from pico_store.records import Task


@rule("PAGE-7")
def test_transcript_bounds_are_inclusive_numbers(lab: Lab) -> None:
    root, _ = five_entries(lab)
    for first, last, expected in (
        (3, 7, [3, 5, 7]),
        (4, 6, [5]),
        (None, 5, [2, 3, 5]),
        (7, None, [7, 8]),
        (0, 2**70, [2, 3, 5, 7, 8]),
        (-5, 1, []),
        (6, 6, []),
        (7, 3, []),
    ):
        query = structs.replace(EntryQuery(conversation_id=root), from_=first, through=last)
        found = page_ids(lab.storage.scan_entries(query))
        assert found == expected, f"from {first} through {last} gave {found}, not {expected}"
    query = EntryQuery(conversation_id=root, from_=Seq(3), through=Seq(7), before=Seq(8), limit=2)
    page = lab.storage.scan_entries(query)
    assert (page_ids(page), page.next) == ([7, 5], 5), f"with before=8, limit=2: {page}"
    query = structs.replace(query, before=None, after=Seq(3))
    page = lab.storage.scan_entries(query)
    assert (page_ids(page), page.next) == ([5, 7], None), f"with after=3, limit=2: {page}"


@rule("PAGE-8")
def test_a_key_needs_its_kind_and_is_not_unique(lab: Lab) -> None:
    root = lab.root()
    a1 = lab.entry(root, kind="result", key="a")
    b = lab.entry(root, kind="result", key="b")
    other = lab.entry(root, kind="other", key="a")
    a2 = lab.entry(root, kind="result", key="a")
    bare = lab.entry(root, kind="result")
    empty = lab.entry(root, kind="result", key="")

    def found(kind: str | None, key: str | None) -> list[int]:
        query = EntryQuery(conversation_id=root, kind=kind, key=key)
        return page_ids(lab.storage.scan_entries(query))

    assert found("result", "a") == [a1, a2], "kind and key"
    assert found("result", "") == [empty], "the empty key is not the absent one"
    assert found("result", None) == [a1, b, a2, bare, empty], "kind alone"
    assert found("other", "a") == [other], "one key under two kinds"
    assert found("unknown", None) == [], "a kind that no entry has"
    with untouched(lab, "PAGE-8"):
        found(None, "a")
    with untouched(lab, "PAGE-8"):
        found(None, "")


@rule("PAGE-8", "TASK-6")
def test_task_filters_all_apply(lab: Lab) -> None:
    root = lab.root()
    other = lab.conversation()
    start, busy, done = lab.task(root), lab.task(root, role="inflight"), lab.task(root)
    elsewhere = lab.task(other, kind="other")
    task = Task(lab.next, root, "work", "x", "start", {"status": "x"}, background=True)
    background = lab.commit(task).first
    turn = lab.commit(structs.replace(task, id=lab.next, background=False, turn=True)).first
    lab.settle(done)
    lab.commit(PatchTask(busy, abort=True), PatchTask(elsewhere, abort=True))
    every = [start, busy, done, elsewhere, background, turn]
    for query, expected in (
        (TaskQuery(), every),
        (TaskQuery(live=True), [start, busy, elsewhere, background, turn]),
        (TaskQuery(live=False), [done]),
        (TaskQuery(role="start"), [start, elsewhere, background, turn]),
        (TaskQuery(role="inflight"), [busy]),
        (TaskQuery(role="terminal"), [done]),
        (TaskQuery(role="terminal", live=True), []),
        (TaskQuery(kind="other"), [elsewhere]),
        (TaskQuery(abort=True), [busy, elsewhere]),
        (TaskQuery(abort=True, conversation_ids=(root,)), [busy]),
        (TaskQuery(abort=False), [start, done, background, turn]),
        (TaskQuery(background=True), [background]),
        (TaskQuery(background=False, live=True, kind="work"), [start, busy, turn]),
        (TaskQuery(turn=True), [turn]),
        (TaskQuery(turn=False, background=False, role="start"), [start, elsewhere]),
        (TaskQuery(conversation_ids=(other, root), limit=2), [start, busy]),
        (TaskQuery(conversation_ids=(other, root)), every),
        (TaskQuery(live=True, before=turn, limit=2), [background, elsewhere]),
    ):
        found = page_ids(lab.storage.scan_tasks(query))
        assert found == expected, f"{query} gave {found}, not {expected}"
    lab.commit(PatchTask(start, "y", "inflight", {"status": "y"}))
    patched = page_ids(lab.storage.scan_tasks(TaskQuery(role="inflight")))
    assert patched == [start, busy], f"in flight after a patch: {patched}"
    patched = page_ids(lab.storage.scan_tasks(TaskQuery(role="start", kind="work")))
    assert patched == [background, turn], f"at the start after a patch: {patched}"


@rule("PAGE-9", "TASK-5")
def test_conversation_filters_all_apply(lab: Lab) -> None:
    root = lab.root()
    cut = lab.entry(root)
    one, two = lab.task(root), lab.task(root)
    fork = lab.fork(root, cut)
    deeper = lab.fork(fork, cut)
    a = lab.conversation(owner=one)
    b = lab.fork(root, cut, owner=two)
    c = lab.fork(fork, cut, owner=one)
    query = ConversationQuery
    unknown = Seq(10**6)
    for asked, expected in (
        (query(), [root, fork, deeper, a, b, c]),
        (query(parent=root), [fork, b]),
        (query(parent=fork), [deeper, c]),
        (query(owner=one), [a, c]),
        (query(owner_conversation=root), [a, b, c]),
        (query(owner_conversation=root, parent=root), [b]),
        (query(owner=one, parent=fork), [c]),
        (query(owner=one, owner_conversation=fork), []),
        (query(owner_conversation=root, after=a, limit=1), [b]),
        (query(parent=unknown), []),
        (query(owner=unknown), []),
        (query(owner_conversation=unknown), []),
        (query(owner=cut), []),
    ):
        found = page_ids(lab.storage.scan_conversations(asked))
        assert found == expected, f"{asked} gave {found}, not {expected}"


@rule("PAGE-10", "DEL-2")
def test_entry_kinds_are_known_without_reading_entries(lab: Lab) -> None:
    root = lab.root()
    lab.entry(root, kind="b")
    for _ in range(50):
        lab.entry(root, kind="a")
    gone = lab.conversation()
    lab.entry(gone, kind="gone")
    with lab.refused("ENT-2"):
        lab.entry(root, kind="refused", head=Seq(10**6))
    decoded = lab.storage.counters.rows_decoded

    kinds = lab.storage.entry_kinds()

    assert kinds == {"a", "b", "gone"}, f"kinds: {sorted(kinds)}"
    assert lab.storage.counters.rows_decoded == decoded, "entries were decoded to know their kinds"
