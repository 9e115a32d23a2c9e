"""PAGE: point reads, pages, cursors, filters."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import json, structs

from pico_conformance.rule import Lab, rule
from pico_conformance.rules.everything import untouched, walk
from pico_conformance.rules.scene import build_scene, moves, rewindable, sticky
from pico_store.address import Seq, SessionAddress
from pico_store.batch import ListRemove
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
    address = SessionAddress("s")
    wrong: tuple[object, ...] = (None, 1, "x", [], address)
    for query in wrong:
        with lab.refused("PAGE-3"):
            storage.scan_conversations(query)  # type: ignore[arg-type]
        with lab.refused("PAGE-3"):
            storage.scan_entries(query)  # type: ignore[arg-type]
        with lab.refused("PAGE-3"):
            storage.scan_tasks(query)  # type: ignore[arg-type]
        with lab.refused("PAGE-3"):
            storage.scan_values(query)  # type: ignore[arg-type]
        with lab.refused("PAGE-3"):
            storage.read_list(address, query)  # type: ignore[arg-type]
        with lab.refused("PAGE-3"):
            storage.scan_batches(query)  # type: ignore[arg-type]


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


@rule("PAGE-3", "VAL-6")
def test_a_cursor_in_a_list_that_hides_what_it_inherited_is_any_integer(lab: Lab) -> None:
    root = lab.root()
    elements = [lab.append(moves(root), text) for text in "abc"]
    fork = lab.fork(root, lab.entry(root))
    lab.commit(ListRemove(moves(fork), elements[1]))
    for after, before, due in (
        (2**70, None, []),
        (-(2**70), None, [elements[0], elements[2]]),
        (None, 2**70, [elements[2], elements[0]]),
        (None, -(2**70), []),
        (-(2**70), 2**70, [elements[0], elements[2]]),
        (elements[0], None, [elements[2]]),
        (None, elements[2], [elements[0]]),
    ):
        query = structs.replace(ListQuery(), after=after, before=before)
        found = [item.id for item in lab.storage.read_list(moves(fork), query).items]
        assert found == due, f"after={after} before={before} gave {found}, not {due}"


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
