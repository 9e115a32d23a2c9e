"""JSON: what a value may hold, how exactly it is kept, and that it is a copy."""

from __future__ import annotations

import copy
import datetime
import decimal
import enum
import math
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from msgspec import json, structs

from pico_conformance.rule import Lab, rule
from pico_conformance.rules.entries import ODD_TEXTS
from pico_conformance.rules.everything import exact, now_and_reopened, untouched, walk
from pico_conformance.rules.scene import moves, rewindable, sticky
from pico_store.address import ScratchAddress, Seq, SessionAddress
from pico_store.batch import ListAppend, MainBatch, PatchTask, SettleTask, ValueSet
from pico_store.codec import decode_batch, encode_batch, parse_json
from pico_store.errors import (
    InvalidValueError,
    LimitExceededError,
    RefusedError,
)
from pico_store.limits import BATCH_BYTES_MAX, BATCH_WRITES_MAX, VALUE_BYTES_MAX
from pico_store.query import EntryQuery, ListQuery, ValueQuery
from pico_store.records import Entry, JsonObject, JsonValue, Omit, Replace, Task

PLACE = SessionAddress("n")


class _Text(str):
    __slots__ = ()


class _Colour(enum.Enum):
    RED = "red"


class _Number(enum.IntEnum):
    ONE = 1


@dataclass
class _Point:
    x: int = 1


def _not_json() -> list[object]:
    return [
        b"bytes", bytearray(b"a"), memoryview(b"a"), (1,), {1}, frozenset(), range(2), iter([]),
        datetime.datetime(2020, 1, 1), datetime.date(2020, 1, 1), decimal.Decimal(1),
        uuid.UUID(int=1), _Colour.RED, _Number.ONE, _Point(), _Text("a"), OrderedDict(a=1),
        1j, object(), int, PLACE, {1: "a"}, {True: 1}, {None: 1}, {_Text("a"): 1}, {(1,): 1},
        {b"a": 1}, {1.0: 1},
    ]  # fmt: skip


@rule("JSON-1")
def test_only_the_exact_types_of_json_are_taken(lab: Lab) -> None:
    lab.root()
    good = ValueSet(PLACE, None)
    for part in _not_json():
        for value in (part, [part], {"a": {"b": [0, part]}}):
            with untouched(lab, "JSON-1"):
                lab.commit(ValueSet(PLACE, 1), structs.replace(good, value=value))


@rule("JSON-1", "JSON-2", "JSON-3", "JSON-4")
def test_a_refusal_names_the_path_to_the_part(lab: Lab) -> None:
    root = lab.root()
    task = lab.task(root)
    id = lab.next
    bad: JsonValue = float("nan")
    set_first = ValueSet(PLACE, 1)
    deep = _nested(201)
    for path, write in (
        ("writes[1].value", ValueSet(PLACE, bad)),
        ("writes[1].value.items[0].size", ValueSet(PLACE, {"items": [{"size": bad}]})),
        ("writes[1].value[2]", ListAppend(PLACE, [1, 2, bad])),
        ("writes[1].value['a b']", ValueSet(PLACE, {"a b": bad})),
        ("writes[1].state.a", PatchTask(task, "x", "start", {"status": "x", "a": bad})),
        ("writes[1].state.a", SettleTask(task, "x", {"status": "x", "a": bad})),
        ("writes[1].data.a", Entry(Seq(id + 1), root, "x", data={"a": bad})),
        ("writes[1].model[0].a", Entry(Seq(id + 1), root, "x", model=[{"a": bad}])),
        ("writes[1].value", ValueSet(PLACE, deep)),
    ):
        refusal = _refusal(lab, MainBatch((set_first, write)))
        assert isinstance(refusal, InvalidValueError), f"{path}: {refusal!r}"
        assert refusal.path.startswith(path), f"the path is {refusal.path!r}, not {path!r}"
        assert "allowed" in str(refusal) or "JSON-4" in str(refusal), f"no way out: {refusal}"
    raw = structs.replace(ValueSet(PLACE, None), value={"a": b"x"})
    assert "base64" in str(_refusal(lab, MainBatch((raw,)))), "nothing says how to store bytes"


