"""PAGE-6: which questions are refused, and what reads by id return."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from msgspec import structs

from pico_conformance.rule import Lab, rule
from pico_conformance.rules.everything import untouched
from pico_conformance.rules.scene import build_scene, moves, rewindable, sticky
from pico_store.address import Seq, SessionAddress
from pico_store.query import (
    BatchQuery,
    ConversationQuery,
    EntryQuery,
    ListQuery,
    TaskQuery,
    ValueQuery,
)
from pico_store.records import Conversation, Entry, Page, Task


def page_ids(page: Page[Entry] | Page[Conversation] | Page[Task]) -> list[int]:
    """Return the ids of a page's items."""
    return [item.id for item in page.items]


def five_entries(lab: Lab) -> tuple[Seq, list[int]]:
    """Give the root the entries 2, 3, 5, 7 and 8."""
    root = lab.root()
    for number in range(2, 9):
        if number in (4, 6):
            lab.set(SessionAddress("s"), number)
        else:
            lab.entry(root)
    return root, [2, 3, 5, 7, 8]


# --- Order, cursors, limits ---


@rule("PAGE-6", "PAGE-8", "VAL-1", "VAL-9")
def test_a_part_of_a_query_of_another_type_is_refused(lab: Lab) -> None:
    scene = build_scene(lab)
    storage = lab.storage
    filters: tuple[object, ...] = (True, 1.0, "1", [], {}, (1,))
    for wrong in filters:
        for part in ("parent", "owner", "owner_conversation"):
            with lab.refused("PAGE-6"):
                storage.scan_conversations(structs.replace(ConversationQuery(), **{part: wrong}))
    # An iterator too: it would be used up by the check.
    for ids in (1, True, iter((scene.root,)), (True,), (1.0,), "1"):
        with lab.refused("PAGE-6"):
            storage.scan_tasks(structs.replace(TaskQuery(), conversation_ids=ids))
    roles: tuple[object, ...] = (_Word("start"), 1, "", [])
    for role in roles:
        with lab.refused("PAGE-8"):
            storage.scan_tasks(structs.replace(TaskQuery(), role=role))
    policies: tuple[object, ...] = (0, 1, None, "", [])
    for rewind in policies:
        address = structs.replace(rewindable(scene.root), rewind=rewind)
        with lab.refused("VAL-1"):
            storage.get_value(address)
        with lab.refused("VAL-1"):
            storage.read_list(address, ListQuery())
        with lab.refused("VAL-1"):
            storage.scan_values(ValueQuery(scope=address))
        with lab.refused("VAL-1"):
            storage.rewind_policy(address, "value")
    shapes: tuple[object, ...] = (_Word("value"), None, 1, [])
    for shape in shapes:
        with lab.refused("VAL-9"):
            storage.rewind_policy(rewindable(scene.root), shape)  # type: ignore[arg-type]


class _Word(str):
    """A text that is equal to one that is allowed."""


@rule("PAGE-3", "PAGE-6", "ENT-5", "VAL-7")
def test_a_number_that_python_does_not_write_out_is_refused(lab: Lab) -> None:
    scene = build_scene(lab)
    storage = lab.storage
    huge = Seq(10**5_000)
    with lab.refused("PAGE-6"):
        storage.scan_entries(EntryQuery(conversation_id=huge))
    with lab.refused("PAGE-6"):
        storage.newest_head(huge, Seq(1))
    with lab.refused("ENT-5"):
        storage.newest_head(scene.root, Seq(-huge))
    with lab.refused("PAGE-6"):
        storage.scan_tasks(TaskQuery(conversation_ids=(huge,)))
    with lab.refused("PAGE-6"):
        storage.get_value(rewindable(huge))
    with lab.refused("PAGE-6"):
        storage.read_list(moves(huge), ListQuery())
    with lab.refused("VAL-7"):
        storage.get_value(rewindable(scene.root), huge)
    with lab.refused("VAL-7"):
        storage.read_list(moves(scene.root), ListQuery(at=huge))
    with lab.refused("PAGE-3"):
        storage.scan_batches(BatchQuery(limit=-huge))
    with lab.refused("PAGE-6"):
        storage.get_entries([{"a": huge}])  # type: ignore[list-item]


