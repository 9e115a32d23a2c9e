"""Names of state and states of kinds have an owner and a type, and are held to both."""

from __future__ import annotations

import pytest
from msgspec import Struct

from pico_harness import (
    Harness,
    KindError,
    StoredTypeError,
    TaskKind,
    TaskOf,
    TaskRuntime,
    TaskState,
    conversation_value,
    session_value,
)
from pico_harness.errors import BuilderError
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