def _refusal(lab: Lab, batch: MainBatch) -> RefusedError:
    before = lab.storage.last_seq
    try:
        made = lab.storage.commit(batch)
    except RefusedError as error:
        assert lab.storage.last_seq == before, "a refusal consumed a number"
        return error
    raise AssertionError(f"accepted as {made}: {batch!r:.200}")


def _nested(depth: int) -> JsonValue:
    value: JsonValue = []
    for level in range(depth - 1):
        value = [value] if level % 2 else {"a": value}
    return value


NUMBERS: list[JsonValue] = [
    0, -0.0, 0.0, 1, 1.0, True, -1, 255, 2**31, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63,
    2**64 - 1, -(2**53) - 1, -(2**63), 5e-324, 2.2250738585072014e-308, 1e308,
    1.7976931348623157e308, 0.1, 1e16, 1e22, 123456789.123456789,
]  # fmt: skip


@rule("JSON-2")
def test_numbers_are_kept_exactly(lab: Lab) -> None:
    root = lab.root()
    lab.set(PLACE, NUMBERS)
    for index, number in enumerate(NUMBERS):
        lab.set(SessionAddress("n", str(index)), number)
    entry = lab.entry(root, data=NUMBERS)

    for storage in now_and_reopened(lab):
        every = storage.get_value(PLACE)
        data = storage.get_entries([entry])[entry].data
        assert every is not None, "the value is absent"
        alone: list[JsonValue] = []
        for index in range(len(NUMBERS)):
            version = storage.get_value(SessionAddress("n", str(index)))
            assert version is not None, f"{NUMBERS[index]!r} is absent"
            alone.append(version.value)
        for where, found in (("a value", every.value), ("data", data), ("alone", alone)):
            assert isinstance(found, list), f"in {where}: {found!r}"
            for number, read in zip(NUMBERS, found, strict=True):
                assert repr(read) == repr(number), f"{number!r} in {where} reads as {read!r}"


@rule("JSON-2")
def test_numbers_out_of_range_are_refused(lab: Lab) -> None:
    lab.root()
    for number in (
        2**64, -(2**63) - 1, 10**400, -(10**400), math.nan, math.inf, -math.inf,
    ):  # fmt: skip
        values: list[JsonValue] = [number, [number], {"a": [{"b": number}]}]
        for value in values:
            with untouched(lab, "JSON-2"):
                lab.set(PLACE, value)
    for text in (b"NaN", b"[Infinity]", b"-Infinity", b"1e400", b"[-1e999]", b"9" * 50):
        with lab.refused("JSON-2"):
            parse_json(text)


@rule("JSON-3")
def test_strings_are_kept_exactly(lab: Lab) -> None:
    root = lab.root()
    texts: list[JsonValue] = [*ODD_TEXTS, "a" * 100_000, "\x00" * 10, "🙂" * 10_000]
    value: JsonValue = {"texts": texts, **{text: text for text in ODD_TEXTS}}
    lab.set(PLACE, value)
    for index, text in enumerate(texts):
        lab.append(moves(root), text)
        lab.set(SessionAddress("n", str(index)), text)
    entry = lab.entry(root, data=value)

    for storage in now_and_reopened(lab):
        read = storage.get_value(PLACE)
        assert read is not None, "the value is absent"
        assert exact(read.value) == exact(value), "texts in a value changed"
        data = storage.get_entries([entry])[entry].data
        assert exact(data) == exact(value), "texts in an entry changed"
        elements = walk(lambda query: storage.read_list(moves(root), query), ListQuery(limit=7))  # noqa: B023
        assert [element.value for element in elements] == texts, "texts in a list changed"


