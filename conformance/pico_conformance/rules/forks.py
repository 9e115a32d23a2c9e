"""FORK: what a fork shows, what it inherits and what it costs."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from pico_conformance.rule import Lab, rule
from pico_conformance.rules.everything import now_and_reopened, untouched, walk
from pico_conformance.rules.scene import moves, rewindable, sticky
from pico_store.address import Seq, SessionAddress
from pico_store.batch import (
    ListAppend,
    ListRemove,
    ValueSet,
)
from pico_store.query import ConversationQuery, EntryQuery, ListQuery, TaskQuery, ValueQuery
from pico_store.records import Conversation, Entry, ForkPoint
from pico_store.storage import Storage

CHAIN = 1_000


def shown(lab: Lab, conversation: Seq) -> list[Seq]:
    """Return the ids of the entries that a conversation shows."""
    query = EntryQuery(conversation_id=conversation)
    return [entry.id for entry in walk(lab.storage.scan_entries, query)]


def _value(lab: Lab, conversation: Seq) -> object:
    found = lab.storage.get_value(rewindable(conversation))
    return None if found is None else found.value


@rule("FORK-1")
def test_a_fork_leaves_from_an_entry_that_its_parent_shows(lab: Lab) -> None:
    root = lab.root()
    cut = lab.entry(root)
    fork = lab.fork(root, cut)
    beyond = lab.entry(root)
    task = lab.task(root)
    value = lab.set(rewindable(root), 1)
    for parent, at in (
        (root, lab.next),
        (root, root),
        (root, task),
        (root, value),
        (root, fork),
        (fork, beyond),
        (cut, cut),
        (Seq(10**6), cut),
        (root, Seq(10**6)),
    ):
        with untouched(lab, "FORK-1"):
            lab.fork(parent, at)
    with untouched(lab, "FORK-1"):
        point = Conversation(id=lab.next, parent=ForkPoint(root, cut))
        lab.commit(structs.replace(point, parent=(root, cut)))

    deeper = lab.fork(fork, cut)

    made = lab.storage.get_conversations([deeper])[deeper]
    assert made == Conversation(deeper, ForkPoint(fork, cut)), f"the fork is recorded as {made}"


@rule("FORK-1", "FORK-2", "FORK-3")
def test_every_entry_is_a_place_to_fork(lab: Lab) -> None:
    root = lab.root()
    first = lab.entry(root, kind="user")
    start = lab.next
    batch = [Entry(Seq(start + i), root, kind) for i, kind in enumerate(("assistant", "r", "r"))]
    lab.commit(*batch)
    entries = [first, *(entry.id for entry in batch), lab.entry(root)]
    for count, cut in enumerate(entries, 1):
        fork = lab.fork(root, cut)

        assert shown(lab, fork) == entries[:count], f"forked at {cut}: {shown(lab, fork)}"
    assert shown(lab, root) == entries, "forking changed the source"


@rule("FORK-2", "FORK-3")
def test_later_entries_stay_on_their_side(lab: Lab) -> None:
    root = lab.root()
    before, cut = lab.entry(root), lab.entry(root)
    lab.commit(Entry(lab.next, root, "same"), Entry(Seq(lab.next + 1), root, "same"))
    fork = lab.fork(root, cut)
    source = lab.entry(root)
    own = lab.entry(fork)
    deeper = lab.fork(fork, own)
    beyond = lab.entry(fork)
    deepest = lab.fork(deeper, before)
    last = lab.entry(deepest)

    assert shown(lab, fork) == [before, cut, own, beyond], "the fork"
    assert shown(lab, deeper) == [before, cut, own], "a fork of the fork at its own entry"
    assert shown(lab, deepest) == [before, last], "a fork below both cuts"
    assert source in shown(lab, root), "the source lost its own later entry"
    newest = EntryQuery(conversation_id=fork, before=Seq(2**53 - 1), limit=3)
    page = lab.storage.scan_entries(newest)
    assert [entry.id for entry in page.items] == [beyond, own, cut], "newest first, across the cut"
    assert page.next == cut, f"next is {page.next}; one more entry is inherited"


@rule("FORK-3", "FORK-5", "SEQ-7")
def test_the_state_committed_with_an_entry_is_the_state_at_it(lab: Lab) -> None:
    root = lab.root()
    lab.set(rewindable(root), "before")
    first = lab.next
    lab.commit(
        ValueSet(rewindable(root), "with"),
        ListAppend(moves(root), "with"),
        Entry(Seq(first + 2), root, "one"),
        Entry(Seq(first + 3), root, "two"),
    )
    lab.set(rewindable(root), "after")
    lab.append(moves(root), "after")
    fork = lab.fork(root, Seq(first + 2))

    elements = [element.value for element in lab.storage.read_list(moves(fork), ListQuery()).items]
    assert _value(lab, fork) == "with", f"the fork has {_value(lab, fork)!r}"
    assert elements == ["with"], f"the fork's list shows {elements}"
    assert shown(lab, fork) == [first + 2], "an entry of the same commit behind the cut is shown"
    assert _value(lab, root) == "after", f"the source has {_value(lab, root)!r}"


@rule("FORK-4")
def test_a_fresh_conversation_starts_empty(lab: Lab) -> None:
    root = lab.root()
    lab.entry(root, head="self")
    lab.set(rewindable(root), 1)
    lab.set(sticky(root, "s"), 1)
    lab.append(moves(root), 1)

    fresh = lab.conversation()

    assert shown(lab, fresh) == [], f"it shows {shown(lab, fresh)}"
    assert _value(lab, fresh) is None, "it has rewindable state"
    assert lab.storage.newest_head(fresh, lab.next) is None, "it has a head"
    assert lab.storage.read_list(moves(fresh), ListQuery()).items == [], "its list is not empty"
    assert lab.storage.scan_values(ValueQuery(scope=rewindable(fresh))).items == [], "keyed values"


@rule("FORK-5", "VAL-10")
def test_what_a_fork_inherits(lab: Lab) -> None:
    root = lab.root()
    shared = SessionAddress("s", "shared")
    lab.set(rewindable(root), "then")
    lab.set(sticky(root, "s"), "sticky")
    lab.append(sticky(root, None, "l2"), "sticky")
    lab.set(shared, "then")
    task = lab.task(root)
    cut = lab.entry(root)
    fork = lab.fork(root, cut)
    lab.set(rewindable(root), "source")
    lab.set(shared, "now")
    storage = lab.storage

    assert _value(lab, fork) == "then", f"rewindable state: {_value(lab, fork)!r}"
    assert storage.get_value(sticky(fork, "s")) is None, "sticky state was inherited"
    page = storage.read_list(sticky(fork, None, "l2"), ListQuery())
    assert page.items == [], "a sticky list was inherited"
    tasks = storage.scan_tasks(TaskQuery(conversation_ids=(fork,))).items
    assert tasks == [], f"tasks were inherited: {tasks}"
    session = storage.get_value(shared)
    assert session is not None, "session state is gone"
    assert session.value == "now", "session state is not current"
    lab.set(rewindable(fork), "fork")
    assert (_value(lab, root), _value(lab, fork)) == ("source", "fork"), "one side sees the other"
    assert list(storage.get_tasks([task])) == [task], "the source lost its task"


@rule("FORK-5", "VAL-3")
def test_nested_cuts_around_a_delete_and_a_clear(lab: Lab) -> None:
    root = lab.root()
    lab.set(rewindable(root), 1)
    element = lab.append(moves(root), "a")
    one = lab.entry(root)
    lab.unset(rewindable(root))
    lab.clear(moves(root))
    two = lab.entry(root)
    lab.set(rewindable(root), 3)
    lab.append(moves(root), "b")
    three = lab.entry(root)
    forks = {cut: lab.fork(root, cut) for cut in (one, two, three)}
    deeper = lab.fork(forks[three], two)
    deepest = lab.fork(deeper, one)

    def seen(conversation: Seq) -> tuple[object, list[object]]:
        items = lab.storage.read_list(moves(conversation), ListQuery()).items
        return _value(lab, conversation), [item.value for item in items]

    assert seen(forks[one]) == (1, ["a"]), f"before the delete and clear: {seen(forks[one])}"
    assert seen(forks[two]) == (None, []), f"after them: {seen(forks[two])}"
    assert seen(forks[three]) == (3, ["b"]), f"after later writes: {seen(forks[three])}"
    assert seen(deeper) == (None, []), f"a fork of that, cut between: {seen(deeper)}"
    assert seen(deepest) == (1, ["a"]), f"a fork of that, cut before: {seen(deepest)}"
    with lab.refused("VAL-5"):
        lab.remove(moves(deeper), element)
    lab.remove(moves(deepest), element)
    assert seen(forks[one]) == (1, ["a"]), "a removal in one fork reached another"


@rule("FORK-1", "FORK-2")
def test_many_forks_of_one_entry_are_independent(lab: Lab) -> None:
    root = lab.root()
    lab.set(rewindable(root), "source")
    cut = lab.entry(root)
    forks = [lab.fork(root, cut) for _ in range(100)]
    for index, fork in enumerate(forks):
        lab.set(rewindable(fork), index)
        lab.entry(fork, key=str(index))

    page = lab.storage.scan_conversations(ConversationQuery(parent=root, limit=200))
    assert [fork.id for fork in page.items] == forks, "not every fork is found by its parent"
    for index, fork in enumerate(forks):
        own = lab.storage.scan_entries(EntryQuery(conversation_id=fork)).items
        assert [entry.key for entry in own] == [None, str(index)], f"fork {index} shows {own}"
        assert _value(lab, fork) == index, f"fork {index} has another's value"
    assert _value(lab, root) == "source", "a fork's value reached the source"


@rule("FORK-1", "FORK-6", "PAGE-12")
def test_a_fork_costs_nothing_of_the_history(lab: Lab) -> None:
    root = lab.root()
    early = lab.entry(root, head="self")
    lab.commit(*(Entry(Seq(lab.next + i), root, "note") for i in range(5_000)))
    late = Seq(lab.next - 1)
    counters = lab.storage.counters
    costs: list[int] = []
    for cut in (early, late):
        before = counters.rows_decoded
        fork = lab.fork(root, cut)
        lab.storage.scan_entries(EntryQuery(conversation_id=fork, before=lab.next, limit=1))
        lab.storage.newest_head(fork, lab.next)
        costs.append(counters.rows_decoded - before)

    items = sum(1 for _ in lab.storage.export())
    lab.fork(root, late)
    grown = sum(1 for _ in lab.storage.export()) - items

    assert costs[1] <= costs[0] + 1, f"payloads decoded at the first and last entry: {costs}"
    assert grown == 2, f"a fork of 5,001 entries stored {grown} items, not itself and its batch"


@rule("FORK-6")
def test_a_chain_of_a_thousand_forks_works(lab: Lab) -> None:
    root = lab.root()
    lab.set(rewindable(root), "far")
    lab.set(rewindable(root, "k"), "far")
    element = lab.append(moves(root), "far")
    head = lab.entry(root, head="self")
    reader, cut = root, head
    start = lab.next
    for level in range(0, CHAIN, 100):
        writes: list[Conversation | Entry] = []
        for _ in range(level, level + 100):
            at = Seq(lab.next + len(writes))
            writes.append(Conversation(at, ForkPoint(reader, cut)))
            writes.append(Entry(Seq(at + 1), at, "level"))
            reader, cut = at, Seq(at + 1)
        lab.commit(*writes)
    storage, counters = lab.storage, lab.storage.counters

    assert len(shown(lab, reader)) == CHAIN + 1, "the chain's end does not show every level"
    before = counters.queries
    found = storage.newest_head(reader, lab.next)
    probes = counters.queries - before
    assert found is not None, "the head at the other end of the chain is not found"
    assert found.id == head, f"the newest head is {found.id}, not {head}"
    assert probes <= CHAIN + 10, f"{probes} probes for {CHAIN} levels"
    assert _value(lab, reader) == "far", "the value at the other end of the chain is not found"
    keyed = storage.scan_values(ValueQuery(scope=rewindable(reader))).items
    assert [item.key for item in keyed] == ["k"], f"keyed values: {keyed}"
    middle = EntryQuery(conversation_id=reader, after=Seq(start + 998), limit=2)
    page = storage.scan_entries(middle)
    assert [entry.id for entry in page.items] == [start + 999, start + 1001], (
        "a page amid the chain"
    )
    reads: tuple[tuple[int, Callable[[Storage], object]], ...] = (
        (1, lambda storage: storage.newest_head(reader, lab.next)),
        (1, lambda storage: storage.get_value(rewindable(reader))),
        (1, lambda storage: storage.scan_entries(EntryQuery(conversation_id=reader))),
        (2, lambda storage: storage.scan_values(ValueQuery(scope=rewindable(reader)))),
        (4, lambda storage: storage.read_list(moves(reader), ListQuery())),
    )
    for reopened in (False, True):
        again = lab.reopen() if reopened else storage
        for index, (bound, read) in enumerate(reads):
            before = again.counters.queries
            read(again)
            probes = again.counters.queries - before
            # The first read of a handle may also learn each link.
            bound += reopened and index == 0
            assert probes <= bound * CHAIN + 20, f"read {index} takes {probes} probes"
    storage = lab.storage
    lab.commit(ListRemove(moves(reader), element), ValueSet(rewindable(reader), "near"))
    assert storage.read_list(moves(reader), ListQuery()).items == [], "the removal did not hold"
    assert _value(lab, root) == "far", "a write at one end reached the other"


@rule("FORK-7", "TASK-5")
def test_parent_and_owner_are_independent_links(lab: Lab) -> None:
    root = lab.root()
    cut = lab.entry(root)
    task = lab.task(root)
    made = [
        Conversation(lab.conversation()),
        Conversation(lab.conversation(owner=task), owner=task),
        Conversation(lab.fork(root, cut), ForkPoint(root, cut)),
        Conversation(lab.fork(root, cut, owner=task), ForkPoint(root, cut), task),
    ]
    ids = [conversation.id for conversation in made]

    for storage in now_and_reopened(lab):
        found = list(storage.get_conversations(ids).values())
        assert found == made, f"read back as {found}"
        scanned = storage.scan_conversations(ConversationQuery(after=root)).items
        assert scanned == made, f"scanned as {scanned}"
