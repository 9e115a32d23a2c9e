"""VAL: addresses, their policies, values and scans of values."""

from __future__ import annotations

from msgspec import structs

from pico_conformance.rule import Lab, rule
from pico_conformance.rules.entries import ODD_TEXTS
from pico_conformance.rules.everything import untouched
from pico_conformance.rules.scene import build_scene, moves, rewindable, sticky
from pico_store.address import Address, ConversationAddress, ScratchAddress, Seq, SessionAddress
from pico_store.batch import (
    DeleteConversation,
    ListAppend,
    ListClear,
    MainWrite,
    ValueDelete,
    ValueSet,
)
from pico_store.query import ListQuery, ValueQuery
from pico_store.records import At, JsonValue, ValuePage


def value_at(lab: Lab, address: Address, at: At | None = None) -> JsonValue:
    """Return the value at an address, or ``"absent"``."""
    found = lab.storage.get_value(address, at)
    return "absent" if found is None else found.value


def keys(lab: Lab, scope: Address) -> list[str]:
    """Return the keys of a namespace, page by page."""
    found: list[str] = []
    after: str | None = None
    while True:
        page: ValuePage = lab.storage.scan_values(ValueQuery(scope=scope, after=after, limit=2))
        found += [item.key for item in page.items]
        if page.next is None:
            return found
        assert page.next != after, f"next is {after!r} again: the walk would never end"
        after = page.next


# --- Addresses and policies ---


@rule("VAL-1")
def test_addresses_that_differ_in_any_part_are_different(lab: Lab) -> None:
    root = lab.root()
    other = lab.conversation()
    task, second = lab.task(root), lab.task(root)
    main: list[Address] = [
        SessionAddress("n"),
        SessionAddress("n", ""),
        SessionAddress("n", "k"),
        SessionAddress("n2", "k"),
        SessionAddress("k", "n"),
        SessionAddress("n/k", "n"),
        SessionAddress("n", "k/n"),
        ConversationAddress(root, "n"),
        ConversationAddress(root, "n", ""),
        ConversationAddress(other, "n"),
        ConversationAddress(root, "n", "k", rewind=True),
        ConversationAddress(other, "n", "k", rewind=True),
    ]
    scratch: list[Address] = [
        ScratchAddress(task, "n"),
        ScratchAddress(task, "n", ""),
        ScratchAddress(second, "n"),
    ]
    for index, address in enumerate(main):
        lab.commit(ListAppend(address, f"l{index}"), ValueSet(address, f"v{index}"))
    for index, address in enumerate(scratch, len(main)):
        assert isinstance(address, ScratchAddress)
        lab.scratch(address.task, ValueSet(address, f"v{index}"), ListAppend(address, f"l{index}"))

    lab.reopen()

    for index, address in enumerate([*main, *scratch]):
        items = lab.storage.read_list(address, ListQuery()).items
        assert value_at(lab, address) == f"v{index}", f"{address} has another's value"
        assert [item.value for item in items] == [f"l{index}"], f"{address} has another's list"
    lab.commit(*map(ValueDelete, main))
    for address in main:
        items = lab.storage.read_list(address, ListQuery()).items
        assert len(items) == 1, f"deleting the value of {address} changed its list"


@rule("VAL-1", "VAL-9")
def test_the_first_write_of_any_type_fixes_the_policy(lab: Lab) -> None:
    root = lab.root()
    for index, rewind in enumerate((True, False)):
        key = str(index)
        address = ConversationAddress(root, "n", key, rewind)
        firsts: list[MainWrite] = [
            ValueSet(address, 1),
            ValueDelete(structs.replace(address, key=f"{key}d")),
            ListAppend(structs.replace(address, key=f"{key}a"), 1),
            ListClear(structs.replace(address, key=f"{key}c")),
        ]
        for first in firsts:
            at = getattr(first, "address", address)
            shape = "value" if isinstance(first, ValueSet | ValueDelete) else "list"
            assert lab.storage.rewind_policy(at, shape) is None, "a policy before the first write"  # type: ignore[arg-type]
            lab.commit(first)
            wrong = structs.replace(at, rewind=not rewind)
            found = lab.storage.rewind_policy(wrong, shape)  # type: ignore[arg-type]
            assert found is rewind, f"{first} fixed {found}"
            with untouched(lab, "VAL-1"):
                lab.commit(structs.replace(first, address=wrong))
            lab.commit(first)


