"""Each parameter of each public method meets wrong values: a typed error, and nothing happened.

The methods are found by introspection, so that one that is added needs a row here. What may be
passed although it looks wrong is named beside it; everything else must raise a `PicoError`, after
which the session goes on and equals a fresh open of its store.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, TypeAlias

import pytest

from pico_harness import (
    ArgumentError,
    Call,
    Cancellation,
    ConversationHandle,
    EntryDraft,
    EntryKind,
    Harness,
    ListOf,
    Options,
    Registry,
    ScratchTx,
    TaskRuntime,
    Tx,
    Value,
    conversation_list,
    conversation_value,
    inspect_storage,
    scratch_list,
    scratch_value,
    session_list,
    session_value,
)
from pico_harness.handles import ListHandle, ValueHandle
from pico_harness.harness import ROOT
from pico_harness.inspection import read_live
from pico_harness.kinds import TaskType
from pico_harness.tx import TxList, TxValue
from pico_store.address import Seq, SessionAddress
from pico_store.batch import ValueSet
from pico_store.digest import digest
from pico_store.errors import PicoError
from pico_store.query import ConversationQuery, EntryQuery, ListQuery, TaskQuery
from pico_store.storage import Storage
from tests.harness.scripted import Done, Planned, Running, Script, Task, Tool
from tests.harness.worlds import World, on_loop

NOTE = EntryKind("note", int)
COUNT = session_value("count", int)
ITEMS = session_list("items", int)
MARK = conversation_value("mark", int, rewind=True)
MEMO = scratch_value("memo", int)
MEMOS = scratch_list("memos", int)
ENTRY, LIVE = Seq(2), Seq(3)


class Configured(Script):
    config = {"mark": MARK}  # noqa: RUF012 - as users write it


class Declared(TaskType[Planned]):
    """A kind that says what its tasks look like, and not what they do."""

    name = "declared"
    states = Script.states


class Odd:
    """Of no use anywhere, and not even to be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("planted")


async def _coroutine_function(_: object) -> None: ...


WRONG: dict[str, Any] = {
    "None": None,
    "True": True,
    "-1": -1,
    "0": 0,
    "2**70": 2**70,
    "1.5": 1.5,
    "nan": math.nan,
    "inf": math.inf,
    "str": "1",
    "empty": "",
    "surrogate": "\ud800",
    "bytes": b"1",
    "list": ["x"],
    "no list": [],
    "dict": {"x": 1},
    "no dict": {},
    "tuple": (None,),
    "object": Odd(),
    "type": int,
    "function": lambda *_: None,
    "coroutine function": _coroutine_function,
}
NOTHING = frozenset[str]()
INTEGERS = frozenset(("-1", "0"))
EVERY_INTEGER = INTEGERS | {"2**70"}
NO_LIST = frozenset(("no list",))
EMPTY = frozenset(("no list", "no dict", "empty"))
CALLABLE = frozenset(("function", "coroutine function", "type"))
TEXTS = frozenset(("str",))
ANY_TEXT = TEXTS | {"empty", "surrogate"}
ABSENT = frozenset(("None",))
ANY = frozenset(WRONG)


@dataclass(frozen=True)
class Given:
    """What a parameter is given when another one is tried, and what it takes itself."""

    value: Any
    takes: frozenset[str] = NOTHING
    """Of `WRONG`, what is right here after all."""
    skips: frozenset[str] = NOTHING
    """What would wait for ever, or is the caller's own code that raises."""


CALL = Given(None, ABSENT)
PLAN = Given(lambda tx: None, frozenset(("function",)), frozenset(("type",)))
KIND = Given(Configured())
TASK = Given(LIVE)
# A number that nothing has names nothing: it is looked for, and not found (PAGE-6).
LOOKED_FOR = Given(ENTRY, EVERY_INTEGER)
# The parts of bytes are integers.
SOME = Given((LIVE,), EMPTY | {"bytes"})
NUMBER = Given(7, EVERY_INTEGER - {"2**70"})
AT = Given(None, ABSENT)
VALUES = Given({MARK: 1}, ABSENT | {"no dict"})
BUDGET = Given(0, INTEGERS | {"1.5"}, ABSENT)
HERE = Given(ROOT, ABSENT)

