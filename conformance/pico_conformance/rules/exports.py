"""DUR: the digest, exports, loading, and the JSON form of batches and items."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import json, structs

from pico_conformance.rule import SESSION, Lab, rule
from pico_conformance.rules.everything import assert_same, everything, untouched
from pico_conformance.rules.ownership import raised
from pico_conformance.rules.scene import build_scene, moves, rewindable, sticky
from pico_store.address import ConversationAddress, ScratchAddress, Seq, SessionAddress
from pico_store.backends import open_store
from pico_store.batch import (
    DeleteConversation,
    ListAppend,
    ListClear,
    ListRemove,
    MainBatch,
    PatchTask,
    ScratchBatch,
    SettleTask,
    ValueDelete,
    ValueSet,
)
from pico_store.codec import decode_batch, decode_item, encode_batch, encode_item
from pico_store.digest import digest
from pico_store.errors import InvalidValueError, PicoError, RefusedError, SessionExistsError
from pico_store.records import BatchRange, Conversation, Entry, ForkPoint, Omit, Replace, Task
from pico_store.snapshot import (
    AddressPolicy,
    DeletedConversation,
    ListItem,
    ListMarker,
    SnapshotHeader,
    SnapshotItem,
    ValueVersion,
)


@rule("DUR-9", "DUR-7")
def test_equal_histories_have_equal_digests_on_every_backend(lab: Lab) -> None:
    build_scene(lab)
    mark = digest(lab.storage.export())
    memory = open_store("memory:")
    memory.load("copy", lab.storage.export())
    copy = memory.open("copy")
    other = lab.new_place().open()
    other.load("back", copy.export())

    back = other.open("back")

    assert digest(copy.export()) == mark, "a copy in memory has another digest"
    assert digest(back.export()) == mark, "a copy of the copy has another digest"
    assert_same(everything(copy), everything(back), "the way back from memory")
    assert_same(everything(lab.storage), everything(back), "the way through memory")
    memory.close()


@rule("DUR-9", "JSON-2", "JSON-6")
def test_a_digest_tells_apart_what_differs_and_nothing_else(lab: Lab) -> None:
    def mark(value: object) -> str:
        store = lab.new_place().open()
        storage = store.create("s")
        write = structs.replace(ValueSet(SessionAddress("n"), None), value=value)
        storage.commit(MainBatch((Conversation(id=Seq(1)), write)))
        return digest(storage.export())

    different = [mark(value) for value in (1, 1.0, True, "1", None, [1], {"a": 1}, {"A": 1}, [])]
    ordered = [mark({"a": 1, "b": {"c": 1, "d": 2}}), mark({"b": {"d": 2, "c": 1}, "a": 1})]

    assert len(set(different)) == len(different), "different values have one digest"
    assert ordered[0] == ordered[1], "the order of keys changes the digest"


# --- Export ---


@rule("DUR-10", "SEQ-9", "DEL-4")
def test_an_export_is_the_state_in_canonical_order(lab: Lab) -> None:
    root = Seq(1)
    fork, gone, heir = Seq(10), Seq(14), Seq(17)
    value, plan = SessionAddress("n"), rewindable(root)
    lab.commit(Conversation(id=root), ValueSet(value, 1), ValueSet(plan, 1))
    lab.commit(ListAppend(moves(root), "a"), ListAppend(moves(root), "b"), Entry(Seq(6), root, "x"))
    lab.commit(ListRemove(moves(root), Seq(4)), ValueDelete(plan), ListClear(sticky(root, "k")))
    lab.commit(Conversation(fork, ForkPoint(root, Seq(6))), ValueSet(value, 2))
    lab.commit(Task(Seq(12), root, "t", "s", "start", {"status": "s"}), ValueDelete(sticky(root)))
    lab.commit(Conversation(gone), ValueSet(rewindable(gone), 1), Entry(Seq(16), gone, "w"))
    lab.commit(Conversation(heir, ForkPoint(gone, Seq(16)), Seq(12)), Entry(Seq(18), gone, "v"))
    lab.commit(ValueSet(rewindable(gone), 2), DeleteConversation(gone))
    scratch = ScratchAddress(Seq(12), "p")
    lab.scratch(Seq(12), ValueSet(scratch, 1), ListAppend(scratch, 1))
    deleted = Conversation(gone)

    found = list(lab.storage.export())

    expected: list[SnapshotItem] = [
        SnapshotHeader(Seq(22), ("v", "w", "x")),
        Conversation(root),
        Conversation(fork, ForkPoint(root, Seq(6))),
        DeletedConversation(deleted, Seq(16)),
        Conversation(heir, ForkPoint(gone, Seq(16)), Seq(12)),
        Entry(Seq(6), root, "x"),
        Entry(Seq(16), gone, "w"),
        Task(Seq(12), root, "t", "s", "start", {"status": "s"}),
        AddressPolicy(moves(root), "list"),
        AddressPolicy(sticky(root, "k"), "list"),
        AddressPolicy(sticky(root), "value"),
        AddressPolicy(plan, "value"),
        ValueVersion(Seq(3), plan, 1),
        ValueVersion(Seq(8), plan),
        ValueVersion(Seq(11), value, 2),
        ValueVersion(Seq(15), rewindable(gone), 1),
        ValueVersion(Seq(21), scratch, 1),
        ListItem(Seq(4), moves(root), "a"),
        ListItem(Seq(5), moves(root), "b"),
        ListItem(Seq(22), scratch, 1),
        ListMarker(Seq(7), moves(root), Seq(4)),
        *map(_batch, ((1, 3), (4, 6), (7, 9), (10, 11), (12, 13), (14, 16), (17, 18), (19, 20))),
        BatchRange(Seq(21), Seq(22), Seq(12)),
    ]
    for index, (item, due) in enumerate(zip(found, expected, strict=False)):
        assert item == due, f"items[{index}] is {item}; due is {due}"
    assert len(found) == len(expected), f"{len(found)} items; due are {len(expected)}"


def _batch(ends: tuple[int, int]) -> BatchRange:
    return BatchRange(Seq(ends[0]), Seq(ends[1]))


@rule("DUR-10", "VAL-1")
def test_policies_are_in_the_order_of_their_addresses(lab: Lab) -> None:
    root = lab.root()
    other = lab.conversation()
    addresses = [
        ConversationAddress(conversation, namespace, key, rewind=(len(namespace) == 1))
        for conversation in (other, root)
        for namespace in ("z", "a", "\uffff", "\U0001f642", "ab")
        for key in ("b", None, "", "a", "\x00")
    ]
    for address in addresses:
        lab.commit(ValueSet(address, 1), ListAppend(address, 1))

    found = [item for item in lab.storage.export() if isinstance(item, AddressPolicy)]

    def place(item: AddressPolicy) -> tuple[object, ...]:
        address = item.address
        keyed = address.key is not None
        return address.conversation, item.shape, address.namespace, keyed, address.key or ""

    assert found == sorted(found, key=place), "policies are out of order"
    assert len(found) == 2 * len(addresses), f"{len(found)} policies for {2 * len(addresses)}"
    assert {item.address for item in found} == set(addresses), "policies of other addresses"


# --- Load ---


@rule("DUR-11", "DUR-10")
def test_loading_is_the_inverse_of_exporting(lab: Lab) -> None:
    scene = build_scene(lab)
    lab.settle(scene.live)
    lab.entry(scene.fork)
    # Nothing is left of this value but its policy.
    lab.set(sticky(scene.root, "gone"), 1)
    lab.unset(sticky(scene.root, "gone"))
    items = list(lab.storage.export())
    place = lab.new_place()
    store = place.open()

    store.load("copy", iter(items))
    storage = store.open("copy")

    for index, (item, due) in enumerate(zip(storage.export(), items, strict=True)):
        assert json.encode(item) == json.encode(due), f"items[{index}] became {item}"
    assert_same(everything(lab.storage), everything(storage), "loading")
    write = MainBatch((Entry(lab.next, scene.heir, "after"),))
    assert storage.commit(write) == lab.storage.commit(write), "the numbers go on differently"
    assert digest(storage.export()) == digest(lab.storage.export()), "and so does the state"
    (info,) = store.sessions()
    assert info.id == "copy", f"the store lists {info}"


@rule("DUR-11")
def test_a_session_that_exists_is_not_loaded_over(lab: Lab) -> None:
    build_scene(lab)
    before = everything(lab.storage)
    items = list(lab.storage.export())

    raised(lambda: lab.store.load(SESSION, items), SessionExistsError)
    lab.storage.close()
    raised(lambda: lab.store.load(SESSION, items), SessionExistsError)

    lab.storage = lab.store.open(SESSION)
    assert_same(before, everything(lab.storage), "a refused load")


@rule("DUR-11", "SEQ-5", needs=("many_sessions",))
def test_items_that_do_not_fit_are_refused_as_a_whole(lab: Lab) -> None:
    build_scene(lab)
    items = list(lab.storage.export())
    before = everything(lab.storage)
    for what, bad in _spoilt(items):
        try:
            lab.store.load("copy", bad)
        except RefusedError:
            pass
        except PicoError as error:
            raise AssertionError(f"{what}: raised {error!r}, not a refusal") from error
        else:
            raise AssertionError(f"{what}: accepted")
        listed = [info.id for info in lab.store.sessions()]
        assert listed == [SESSION], f"{what}: left {listed} behind"
    assert_same(before, everything(lab.storage), "refused loads")

    lab.store.load("copy", items)

    assert digest(lab.store.open("copy").export()) == digest(items), "the whole is not accepted"


def _spoilt(items: list[SnapshotItem]) -> Iterator[tuple[str, list[SnapshotItem]]]:
    places = {type(item): index for index, item in reversed(list(enumerate(items)))}
    yield "no items", []
    yield "no header", items[1:]
    yield "two headers", [items[0], *items]
    yield "backwards", [items[0], *reversed(items[1:])]
    yield "cut off", items[:-1]
    for kind in (Conversation, Entry, Task, AddressPolicy, ValueVersion, ListItem, BatchRange):
        at = places[kind]
        yield f"{kind.__name__} twice", [*items[: at + 1], *items[at:]]
        yield f"{kind.__name__} at the end", [*items[:at], *items[at + 1 :], items[at]]
    entry = items[places[Entry]]
    lost = structs.replace(entry, conversation_id=Seq(10**6))
    yield (
        "an entry of no conversation",
        [*items[: places[Entry]], lost, *items[places[Entry] + 1 :]],
    )
    nan = structs.replace(entry, data=float("nan"))
    yield "a value that is not JSON", [*items[: places[Entry]], nan, *items[places[Entry] + 1 :]]
    high = structs.replace(items[0], last_seq=Seq(2**53))
    yield "a number past the end", [high, *items[1:]]
    changes: tuple[tuple[type, dict[str, object]], ...] = (
        (SnapshotHeader, {"entry_kinds": ()}),
        (Entry, {"kind": "unheard of"}),
        (Entry, {"by_task_id": -1}),
        (Entry, {"by_task_id": 2**53}),
        (Entry, {"head": 10**6}),
        (Entry, {"id": "2"}),
        (Task, {"owns": (1,)}),
        (Task, {"role": "other"}),
        (Task, {"state": {"status": "other"}}),
        (AddressPolicy, {"shape": "other"}),
        (ValueVersion, {"address": SessionAddress("another", "\ud800")}),
        (ValueVersion, {"address": ConversationAddress(Seq(1), "unheard of")}),
        (ListItem, {"address": ConversationAddress(Seq(1), "unheard of", rewind=True)}),
        (ListItem, {"address": None}),
        (ListMarker, {"element": 2**64}),
        (ListMarker, {"element": "3"}),
        (BatchRange, {"first": None}),
        (BatchRange, {"task": 2**40}),
    )
    for changing, change in changes:
        at = places[changing]
        changed = structs.replace(items[at], **change)
        yield f"{changing.__name__} with {change}", [*items[:at], changed, *items[at + 1 :]]
    nothing: tuple[object, ...] = (None, 1, [None], ["x"], "x", {"a": 1})
    for other in nothing:
        yield f"{other!r} for items", other  # type: ignore[misc]


# --- JSON form ---


def _batches() -> list[MainBatch | ScratchBatch]:
    one, two = Seq(1), Seq(2)
    address = ConversationAddress(one, "n", "", rewind=True)
    state = {"status": "s"}
    return [
        MainBatch((Conversation(one), Conversation(two, ForkPoint(one, one), one))),
        MainBatch((ValueSet(address, None), ValueDelete(SessionAddress("n")))),
        MainBatch((ListAppend(address, [1.0]), ListRemove(address, one), ListClear(address))),
        MainBatch((Entry(one, one, "k"), Entry(two, one, "k", "", one, None, [], one, ()))),
        MainBatch((Entry(one, one, "k", edits=(Omit(one), Replace(two, [{"a": 1}]))),)),
        MainBatch((Task(one, one, "k", "s", "start", state),)),  # type: ignore[arg-type]
        MainBatch((Task(one, one, "k", "s", "inflight", state, (one, two), True, True),)),  # type: ignore[arg-type]
        MainBatch((PatchTask(one, abort=True), PatchTask(one, "s", "start", state))),  # type: ignore[arg-type]
        MainBatch((SettleTask(one, "s", state), DeleteConversation(two))),  # type: ignore[arg-type]
        ScratchBatch(one, (ValueSet(ScratchAddress(one, "p", "k"), 2**64 - 1),)),
    ]


@rule("DUR-12", "JSON-2", "JSON-6")
def test_batches_survive_as_json(lab: Lab) -> None:
    for batch in _batches():
        text = encode_batch(batch)
        decoded = decode_batch(text)

        assert decoded == batch, f"{text.decode()} was decoded as {decoded}"
        assert encode_batch(decoded) == text, f"{text.decode()} is encoded anew otherwise"
        assert b"\n" not in text, "a batch is more than one line"
    text = encode_batch(MainBatch((Entry(Seq(1), Seq(1), "k", by_task_id=Seq(2)),)))
    entry = b'{"type":"entry","id":1,"conversationId":1,"kind":"k","byTaskId":2}'
    due = b'{"kind":"main","writes":[' + entry + b"]}"
    assert text == due, f"an entry's JSON is {text.decode()}"


@rule("DUR-12")
def test_items_survive_as_json(lab: Lab) -> None:
    build_scene(lab)
    for item in lab.storage.export():
        text = encode_item(item)

        assert decode_item(text) == item, f"{text.decode()} was decoded as {decode_item(text)}"
        assert encode_item(decode_item(text)) == text, f"{text.decode()} is encoded anew otherwise"


@rule("DUR-12", "JSON-6")
def test_a_decoded_batch_commits_like_the_original(lab: Lab) -> None:
    marks: list[str] = []
    for decoded in (False, True):
        storage = lab.new_place().open().create("s")
        for batch in (
            MainBatch((Conversation(Seq(1)), ValueSet(rewindable(Seq(1)), {"b": -0.0, "a": 1.0}))),
            MainBatch((Entry(Seq(3), Seq(1), "k", data=[2**64 - 1, "\u2028\x00"], head=Seq(3)),)),
        ):
            storage.commit(decode_batch(encode_batch(batch)) if decoded else batch)
        marks.append(digest(storage.export()))

    assert marks[0] == marks[1], "committing a decoded batch gives another digest"


@rule("DUR-12", "JSON-6", "JSON-2")
def test_text_of_another_form_is_refused(lab: Lab) -> None:
    lab.root()
    good = b'{"kind":"main","writes":[{"type":"deleteConversation","id":2}]}'
    decode_batch(good)
    for bad in (
        b"",
        b"null",
        b"[]",
        good[:-1],
        good + b"x",
        good + good,
        good.replace(b"main", b"other"),
        good.replace(b'"id":2', b'"id":"2"'),
        good.replace(b'"id":2', b'"id":2.5'),
        good.replace(b'"id":2', b'"id":2,"extra":1'),
        good.replace(b'"id":2', b'"id":2,"id":2'),
        good.replace(b'"id":2', b'"id":NaN'),
        good.replace(b'"id":2', b""),
        good.replace(b"deleteConversation", b"unknown"),
        good.replace(b"main", b"ma\xffin"),
        good.replace(b"main", b"\\ud800"),
        good.replace(b'"id"', b'"id\\udfff"'),
        good.replace(b'"id":2', b'"id":' + b"[" * 900 + b"]" * 900),
        b"\xef\xbb\xbf" + good,
    ):
        raised(lambda bad=bad: decode_batch(bad), InvalidValueError)  # type: ignore[misc]
    for bad in (
        b"",
        b"{}",
        b'{"type":"other"}',
        b'{"type":"\\ud800"}',
        b'{"type":"session","lastSeq":0,"entryKinds":[],"extra":1}',
        b'{"type":"batch","first":1}',
        b'{"type":"batch","first":1,"last":1,"extra":1}',
        b'{"type":"batch"',
    ):
        raised(lambda bad=bad: decode_item(bad), InvalidValueError)  # type: ignore[misc]
    surrogate = ValueSet(SessionAddress("s"), "\ud800")
    raised(lambda: encode_batch(MainBatch((surrogate,))), InvalidValueError)
    with untouched(lab, "DEL-1"):
        lab.storage.commit(decode_batch(good))