@rule("VAL-1", "VAL-9")
def test_a_policy_belongs_to_one_shape_in_one_conversation(lab: Lab) -> None:
    root = lab.root()
    cut = lab.entry(root)
    lab.set(rewindable(root, "k"), 1)
    fork = lab.fork(root, cut)
    inherited_cut = lab.entry(root)
    heir = lab.fork(root, inherited_cut)

    lab.append(sticky(root, "k", "v"), 1)
    lab.set(sticky(fork, "k", "v"), 1)

    policy = lab.storage.rewind_policy
    assert policy(rewindable(root, "k"), "value") is True, "the value's policy"
    assert policy(rewindable(root, "k"), "list") is False, "the list's policy"
    assert policy(rewindable(fork, "k"), "value") is False, "the fork's own policy"
    assert policy(rewindable(heir, "k"), "value") is None, "a policy was inherited"
    assert policy(rewindable(root), "value") is None, "the keyless address is another"


@rule("VAL-1")
def test_one_batch_cannot_write_an_address_both_ways(lab: Lab) -> None:
    root = lab.root()
    with untouched(lab, "VAL-1"):
        lab.commit(ValueSet(rewindable(root), 1), ValueDelete(sticky(root, None, "v")))

    lab.commit(ValueSet(sticky(root, None, "v"), 1))

    assert lab.storage.rewind_policy(rewindable(root), "value") is False, "the refusal left a trace"


@rule("VAL-1")
def test_a_read_with_another_policy_is_refused(lab: Lab) -> None:
    root = lab.root()
    lab.set(rewindable(root), 1)
    lab.append(sticky(root), 1)
    lab.unset(sticky(root, "deleted"))
    lab.clear(rewindable(root, "cleared"))
    for address in (sticky(root, None, "v"), rewindable(root, "deleted", "s")):
        with untouched(lab, "VAL-1"):
            lab.storage.get_value(address)
    for address in (rewindable(root, None, "s"), sticky(root, "cleared", "v")):
        with untouched(lab, "VAL-1"):
            lab.storage.read_list(address, ListQuery())

    unwritten = [rewindable(root, "unwritten"), sticky(root, "unwritten")]
    assert [value_at(lab, address) for address in unwritten] == ["absent"] * 2, "unwritten"


@rule("VAL-1", "JSON-5")
def test_an_address_of_another_form_is_refused(lab: Lab) -> None:
    root = lab.root()
    good = ValueSet(sticky(root, "k"), 1)
    for clause, address in (
        ("VAL-1", None),
        ("VAL-1", "session"),
        ("VAL-1", {"scope": "session", "namespace": "n"}),
        ("VAL-1", sticky(Seq(10**6))),
        ("VAL-1", structs.replace(sticky(root), rewind=1)),
        ("VAL-1", structs.replace(sticky(root), rewind=None)),
        ("JSON-5", SessionAddress("")),
        ("JSON-5", structs.replace(SessionAddress("n"), namespace=None)),
        ("JSON-5", structs.replace(SessionAddress("n"), key=1)),
        ("JSON-5", structs.replace(SessionAddress("n"), namespace=b"n")),
    ):
        with untouched(lab, clause):
            lab.commit(structs.replace(good, address=address))


# --- Values ---


