"""The context is the newest head, then what is in its range, as edits leave it."""

from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pico_store.address import Seq
from pico_store.backends import open_store
from pico_store.batch import MainBatch
from pico_store.context import derive_context
from pico_store.errors import InvalidQueryError, UnknownConversationError
from pico_store.records import (
    ContextEdit,
    Conversation,
    Entry,
    ForkPoint,
    JsonObject,
    Omit,
    Replace,
)
from pico_store.storage import Storage

ROOT = Seq(1)


def said(text: str) -> JsonObject:
    return {"role": "user", "content": text, "timestamp": 0}


class Writer:
    """Commits entries one by one; each says its own number."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        storage.commit(MainBatch((Conversation(id=ROOT),)))

    def entry(
        self,
        conversation: Seq = ROOT,
        head: Seq | None = None,
        *edits: ContextEdit,
        model: bool = True,
        own_head: bool = False,
    ) -> Seq:
        number = Seq(self._storage.last_seq + 1)
        entry = Entry(
            id=number,
            conversation_id=conversation,
            kind="k",
            model=[said(str(number))] if model else None,
            head=number if own_head else head,
            edits=edits or None,
        )
        self._storage.commit(MainBatch((entry,)))
        return number

    def fork(self, conversation: Seq, at: Seq | None) -> Seq:
        number = Seq(self._storage.last_seq + 1)
        parent = ForkPoint(conversation, at) if at is not None else None
        self._storage.commit(MainBatch((Conversation(id=number, parent=parent),)))
        return number


def texts(storage: Storage, conversation: Seq = ROOT, at: Seq | None = None) -> list[str]:
    return [str(m["content"]) for m in derive_context(storage, conversation, at).messages]


def test_without_a_head_the_context_is_the_transcript(storage: Storage) -> None:
    writer = Writer(storage)
    ids = [writer.entry() for _ in range(3)]

    assert derive_context(storage, ROOT).ids == tuple(ids)
    assert derive_context(storage, ROOT, ids[1]).ids == tuple(ids[:2])


def test_a_head_stands_before_what_it_keeps(storage: Storage) -> None:
    writer = Writer(storage)
    _, kept, also = (writer.entry() for _ in range(3))
    head = writer.entry(head=kept)
    after = writer.entry()

    context = derive_context(storage, ROOT)
    assert context.ids == (head, kept, also, after)
    assert context.head == head
    assert derive_context(storage, ROOT, also).head is None


def test_a_reset_begins_with_itself(storage: Storage) -> None:
    writer = Writer(storage)
    writer.entry()
    reset = writer.entry(own_head=True, model=False)
    after = writer.entry()

    context = derive_context(storage, ROOT)
    assert context.ids == (reset, after)
    assert context.messages == (said(str(after)),)


def test_older_heads_are_no_part_of_the_context(storage: Storage) -> None:
    writer = Writer(storage)
    first = writer.entry()
    writer.entry(head=first)
    newest = writer.entry(head=first)

    assert derive_context(storage, ROOT).ids == (newest, first)


def test_an_omitted_entry_leaves_the_ids_too(storage: Storage) -> None:
    writer = Writer(storage)
    gone, stays = writer.entry(), writer.entry()
    edit = writer.entry(ROOT, None, Omit(gone))

    context = derive_context(storage, ROOT)
    assert context.ids == (stays, edit)
    assert context.omitted == (gone,)
    assert derive_context(storage, ROOT, stays).ids == (gone, stays)


def test_a_replaced_entry_keeps_its_id_and_place(storage: Storage) -> None:
    writer = Writer(storage)
    target, other = writer.entry(), writer.entry()
    writer.entry(ROOT, None, Replace(target, [said("a"), said("b")]), model=False)

    context = derive_context(storage, ROOT)
    assert context.ids[:2] == (target, other)
    assert texts(storage) == ["a", "b", str(other)]
    assert [item.replaced for item in context.items] == [True, False, False]


def test_an_entry_replaced_by_nothing_contributes_nothing(storage: Storage) -> None:
    writer = Writer(storage)
    target = writer.entry()
    writer.entry(ROOT, None, Replace(target, []), model=False)

    assert derive_context(storage, ROOT).ids[0] == target
    assert texts(storage) == []


def test_the_last_edit_of_a_target_wins(storage: Storage) -> None:
    writer = Writer(storage)
    target = writer.entry()
    writer.entry(ROOT, None, Omit(target), model=False)
    writer.entry(
        ROOT, None, Replace(target, [said("x")]), Replace(target, [said("y")]), model=False
    )

    assert texts(storage) == ["y"]


def test_edits_of_heads_and_of_omitted_entries_count(storage: Storage) -> None:
    """CTX-1."""
    writer = Writer(storage)
    first, second, third = (writer.entry() for _ in range(3))
    writer.entry(ROOT, first, Omit(first))
    editor = writer.entry(ROOT, None, Omit(second))
    head = writer.entry(ROOT, first, Omit(editor))

    assert derive_context(storage, ROOT).ids == (head, third)


def test_an_edit_before_the_range_does_not_count(storage: Storage) -> None:
    writer = Writer(storage)
    writer.entry()
    target = writer.entry()
    writer.entry(ROOT, None, Omit(target))
    boundary = writer.entry()
    head = writer.entry(head=boundary)

    assert derive_context(storage, ROOT).ids == (head, boundary)


def test_a_head_can_be_omitted(storage: Storage) -> None:
    writer = Writer(storage)
    first = writer.entry()
    head = writer.entry(head=first)
    editor = writer.entry(ROOT, None, Omit(head))

    context = derive_context(storage, ROOT)
    assert context.ids == (first, editor)
    assert context.omitted == (head,)


def test_a_fork_sees_no_later_head_of_its_parent(storage: Storage) -> None:
    writer = Writer(storage)
    first, second = writer.entry(), writer.entry()
    fork = writer.fork(ROOT, second)
    writer.entry(own_head=True)
    own = writer.entry(fork)

    assert derive_context(storage, fork).ids == (first, second, own)


def test_at_the_start_there_is_nothing(storage: Storage) -> None:
    Writer(storage).entry()

    context = derive_context(storage, ROOT, "start")
    assert (context.ids, context.messages) == ((), ())


def test_an_unknown_conversation_is_refused(storage: Storage) -> None:
    Writer(storage)

    with pytest.raises(UnknownConversationError):
        derive_context(storage, Seq(99))
    with pytest.raises(UnknownConversationError):
        derive_context(storage, Seq(99), "start")


def test_a_position_below_the_first_number_is_refused(storage: Storage) -> None:
    Writer(storage)

    with pytest.raises(InvalidQueryError):
        derive_context(storage, ROOT, Seq(0))


def test_nothing_before_the_boundary_is_read(storage: Storage) -> None:
    writer = Writer(storage)
    for _ in range(500):
        writer.entry()
    boundary = writer.entry()
    head = writer.entry(head=boundary)
    before = storage.counters.rows_decoded

    context = derive_context(storage, ROOT)

    assert context.ids == (head, boundary)
    # The head is read twice, to be found and in the range, where its edits count; engines may
    # look at the conversation's record too, but at none of the 500.
    assert storage.counters.rows_decoded - before < 10


def test_a_context_longer_than_a_page_is_whole(storage: Storage) -> None:
    conversation = MainBatch((Conversation(id=ROOT),))
    storage.commit(conversation)
    entries = tuple(
        Entry(id=Seq(number), conversation_id=ROOT, kind="k") for number in range(2, 2502)
    )
    storage.commit(MainBatch(entries))

    assert derive_context(storage, ROOT).ids == tuple(range(2, 2502))


# --- Against the rule, applied word for word -----------------------------------------------------

Step: TypeAlias = tuple[str, int, int, bool]


def naive(
    conversations: dict[Seq, Conversation], entries: list[Entry], of: Seq, at: int
) -> tuple[list[Seq], list[JsonObject]]:
    """Return ids and messages by the rule's own steps, over everything there is."""
    visible: list[Entry] = []
    reader: Conversation | None = conversations[of]
    cut = at
    while reader is not None:
        owned = [e for e in entries if e.conversation_id == reader.id and e.id <= cut]
        visible = owned + visible
        point = reader.parent
        cut = min(cut, point.at) if point is not None else cut
        reader = conversations[point.conversation_id] if point is not None else None
    heads = [e for e in visible if e.head is not None]
    boundary = heads[-1].head or 0 if heads else 0
    in_range = [e for e in visible if e.id >= boundary]
    context = heads[-1:] + [e for e in in_range if e.head is None]
    for entry in in_range:
        for edit in entry.edits or ():
            context = [e for e in context if not (isinstance(edit, Omit) and e.id == edit.target)]
    shown = {e.id: e.model or [] for e in context}
    return list(shown), [message for model in shown.values() for message in model]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["entry", "entry", "head", "omit", "fork"]),
            st.integers(0, 9),
            st.integers(0, 30),
            st.booleans(),
        ),
        max_size=40,
    )
)
def test_any_history_gives_what_the_rule_says(steps: list[Step]) -> None:
    store = open_store("memory:")
    storage = store.create("s")
    writer = Writer(storage)
    conversations = {ROOT: Conversation(id=ROOT)}
    for what, which, target, flag in steps:
        conversation = list(conversations)[which % len(conversations)]
        visible = derive_visible(storage, conversation)
        aim = visible[target % len(visible)] if visible else None
        match what:
            case "head" if aim is not None:
                newest = storage.newest_head(conversation, storage.last_seq)
                least = newest.head if newest is not None and newest.head is not None else 0
                writer.entry(conversation, Seq(max(aim, least)), model=flag)
            case "omit" if aim is not None:
                writer.entry(conversation, None, Omit(aim), model=flag)
            case "fork":
                fork = writer.fork(conversation, aim)
                conversations[fork] = storage.get_conversations([fork])[fork]
            case _:
                writer.entry(conversation, own_head=flag and what == "head")
    entries = [item for item in storage.export() if isinstance(item, Entry)]
    for of in conversations:
        for at in range(1, storage.last_seq + 1):
            context = derive_context(storage, of, Seq(at))
            assert (list(context.ids), list(context.messages)) == naive(
                conversations, entries, of, at
            )
    store.close()


def derive_visible(storage: Storage, conversation: Seq) -> list[Seq]:
    """Return what a conversation shows, by the export and nothing cleverer."""
    items = list(storage.export())
    conversations = {item.id: item for item in items if isinstance(item, Conversation)}
    shown: list[Seq] = []
    cut = int(storage.last_seq)
    reader: Conversation | None = conversations[conversation]
    while reader is not None:
        own = [
            item.id
            for item in items
            if isinstance(item, Entry) and item.conversation_id == reader.id and item.id <= cut
        ]
        shown = own + shown
        if reader.parent is None:
            return shown
        cut = min(cut, reader.parent.at)
        reader = conversations[reader.parent.conversation_id]
    return shown