READS: dict[str, dict[str, Given]] = {
    "get_entry": {"kind": Given(NOTE), "id": LOOKED_FOR},
    "get_entries": {"ids": SOME},
    "entries": {"query": Given(EntryQuery(conversation_id=ROOT))},
    "get_task": {"kind": KIND, "id": LOOKED_FOR},
    "get_tasks": {"kind": KIND, "ids": SOME},
    "tasks": {"query": Given(TaskQuery())},
}
HANDLE_READS: dict[str, dict[str, Given]] = {
    **READS,
    "conversations": {"query": Given(ConversationQuery())},
    "conversation": {"id": LOOKED_FOR},
    "value": {"name": Given(COUNT)},
    "list": {"name": Given(ITEMS)},
}
TX_READS: dict[str, dict[str, Given]] = {
    **READS,
    "get_entry": {"id": LOOKED_FOR},
    "get_conversation": {"id": LOOKED_FOR},
    "newest_head": {"conversation": Given(ROOT)},
    "read_value": {"address": Given(SessionAddress("count")), "at": AT},
    "read_list": {"address": Given(SessionAddress("items")), "query": Given(ListQuery())},
    "batch": {},
    "end": {},
    "close": {},
}
ROWS: dict[type, dict[str, dict[str, Given]]] = {
    Harness: {
        **HANDLE_READS,
        "root": {},
        "delete_conversation": {"id": TASK},
        "commit": {"plan": PLAN},
        "drive": {},
        "abort_task": {"id": TASK},
        "wait_for_task": {"id": TASK, "budget_ms": BUDGET},
        "resume_task": {"id": TASK},
        "inspect": {},
        "counts": {},
        "acceptance": {"request_id": Given("r", TEXTS)},
        "shutdown": {},
        "close": {},
        "open": {
            "storage": Given(None),
            "tasks": Given((), NO_LIST),
            "entries": Given((), NO_LIST),
            "root_values": VALUES,
            "options": Given(Options()),
        },
    },
    ConversationHandle: {
        "snapshot": {},
        "commit": {"plan": PLAN},
        "drive": {},
        "abort": {},
        "fork": {
            "at": Given("start"),
            "abort": Given(False, frozenset(("True",))),
            "values": VALUES,
        },
        "accept": {
            "draft": Given(EntryDraft("note")),
            "mode": Given("followUp"),
            "request_id": Given(None, ABSENT | TEXTS),
            "on_duplicate": Given("raise"),
        },
        "result": {"input_id": LOOKED_FOR},
        "cancel_queued": {"input_id": LOOKED_FOR},
        "value": {"name": Given(COUNT)},
        "list": {"name": Given(ITEMS)},
        "config": {"kind": KIND},
        "configure": {"kind": KIND, "values": Given({"mark": 1}, frozenset(("no dict",)))},
        "context": {"at": Given(None, ABSENT | {"2**70"})},
    },
    TaskRuntime: {
        **HANDLE_READS,
        "commit": {"plan": PLAN},
        "scratch": {"plan": PLAN},
        "now": {},
        # A time that has passed is one; the clock may begin at 0.
        "sleep": {"until_ms": Given(0, INTEGERS | {"1.5"})},
        "config": {"kind": KIND},
        "abort_task": {"id": TASK},
        "wait_for_task": {"id": TASK, "budget_ms": BUDGET},
    },
    ValueHandle: {"get": {"at": AT}, "set": {"value": NUMBER}, "delete": {}},
    ListHandle: {
        "read": {"query": Given(None, ABSENT)},
        "append": {"value": NUMBER},
        "remove": {"element": TASK},
        "clear": {},
    },
    Tx: {
        **TX_READS,
        "value": {"name": Given(COUNT), "conversation": HERE},
        "list": {"name": Given(ITEMS), "conversation": HERE},
        "write_state": {"write": Given(ValueSet(SessionAddress("count"), 1))},
        "entry": {
            "kind": Given(NOTE),
            "data": Given(1, ABSENT | INTEGERS),
            "conversation": HERE,
            "model": Given(None, ABSENT | {"no list"}),
            "key": Given(None, ABSENT | TEXTS | {"empty"}),
            "head": Given(None, ABSENT),
            "edits": Given(None, ABSENT | {"no list"}),
        },
        "task": {
            "kind": KIND,
            "state": Given(Planned()),
            "conversation": HERE,
            "after": Given((), NO_LIST),
            "background": Given(True, frozenset(("True",))),
        },
        "patch": {"task": Given(LIVE), "state": Given(Running())},
        "settle": {"task": Given(LIVE), "state": Given(Done())},
        "abort_task": {"task": Given(LIVE)},
        "create_conversation": {"owner": Given(None, ABSENT), "fork": Given(None, ABSENT)},
        "delete_conversation": {"conversation": Given(LIVE)},
    },
    ScratchTx: {
        **TX_READS,
        "value": {"name": Given(MEMO)},
        "list": {"name": Given(MEMOS)},
        "write_state": {"write": Given(None)},
    },
    TxValue: {"get": {"at": AT}, "set": {"value": NUMBER}, "delete": {}},
    TxList: {
        "append": {"value": NUMBER},
        "remove": {"element": Given(LIVE)},
        "clear": {},
        "read": {"query": Given(None, ABSENT)},
    },
    Registry: {
        "register": {"kind": Given(Tool())},
        "replace": {"kind": Given(Configured())},
        "remove": {"name": Given("script")},
        "get": {"name": Given("script", ANY_TEXT)},
        "names": {},
        "__getitem__": {"name": Given("script")},
        "__contains__": {"name": Given("script", ANY_TEXT)},
    },
    Cancellation: {
        "cancel": {"reason": Given("why", ANY_TEXT)},
        "on_cancel": {"callback": Given(lambda: None, CALLABLE)},
    },
}


