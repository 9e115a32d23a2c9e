"""VAL: lists, their elements, removals and clears."""

from __future__ import annotations

from pico_conformance.rule import Lab, rule
from pico_conformance.rules.everything import untouched
from pico_conformance.rules.scene import moves, rewindable, sticky
from pico_store.address import Address, ScratchAddress, Seq, SessionAddress
from pico_store.batch import ListAppend, ListClear, ListRemove
from pico_store.query import ListQuery
from pico_store.records import At, Conversation, Entry, ForkPoint, JsonValue


def elements(lab: Lab, address: Address, at: At | None = None) -> list[JsonValue]:
    """Return the values that a list shows."""
    page = lab.storage.read_list(address, ListQuery(at=at, limit=10_000))
    return [item.value for item in page.items]


@rule("VAL-5")
def test_an_elements_id_is_the_number_of_its_append(lab: Lab) -> None:
    root = lab.root()
    task = lab.task(root)
    for address in (SessionAddress("l"), sticky(root), moves(root)):
        first = lab.next
        lab.commit(ListAppend(address, "a"), ListAppend(address, "a"), ListAppend(address, None))

        found = [
            (item.id, item.value) for item in lab.storage.read_list(address, ListQuery()).items
        ]

        expected = [(first, "a"), (first + 1, "a"), (first + 2, None)]
        assert found == expected, f"{address}: {found}"
    first = lab.next
    scratch = ScratchAddress(task, "l")
    lab.scratch(task, ListAppend(scratch, 1), ListAppend(scratch, 2), ListRemove(scratch, first))
    found = [(item.id, item.value) for item in lab.storage.read_list(scratch, ListQuery()).items]
    assert found == [(first + 1, 2)], f"scratch: {found}"


@rule("VAL-5", "PAGE-1")
def test_a_list_holds_any_number_of_elements(lab: Lab) -> None:
    root = lab.root()
    task = lab.task(root)
    scratch = ScratchAddress(task, "l")
    for address in (SessionAddress("l"), sticky(root), moves(root), scratch):
        first, count = lab.next, 1_500
        if isinstance(address, ScratchAddress):
            lab.scratch(task, *(ListAppend(address, number) for number in range(count)))
        else:
            lab.commit(*(ListAppend(address, number) for number in range(count)))

        found = [item.id for item in lab.storage.read_list(address, ListQuery(limit=9_999)).items]

        assert found == list(range(first, first + count)), f"{address}: {len(found)} elements"


@rule("VAL-5")
def test_only_what_the_list_shows_can_be_removed(lab: Lab) -> None:
    root = lab.root()
    value = lab.set(SessionAddress("l"), 1)
    for address, other in (
        (SessionAddress("l"), SessionAddress("l", "other")),
        (sticky(root), SessionAddress("l")),
        (moves(root), rewindable(root, "other", "l")),
    ):
        cleared = lab.append(address, "cleared")
        lab.clear(address)
        removed = lab.append(address, "removed")
        lab.remove(address, removed)
        foreign = lab.append(other, "foreign")
        kept = lab.append(address, "kept")
        for wrong in (cleared, removed, foreign, value, root, lab.next, Seq(10**6)):
            with untouched(lab, "VAL-5"):
                lab.remove(address, wrong)
        with untouched(lab, "VAL-5"):
            lab.commit(ListRemove(address, kept), ListRemove(address, kept))
        with untouched(lab, "VAL-5"):
            lab.commit(ListClear(address), ListRemove(address, kept))

        assert elements(lab, address) == ["kept"], f"{address}: {elements(lab, address)}"
        lab.remove(address, kept)
        assert elements(lab, address) == [], f"{address} after the removal"


@rule("VAL-5", "SEQ-6")
def test_append_remove_and_clear_in_one_batch(lab: Lab) -> None:
    root = lab.root()
    for address in (SessionAddress("l"), sticky(root), moves(root)):
        at = lab.next
        lab.commit(
            ListAppend(address, "a"),
            ListRemove(address, at),
            ListAppend(address, "b"),
            ListClear(address),
            ListAppend(address, "c"),
            ListAppend(address, "d"),
            ListRemove(address, Seq(at + 4)),
        )

        assert elements(lab, address) == ["d"], f"{address}: {elements(lab, address)}"
        lab.clear(address)
        lab.clear(address)
        assert elements(lab, address) == [], f"{address} after a clear of an empty list"


@rule("VAL-6")
def test_a_fork_removes_and_clears_what_it_inherits_for_itself(lab: Lab) -> None:
    root = lab.root()
    a, b = lab.append(moves(root), "a"), lab.append(moves(root), "b")
    cut = lab.entry(root)
    beyond = lab.append(moves(root), "beyond")
    fork = lab.fork(root, cut)
    with untouched(lab, "VAL-5"):
        lab.remove(moves(fork), beyond)

    lab.remove(moves(fork), a)
    own = lab.append(moves(fork), "own")
    between = lab.entry(fork)
    lab.clear(moves(fork))
    lab.append(moves(fork), "last")
    deeper = lab.fork(fork, between)

    assert elements(lab, moves(root)) == ["a", "b", "beyond"], "the source is affected"
    assert elements(lab, moves(fork)) == ["last"], f"the fork: {elements(lab, moves(fork))}"
    assert elements(lab, moves(deeper)) == ["b", "own"], "a fork before the clear"
    with untouched(lab, "VAL-5"):
        lab.remove(moves(deeper), a)
    lab.remove(moves(deeper), b)
    lab.remove(moves(deeper), own)
    assert elements(lab, moves(deeper)) == [], "what it inherits over two levels is removed"
    assert elements(lab, moves(fork), between) == ["b", "own"], "its source's history is affected"


