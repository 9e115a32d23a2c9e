"""What is no method meets wrong values too: opening, options, names, and parts of arguments."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from pico_harness import (
    ArgumentError,
    Call,
    EntryDraft,
    EntryKind,
    Harness,
    ListOf,
    Options,
    Value,
    conversation_list,
    conversation_value,
    inspect_storage,
    scratch_list,
    scratch_value,
    session_list,
    session_value,
)
from pico_store.errors import PicoError
from tests.harness.names import COUNT, ITEMS, MARK, MEMO
from tests.harness.scripted import Script
from tests.harness.worlds import World, on_loop
from tests.harness.wrong_values import (
    ABSENT,
    CALLABLE,
    MEMOS,
    NOTHING,
    ROWS,
    TEXTS,
    WRONG,
    Configured,
    Declared,
    Odd,
    goes_on,
    scene,
)

OPEN = ROWS[Harness]["open"]
OPTIONS: dict[str, frozenset[str]] = {
    "on_task_fault": NOTHING,
    "crashes_max": frozenset(("2**70",)),
    "on_report": ABSENT | CALLABLE,
    "intake": ABSENT | CALLABLE,
    "clock": NOTHING,
    "telemetry": ABSENT,
    "away": ABSENT | CALLABLE,
}
SHARED: dict[str, frozenset[str]] = {"namespace": TEXTS, "type": ABSENT | {"type"}}
KEPT: dict[str, frozenset[str]] = {**SHARED, "rewind": frozenset(("True",))}
WHOLE: dict[str, frozenset[str]] = {
    "scope": NOTHING,
    "key": ABSENT | TEXTS | {"empty"},
    **KEPT,
}
MADE: dict[Callable[..., object], tuple[dict[str, Any], dict[str, frozenset[str]]]] = {
    session_value: ({"namespace": "n"}, SHARED),
    session_list: ({"namespace": "n"}, SHARED),
    conversation_value: ({"namespace": "n", "rewind": True}, KEPT),
    conversation_list: ({"namespace": "n", "rewind": True}, KEPT),
    scratch_value: ({"namespace": "n"}, SHARED),
    scratch_list: ({"namespace": "n"}, SHARED),
    COUNT.at_key: ({}, {"key": TEXTS | {"empty"}}),
    ITEMS.at_key: ({}, {"key": TEXTS | {"empty"}}),
    Value: ({"scope": "session", "namespace": "n", "type": None}, WHOLE),
    ListOf: ({"scope": "session", "namespace": "n", "type": None}, WHOLE),
    EntryKind: ({"name": "n"}, {"name": TEXTS, "type": ABSENT | {"type"}}),
}


@pytest.mark.parametrize("make", list(MADE), ids=lambda make: make.__name__)
def test_what_is_made_with_wrong_arguments_is_refused(make: Callable[..., object]) -> None:
    given, rows = MADE[make]
    problems = []

    names = getattr(make, "__struct_fields__", None) or inspect.signature(make).parameters
    assert set(names) == set(rows)
    for name, takes in rows.items():
        for label, wrong in WRONG.items():
            try:
                make(**{**given, name: wrong})
            except PicoError:
                continue
            except Exception as error:  # noqa: BLE001 - what this looks for
                problems.append(f"{name}={label} raised {error!r}")
            else:
                if label not in takes:
                    problems.append(f"{name}={label} was taken")

    assert problems == []


def test_every_option_has_a_row() -> None:
    assert {one.name for one in fields(Options)} == set(OPTIONS)


async def _opened(memory: World, problems: list[str], what: str, **arguments: Any) -> bool:
    """Try to open a session; return whether that was refused, and leave the storage as it was."""
    storage = memory.storages[-1]
    before = storage.last_seq
    try:
        await Harness.open(**{"storage": storage, **arguments})
    except PicoError:
        if storage.last_seq != before:
            problems.append(f"{what} was refused and wrote")
        return True
    except Exception as error:  # noqa: BLE001 - what this looks for
        problems.append(f"{what} raised {error!r}")
    return False


@pytest.mark.parametrize("name", [*OPEN, *(f"options.{name}" for name in OPTIONS)])
@on_loop
async def test_a_session_is_not_opened_with_wrong_arguments(memory: World, name: str) -> None:
    takes = OPTIONS[name[8:]] if name.startswith("options.") else OPEN[name].takes
    problems: list[str] = []
    memory.storages.append(memory.store.create("a"))

    for label, wrong in WRONG.items():
        if label in takes:
            continue
        given = {name: wrong}
        if name.startswith("options."):
            given = {"options": Options(**{name[8:]: wrong})}
        if not await _opened(memory, problems, f"{name}={label}", **given):
            problems.append(f"{name}={label} was not refused")

    assert problems == []
    storage = memory.storages[-1]
    assert storage.last_seq == 0
    kind = Configured()
    await goes_on(memory, await Harness.open(storage, tasks=[kind]), kind)


@on_loop
async def test_opening_a_url_or_a_store_says_how_it_is_done(memory: World) -> None:
    with pytest.raises(ArgumentError) as url:
        await Harness.open("sqlite:work.db")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError) as store:
        await Harness.open(memory.store)  # type: ignore[arg-type]

    assert (url.value.rule, url.value.argument) == ("ARG-1", "storage")
    assert "storage = open_store('sqlite:work.db').create('name')" in str(url.value)
    assert "storage = store.create('name')" in str(store.value)


@on_loop
async def test_parts_of_arguments_are_looked_at_too(memory: World) -> None:
    odd: Any = 3
    memory.storages.append(memory.store.create("a"))
    problems: list[str] = []
    wrong: list[dict[str, Any]] = [
        {"tasks": [odd]},
        {"tasks": [Configured]},
        {"tasks": [Declared()]},
        {"tasks": [type("Turning", (Script,), {"turn": 1})()]},
        {"tasks": [type("Configured", (Script,), {"config": [MARK]})()]},
        {"tasks": [type("Configured", (Script,), {"config": {"memo": MEMO}})()]},
        {"entries": [odd]},
        {"root_values": {"mark": 1}},
        {"root_values": {ITEMS: 1}},
        {"root_values": {MEMO: 1}},
        {"root_values": {MARK: "1"}},
    ]

    for arguments in wrong:
        if not await _opened(memory, problems, str(arguments), **arguments):
            problems.append(f"{arguments} was not refused")

    assert problems == []
    await goes_on(memory, await Harness.open(memory.storages[-1], tasks=[kind := Script()]), kind)


def unfit() -> list[Any]:
    """Return what JSON cannot hold."""
    circle: list[Any] = []
    circle.append(circle)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    return [Odd(), "\ud800", 2**70, math.nan, {1: 2}, {"\ud800": 1}, circle, deep]


@on_loop
async def test_parts_of_calls_and_drafts_are_looked_at_too(memory: World) -> None:
    odd: Any = 3
    kind = Configured()
    harness = await scene(memory, kind)
    root = await harness.root()
    refused: list[Callable[[], Any]] = [
        lambda: harness.inspect(call=Call(odd)),
        lambda: root.accept(EntryDraft(odd)),
        lambda: root.accept(EntryDraft("")),
        lambda: root.accept(EntryDraft("note", key=odd)),
        lambda: root.accept(EntryDraft("note", model=odd)),
        *(lambda data=data: root.accept(EntryDraft("note", data=data)) for data in unfit()),
        lambda: root.fork("start", values={MARK: "1"}),
        lambda: root.fork("start", values={odd: 1}),
        lambda: root.configure(kind, {"mark": "1"}),
        lambda: root.configure(kind, {odd: 1}),
        lambda: root.value(MEMO),
        lambda: root.list(MEMOS),
    ]
    before = memory.storages[-1].last_seq

    for number, use in enumerate(refused):
        with pytest.raises(PicoError):
            await use()
        assert memory.storages[-1].last_seq == before, number
    with pytest.raises(PicoError):
        await harness.get_task(kind, None)  # type: ignore[call-overload]

    await goes_on(memory, harness, kind)


def test_an_onlooker_is_told_as_well(memory: World) -> None:
    storage = memory.store.create("a")

    for label, wrong in WRONG.items():
        if label not in ABSENT:
            with pytest.raises(ArgumentError, match=r"^kinds: "):
                inspect_storage(storage, wrong)

    assert inspect_storage(storage).count == 0