def methods(of: type) -> Iterator[tuple[str, list[inspect.Parameter]]]:
    """Yield the public methods of a class and their parameters."""
    for name, found in inspect.getmembers(of, inspect.isroutine):
        if not name.startswith("_") or (of is Registry and name in ("__getitem__", "__contains__")):
            yield (
                name,
                [
                    one
                    for one in inspect.signature(found).parameters.values()
                    if one.name not in ("self", "cls")
                ],
            )


@pytest.mark.parametrize("of", list(ROWS), ids=lambda of: of.__name__)
def test_every_public_method_and_parameter_has_a_row(of: type) -> None:
    found = {
        name: {one.name for one in parameters if one.name != "call"}
        for name, parameters in methods(of)
    }

    assert {name: set(row) for name, row in ROWS[of].items()} == found


Use: TypeAlias = Callable[[Any], object]


@dataclass
class Attack:
    """Tries every wrong value at every parameter of one object's methods."""

    storage: Storage
    problems: list[str] = field(default_factory=list)
    tried: int = 0

    def report(self) -> str:
        """Return what was wrong; empty: nothing, and something was tried."""
        assert self.tried
        return "\n".join(self.problems)

    async def methods_of(
        self,
        subject: object,
        of: type,
        within: Callable[[Use], object] = lambda use: use(None),
    ) -> None:
        """Try the methods of an object.

        Args:
            subject: The object; ignored where ``within`` is given.
            of: Its class.
            within: Runs what is tried with an object that is made for it.
        """
        for name, parameters in methods(of):
            if of is Harness and name == "open":
                continue
            row = {**ROWS[of][name], "call": CALL}
            for tried in parameters:
                for label, wrong in WRONG.items():
                    takes = row[tried.name].takes
                    if label in row[tried.name].skips or (label in takes and tried.name == "call"):
                        continue
                    values = {one.name: row[one.name].value for one in parameters}
                    values[tried.name] = wrong
                    where = f"{of.__name__}.{name}({tried.name}={label})"
                    await self.one(
                        where,
                        _bound(subject, name, parameters, values),
                        within,
                        takes=label in takes,
                    )

    async def one(
        self,
        where: str,
        use: Callable[[Any], object],
        within: Callable[[Use], object],
        *,
        takes: bool,
    ) -> None:
        """Try one wrong value."""
        self.tried += 1
        before = self.storage.last_seq
        try:
            found = within(use)
            if inspect.isawaitable(found):
                await found
        except PicoError:
            if self.storage.last_seq != before:
                self.problems.append(f"{where} was refused and wrote")
        except Exception as error:  # noqa: BLE001 - what this looks for
            self.problems.append(f"{where} raised {type(error).__name__}: {error}")
        else:
            if not takes:
                self.problems.append(f"{where} was taken")


