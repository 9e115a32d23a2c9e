"""ENT: entries, heads and edits."""

from __future__ import annotations

from msgspec import UNSET, structs

from pico_conformance.rule import Lab, rule
from pico_conformance.rules.everything import exact, now_and_reopened, untouched
from pico_conformance.rules.scene import build_scene
from pico_store.address import Seq
from pico_store.query import EntryQuery
from pico_store.records import Entry, JsonObject, Omit, Replace

ODD_TEXTS = (
    "__proto__", "constructor", "", " ", "a ", "A", "a", "é", "e\u0301", "ﬁ", "ß", "SS", "İ",
    "a\x00", "\x00a", "\x00", "a\x00b", "a\u2028b", "a\u2029b", "a\u0085b", "a\nb", "a\rb",
    "'", '"', "\\", "%", "_", "*", "🙂", "\U0010ffff", "\uffff", "\ue000", "null", "0", "01",
)  # fmt: skip
"""Texts that look, sort or normalise alike, or that some format gives a meaning."""


def _head(lab: Lab, conversation: Seq, at: int = 2**53 - 1) -> Seq | None:
    found = lab.storage.newest_head(conversation, Seq(at))
    return None if found is None else found.id


@rule("ENT-1")
def test_an_entry_is_read_back_as_it_was_written(lab: Lab) -> None:
    root = lab.root()
    task = lab.task(root)
    target = lab.entry(root, kind="user", key="k")
    message: JsonObject = {"role": "user", "content": [{"type": "text", "text": "hi\u2028"}]}
    forms = (
        Entry(lab.next, root, "bare"),
        Entry(lab.next, root, "null", data=None),
        Entry(lab.next, root, "empty", key="", data={}, model=[], edits=()),
        Entry(lab.next, root, "model", model=[message, {}]),
        Entry(lab.next, root, "head", head=target),
        Entry(lab.next, root, "all", "k", task, [1, 1.0, True], [message], target),
        Entry(lab.next, root, "edit", edits=(Omit(target), Replace(target, [message]))),
    )
    written: list[Entry] = []
    for form in forms:
        entry = structs.replace(form, id=lab.next)
        lab.commit(entry)
        written.append(entry)

    for storage in now_and_reopened(lab):
        by_id = storage.get_entries([entry.id for entry in written])
        shown = storage.scan_entries(EntryQuery(conversation_id=root, after=target)).items
        for entry, scanned in zip(written, shown, strict=True):
            for read in (by_id[entry.id], scanned):
                assert exact(read) == exact(entry), f"wrote {exact(entry)}, read {exact(read)}"
                assert (read.data is UNSET) == (entry.data is UNSET), f"{entry.kind}: data differs"
                assert (read.model is None) == (entry.model is None), f"{entry.kind}: model differs"


@rule("ENT-1", "JSON-3", "PAGE-8")
def test_kinds_and_keys_are_kept_exactly(lab: Lab) -> None:
    root = lab.root()
    ids = {text: lab.entry(root, kind=text or "empty", key=text) for text in ODD_TEXTS}

    for storage in now_and_reopened(lab):
        kinds = storage.entry_kinds()
        assert kinds == {text or "empty" for text in ODD_TEXTS}, f"kinds: {sorted(kinds)}"
        for text, id in ids.items():
            query = EntryQuery(conversation_id=root, kind=text or "empty", key=text)
            found = [entry.id for entry in storage.scan_entries(query).items]
            assert found == [id], f"key {text!a} finds {found}, not {id}"
            assert storage.get_entries([id])[id].key == text, f"key {text!a} is read as another"