@rule("VAL-2")
def test_an_equal_value_is_a_new_version(lab: Lab) -> None:
    root = lab.root()
    for address in (SessionAddress("n"), sticky(root), rewindable(root)):
        lab.set(address, {"a": 1})

        again = lab.set(address, {"a": 1})

        found = lab.storage.get_value(address)
        assert found is not None, f"{address} is absent"
        assert found.seq == again, f"{address} carries number {found.seq}, not {again}"
        second = lab.commit(ValueSet(address, 1), ValueSet(address, 2)).last
        found = lab.storage.get_value(address)
        assert found is not None, f"{address} is absent"
        assert found.seq == second, f"{address} carries number {found.seq}, not {second}"


@rule("VAL-3")
def test_a_delete_records_absence(lab: Lab) -> None:
    root = lab.root()
    lab.set(rewindable(root, "k"), 1)
    before = lab.entry(root)
    fork = lab.fork(root, before)
    for address in (SessionAddress("n", "k"), sticky(root, "k"), rewindable(root, "new")):
        lab.unset(address)
        assert value_at(lab, address) == "absent", f"{address} after deleting what was absent"

    lab.unset(rewindable(fork, "k"))
    after = lab.entry(fork)
    deeper = lab.fork(fork, after)

    assert value_at(lab, rewindable(fork, "k")) == "absent", "an inherited value shines through"
    assert value_at(lab, rewindable(deeper, "k")) == "absent", "and in a fork of the fork"
    assert value_at(lab, rewindable(fork, "k"), before) == 1, "the delete reached back"
    assert value_at(lab, rewindable(root, "k")) == 1, "the delete reached the source"
    assert keys(lab, rewindable(fork)) == [], "the scan shows what is deleted"
    lab.set(rewindable(fork, "k"), None)
    assert value_at(lab, rewindable(fork, "k")) is None, "null after a delete is not null"


@rule("VAL-7")
def test_a_value_is_read_at_an_entry(lab: Lab) -> None:
    root = lab.root()
    first = lab.entry(root)
    lab.set(rewindable(root), "a")
    second = lab.entry(root)
    lab.set(rewindable(root), "b")
    lab.unset(rewindable(root))
    third = lab.entry(root)
    lab.set(rewindable(root), "c")
    fork = lab.fork(root, third)
    lab.set(rewindable(fork), "d")
    own = lab.entry(fork)
    for conversation, at, expected in (
        (root, "start", "absent"),
        (root, first, "absent"),
        (root, second, "a"),
        (root, third, "absent"),
        (root, None, "c"),
        (fork, "start", "absent"),
        (fork, second, "a"),
        (fork, third, "absent"),
        (fork, own, "d"),
        (fork, None, "d"),
    ):
        address = rewindable(conversation)
        found = lab.storage.get_value(address, at)  # type: ignore[arg-type]
        seen = "absent" if found is None else found.value
        assert seen == expected, f"conversation {conversation} at {at}: {seen!r}"


@rule("VAL-7")
def test_a_position_is_a_visible_entry_of_a_rewindable_address(lab: Lab) -> None:
    scene = build_scene(lab)
    storage = lab.storage
    wrong = (
        scene.late,
        scene.fork,
        scene.root,
        Seq(0),
        Seq(10**6),
        Seq(2**70),
        True,
        "end",
        1.0,
    )
    for at in wrong:
        with untouched(lab, "VAL-7"):
            storage.get_value(rewindable(scene.fork), at)  # type: ignore[arg-type]
        with lab.refused("VAL-7"):
            storage.read_list(moves(scene.fork), structs.replace(ListQuery(), at=at))
    others: tuple[Address, ...] = (
        SessionAddress("s", "name"),
        sticky(scene.root, "s"),
        sticky(scene.root, "unwritten"),
        ScratchAddress(scene.live, "p", "k"),
        ScratchAddress(scene.done, "p"),
    )
    positions: tuple[At, ...] = (scene.user, "start")
    for address in others:
        for position in positions:
            with untouched(lab, "VAL-7"):
                storage.get_value(address, position)
            with lab.refused("VAL-7"):
                storage.read_list(address, ListQuery(at=position))