@rule("PAGE-6")
def test_unknown_ids_are_left_out_of_point_reads(lab: Lab) -> None:
    scene = build_scene(lab)
    unknown = [Seq(id) for id in (0, -1, 10**6, 2**53, 2**63, 2**64, -(2**70))]
    asked = [*unknown, scene.late, scene.user, *unknown, scene.late, scene.user]

    entries = lab.storage.get_entries(asked)
    tasks = lab.storage.get_tasks([scene.live, *unknown, scene.done, scene.live])
    conversations = lab.storage.get_conversations([scene.fork, *unknown, scene.root, scene.fork])

    assert list(entries) == [scene.late, scene.user], f"entries in the order {list(entries)}"
    assert list(tasks) == [scene.live, scene.done], f"tasks in the order {list(tasks)}"
    assert list(conversations) == [scene.fork, scene.root], f"conversations: {list(conversations)}"
    assert all(id == entry.id for id, entry in entries.items()), "an entry under another's id"
    assert lab.storage.get_entries([scene.live, scene.root]) == {}, "a task's id is no entry"
    assert lab.storage.get_tasks([scene.user, scene.root]) == {}, "an entry's id is no task"
    assert lab.storage.get_conversations([scene.user]) == {}, "an entry's id is no conversation"


@rule("PAGE-6")
def test_point_reads_take_any_number_of_ids(lab: Lab) -> None:
    root = lab.root()
    lab.commit(*(Entry(Seq(2 + i), root, "note") for i in range(2_000)))
    for count in (0, 1, 999, 1_000, 32_767, 100_000):
        ids = [Seq(id) for id in range(count, 0, -1)]

        found = list(lab.storage.get_entries(ids))

        expected = [id for id in ids if 2 <= id <= 2_001]
        assert found == expected, f"{count} ids gave {len(found)} entries, not {len(expected)}"
        assert lab.storage.get_tasks(ids) == {}, f"{count} ids of no task gave some"
        roots = list(lab.storage.get_conversations(ids[-1_000:]))
        assert roots == ([root] if count else []), f"{count} ids gave the conversations {roots}"


@rule("PAGE-6")
def test_point_reads_take_any_iterable_of_integers(lab: Lab) -> None:
    scene = build_scene(lab)
    ids = [scene.user, scene.late]
    for form in (tuple(ids), iter(ids), dict.fromkeys(ids), (id for id in ids)):
        found = list(lab.storage.get_entries(form))
        assert found == ids, f"a {type(form).__name__} gave {found}"
    reads: tuple[Callable[[Iterable[Seq]], object], ...] = (
        lab.storage.get_entries,
        lab.storage.get_tasks,
        lab.storage.get_conversations,
    )
    for read in reads:
        for wrong in (True, 1.0, "1", None, [1], float("nan")):
            with untouched(lab, "PAGE-6"):
                read([scene.root, wrong])  # type: ignore[list-item]
        with untouched(lab, "PAGE-6"):
            read(scene.root)  # type: ignore[arg-type]


@rule("PAGE-6")
def test_an_error_of_the_callers_own_ids_is_not_taken_for_the_stores(lab: Lab) -> None:
    root = lab.root()

    def broken() -> Iterator[Seq]:
        yield root
        raise KeyError(theirs)

    theirs = object()
    for read in (lab.storage.get_entries, lab.storage.get_tasks, lab.storage.get_conversations):
        try:
            found: object = read(broken())
        except KeyError as error:
            found = error.args[0]
        assert found is theirs, f"{read.__name__} made of the caller's own error: {found!r}"
    assert list(lab.storage.get_conversations([root])) == [root], "reads no more afterwards"


@rule("PAGE-6", "DEL-2")
def test_a_read_of_a_conversation_that_is_not_there_is_refused(lab: Lab) -> None:
    scene = build_scene(lab)
    storage = lab.storage
    for id in (scene.deleted, scene.user, Seq(10**6), Seq(0), Seq(-1), Seq(2**64), Seq(2**70)):
        with untouched(lab, "PAGE-6"):
            storage.scan_entries(EntryQuery(conversation_id=id))
        with lab.refused("PAGE-6"):
            storage.newest_head(id, Seq(1))
        with lab.refused("PAGE-6"):
            storage.scan_tasks(TaskQuery(conversation_ids=(scene.root, id)))
        for address in (sticky(id), rewindable(id)):
            with lab.refused("PAGE-6"):
                storage.get_value(address)
            with lab.refused("PAGE-6"):
                storage.read_list(address, ListQuery())
            with lab.refused("PAGE-6"):
                storage.scan_values(ValueQuery(scope=address))
        with lab.refused("PAGE-6"):
            storage.get_value(rewindable(id), "start")


@rule("PAGE-6")
def test_no_conversations_asked_for_is_an_empty_page(lab: Lab) -> None:
    scene = build_scene(lab)

    none = lab.storage.scan_tasks(TaskQuery(conversation_ids=()))
    every = lab.storage.scan_tasks(TaskQuery())
    twice = lab.storage.scan_tasks(TaskQuery(conversation_ids=(scene.root, scene.root)))

    assert (none.items, none.next) == ([], None), f"no conversations gave {none}"
    assert page_ids(every) == [scene.done, scene.live], f"the whole session gave {page_ids(every)}"
    assert page_ids(twice) == [scene.done, scene.live], (
        f"one conversation twice gave {page_ids(twice)}"
    )


# --- Cursors outlive what they were made in ---