@rule("JSON-3", "ENT-1", "VAL-1")
def test_lone_surrogates_are_refused_everywhere(lab: Lab) -> None:
    root = lab.root()
    task = lab.task(root)
    id = lab.next
    scratch = ScratchAddress(task, "n")
    for bad in ("\ud800", "\udfff", "a\udc00b", "\udc00\ud800", "🙂\ud83d"):
        values: list[JsonValue] = [bad, [bad], {"a": bad}, {bad: 1}, {"a": [{bad: 1}]}]
        for value in values:
            with untouched(lab, "JSON-3"):
                lab.set(PLACE, value)
        for write in (
            ValueSet(SessionAddress(bad), 1),
            ValueSet(SessionAddress("n", bad), 1),
            ListAppend(sticky(root, bad), 1),
            Entry(id, root, bad),
            Entry(id, root, "x", bad),
            Entry(id, root, "x", data=bad),
            Entry(id, root, "x", model=[{"text": bad}]),
            Task(id, root, bad, "x", "start", {"status": "x"}),
            Task(id, root, "x", bad, "start", {"status": bad}),
            PatchTask(task, "x", "start", {"status": "x", "a": bad}),
            SettleTask(task, bad, {"status": bad}),
        ):
            with untouched(lab, "JSON-3"):
                lab.commit(write)
        with untouched(lab, "JSON-3"):
            lab.scratch(task, ValueSet(scratch, bad))
        with lab.refused("JSON-3"):
            lab.storage.scan_entries(EntryQuery(conversation_id=root, kind=bad))
        with lab.refused("JSON-3"):
            lab.storage.get_value(SessionAddress("n", bad))
        with lab.refused("JSON-3"):
            lab.storage.scan_values(ValueQuery(scope=PLACE, after=bad))


@rule("JSON-4")
def test_two_hundred_levels_and_no_more(lab: Lab) -> None:
    root = lab.root()
    lab.set(PLACE, _nested(200))
    lab.append(PLACE, _nested(64))
    lab.reopen()
    found = lab.storage.get_value(PLACE)
    assert found is not None, "the deep value is absent"
    assert exact(found.value) == exact(_nested(200)), "the deep value changed"
    for depth in (201, 500, 1_000, 10_000, 100_000):
        with untouched(lab, "JSON-4"):
            lab.set(PLACE, _nested(depth))
    with untouched(lab, "JSON-4"):
        lab.entry(root, data=_nested(10_000))
    text = encode_batch(MainBatch((ValueSet(PLACE, _nested(200)),)))
    deepest = json.encode(_nested(200))
    decoded = decode_batch(text)
    assert encode_batch(decoded) == text, "200 levels do not survive as JSON text"
    with lab.refused("JSON-4"):
        levels = b"[" * 201 + b"]" * 201
        lab.storage.commit(decode_batch(text.replace(deepest, levels)))
    with lab.refused("JSON-4"):
        parse_json(b"[" * 100_000 + b"]" * 100_000)


@rule("JSON-4")
def test_cycles_are_refused(lab: Lab) -> None:
    lab.root()
    circle: list[JsonValue] = []
    circle.append(circle)
    ring: JsonObject = {}
    ring["a"] = [{"b": ring}]
    wide: list[JsonValue] = []
    wide += [wide, wide, wide]
    values: list[JsonValue] = [circle, ring, [[ring]], wide]
    for value in values:
        with untouched(lab, "JSON-4"):
            lab.set(PLACE, value)
    shared: JsonValue = [1]

    lab.set(PLACE, [shared, shared, {"a": shared}])

    found = lab.storage.get_value(PLACE)
    assert found is not None, "a value that holds one part twice is absent"
    assert found.value == [[1], [1], {"a": [1]}], "a part that is held twice is no cycle"


