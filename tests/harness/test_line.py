"""Commits on the line: facts 1 to 15, LINE-1 to LINE-6."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pico_harness import (
    Call,
    Cancellation,
    TaskRuntime,
    Tx,
)
from pico_harness.errors import CallCancelledError, SessionFaultedError
from pico_harness.harness import ROOT
from pico_store.address import Seq
from pico_store.errors import CommitUncertainError, RefusedError
from pico_store.query import ConversationQuery, EntryQuery
from pico_store.records import ForkPoint
from tests.harness.names import ANY, COUNT, ITEMS, MARK, NOTE
from tests.harness.scripted import Planned, Script, Task, run_through
from tests.harness.test_storage_errors import Failing
from tests.harness.worlds import World, both, on_loop, outcome


@on_loop
async def test_a_mixed_batch_is_there_together_or_not_at_all(held: World) -> None:
    """Facts 1 and 14."""
    assert held.gate is not None
    kind = Script()
    harness = await held.open(kind)
    root = await harness.root()
    held.gate.shut()

    def plan(tx: Tx) -> list[Seq]:
        tx.value(COUNT).set(1)
        tx.list(ITEMS).append(2)
        child = tx.create_conversation()
        return [child, tx.entry(NOTE, 3, conversation=child), tx.task(kind, Planned())]

    writing = asyncio.ensure_future(root.commit(plan))
    await held.gate.arrival()
    before = await _seen(harness)
    held.gate.open()
    child, entry, task = await writing

    assert before == [None, [], [], [ROOT]]
    assert await _seen(harness) == [1, [2], [task], [ROOT, child]]
    assert await harness.get_entry(entry) is not None


async def _seen(harness: Any) -> list[object]:
    tasks = [task.id for task in (await harness.inspect()).start]
    conversations = (await harness.conversations(ConversationQuery())).items
    return [
        await harness.value(COUNT).get(),
        [item.value for item in (await harness.list(ITEMS).read()).items],
        tasks,
        [conversation.id for conversation in conversations],
    ]


@on_loop
async def test_a_batch_whose_last_write_is_invalid_publishes_nothing(world: World) -> None:
    """Facts 2 and 3: later ids start where they would have started."""
    kind = Script()
    harness = await world.open(kind)
    root = await harness.root()
    last = (await harness.inspect()).last_seq

    def plan(tx: Tx) -> None:
        tx.task(kind, Planned())
        tx.entry(NOTE, 1)
        tx.list(ITEMS).remove(Seq(999))

    error = await outcome(root.commit(plan))

    assert isinstance(error, RefusedError)
    assert (await harness.inspect()).last_seq == last
    assert (await harness.inspect()).start == ()
    assert await root.commit(lambda tx: tx.entry(NOTE, 2)) == last + 1


@on_loop
async def test_a_builder_that_raises_writes_nothing_and_uses_no_id(world: World) -> None:
    """Facts 4 and 5, LINE-2."""
    harness = await world.open()
    root = await harness.root()
    firsts: list[Seq] = []

    def plan(tx: Tx) -> None:
        firsts.append(tx.entry(NOTE, 1))
        raise LookupError("no")

    errors = [await outcome(root.commit(plan)) for _ in range(2)]
    nothing = await root.commit(lambda tx: "kept")
    id = await root.commit(lambda tx: tx.entry(NOTE, 2))

    assert [type(error) for error in errors] == [LookupError] * 2
    assert nothing == "kept"
    assert firsts == [id, id]


@on_loop
async def test_what_the_storage_rejects_leaves_the_old_state_for_ever(world: World) -> None:
    """Fact 6, LINE-5."""
    made: list[Failing] = []

    def wrap(storage: Any) -> Any:
        made.append(Failing(storage))
        return made[0]

    harness = await world.open(wrap=wrap)
    root = await harness.root()
    await root.commit(lambda tx: tx.entry(NOTE, 1, model=[{"role": "user"}]))
    context = await root.context()
    heard: list[object] = []
    harness._driver.listeners.append(lambda batch, written: heard.append(written))
    error = CommitUncertainError("?")
    made[0].fail_commit = lambda batch: error

    first = await outcome(root.commit(lambda tx: tx.entry(NOTE, 2)))
    made[0].fail_commit = lambda batch: None
    later = await both(root.commit(lambda tx: None), root.snapshot(), harness.drive())

    assert first is error
    assert [type(refusal) for refusal in later] == [SessionFaultedError] * 3
    assert all(refusal.__cause__ is error for refusal in later)  # type: ignore[union-attr]
    assert heard == []
    await harness.close()
    again = await world.open()
    assert await (await again.root()).context() == context


@on_loop
async def test_a_commit_under_way_is_finished_once_whoever_gives_up(held: World) -> None:
    """Fact 7, LINE-3."""
    assert held.gate is not None
    made: list[Failing] = []

    def wrap(storage: Any) -> Any:
        made.append(Failing(storage))
        return made[0]

    harness = await held.open(wrap=wrap)
    held.gate.shut()
    call = Call(Cancellation())
    setting = asyncio.ensure_future(harness.value(COUNT).set(1, call=call))
    giving_up = asyncio.ensure_future(outcome(harness.value(ANY).set(2)))
    await held.gate.arrival()
    count = len(made[0].committed)

    call.cancellation.cancel("too late")
    setting.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    waiting = not setting.done()
    held.gate.open()

    assert isinstance(await outcome(setting), asyncio.CancelledError)
    await giving_up
    assert waiting
    assert len(made[0].committed) == count + 2
    assert await harness.value(COUNT).get() == 1


@on_loop
async def test_a_cancelled_call_is_refused_before_its_builder(held: World) -> None:
    """Fact 8: already cancelled, and cancelled behind another commit."""
    assert held.gate is not None
    harness = await held.open()
    built: list[object] = []
    dead, dying = Call(Cancellation()), Call(Cancellation())
    dead.cancellation.cancel("before")
    held.gate.shut()
    first = asyncio.ensure_future(harness.value(COUNT).set(1))
    await held.gate.arrival()
    at_once = await outcome(harness.commit(built.append, call=dead))
    behind = asyncio.ensure_future(outcome(harness.commit(built.append, call=dying)))
    task = asyncio.ensure_future(harness.commit(built.append))
    await asyncio.sleep(0)

    dying.cancellation.cancel("while it waits")
    task.cancel()
    held.gate.open()

    await first
    assert isinstance(at_once, CallCancelledError)
    assert isinstance(await behind, CallCancelledError)
    assert isinstance(await outcome(task), asyncio.CancelledError)
    assert built == []


@on_loop
async def test_point_reads_see_what_was_written_before_them(world: World) -> None:
    """Fact 11, LINE-1."""
    kind = Script()
    harness = await world.open(kind)
    root = await harness.root()
    await root.value(MARK).set(7)
    cut = await root.commit(lambda tx: tx.entry(NOTE, 0))

    def plan(tx: Tx) -> list[object]:
        tx.value(COUNT).set(1)
        child = tx.create_conversation()
        tx.value(MARK, conversation=child).set(2)
        entry = tx.entry(NOTE, 3)
        fork = tx.create_conversation(fork=ForkPoint(ROOT, cut))
        task = tx.task(kind, Planned("x"))
        marked = tx.abort_task(task)
        found = tx.get_task(kind, task)
        return [
            tx.value(COUNT).get(),
            tx.value(MARK, conversation=child).get(),
            tx.value(MARK, conversation=fork).get(),
            tx.get_entry(entry).data,  # type: ignore[union-attr]
            tx.get_conversation(child).id == child,  # type: ignore[union-attr]
            marked and found is not None and found.abort and found.state == Planned("x"),
        ]

    assert await root.commit(plan) == [1, 2, 7, 3, True, True]


@on_loop
async def test_results_are_copies_and_inputs_are_taken(world: World) -> None:
    """Fact 13."""
    harness = await world.open()
    root = await harness.root()
    given: dict[str, Any] = {"list": [1]}

    def plan(tx: Tx) -> Seq:
        tx.value(ANY).set(given)
        copied: Any = tx.value(ANY).get()
        copied["list"].append(2)
        id = tx.entry(NOTE, given, model=[given])
        given["list"].append(6)
        return id

    committing = asyncio.ensure_future(root.commit(plan))
    await asyncio.sleep(0)
    given["list"].append(3)
    id = await committing
    for _ in range(2):
        found: Any = await harness.value(ANY).get()
        entry: Any = await harness.get_entry(id)
        assert (found, entry.data, entry.model) == ({"list": [1]}, {"list": [1]}, [{"list": [1]}])
        found["list"].append(4)
        entry.data["list"].append(5)


@on_loop
async def test_commits_asked_for_together_are_applied_in_that_order(world: World) -> None:
    """Fact 15, LINE-5."""
    harness = await world.open()
    root = await harness.root()

    ids = await both(*(root.commit(lambda tx, n=n: tx.entry(NOTE, n)) for n in range(20)))  # type: ignore[misc]

    entries = (await harness.entries(EntryQuery(conversation_id=ROOT))).items
    assert [entry.data for entry in entries] == list(range(20))
    assert ids == sorted(ids)  # type: ignore[type-var]


@on_loop
async def test_who_wrote_an_entry_is_set_by_the_transaction(world: World) -> None:
    """LINE-6."""

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        ids.append(await runtime.commit(lambda tx: tx.entry(NOTE, 1)))
        # A handle of the host, used by a task, writes in the task's name too.
        ids.append(await root.commit(lambda tx: tx.entry(NOTE, 2)))
        await run_through(task, runtime)

    ids: list[Seq] = []
    kind = Script(execute)
    harness = await world.open(kind)
    root = await harness.root()
    ids.append(await root.commit(lambda tx: tx.entry(NOTE, 0)))
    id = await root.commit(lambda tx: tx.task(kind, Planned()))
    await root.drive()

    entries = await harness.get_entries(ids)
    assert [entry.by_task_id for entry in entries.values()] == [None, id, id]
    with pytest.raises(TypeError):
        await root.commit(lambda tx: tx.entry(NOTE, 1, by_task_id=id))  # type: ignore[call-arg]


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_a_builder_holds_up_nobody_behind_it(
    held: World, interrupt: type[BaseException]
) -> None:
    assert held.gate is not None
    gate = held.gate
    loop = asyncio.new_event_loop()
    answers: list[asyncio.Future[object]] = []

    async def ask() -> None:
        harness = await held.open()
        gate.shut()
        for plan in (lambda tx: tx.value(COUNT).set(1), _raising(interrupt), lambda tx: "behind"):
            answers.append(asyncio.ensure_future(outcome(harness.commit(plan))))
        await gate.arrival()
        gate.open()
        await asyncio.Event().wait()

    async def hear() -> list[object]:
        return [await answer for answer in answers]

    with pytest.raises(interrupt):
        loop.run_until_complete(ask())
    found = loop.run_until_complete(hear())
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()

    assert found[0] is None
    assert isinstance(found[1], interrupt)
    assert found[2] == "behind"


def _raising(error: type[BaseException]) -> Any:
    def plan(tx: Tx) -> None:
        tx.value(COUNT).set(2)
        raise error

    return plan