@rule("VAL-6", "SEQ-6")
def test_a_fork_made_in_the_batch_removes_what_it_inherits(lab: Lab) -> None:
    root = lab.root()
    a = lab.append(moves(root), "a")
    b = lab.append(moves(root), "b")
    cut = lab.entry(root)
    fork = lab.next
    inherited = ForkPoint(root, cut)
    with untouched(lab, "VAL-5"):
        removals = (ListRemove(moves(fork), a), ListRemove(moves(fork), a))
        lab.commit(Conversation(fork, inherited), *removals)
    lab.commit(Conversation(fork, inherited), ListRemove(moves(fork), a))

    assert elements(lab, moves(fork)) == ["b"], f"the fork: {elements(lab, moves(fork))}"
    at = lab.next
    deeper = Conversation(Seq(at + 1), ForkPoint(fork, at))
    lab.commit(Entry(at, fork, "x"), deeper)
    lab.commit(ListClear(moves(deeper.id)), ListAppend(moves(deeper.id), "own"))
    with untouched(lab, "VAL-5"):
        lab.remove(moves(deeper.id), b)
    assert elements(lab, moves(root)) == ["a", "b"], "the source is affected"


@rule("VAL-7")
def test_a_marker_hides_from_its_own_number_on(lab: Lab) -> None:
    root = lab.root()
    lab.entry(root)
    lab.append(moves(root), "a")
    lab.append(moves(root), "b")
    before = lab.entry(root)
    lab.clear(moves(root))
    cleared = lab.entry(root)
    c = lab.append(moves(root), "c")
    after = lab.entry(root)
    lab.remove(moves(root), c)
    removed = lab.entry(root)
    fork = lab.fork(root, removed)
    positions: list[tuple[At, list[JsonValue]]] = [
        ("start", []),
        (Seq(2), []),
        (before, ["a", "b"]),
        (cleared, []),
        (after, ["c"]),
        (removed, []),
    ]
    for conversation in (root, fork):
        for at, expected in positions:
            found = elements(lab, moves(conversation), at)
            assert found == expected, f"conversation {conversation} at {at}: {found}"


@rule("VAL-7", "VAL-6")
def test_each_segment_has_its_own_cut(lab: Lab) -> None:
    root = lab.root()
    a = lab.append(moves(root), "a")
    one = lab.entry(root)
    lab.append(moves(root), "b")
    two = lab.entry(root)
    lab.remove(moves(root), a)
    lab.entry(root)
    fork = lab.fork(root, two)
    lab.append(moves(fork), "c")
    three = lab.entry(fork)
    lab.clear(moves(fork))
    four = lab.entry(fork)
    for at, expected in ((one, ["a"]), (two, ["a", "b"]), (three, ["a", "b", "c"]), (four, [])):
        found = elements(lab, moves(fork), at)
        assert found == expected, f"the fork at {at}: {found}"
    assert elements(lab, moves(root)) == ["b"], "the source"
    assert elements(lab, moves(lab.fork(fork, three))) == ["a", "b", "c"], "forked before the clear"
    assert elements(lab, moves(lab.fork(fork, one))) == ["a"], "forked at an inherited entry"


@rule("PAGE-1", "VAL-7")
def test_a_list_pages_across_forks_and_at_a_position(lab: Lab) -> None:
    root = lab.root()
    ids = [lab.append(moves(root), n) for n in range(5)]
    lab.remove(moves(root), ids[2])
    cut = lab.entry(root)
    lab.append(moves(root), "beyond")
    fork = lab.fork(root, cut)
    ids += [lab.append(moves(fork), n) for n in range(5, 8)]
    shown = [id for id in ids if id != ids[2]]
    for size in range(1, len(shown) + 1):
        up: list[Seq] = []
        page = lab.storage.read_list(moves(fork), ListQuery(limit=size))
        up += [item.id for item in page.items]
        while page.next is not None and len(up) < len(shown):
            page = lab.storage.read_list(moves(fork), ListQuery(after=page.next, limit=size))
            up += [item.id for item in page.items]
        assert up == shown, f"{size} a page: {up}"
    newest = lab.storage.read_list(moves(fork), ListQuery(before=ids[6], limit=3))
    assert [item.id for item in newest.items] == [ids[5], ids[4], ids[3]], "newest first"
    assert newest.next == ids[3], f"next is {newest.next}; older elements follow"
    past = lab.storage.read_list(moves(fork), ListQuery(at=cut, after=ids[1], limit=1))
    assert [item.id for item in past.items] == [ids[3]], "at the cut, after the second"
    assert past.next == ids[3], "at the cut, one more follows"


@rule("VAL-8", "SEQ-9")
def test_a_removed_sticky_element_stays_removed(lab: Lab) -> None:
    root = lab.root()
    for address in (SessionAddress("l"), sticky(root)):
        one = lab.append(address, 1)
        lab.append(address, 2)
        lab.remove(address, one)
        lab.store.vacuum()
        lab.reopen()

        assert elements(lab, address) == [2], f"{address}: {elements(lab, address)}"
        with lab.refused("VAL-5"):
            lab.remove(address, one)