@rule("JSON-5")
def test_names_and_keys_have_a_length(lab: Lab) -> None:
    root = lab.root()
    longest = ["n" * 1024, "é" * 512, "🙂" * 256, "\x00" * 1024, "n" * 1023 + "m"]
    for text in longest:
        lab.set(SessionAddress(text, text), text)
        lab.set(rewindable(root, text), text)
        lab.entry(root, kind=text, key=text)
        task = Task(lab.next, root, text, text, "start", {"status": text})
        lab.commit(task)
    lab.reopen()
    for text in longest:
        for address in (SessionAddress(text, text), rewindable(root, text)):
            found = lab.storage.get_value(address)
            assert found is not None, f"a name of {len(text)} characters is lost"
            assert found.value == text, "two long names that begin alike are mixed up"
        query = EntryQuery(conversation_id=root, kind=text, key=text)
        assert len(lab.storage.scan_entries(query).items) == 1, "an entry with a long key"
    for text in ("n" * 1025, "é" * 513, "🙂" * 257):
        id = lab.next
        for write in (
            ValueSet(SessionAddress(text), 1),
            ValueSet(SessionAddress("n", text), 1),
            Entry(id, root, text),
            Entry(id, root, "x", text),
            Task(id, root, text, "x", "start", {"status": "x"}),
            Task(id, root, "x", text, "start", {"status": text}),
        ):
            with untouched(lab, "JSON-5"):
                lab.commit(write)
        absent = lab.storage.get_value(SessionAddress(text))
        assert absent is None, "a name that cannot be written has a value"


