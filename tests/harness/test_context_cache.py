"""The warm context is what storage derives, costs what is new, and is nobody else's (CTX-2)."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from pico_harness import EntryKind, Harness
from pico_harness.context import ContextCache, ContextCaches
from pico_store.address import Seq
from pico_store.backends import open_store
from pico_store.batch import DeleteConversation, MainBatch
from pico_store.context import Context, derive_context
from pico_store.errors import InvalidQueryError, UnknownConversationError
from pico_store.query import EntryQuery
from pico_store.records import (
    At,
    Conversation,
    Entry,
    Omit,
    Replace,
)
from pico_store.storage import Storage, Store
from tests.harness.written import NAMES, ROOT, fork, rooted, said, write


@pytest.fixture(params=["memory:", "sqlite:{folder}/context.db"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    store = open_store(str(request.param).format(folder=tmp_path))
    yield store
    store.close()


@pytest.fixture
def storage(store: Store) -> Storage:
    return rooted(store)


# --- What it costs ---


def spent(storage: Storage, cache: ContextCache, at: At | None = None) -> tuple[int, int]:
    """Return how many rows and queries one look at the context took."""
    rows, queries = storage.counters.rows_decoded, storage.counters.queries
    cache.context(at)
    return storage.counters.rows_decoded - rows, storage.counters.queries - queries


@pytest.mark.parametrize("appended", [0, 1, 7, 300])
def test_a_warm_context_costs_the_rows_that_are_new(storage: Storage, appended: int) -> None:
    for _ in range(200):
        write(storage)
    cache = ContextCache(storage, ROOT)
    cache.context()
    write(storage)
    _, queries_of_one = spent(storage, cache)

    for _ in range(appended):
        write(storage)
    rows, queries = spent(storage, cache)

    # A look may read the conversation's own record besides.
    assert appended <= rows <= appended + 1
    assert queries <= queries_of_one
    assert len(cache.context().items) == 201 + appended


def test_a_new_head_reads_itself_and_nothing_that_it_keeps(storage: Storage) -> None:
    kept = [write(storage) for _ in range(100)][50]
    cache = ContextCache(storage, ROOT)
    cache.context()

    write(storage, head=kept)
    rows, _ = spent(storage, cache)

    assert rows <= 2
    assert len(cache.context().items) == 51


def test_an_older_position_does_not_cool_what_is_warm(storage: Storage) -> None:
    ids = [write(storage) for _ in range(100)]
    cache = ContextCache(storage, ROOT)
    cache.context()

    older = cache.context(ids[9])
    rows, _ = spent(storage, cache)

    assert older.ids == tuple(ids[:10])
    assert rows <= 1


def test_positions_since_the_newest_entry_are_warm(storage: Storage) -> None:
    ids = [write(storage) for _ in range(100)]
    other = fork(storage, ROOT, ids[0])
    write(storage, other)
    cache = ContextCache(storage, ROOT)
    cache.context()

    rows, _ = spent(storage, cache, ids[-1])

    assert rows <= 1
    assert cache.context(ids[-1]) == derive_context(storage, ROOT, ids[-1])
    assert cache.context(other) == derive_context(storage, ROOT, other)


def test_what_came_between_two_looks_is_paged(storage: Storage) -> None:
    cache = ContextCache(storage, ROOT)
    cache.context()
    first = Seq(storage.last_seq + 1)
    entries = tuple(
        Entry(id=Seq(number), conversation_id=ROOT, kind="k")
        for number in range(first, first + 2_500)
    )
    storage.commit(MainBatch(entries))

    rows, _ = spent(storage, cache)

    assert 2_500 <= rows <= 2_503
    assert cache.context() == derive_context(storage, ROOT)


def test_a_first_look_over_several_pages_ends_at_the_newest_head(storage: Storage) -> None:
    first = write(storage)
    write(storage, ROOT, Omit(first), head=first)
    number = Seq(storage.last_seq + 1)
    entries = tuple(
        Entry(id=Seq(id), conversation_id=ROOT, kind="k") for id in range(number, number + 1_500)
    )
    storage.commit(MainBatch(entries))
    write(storage, head=number)
    write(storage)

    assert ContextCache(storage, ROOT).context() == derive_context(storage, ROOT)


# --- What it survives ---


def test_edits_before_a_new_boundary_count_no_more(storage: Storage) -> None:
    target = write(storage)
    write(storage, ROOT, Omit(target))
    cache = ContextCache(storage, ROOT)
    assert target in cache.context().omitted

    write(storage, ROOT, Replace(target, [said("new")]))
    boundary = write(storage, ROOT, Omit(target))
    write(storage, head=boundary)

    assert cache.context() == derive_context(storage, ROOT)
    assert cache.context().omitted == ()


def test_edits_on_older_heads_and_on_omitted_entries_count(storage: Storage) -> None:
    first, second, third = (write(storage) for _ in range(3))
    cache = ContextCache(storage, ROOT)
    cache.context()
    write(storage, ROOT, Omit(first), head=first)
    cache.context()
    editor = write(storage, ROOT, Omit(second))
    head = write(storage, ROOT, Omit(editor), head=first)

    assert cache.context().ids == (head, third)
    assert cache.context() == derive_context(storage, ROOT)


def test_an_omitted_entry_that_is_replaced_comes_back_to_its_place(storage: Storage) -> None:
    target, other = write(storage), write(storage)
    cache = ContextCache(storage, ROOT)
    write(storage, ROOT, Omit(target))
    cache.context()

    write(storage, ROOT, Replace(target, [said("back")]))

    assert cache.context().ids[:2] == (target, other)
    assert cache.context() == derive_context(storage, ROOT)


def test_a_deleted_conversation_is_refused_and_forgotten(storage: Storage) -> None:
    at = write(storage)
    branch = fork(storage, ROOT, at)
    cache = ContextCache(storage, branch)
    cache.context()

    storage.commit(MainBatch((DeleteConversation(branch),)))

    for position in (None, at, "start"):
        with pytest.raises(UnknownConversationError):
            cache.context(position)


def test_a_fork_whose_parent_is_deleted_keeps_its_context(storage: Storage) -> None:
    number = Seq(storage.last_seq + 1)
    storage.commit(MainBatch((Conversation(id=number),)))
    at = write(storage, number)
    branch = fork(storage, number, at)
    cache = ContextCache(storage, branch)
    before = cache.context().ids

    storage.commit(MainBatch((DeleteConversation(number),)))
    own = write(storage, branch)

    assert cache.context().ids == (*before, own)


@pytest.mark.parametrize("at", [0, -1, True, "end"])
def test_what_is_no_position_is_refused_as_storage_refuses_it(storage: Storage, at: At) -> None:
    write(storage)

    with pytest.raises(InvalidQueryError):
        derive_context(storage, ROOT, at)
    with pytest.raises(InvalidQueryError):
        ContextCache(storage, ROOT).context(at)


def test_a_read_that_fails_leaves_a_cache_that_is_right(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(storage)
    cache = ContextCache(storage, ROOT)
    cache.context()
    first = Seq(storage.last_seq + 1)
    entries = tuple(
        Entry(id=Seq(number), conversation_id=ROOT, kind="k")
        for number in range(first, first + 1_500)
    )
    storage.commit(MainBatch(entries))
    reads = count(1)
    scan = type(storage).scan_entries

    def failing(self: Storage, query: EntryQuery) -> object:
        if next(reads) == 2:
            raise OSError("planted")
        return scan(self, query)

    with monkeypatch.context() as patch:
        patch.setattr(type(storage), "scan_entries", failing)
        with pytest.raises(OSError, match="planted"):
            cache.context()

    assert cache.context() == derive_context(storage, ROOT)


# --- What is served may be changed ---


def test_changing_what_was_served_changes_nothing_that_is_served_next(storage: Storage) -> None:
    target = write(storage)
    write(storage, ROOT, Replace(target, [said("new")]))
    write(storage, ROOT, Omit(target))
    write(storage, ROOT, Replace(target, [said("newer")]))
    cache = ContextCache(storage, ROOT)
    served, again = cache.context(), cache.context()

    for item in served.items:
        spoil(item.messages)
        spoil(item.entry.data)
        spoil(item.entry.model)
        for edit in item.entry.edits or ():
            if isinstance(edit, Replace):
                spoil(edit.messages)

    assert again == derive_context(storage, ROOT)
    assert cache.context() == derive_context(storage, ROOT)
    assert served != again


def spoil(value: object) -> None:
    """Empty every list and object within a value."""
    if isinstance(value, dict):
        for part in value.values():
            spoil(part)
        value.clear()
    elif isinstance(value, list | tuple):
        for part in value:
            spoil(part)
        if isinstance(value, list):
            value.clear()


# --- Sharing ---


def test_handles_of_one_conversation_share_what_is_warm(storage: Storage) -> None:
    caches = ContextCaches(storage)

    assert caches.of(ROOT) is caches.of(ROOT)


def test_the_conversations_used_last_stay_warm_without_a_handle(storage: Storage) -> None:
    at = write(storage)
    branches = [fork(storage, ROOT, at) for _ in range(20)]
    caches = ContextCaches(storage)
    for branch in branches:
        caches.context(caches.of(branch), None)
    gc.collect()

    warm = [branch for branch in branches if spent(storage, caches.of(branch))[1] == 0]

    assert warm == branches[-8:]


# --- Through a harness ---


def test_handles_come_and_go_and_the_context_stays_warm(store: Store) -> None:
    storage = store.create(f"s{next(NAMES)}")

    async def main() -> tuple[int, list[Context]]:
        async with await Harness.open(storage) as harness:
            note = EntryKind[object]("note")
            for _ in range(4):
                root = await harness.root()
                await root.commit(lambda tx: tx.entry(note, model=[said("x")]))
                await root.context()
            root = await harness.root()
            id = await root.commit(lambda tx: tx.entry(note, model=[said("x")]))
            await root.context()
            before = storage.counters.queries
            served = [await (await harness.root()).context() for _ in range(3)]
            queries = storage.counters.queries - before
            forked = await (await root.fork(id)).context()
            assert forked.messages == served[0].messages
            return queries, [*served, derive_context(storage, ROOT, served[0].through)]

    queries, served = asyncio.run(main())

    assert queries == 0
    assert all(one == served[-1] for one in served)
    assert len(served[0].items) == 5