@rule("ENT-1")
def test_an_entry_of_another_form_is_refused(lab: Lab) -> None:
    scene = build_scene(lab)
    entry = Entry(lab.next, scene.root, "note")
    for clause, changed in (
        ("ENT-1", {"model": {"role": "user"}}),
        ("ENT-1", {"model": ["text"]}),
        ("ENT-1", {"model": ({},)}),
        ("ENT-1", {"conversation_id": Seq(10**6)}),
        ("ENT-1", {"conversation_id": scene.user}),
        ("ENT-1", {"conversation_id": scene.deleted}),
        ("ENT-1", {"by_task_id": scene.user}),
        ("ENT-1", {"by_task_id": lab.next}),
        ("ENT-4", {"edits": Omit(scene.user)}),
        ("ENT-4", {"edits": ({"action": "omit", "target": scene.user},)}),
        ("ENT-4", {"edits": (Replace(scene.user, ["text"]),)}),  # type: ignore[list-item]
        ("JSON-5", {"kind": None}),
        ("JSON-5", {"key": 1}),
        ("JSON-2", {"data": float("nan")}),
        ("JSON-1", {"model": [{"a": (1,)}]}),
    ):
        with untouched(lab, clause):
            lab.commit(structs.replace(entry, **changed))


@rule("ENT-1")
def test_the_task_that_wrote_an_entry_may_be_terminal(lab: Lab) -> None:
    root = lab.root()
    task = lab.task(root)
    lab.settle(task)

    late = lab.commit(Entry(lab.next, root, "late", by_task_id=task)).first

    assert lab.storage.get_entries([late])[late].by_task_id == task, "byTaskId is lost"


# --- Heads ---


@rule("ENT-2")
def test_a_head_is_here_or_at_an_earlier_visible_entry(lab: Lab) -> None:
    root = lab.root()
    first, second = lab.entry(root), lab.entry(root)
    other = lab.entry(lab.conversation())

    for wrong in (other, lab.next + 1, root, Seq(10**6)):
        with untouched(lab, "ENT-2"):
            lab.entry(root, head=Seq(wrong))
    earlier = lab.entry(root, head=first)
    equal = lab.entry(root, head=first)
    forward = lab.entry(root, head=second)
    itself = lab.entry(root, head="self")

    heads = [
        entry.head for entry in lab.storage.get_entries([earlier, equal, forward, itself]).values()
    ]
    assert heads == [first, first, second, itself], f"heads read back: {heads}"


@rule("ENT-2")
def test_a_head_never_moves_the_context_back(lab: Lab) -> None:
    root = lab.root()
    first, second = lab.entry(root), lab.entry(root)
    lab.entry(root, head=second)
    with untouched(lab, "ENT-2"):
        lab.entry(root, head=first)
    at = lab.next
    with untouched(lab, "ENT-2"):
        lab.commit(
            Entry(at, root, "x", head=at),
            Entry(Seq(at + 1), root, "x", head=second),
        )

    fork = lab.fork(root, second)
    inherited = lab.entry(fork, head=first)

    assert _head(lab, fork) == inherited, "the fork does not show the head it was given"


@rule("ENT-2", "FORK-2")
def test_an_inherited_head_bounds_a_fork_up_to_the_cut(lab: Lab) -> None:
    root = lab.root()
    first, second = lab.entry(root), lab.entry(root)
    head = lab.entry(root, head=second)
    beyond = lab.entry(root, head="self")
    fork = lab.fork(root, head)
    with untouched(lab, "ENT-2"):
        lab.entry(fork, head=first)
    with untouched(lab, "ENT-2"):
        lab.entry(fork, head=beyond)

    own = lab.entry(fork, head=second)

    assert _head(lab, fork) == own, "the fork's own head is not its newest"
    assert _head(lab, root) == beyond, "a fork's head reached its source"


@rule("ENT-3")
def test_storage_does_not_look_into_messages(lab: Lab) -> None:
    root = lab.root()
    call: JsonObject = {"role": "assistant", "content": [{"type": "toolCall", "id": "c"}]}
    result: JsonObject = {"role": "toolResult", "toolCallId": "c"}
    lab.commit(Entry(lab.next, root, "assistant", model=[call]))
    answer = lab.commit(Entry(lab.next, root, "tool_result", model=[result])).first

    head = lab.entry(root, head=answer)

    assert _head(lab, root) == head, "a head between a call and its result was not kept"