@rule("JSON-5")
def test_one_value_has_a_size(lab: Lab) -> None:
    root = lab.root()
    big = "x" * (VALUE_BYTES_MAX - 2)
    with lab.refused("JSON-5"):
        lab.set(PLACE, big + "x")
    with lab.refused("JSON-5"):
        lab.entry(root, data=big)
    with lab.refused("JSON-5"):
        lab.append(PLACE, ["\x01" * (VALUE_BYTES_MAX // 6 + 1)])
    small = lab.entry(root, data="small")

    lab.set(PLACE, big)
    lab.reopen()

    before = lab.storage.counters.rows_decoded
    assert lab.storage.get_entries([small])[small].data == "small", "a neighbour is damaged"
    assert lab.storage.counters.rows_decoded == before + 1, "a small read decoded a big value"
    found = lab.storage.get_value(PLACE)
    assert found is not None, "a value of 64 MiB is absent"
    assert found.value == big, "a value of 64 MiB changed"


@rule("JSON-5", "SEQ-5")
def test_a_batch_has_a_size(lab: Lab) -> None:
    root = lab.root()
    big = "x" * (BATCH_BYTES_MAX // 5)
    writes = tuple(ValueSet(SessionAddress("n", str(index)), big) for index in range(6))
    refusal = _refusal(lab, MainBatch(writes))
    assert isinstance(refusal, LimitExceededError), f"raised {refusal!r}"
    many = tuple(ValueSet(PLACE, index) for index in range(BATCH_WRITES_MAX + 1))
    refusal = _refusal(lab, MainBatch(many))
    assert isinstance(refusal, LimitExceededError), f"raised {refusal!r}"

    made = lab.storage.commit(MainBatch(many[1:]))

    assert made.last == root + BATCH_WRITES_MAX, f"10,000 writes ended at {made.last}"
    found = lab.storage.get_value(PLACE)
    assert found is not None, "the value is absent"
    assert found.value == BATCH_WRITES_MAX, f"the last of 10,000 writes: {found.value}"


@rule("JSON-6")
def test_the_order_of_keys_is_kept_and_does_not_matter(lab: Lab) -> None:
    root = lab.root()
    ordered: JsonObject = {"z": 1, "a": {"y": 1, "b": 2}, "": 0, "m": [], "g": None}
    entry = lab.entry(root, data=ordered)
    lab.set(PLACE, ordered)
    lab.commit(Entry(lab.next, root, "x", model=[ordered], edits=(Replace(entry, [ordered]),)))

    for storage in now_and_reopened(lab):
        found = storage.get_value(PLACE)
        assert found is not None, "the value is absent"
        assert exact(found.value) == exact(ordered), f"read in another order: {found.value}"
        data = storage.get_entries([entry])[entry].data
        assert exact(data) == exact(ordered), f"read in another order: {data}"
    for text in (b'{"a":1,"a":1}', b'[{"b":{"a":1,"c":0,"a":2}}]'):
        with lab.refused("JSON-6"):
            parse_json(text)


@rule("JSON-7")
def test_what_was_passed_in_may_be_changed_afterwards(lab: Lab) -> None:
    root = lab.root()
    value: JsonObject = {"list": [1], "object": {"a": 1}}
    original = copy.deepcopy(value)
    state: JsonObject = {"status": "x", "list": [1]}
    message: JsonObject = {"role": "user", "content": [1]}
    model = [message]
    replacement: list[JsonObject] = [{"a": [1]}]
    lab.set(PLACE, value)
    lab.append(PLACE, value)
    lab.set(rewindable(root), value)
    first = lab.entry(root, data=value)
    edits = (Replace(first, replacement), Omit(first))
    entry = lab.commit(Entry(lab.next, root, "x", model=model, edits=edits)).first
    task = lab.commit(Task(lab.next, root, "x", "x", "start", state)).first
    lab.scratch(task, ValueSet(ScratchAddress(task, "p"), value))
    before = json.encode(list(lab.storage.export()))

    for part in (value, state, message, replacement[0]):
        part["status"] = "changed"
        for inner in part.values():
            if isinstance(inner, list):
                inner.append("changed")
            elif isinstance(inner, dict):
                inner["changed"] = True
    model.append({})
    replacement.clear()

    after = json.encode(list(lab.storage.export()))
    assert after == before, "changing what was passed in changed what is stored"
    found = lab.storage.get_value(PLACE)
    assert found is not None, "the value is absent"
    assert found.value == original, f"the value became {found.value}"
    (element,) = lab.storage.read_list(PLACE, ListQuery()).items
    assert element.value == original, f"the element became {element.value}"
    read = lab.storage.get_entries([entry])[entry]
    assert read.model == [{"role": "user", "content": [1]}], f"the model became {read.model}"


@rule("JSON-7")
def test_what_was_read_may_be_changed(lab: Lab) -> None:
    root = lab.root()
    value: JsonValue = {"list": [1], "object": {"a": 1}}
    lab.set(PLACE, value)
    lab.set(SessionAddress("n", "k"), value)
    lab.append(PLACE, value)
    first = lab.entry(root, data=value)
    lab.commit(Entry(lab.next, root, "x", model=[{"a": [1]}], edits=(Replace(first, [{}]),)))
    lab.task(root)
    lab.settle(lab.task(root))
    storage = lab.storage
    every = [Seq(id) for id in range(1, lab.next)]
    reads: tuple[Callable[[], object], ...] = (
        lambda: storage.get_value(PLACE),
        lambda: storage.scan_values(ValueQuery(scope=PLACE)).items,
        lambda: storage.read_list(PLACE, ListQuery()).items,
        lambda: list(storage.get_entries(every).values()),
        lambda: storage.scan_entries(EntryQuery(conversation_id=root)).items,
        lambda: list(storage.get_tasks(every).values()),
        lambda: list(storage.export()),
    )
    for index, read in enumerate(reads):
        result = read()
        before = exact(result)
        other = read()

        _spoil(result)

        assert exact(other) == before, f"read {index}: changing one result changed another"
        assert exact(read()) == before, f"read {index}: changing a result changed what is stored"


def _spoil(part: object) -> None:
    """Change every list and object inside a result."""
    if isinstance(part, list):
        for item in part:
            _spoil(item)
        part.append("spoilt")
    elif isinstance(part, dict):
        for item in part.values():
            _spoil(item)
        part["spoilt"] = True
    elif isinstance(part, tuple):
        for item in part:
            _spoil(item)
    elif hasattr(part, "__struct_fields__"):
        for name in part.__struct_fields__:
            _spoil(getattr(part, name))
