"""Commits that wait for nothing let others have their turn: LINE-3, LINE-5."""

from __future__ import annotations

import asyncio

import pytest

from pico_harness import (
    CommitThread,
    EntryKind,
    Harness,
    Options,
    TaskRuntime,
    Tx,
    line,
    session_value,
)
from pico_harness.errors import SessionFaultedError, StaleInvocationError
from pico_harness.line import OPERATIONS_A_TURN, SECONDS_A_TURN
from tests.harness.scripted import Done, Planned, Running, Script, Task, hang, run_through
from tests.harness.worlds import World, on_loop, outcome

COUNT = session_value("count", int)
NOTE = EntryKind[int]("note", int)
MANY = 40 * OPERATIONS_A_TURN


async def _count_turns(turns: list[int]) -> None:
    while True:
        turns[0] += 1
        await asyncio.sleep(0)


@on_loop
async def test_a_host_that_commits_in_a_loop_gives_turns(world: World) -> None:
    harness = await world.open()
    turns = [0]
    counting = asyncio.ensure_future(_count_turns(turns))
    for number in range(MANY):
        await harness.value(COUNT).set(number)
    counting.cancel()

    assert turns[0] >= MANY // OPERATIONS_A_TURN


@on_loop
async def test_who_asks_again_and_again_gives_turns(world: World) -> None:
    """A loop that waits for a task by looking at it lets the task run."""
    kind = Script()
    harness = await world.open(kind)
    root = await harness.root()
    id = await root.commit(lambda tx: tx.task(kind, Planned()))
    driving = asyncio.ensure_future(root.drive())
    looks = 0
    while (await harness.get_task(id)).role != "terminal":  # type: ignore[union-attr]
        looks += 1
        assert looks < MANY

    assert await driving == "idle"


@on_loop
async def test_commits_that_take_long_give_turns_sooner(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line, "SECONDS_A_TURN", SECONDS_A_TURN)
    harness = await memory.open()
    clock = iter(range(10**9))
    # Every second look at it shows the end of an operation.
    harness._driver.line._now = lambda: next(clock) * SECONDS_A_TURN * 0.6
    turns = [0]
    counting = asyncio.ensure_future(_count_turns(turns))
    for number in range(40):
        await harness.value(COUNT).set(number)
    counting.cancel()

    assert turns[0] == 20


@on_loop
async def test_refused_commits_in_a_loop_give_turns_too(world: World) -> None:
    harness = await world.open()
    turns = [0]
    counting = asyncio.ensure_future(_count_turns(turns))
    for _ in range(MANY):
        with pytest.raises(ZeroDivisionError):
            await harness.commit(lambda tx: 1 // 0)
    counting.cancel()

    assert turns[0] >= MANY // OPERATIONS_A_TURN


@on_loop
async def test_a_kind_that_only_commits_can_be_aborted(world: World) -> None:
    """And another session on the same loop gets on meanwhile."""
    commits = 0

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        nonlocal commits
        for number in range(MANY):
            await runtime.commit(lambda tx, n=number: tx.patch(task.id, Running(str(n))))  # type: ignore[misc]
            commits += 1
        await runtime.commit(lambda tx: tx.settle(task.id, Done()))

    kind = Script(execute)
    harness = await world.open(kind)
    root = await harness.root()
    id = await root.commit(lambda tx: tx.task(kind, Planned()))
    driving = asyncio.ensure_future(root.drive())
    while not commits:
        await asyncio.sleep(0)

    await harness.abort_task(id)

    assert await driving == "idle"
    assert (await harness.get_task(id)).status == "aborted"  # type: ignore[union-attr]
    assert commits < MANY // 2


@on_loop
async def test_turns_do_not_change_the_order(world: World) -> None:
    """LINE-5: what is asked for first is done first, whoever gives a turn in between."""
    harness = await world.open()
    root = await harness.root()
    done: list[int] = []

    def plan(number: int, tx: Tx) -> None:
        done.append(number)
        tx.entry(NOTE, number)

    numbers = range(5 * OPERATIONS_A_TURN)
    await asyncio.gather(*(root.commit(lambda tx, n=n: plan(n, tx)) for n in numbers))  # type: ignore[misc]

    assert done == list(numbers)


@on_loop
async def test_who_is_cancelled_while_it_gives_a_turn_has_committed(memory: World) -> None:
    """LINE-3: once, and whole; the caller gets its cancellation in place of its result."""
    harness = await memory.open()
    root = await harness.root()
    harness._driver.line._left_in_turn = 1
    before = harness.counts().last_seq
    committing = asyncio.ensure_future(root.commit(lambda tx: tx.entry(NOTE, 1)))
    await asyncio.sleep(0)
    written = harness.counts().last_seq - before

    committing.cancel()

    assert isinstance(await outcome(committing), asyncio.CancelledError)
    assert written == harness.counts().last_seq - before == 1


@on_loop
async def test_a_drive_that_is_cancelled_while_it_gives_a_turn_leaves_nothing(
    memory: World,
) -> None:
    """Not even an error that nobody asks for, where the session is faulted in that turn."""
    kind = Script(hang)
    harness = await memory.open(kind)
    root = await harness.root()
    await root.commit(lambda tx: tx.task(kind, Planned()))
    harness._driver.line._left_in_turn = 1
    driving = asyncio.ensure_future(root.drive())
    await asyncio.sleep(0)
    assert len(harness._driver.scheduler.waits) == 1

    harness._driver.fault("planted", None)
    driving.cancel()

    assert isinstance(await outcome(driving), asyncio.CancelledError)
    assert len(harness._driver.scheduler.waits) == 0
    assert isinstance(await outcome(root.drive()), SessionFaultedError)
    await harness.close()


@on_loop
async def test_a_turn_is_no_way_around_the_end_of_an_invocation(memory: World) -> None:
    """TASKS-7."""
    kept: list[TaskRuntime] = []

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        kept.append(runtime)
        await run_through(task, runtime)
        runtime._driver.line._left_in_turn = 1
        assert isinstance(
            await outcome(runtime.commit(lambda tx: tx.value(COUNT).set(1))), StaleInvocationError
        )

    kind = Script(execute)
    harness = await memory.open(kind)
    root = await harness.root()
    await root.commit(lambda tx: tx.task(kind, Planned()))

    assert await root.drive() == "idle"
    assert await harness.value(COUNT).get() is None
    assert len(kept) == 1


@on_loop
async def test_commits_can_be_handed_to_a_thread_where_they_do_not_wait(memory: World) -> None:
    """The way out where even the rare wait of an inline commit is too long for a loop."""
    thread = CommitThread("commits")
    harness = await Harness.open(memory.store.create("t"), options=Options(away=thread))
    turns = [0]
    counting = asyncio.ensure_future(_count_turns(turns))
    for number in range(20):
        await harness.value(COUNT).set(number)
    counting.cancel()

    assert turns[0] >= 20
    await harness.close()
    thread.end()
