"""What is asked wrongly is refused with a typed error; nothing is written, the session goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pico_harness import (
    EntryKind,
    Harness,
    TaskState,
    Tx,
)
from pico_harness.errors import (
    BuilderError,
    NestedOperationError,
    RejectedError,
)
from pico_harness.harness import ROOT
from pico_store.address import Seq
from pico_store.errors import PicoError, RefusedError
from pico_store.query import EntryQuery, ListQuery, TaskQuery
from tests.harness.names import ANY, COUNT, ITEMS, MARK, MEMO, NOTE
from tests.harness.scripted import (
    Done,
    Joiner,
    Planned,
    Running,
    Script,
)
from tests.harness.worlds import World, on_loop, outcome


async def refused(harness: Harness, plan: Callable[[Tx], object]) -> BaseException:
    """Return the error of a commit that must leave no trace, after which the session goes on."""
    root = await harness.root()
    before = (await harness.inspect()).last_seq
    error = await outcome(root.commit(plan))
    assert isinstance(error, BaseException), error
    assert (await harness.inspect()).last_seq == before
    id = await root.commit(lambda tx: tx.entry(NOTE, "after"))
    assert id == before + 1
    return error


async def _coroutine(tx: Tx) -> None:
    tx.value(COUNT).set(1)


async def _async_generator(tx: Tx) -> Any:
    tx.value(COUNT).set(1)
    yield 1


def _generator(tx: Tx) -> Iterator[int]:
    tx.value(COUNT).set(1)
    yield 1


def _future(tx: Tx) -> object:
    tx.value(COUNT).set(1)
    return asyncio.get_running_loop().create_future()


@pytest.mark.parametrize(
    "plan", [_coroutine, _async_generator, _generator, _future], ids=lambda plan: plan.__name__
)
@on_loop
async def test_a_builder_that_is_no_plain_function_is_refused(
    world: World, plan: Callable[[Tx], object]
) -> None:
    harness = await world.open()

    error = await refused(harness, plan)

    assert isinstance(error, BuilderError)
    assert "LINE-1" in str(error)


@pytest.mark.parametrize("plan", [None, 5, "plan"])
@on_loop
async def test_a_builder_that_cannot_be_called_is_refused(memory: World, plan: Any) -> None:
    harness = await memory.open()

    assert isinstance(await refused(harness, plan), BuilderError)


_NESTED: dict[str, Callable[[Harness], Any]] = {
    "commit": lambda harness: harness.commit(lambda _: None),
    "set": lambda harness: harness.value(COUNT).set(1),
    "get": lambda harness: harness.value(COUNT).get(),
    "drive": lambda harness: harness.drive(),
    "wait": lambda harness: harness.wait_for_task(Seq(1)),
    "close": lambda harness: harness.close(),
    "inspect": lambda harness: harness.inspect(),
    "resume": lambda harness: harness.resume_task(Seq(1)),
}


@pytest.mark.parametrize("what", list(_NESTED))
@on_loop
async def test_a_builder_that_starts_an_operation_is_refused(world: World, what: str) -> None:
    harness = await world.open()

    def plan(tx: Tx) -> None:
        tx.value(COUNT).set(1)
        _NESTED[what](harness).send(None)

    error = await refused(harness, plan)

    assert isinstance(error, NestedOperationError)
    assert "LINE-4" in str(error)


@on_loop
async def test_a_transaction_is_dead_after_its_builder(world: World) -> None:
    harness = await world.open()
    root = await harness.root()
    kept: list[Tx] = []
    await root.commit(kept.append)
    (tx,) = kept
    kind = Script()
    uses: list[Callable[[], object]] = [
        lambda: tx.value(COUNT),
        lambda: tx.entry(NOTE),
        lambda: tx.task(kind, Planned()),
        lambda: tx.patch(Seq(1), Running()),
        lambda: tx.settle(Seq(1), Done()),
        lambda: tx.abort_task(Seq(1)),
        tx.create_conversation,
        lambda: tx.delete_conversation(ROOT),
        lambda: tx.get_entry(ROOT),
        lambda: tx.get_task(ROOT),
        lambda: tx.get_conversation(ROOT),
        lambda: tx.entries(EntryQuery(conversation_id=ROOT)),
        lambda: tx.tasks(TaskQuery()),
    ]

    for use in uses:
        with pytest.raises(BuilderError, match="LINE-2"):
            use()


@on_loop
async def test_a_state_handle_is_dead_after_its_builder(world: World) -> None:
    harness = await world.open()
    value = await harness.commit(lambda tx: tx.value(COUNT))
    items = await harness.commit(lambda tx: tx.list(ITEMS))

    for use in (value.get, value.delete, items.read, items.clear, lambda: value.set(1)):
        with pytest.raises(BuilderError, match="LINE-2"):
            use()


_SCANS: dict[str, tuple[Callable[[Tx], object], Callable[[Tx], object]]] = {
    "entries": (
        lambda tx: tx.entry(NOTE),
        lambda tx: tx.entries(EntryQuery(conversation_id=ROOT)),
    ),
    "head": (lambda tx: tx.entry(NOTE), lambda tx: tx.newest_head(ROOT)),
    "tasks": (lambda tx: tx.task(Script(), Planned()), lambda tx: tx.tasks(TaskQuery())),
    "list": (lambda tx: tx.list(ITEMS).append(1), lambda tx: tx.list(ITEMS).read(ListQuery())),
}


@pytest.mark.parametrize("caught", [True, False])
@pytest.mark.parametrize("what", list(_SCANS))
@on_loop
async def test_a_scan_after_a_write_that_it_would_show_is_refused(
    world: World,
    what: str,
    caught: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    harness = await world.open(Script())
    write, scan = _SCANS[what]

    def plan(tx: Tx) -> None:
        write(tx)
        try:
            scan(tx)
        except BuilderError:
            if not caught:
                raise

    error = await refused(harness, plan)

    assert isinstance(error, BuilderError)
    assert "LINE-1" in str(error)


@on_loop
async def test_a_scan_of_what_was_not_written_works(world: World) -> None:
    harness = await world.open(Script())
    other = await harness.commit(lambda tx: tx.create_conversation())
    await harness.commit(lambda tx: tx.entry(NOTE, 1, conversation=other))

    def plan(tx: Tx) -> int:
        tx.entry(NOTE, conversation=ROOT)
        return len(tx.entries(EntryQuery(conversation_id=other)).items)

    assert await harness.commit(plan) == 1


@on_loop
async def test_rewindable_state_after_an_entry_is_refused(world: World) -> None:
    harness = await world.open()

    def plan(tx: Tx) -> None:
        tx.entry(NOTE)
        tx.value(MARK).set(1)

    error = await refused(harness, plan)

    assert isinstance(error, BuilderError)
    assert "'mark'" in str(error)


class _Foreign(TaskState, frozen=True):
    pass


async def _wrong_types(harness: Harness) -> dict[str, Callable[[Tx], object]]:
    odd: Any = "7"
    true: Any = True
    none: Any = None
    kind = Script()
    return {
        "task of no kind": lambda tx: tx.task(none, Planned()),
        "task of a name": lambda tx: tx.task(odd, Planned()),
        "task without a state": lambda tx: tx.task(kind, none),
        "task in another kind's state": lambda tx: tx.task(kind, _Foreign()),
        "task in flight": lambda tx: tx.task(kind, Running()),
        "task of an unknown kind": lambda tx: tx.task(Joiner(), Planned()),
        "task in a str": lambda tx: tx.task(kind, Planned(), conversation=odd),
        "task in a bool": lambda tx: tx.task(kind, Planned(), conversation=true),
        "task after a str": lambda tx: tx.task(kind, Planned(), after=[odd]),
        "task after a bool": lambda tx: tx.task(kind, Planned(), after=[true]),
        "task after None": lambda tx: tx.task(kind, Planned(), after=none),
        "task after nothing known": lambda tx: tx.task(kind, Planned(), after=[Seq(999)]),
        "abort of a str": lambda tx: tx.abort_task(odd),
        "abort of a bool": lambda tx: tx.abort_task(true),
        "patch of a str": lambda tx: tx.patch(odd, Running()),
        "entry of no kind": lambda tx: tx.entry(none),
        "entry of a name": lambda tx: tx.entry(odd),
        "entry in a str": lambda tx: tx.entry(NOTE, conversation=odd),
        "entry in a bool": lambda tx: tx.entry(NOTE, conversation=true),
        "entry with bytes": lambda tx: tx.entry(NOTE, b"x"),
        "entry with an object": lambda tx: tx.entry(EntryKind("note", int), object()),
        "value of no name": lambda tx: tx.value(none),
        "value of a list's name": lambda tx: tx.value(ITEMS).set(1),
        "value of an object": lambda tx: tx.value(COUNT).set(object()),
        "value that is no JSON": lambda tx: tx.value(ANY).set({1: 2}),
        "value of scratch": lambda tx: tx.value(MEMO).set(1),
        "value in a str": lambda tx: tx.value(MARK, conversation=odd).set(1),
        "element with an object": lambda tx: tx.list(ITEMS).append(object()),
        "element of a str": lambda tx: tx.list(ITEMS).remove(odd),
        "entry read by a str": lambda tx: tx.get_entry(odd),
        "task read by a bool": lambda tx: tx.get_task(true),
        "conversation of a str": lambda tx: tx.create_conversation(owner=odd),
        "conversation of no task": lambda tx: tx.create_conversation(owner=Seq(999)),
        "deletion of a str": lambda tx: tx.delete_conversation(odd),
        "deletion of a bool": lambda tx: tx.delete_conversation(true),
    }


@on_loop
async def test_wrong_types_are_refused_by_name(memory: World) -> None:
    harness = await memory.open(Script())
    root = await harness.root()

    untyped: list[str] = []
    for what, plan in (await _wrong_types(harness)).items():
        before = (await harness.inspect()).last_seq
        error = await outcome(root.commit(plan))
        wrote = (await harness.inspect()).last_seq != before
        if wrote or not isinstance(error, (RejectedError, RefusedError)):
            untyped.append(f"{what}: {error!r}")

    assert not untyped, "\n".join(untyped)


@pytest.mark.parametrize("id", ["7", True, None, 1.0, [1]], ids=repr)
@on_loop
async def test_ids_of_wrong_types_are_refused_by_every_method(memory: World, id: Any) -> None:
    harness = await memory.open(Script())
    root = await harness.root()
    before = (await harness.inspect()).last_seq
    calls: dict[str, Callable[[], Any]] = {
        "conversation": lambda: harness.conversation(id),
        "delete_conversation": lambda: harness.delete_conversation(id),
        "abort_task": lambda: harness.abort_task(id),
        "wait_for_task": lambda: harness.wait_for_task(id),
        "resume_task": lambda: harness.resume_task(id),
        "get_entry": lambda: harness.get_entry(id),
        "get_entries": lambda: harness.get_entries([id]),
        "get_task": lambda: harness.get_task(id),
        "get_tasks": lambda: harness.get_tasks([id]),
        "entries": lambda: harness.entries(EntryQuery(conversation_id=id)),
        "fork": lambda: root.fork(id),
        "remove": lambda: harness.list(ITEMS).remove(id),
    }

    untyped: list[str] = []
    for name, call in calls.items():
        found = await outcome(call())
        if not isinstance(found, PicoError):
            untyped.append(f"{name}: {found!r}")

    assert not untyped, "\n".join(untyped)
    assert (await harness.inspect()).last_seq == before
