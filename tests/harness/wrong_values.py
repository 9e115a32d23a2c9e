"""What looks wrong as an argument, and what each parameter of a public method takes of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from pico_harness import (
    Cancellation,
    ConversationHandle,
    EntryDraft,
    EntryKind,
    Harness,
    Options,
    Registry,
    ScratchTx,
    TaskRuntime,
    Tx,
    scratch_list,
)
from pico_harness.handles import ListHandle, ValueHandle
from pico_harness.harness import ROOT
from pico_harness.inspection import read_live
from pico_harness.kinds import TaskType
from pico_harness.tx_state import TxList, TxValue
from pico_store.address import Seq, SessionAddress
from pico_store.batch import ValueSet
from pico_store.digest import digest
from pico_store.query import ConversationQuery, EntryQuery, ListQuery, TaskQuery
from tests.harness.names import COUNT, ITEMS, MARK, MEMO
from tests.harness.scripted import Done, Planned, Running, Script, Tool
from tests.harness.worlds import World

NOTE = EntryKind("note", int)
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
