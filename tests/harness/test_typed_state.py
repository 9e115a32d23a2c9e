"""Names of state and states of kinds have an owner and a type, and are held to both."""

from __future__ import annotations

import pytest
from msgspec import Struct, field
from msgspec.structs import replace

from pico_harness import (
    Harness,
    KindError,
    StoredTypeError,
    TaskKind,
    TaskOf,
    TaskRuntime,
    TaskState,
    Tx,
    conversation_value,
    session_value,
)
from pico_harness.errors import BuilderError
from pico_store.address import Seq
from tests.harness.worlds import World, on_loop


class Waiting(TaskState, frozen=True):
    pass


class Over(TaskState, frozen=True):
    pass


class Foreign(TaskState, frozen=True):
    pass


class Short(TaskKind[Waiting | Over]):
    name = "short"
    states = {Waiting: "start", Over: "terminal"}  # noqa: RUF012 - a declaration

    async def execute(self, task: TaskOf[Waiting | Over], runtime: TaskRuntime) -> None:
        await runtime.commit(lambda tx: tx.settle(task.id, Over()))

    recover = execute
    abort = execute


class Plan(Struct, frozen=True):
    steps: int


PLAN = conversation_value("plan", Plan, rewind=False)
TEXT = session_value("text", str)


async def opened(world: World) -> tuple[Harness, Short]:
    kind = Short()
    return await world.open(kind), kind


@on_loop
async def test_a_state_of_another_kind_is_refused(world: World) -> None:
    """KIND-1."""
    harness, kind = await opened(world)
    root = await harness.root()
    before = (await harness.inspect()).last_seq

    with pytest.raises(KindError, match=r"Foreign is no state of kind 'short'.*KIND-1"):
        await root.commit(lambda tx: tx.task(kind, Foreign()))  # type: ignore[misc]

    assert (await harness.inspect()).last_seq == before


@on_loop
async def test_conversation_state_needs_a_conversation(world: World) -> None:
    """STATE-1."""
    harness, _ = await opened(world)

    with pytest.raises(BuilderError, match="no conversation"):
        await harness.commit(lambda tx: tx.value(PLAN).set(Plan(1)))
    with pytest.raises(BuilderError, match="STATE-1"):
        harness.value(PLAN)


@on_loop
async def test_a_stored_value_of_another_type_is_named_and_readable_untyped(world: World) -> None:
    """STATE-2."""
    harness, _ = await opened(world)
    await harness.commit(lambda tx: tx.value(session_value("text")).set(["no", "text"]))

    with pytest.raises(StoredTypeError, match=r"session state 'text'.*STATE-2"):
        await harness.value(TEXT).get()

    assert await harness.value(session_value("text")).get() == ["no", "text"]


class Wide(TaskState, frozen=True):
    """Tuples within tuples, lists, dictionaries and records."""

    numbers: tuple[int, ...] = ()
    pairs: list[tuple[str, tuple[int, int]]] = field(default_factory=list)
    named: dict[str, tuple[Plan, ...]] = field(default_factory=dict)
    anything: object = None


class Widely(TaskKind[Wide | Over]):
    name = "widely"
    states = {Wide: "start", Over: "terminal"}  # noqa: RUF012 - a declaration

    async def execute(self, task: TaskOf[Wide | Over], runtime: TaskRuntime) -> None:
        await runtime.commit(lambda tx: tx.settle(task.id, Over()))

    recover = execute
    abort = execute


WIDE = session_value("wide", Wide)


@on_loop
async def test_tuples_are_stored_as_lists_and_read_as_declared(world: World) -> None:
    """STATE-2."""
    kind = Widely()
    harness = await world.open(kind)
    root = await harness.root()
    wide = Wide((1, 2), [("a", (3, 4))], {"plans": (Plan(1), Plan(2))}, ((5,), {"b": (6,)}))

    def plan(tx: Tx) -> Seq:
        tx.value(WIDE).set(wide)
        return tx.task(kind, wide)

    id = await root.commit(plan)

    read = replace(wide, anything=[[5], {"b": [6]}])
    assert await harness.value(WIDE).get() == read
    task = await harness.get_task(kind, id)
    assert task is not None
    assert task.state == read
    assert wide.anything == ((5,), {"b": (6,)})