def _bound(
    subject: object, name: str, parameters: list[inspect.Parameter], values: Mapping[str, object]
) -> Use:
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    ordered = [values[one.name] for one in parameters if one.kind in places]
    named = {one.name: values[one.name] for one in parameters if one.kind not in places}

    def use(within: Any) -> object:
        return getattr(subject if within is None else within, name)(*ordered, **named)

    return use


async def goes_on(world: World, harness: Harness, kind: Script) -> None:
    """See that a session works, and equals a fresh open of its store."""
    root = await harness.root()
    id = await root.commit(lambda tx: tx.task(kind, Planned("after")))
    await root.drive()
    found = await harness.get_task(kind, id)
    assert found is not None
    assert found.state == Done()
    assert await harness.value(COUNT).get() in (None, -1, 0, 7)
    storage = world.storages[-1]
    assert digest(storage.export()) == world.digest()
    kept, read = harness._driver.scheduler.live, read_live(storage)
    assert {id: kept[id].task for id in kept.ids()} == {id: read[id].task for id in read.ids()}


async def scene(world: World, kind: Script) -> Harness:
    """Open a session with an entry, and a task in the background that waits to be driven."""
    harness = await world.open(kind)
    root = await harness.root()
    assert await root.commit(lambda tx: tx.entry(NOTE, 1)) == ENTRY
    assert await root.commit(lambda tx: tx.task(kind, Planned(), background=True)) == LIVE
    return harness


@pytest.mark.parametrize(
    ("of", "subject"),
    [
        (Harness, lambda harness, root: harness),
        (ConversationHandle, lambda harness, root: root),
        (ValueHandle, lambda harness, root: root.value(COUNT)),
        (ListHandle, lambda harness, root: root.list(ITEMS)),
        (Registry, lambda harness, root: harness.task_kinds),
    ],
    ids=lambda of: getattr(of, "__name__", ""),
)
@on_loop
async def test_wrong_arguments_of_the_host_are_refused(
    memory: World, of: type, subject: Callable[[Harness, ConversationHandle], object]
) -> None:
    kind = Configured()
    harness = await scene(memory, kind)
    attack = Attack(memory.storages[-1])

    await attack.methods_of(subject(harness, await harness.root()), of)

    assert attack.report() == ""
    await goes_on(memory, harness, kind)


def _itself(runtime: TaskRuntime, use: Use) -> object:
    return use(runtime)


def _in_tx(runtime: TaskRuntime, use: Use) -> object:
    return runtime.commit(use)


def _in_value(runtime: TaskRuntime, use: Use) -> object:
    return runtime.commit(lambda tx: use(tx.value(COUNT)))


def _in_list(runtime: TaskRuntime, use: Use) -> object:
    return runtime.commit(lambda tx: use(tx.list(ITEMS)))


def _in_scratch(runtime: TaskRuntime, use: Use) -> object:
    return runtime.scratch(use)


@pytest.mark.parametrize(
    ("of", "within"),
    [
        (TaskRuntime, _itself),
        (Tx, _in_tx),
        (TxValue, _in_value),
        (TxList, _in_list),
        (ScratchTx, _in_scratch),
    ],
    ids=lambda of: getattr(of, "__name__", ""),
)
@on_loop
async def test_wrong_arguments_of_a_task_are_refused(
    memory: World, of: type, within: Callable[[TaskRuntime, Use], object]
) -> None:
    attacks: list[Attack] = []

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        await runtime.commit(lambda tx: tx.patch(task.id, Running()))
        if task.id == LIVE:
            attacks.append(Attack(memory.storages[-1]))
            await attacks[0].methods_of(None, of, partial(within, runtime))
        await runtime.commit(lambda tx: tx.settle(task.id, Done()))

    kind = Configured(execute)
    harness = await scene(memory, kind)
    await harness.drive()
    await harness.wait_for_task(LIVE)

    assert attacks[0].report() == ""
    await goes_on(memory, harness, kind)


@on_loop
async def test_wrong_arguments_of_a_cancellation_are_refused(memory: World) -> None:
    await memory.open()
    attack = Attack(memory.storages[-1])

    await attack.methods_of(None, Cancellation, lambda use: use(Cancellation()))

    assert attack.report() == ""


# --- What is not a method ---

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
        if label not in ABSENT | {"list", "no list", "dict", "no dict", "tuple"}:
            with pytest.raises(ArgumentError, match=r"^kinds: "):
                inspect_storage(storage, wrong)

    assert inspect_storage(storage, ()).count == 0