@rule("VAL-8", "DUR-10")
def test_sticky_and_session_state_keep_no_history(lab: Lab) -> None:
    root = lab.root()
    for address in (SessionAddress("n"), sticky(root)):
        lab.set(address, "old")
        lab.set(address, "new")
        element = lab.append(address, "gone")
        lab.append(address, "kept")
        lab.remove(address, element)
    stored = "\n".join(map(repr, lab.storage.export()))

    assert "old" not in stored, "an export has a superseded value"
    assert "gone" not in stored, "an export has a removed element"
    assert stored.count("new") == 2, "an export lacks a current value"
    assert stored.count("kept") == 2, "an export lacks an element"


@rule("VAL-9")
def test_the_policy_of_an_unwritten_address_is_none(lab: Lab) -> None:
    root = lab.root()
    cut = lab.entry(root)
    lab.unset(rewindable(root))
    fork = lab.fork(root, cut)
    lab.append(sticky(fork), 1)

    assert lab.storage.rewind_policy(sticky(root, None, "v"), "value") is True, "written"
    assert lab.storage.rewind_policy(sticky(root, None, "v"), "list") is None, "the other shape"
    assert lab.storage.rewind_policy(rewindable(fork), "value") is None, "a fork's own"
    for id in (cut, Seq(10**6), Seq(0), Seq(2**70)):
        assert lab.storage.rewind_policy(rewindable(id), "value") is None, f"conversation {id}"
    lab.commit(DeleteConversation(fork))
    assert lab.storage.rewind_policy(sticky(fork), "list") is None, "a deleted conversation"
    with untouched(lab, "VAL-9"):
        lab.storage.rewind_policy(SessionAddress("n"), "value")  # type: ignore[arg-type]
    with untouched(lab, "VAL-9"):
        lab.storage.rewind_policy(rewindable(root), "set")  # type: ignore[arg-type]


@rule("VAL-10")
def test_an_ancestors_sticky_state_neither_shows_nor_hides(lab: Lab) -> None:
    root = lab.root()
    lab.set(rewindable(root, "k"), "rewindable")
    element = lab.append(rewindable(root, "l"), "rewindable")
    first = lab.entry(root)
    middle = lab.fork(root, first)
    lab.set(sticky(middle, "k", "v"), "sticky")
    lab.append(sticky(middle, "l", "v"), "sticky")
    second = lab.entry(middle)

    fork = lab.fork(middle, second)

    assert value_at(lab, rewindable(fork, "k")) == "rewindable", "the sticky value is in the way"
    items = lab.storage.read_list(rewindable(fork, "l"), ListQuery()).items
    assert [item.id for item in items] == [element], f"the list shows {items}"
    assert keys(lab, rewindable(fork)) == ["k"], "the scan does not look past the sticky value"
    assert keys(lab, rewindable(middle)) == ["k"], "the owner of the sticky value lost it"
    assert value_at(lab, sticky(middle, "k", "v")) == "sticky", "the sticky value itself"
    lab.remove(rewindable(fork, "l"), element)
    assert lab.storage.rewind_policy(rewindable(fork, "l"), "list") is True, "the fork's own policy"


# --- Scans ---


@rule("VAL-4", "JSON-3")
def test_keys_are_ordered_by_code_point(lab: Lab) -> None:
    root = lab.root()
    task = lab.task(root)
    every = sorted(ODD_TEXTS)
    assert every.index("\U0010ffff") > every.index("\uffff"), "code points, not UTF-16 units"
    scopes: tuple[Address, ...] = (SessionAddress("n"), sticky(root), rewindable(root))
    for scope in scopes:
        lab.commit(*(ValueSet(structs.replace(scope, key=key), key) for key in ODD_TEXTS))
        lab.set(scope, "keyless")
        lab.append(structs.replace(scope, key="list"), 1)
    scratch = ScratchAddress(task, "n")
    keyed = (ValueSet(structs.replace(scratch, key=key), key) for key in ODD_TEXTS)
    lab.scratch(task, *keyed)
    lab.reopen()

    for scope in (*scopes, scratch):
        found = keys(lab, scope)
        assert found == every, f"{scope}: {found}"
        page = lab.storage.scan_values(ValueQuery(scope=scope, limit=10_000))
        assert all(item.key == item.value for item in page.items), f"{scope}: values changed place"
        assert page.next is None, f"{scope}: next is {page.next!r} though nothing follows"