@rule("ENT-5", "FORK-2")
def test_the_newest_head_at_a_position(lab: Lab) -> None:
    root = lab.root()
    plain = lab.entry(root)
    one = lab.entry(root, head="self")
    lab.entry(root)
    two = lab.entry(root, head=one)
    last = lab.entry(root)
    for at, expected in (
        (1, None),
        (plain, None),
        (one - 1, None),
        (one, one),
        (two - 1, one),
        (two, two),
        (last, two),
        (lab.next + 5, two),
        (2**53 - 1, two),
        (2**70, two),
    ):
        found = _head(lab, root, at)
        assert found == expected, f"newest head at {at} is {found}, not {expected}"
    newest = lab.entry(root, head="self")
    assert _head(lab, root, 2**53 - 1) == newest, "a head that came later is not seen"
    head = lab.storage.newest_head(root, last)
    stored = lab.storage.get_entries([two])[two]
    assert exact(head) == exact(stored), "the newest head is not the stored entry"
    for wrong in (0, -1, True, 1.0, "1", None, "start"):
        with untouched(lab, "ENT-5"):
            lab.storage.newest_head(root, wrong)  # type: ignore[arg-type]


@rule("ENT-5", "FORK-2")
def test_a_head_exactly_at_the_cut_counts(lab: Lab) -> None:
    root = lab.root()
    one = lab.entry(root, head="self")
    two = lab.entry(root, head="self")
    three = lab.entry(root, head="self")
    at_two = lab.fork(root, two)
    at_one = lab.fork(at_two, one)
    own = lab.entry(at_two, head=two)

    assert _head(lab, at_two) == own, "the fork's own head"
    assert _head(lab, at_two, own - 1) == two, "the head at the cut itself is missed"
    assert _head(lab, at_two, one) == one, "a head before the cut, asked for by position"
    assert _head(lab, at_one) == one, "a fork of the fork sees past its least cut"
    assert _head(lab, root) == three, "the source lost its own"


# --- Edits ---


@rule("ENT-4")
def test_an_edit_aims_at_an_earlier_visible_entry(lab: Lab) -> None:
    root = lab.root()
    inherited = lab.entry(root)
    beyond = lab.entry(root)
    fork = lab.fork(root, inherited)
    own = lab.entry(fork)
    here = lab.next
    for wrong in (here, here + 1, beyond, fork, root, 10**6):
        with untouched(lab, "ENT-4"):
            lab.commit(Entry(here, fork, "edit", edits=(Omit(own), Omit(Seq(wrong)))))
        with untouched(lab, "ENT-4"):
            lab.commit(Entry(here, fork, "edit", edits=(Replace(Seq(wrong), []),)))
    edits = (Omit(inherited), Replace(own, [{"role": "user"}]), Replace(inherited, []), Omit(own))

    edit = lab.commit(Entry(here, fork, "edit", edits=edits)).first
    at = lab.next
    lab.commit(Entry(at, fork, "x"), Entry(Seq(at + 1), fork, "x", edits=(Omit(at),)))

    found = lab.storage.get_entries([edit])[edit].edits
    assert found == edits, f"edits read back in another order or form: {found}"
    untouched_target = lab.storage.get_entries([inherited])[inherited]
    assert untouched_target.edits is None, "an edit changed its target"


@rule("ENT-6", "FORK-3")
def test_a_conversation_shows_no_entry_that_is_not_its_own_or_inherited(lab: Lab) -> None:
    root = lab.root()
    cut = lab.entry(root, kind="x", key="k")
    fork = lab.fork(root, cut)
    beyond = lab.entry(root, kind="x", key="k")
    own = lab.entry(fork, kind="x", key="k", head="self")
    other = lab.conversation()

    def shown(conversation: Seq) -> list[Seq]:
        query = EntryQuery(conversation_id=conversation, kind="x", key="k")
        return [entry.id for entry in lab.storage.scan_entries(query).items]

    assert shown(root) == [cut, beyond], f"the source shows {shown(root)}"
    assert shown(fork) == [cut, own], f"the fork shows {shown(fork)}"
    assert shown(other) == [], f"an unrelated conversation shows {shown(other)}"
    assert _head(lab, root) is None, "a fork's head is visible in its source"
    assert list(lab.storage.get_entries([beyond, own])) == [beyond, own], "reads by id cross over"
