"""PAGE: point reads, pages, cursors, filters."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import json, structs

from pico_conformance.rule import Lab, rule
from pico_conformance.rules.everything import untouched, walk
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


@rule("PAGE-1", "PAGE-2")
def test_cursors_choose_the_page_and_its_direction(lab: Lab) -> None:
    root, _ = five_entries(lab)
    for after, before, limit, items, next in (
        (None, None, 2, [2, 3], 3),
        (3, None, 2, [5, 7], 7),
        (4, None, 2, [5, 7], 7),
        (7, None, 2, [8], None),
        (8, None, 2, [], None),
        (None, 8, 2, [7, 5], 5),
        (None, 9, 10, [8, 7, 5, 3, 2], None),
        (None, 5, 2, [3, 2], None),
        (None, 2, 2, [], None),
        (2, 8, 2, [3, 5], 5),
        (2, 8, 3, [3, 5, 7], None),
        (5, 5, 2, [], None),
        (8, 2, 2, [], None),
        (None, None, 5, [2, 3, 5, 7, 8], None),
        (None, None, 4, [2, 3, 5, 7], 7),
    ):
        query = structs.replace(
            EntryQuery(conversation_id=root), after=after, before=before, limit=limit
        )
        page = lab.storage.scan_entries(query)

        assert (page_ids(page), page.next) == (items, next), (
            f"after={after} before={before} limit={limit} gave {page_ids(page)}, next {page.next}; "
            f"should be {items}, next {next}"
        )


@rule("PAGE-1", "PAGE-2")
def test_every_scan_pages_alike(lab: Lab) -> None:
    root = lab.root()
    for _ in range(4):
        lab.task(lab.conversation())
        lab.append(moves(root), "x")
    storage = lab.storage
    conversations = [item.id for item in storage.scan_conversations(ConversationQuery()).items]
    tasks = [item.id for item in storage.scan_tasks(TaskQuery()).items]
    elements = [item.id for item in storage.read_list(moves(root), ListQuery()).items]
    assert (len(conversations), len(tasks), len(elements)) == (5, 4, 4), "not everything is shown"

    for label, expected, read in (
        ("conversations", conversations, _numbers_of_conversations(lab)),
        ("tasks", tasks, _numbers_of_tasks(lab)),
        ("elements", elements, _numbers_of_elements(lab, root)),
    ):
        for size in range(1, len(expected) + 2):
            up = _all(read, "after", size)
            down = _all(read, "before", size)
            assert up == expected, f"{label}, {size} a page, ascending: {up}"
            assert down == expected[::-1], f"{label}, {size} a page, newest first: {down}"


_Read = Callable[[dict[str, int]], tuple[list[Seq], Seq | None]]


def _numbers_of_conversations(lab: Lab) -> _Read:
    def read(cursor: dict[str, int]) -> tuple[list[Seq], Seq | None]:
        page = lab.storage.scan_conversations(structs.replace(ConversationQuery(), **cursor))
        return [item.id for item in page.items], page.next

    return read


def _numbers_of_tasks(lab: Lab) -> _Read:
    def read(cursor: dict[str, int]) -> tuple[list[Seq], Seq | None]:
        page = lab.storage.scan_tasks(structs.replace(TaskQuery(), **cursor))
        return [item.id for item in page.items], page.next

    return read


def _numbers_of_elements(lab: Lab, root: Seq) -> _Read:
    def read(cursor: dict[str, int]) -> tuple[list[Seq], Seq | None]:
        page = lab.storage.read_list(moves(root), structs.replace(ListQuery(), **cursor))
        return [item.id for item in page.items], page.next

    return read


def _all(read: _Read, cursor: str, size: int) -> list[Seq]:
    found: list[Seq] = []
    at: int = 0 if cursor == "after" else 2**53
    while True:
        items, next = read({cursor: at, "limit": size})
        found += items
        if next is None:
            return found
        assert next == items[-1], f"next is {next}, not the last item {items[-1]}"
        assert next != at, f"next is {next} again: the walk would never end"
        at = next


@rule("PAGE-3")
def test_what_is_no_query_is_refused(lab: Lab) -> None:
    lab.root()
    storage = lab.storage
    for query in (None, 1, "x", SessionAddress("s")):
        with lab.refused("PAGE-3"):
            storage.scan_entries(query)  # type: ignore[arg-type]
        with lab.refused("PAGE-3"):
            storage.scan_tasks(query)  # type: ignore[arg-type]
        with lab.refused("PAGE-3"):
            storage.scan_batches(query)  # type: ignore[arg-type]
        with lab.refused("PAGE-3"):
            storage.scan_values(query)  # type: ignore[arg-type]


@rule("PAGE-3")
def test_a_limit_is_an_integer_of_at_least_one(lab: Lab) -> None:
    scene = build_scene(lab)
    storage = lab.storage
    for wrong in (0, -1, True, False, 1.0, 2.0, "1", None, float("inf")):
        with untouched(lab, "PAGE-3"):
            query = EntryQuery(conversation_id=scene.root)
            storage.scan_entries(structs.replace(query, limit=wrong))
        with lab.refused("PAGE-3"):
            storage.scan_conversations(structs.replace(ConversationQuery(), limit=wrong))
        with lab.refused("PAGE-3"):
            storage.scan_tasks(structs.replace(TaskQuery(), limit=wrong))
        with lab.refused("PAGE-3"):
            storage.scan_batches(structs.replace(BatchQuery(), limit=wrong))
        with lab.refused("PAGE-3"):
            storage.read_list(moves(scene.root), structs.replace(ListQuery(), limit=wrong))
        with lab.refused("PAGE-3"):
            query_of = ValueQuery(scope=rewindable(scene.root))
            storage.scan_values(structs.replace(query_of, limit=wrong))


@rule("PAGE-3")
def test_a_great_limit_counts_as_ten_thousand(lab: Lab) -> None:
    root = lab.root()
    lab.commit(*(Entry(Seq(2 + i), root, "note") for i in range(10_000)))
    for limit in (10_000, 10_001, 2**53, 2**64, 10**30):
        page = lab.storage.scan_entries(EntryQuery(conversation_id=root, limit=limit))

        assert len(page.items) == 10_000, f"limit {limit} gave {len(page.items)} items"
        assert page.next is None, f"limit {limit}: next {page.next} though nothing follows"
    lab.entry(root)
    page = lab.storage.scan_entries(EntryQuery(conversation_id=root, limit=2**64))

    assert len(page.items) == 10_000, f"{len(page.items)} items on one page"
    assert page.next == 10_001, f"next is {page.next}; one more entry follows"


@rule("PAGE-3")
def test_a_cursor_is_any_integer_and_nothing_else(lab: Lab) -> None:
    root, five = five_entries(lab)
    query = EntryQuery(conversation_id=root)
    for low in (0, -1, -(2**70)):
        page = lab.storage.scan_entries(structs.replace(query, after=low))
        assert page_ids(page) == five, f"after={low} gave {page_ids(page)}"
        page = lab.storage.scan_entries(structs.replace(query, before=low))
        assert page_ids(page) == [], f"before={low} gave {page_ids(page)}"
    for high in (9, 2**53, 2**63, 2**64, 2**70):
        page = lab.storage.scan_entries(structs.replace(query, before=high))
        assert page_ids(page) == five[::-1], f"before={high} gave {page_ids(page)}"
        page = lab.storage.scan_entries(structs.replace(query, after=high))
        assert page_ids(page) == [], f"after={high} gave {page_ids(page)}"
    for wrong in (True, 1.0, "2", float("nan"), [2]):
        for cursor in ("after", "before"):
            with lab.refused("PAGE-3"):
                lab.storage.scan_entries(structs.replace(query, **{cursor: wrong}))
            with lab.refused("PAGE-3"):
                lab.storage.scan_tasks(structs.replace(TaskQuery(), **{cursor: wrong}))


# --- What a page holds ---


@rule("PAGE-4", "PAGE-12")
def test_filters_come_before_the_limit_and_before_decoding(lab: Lab) -> None:
    root = lab.root()
    for _ in range(20):
        for _ in range(9):
            lab.entry(root, kind="common")
        lab.entry(root, kind="rare", key="k")
    before = lab.storage.counters.rows_decoded

    page = lab.storage.scan_entries(EntryQuery(conversation_id=root, kind="rare", limit=7))

    decoded = lab.storage.counters.rows_decoded - before
    assert len(page.items) == 7, f"{len(page.items)} of 7 matches on the page"
    assert page.next == page.items[-1].id, f"next is {page.next}; more matches follow"
    assert decoded <= 8, f"{decoded} payloads decoded to return 7"
    before = lab.storage.counters.rows_decoded
    newest = EntryQuery(conversation_id=root, kind="rare", key="k", before=Seq(10**6), limit=3)
    lab.storage.scan_entries(newest)
    decoded = lab.storage.counters.rows_decoded - before
    assert decoded <= 4, f"{decoded} payloads decoded to return the 3 newest"


@rule("PAGE-12")
def test_counters_count_commits_probes_and_payloads(lab: Lab) -> None:
    root = lab.root()
    entry = lab.entry(root)
    commits, queries = lab.storage.counters.commits, lab.storage.counters.queries

    lab.entry(root)
    with lab.refused("SEQ-4"):
        lab.commit()
    decoded = lab.storage.counters.rows_decoded
    lab.storage.get_entries([entry])

    counters = lab.storage.counters
    assert commits == 2, f"two commits counted as {commits}"
    assert counters.commits == 3, f"a commit and a refusal counted as {counters.commits - 2}"
    assert counters.queries > queries, "a read was not counted"
    assert counters.rows_decoded == decoded + 1, "one entry read by id is one payload"


@rule("PAGE-5")
def test_a_page_says_where_it_was_read(lab: Lab) -> None:
    storage = lab.storage
    empty = [
        storage.scan_tasks(TaskQuery()).read_at,
        storage.scan_batches(BatchQuery()).read_at,
        storage.scan_conversations(ConversationQuery()).read_at,
        storage.scan_values(ValueQuery(scope=SessionAddress("s"))).read_at,
        storage.read_list(SessionAddress("l"), ListQuery()).read_at,
    ]
    scene = build_scene(lab)
    last = storage.last_seq
    full = [
        storage.scan_entries(EntryQuery(conversation_id=scene.root)).read_at,
        storage.scan_tasks(TaskQuery(conversation_ids=())).read_at,
        storage.scan_batches(BatchQuery(limit=1)).read_at,
        storage.scan_conversations(ConversationQuery()).read_at,
        storage.scan_values(ValueQuery(scope=sticky(scene.root))).read_at,
        storage.read_list(moves(scene.root), ListQuery(at=scene.user)).read_at,
    ]

    assert empty == [0] * 5, f"read_at in an empty session: {empty}"
    assert full == [last] * 6, f"read_at with last_seq {last}: {full}"


# --- Unknown ids ---


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


@rule("PAGE-11")
def test_a_cursor_outlives_commits_and_json(lab: Lab) -> None:
    root, five = five_entries(lab)
    query = EntryQuery(conversation_id=root, limit=2)
    first = lab.storage.scan_entries(query)
    cursor = json.decode(json.encode(structs.replace(query, after=first.next)), type=EntryQuery)
    newest = lab.storage.scan_entries(structs.replace(query, before=Seq(2**53 - 1)))
    down = structs.replace(query, before=newest.next)
    lab.entry(root)
    storage = lab.reopen()

    rest = walk(storage.scan_entries, cursor)
    older = storage.scan_entries(down)

    assert page_ids(first) + [entry.id for entry in rest] == [*five, 9], "ascending pages"
    assert page_ids(newest) + page_ids(older) == [8, 7, 5, 3], (
        "newest first: a newer entry moved the page"
    )