@rule("VAL-4", "PAGE-2")
def test_a_scan_of_values_pages_by_key(lab: Lab) -> None:
    root = lab.root()
    for key in ("b", "a", "c", "a\x00", "ab"):
        lab.set(sticky(root, key), key)
    for after, limit, expected, next in (
        (None, 2, ["a", "a\x00"], "a\x00"),
        ("a", 2, ["a\x00", "ab"], "ab"),
        ("a\x00", 10, ["ab", "b", "c"], None),
        ("aa", 3, ["ab", "b", "c"], None),
        ("b", 1, ["c"], None),
        ("c", 1, [], None),
        ("", 1, ["a"], "a"),
    ):
        page = lab.storage.scan_values(ValueQuery(scope=sticky(root), after=after, limit=limit))
        found = [item.key for item in page.items]
        assert (found, page.next) == (expected, next), f"after {after!r}: {found}, {page.next!r}"


@rule("VAL-4", "FORK-5")
def test_a_scan_combines_own_and_inherited_keys(lab: Lab) -> None:
    root = lab.root()
    for key in ("changed", "deleted", "inherited", "sticky over"):
        lab.set(rewindable(root, key), "source")
    lab.set(sticky(root, "not inherited", "v"), "source")
    cut = lab.entry(root)
    lab.set(rewindable(root, "too late"), "source")
    fork = lab.fork(root, cut)
    lab.set(rewindable(fork, "changed"), "fork")
    lab.unset(rewindable(fork, "deleted"))
    lab.set(rewindable(fork, "own"), "fork")
    lab.set(sticky(fork, "own sticky", "v"), "fork")
    lab.set(sticky(fork, "sticky over", "v"), "fork")
    lab.set(sticky(fork, "sticky deleted", "v"), "fork")
    lab.unset(sticky(fork, "sticky deleted", "v"))
    other = rewindable(fork, "other namespace", "v2")
    lab.set(other, "fork")

    expected = {
        "changed": "fork",
        "inherited": "source",
        "own": "fork",
        "own sticky": "fork",
        "sticky over": "fork",
    }
    for scope in (rewindable(fork), sticky(fork, None, "v")):
        page = lab.storage.scan_values(ValueQuery(scope=scope))
        found = {item.key: item.value for item in page.items}
        assert found == expected, f"the fork shows {found}"
    source = keys(lab, rewindable(root))
    everything = ["changed", "deleted", "inherited", "not inherited", "sticky over", "too late"]
    assert source == everything, f"the source shows {source}"


@rule("VAL-4", "VAL-10")
def test_a_sticky_delete_of_its_own_hides_what_would_be_inherited(lab: Lab) -> None:
    root = lab.root()
    lab.set(rewindable(root, "k"), "source")
    fork = lab.fork(root, lab.entry(root))

    lab.unset(sticky(fork, "k", "v"))

    assert keys(lab, rewindable(fork)) == [], "the scan shows the inherited value"
    assert value_at(lab, sticky(fork, "k", "v")) == "absent", "the sticky address"
    with lab.refused("VAL-1"):
        lab.storage.get_value(rewindable(fork, "k"))


@rule("VAL-4")
def test_a_scan_asks_for_a_namespace_not_for_a_key(lab: Lab) -> None:
    scene = build_scene(lab)
    keyed = (
        sticky(scene.root, "s"),
        SessionAddress("s", ""),
        ScratchAddress(scene.live, "p", "k"),
    )
    for scope in keyed:
        with untouched(lab, "VAL-4"):
            lab.storage.scan_values(ValueQuery(scope=scope))

    assert keys(lab, SessionAddress("unwritten")) == [], "an unwritten namespace has keys"
