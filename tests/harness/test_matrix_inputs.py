"""Design §10.2: inputs that move with tasks, each race in both orders; IN-1, IN-2, IN-6."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from pico_harness import EntryDraft, EntryKind, TaskRuntime, Tx, inbox
from pico_harness.errors import (
    BuilderError,
    RequestAlreadyAcceptedError,
    UnknownInputError,
)
from pico_harness.harness import ROOT
from pico_store.address import Seq
from pico_store.query import EntryQuery
from tests.harness.scripted import (
    Aborted,
    Done,
    Planned,
    Running,
    Script,
    Stop,
    Task,
    Tool,
    through,
)
from tests.harness.worlds import World, both, on_loop, outcome, settle_down

HELLO = EntryDraft("user", data="hello")


def _land(tx: Tx, input_id: Seq) -> Seq:
    item = next(item for item in inbox.queued(tx, ROOT) if item.id == input_id)
    return inbox.place(tx, ROOT, input_id, item.value)


@pytest.mark.parametrize("cancel_first", [True, False])
@on_loop
async def test_cancelling_and_landing_an_item_has_one_winner(
    world: World,
    cancel_first: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    harness = await world.open()
    root = await harness.root()
    id = await root.accept(HELLO)
    cancelling = root.cancel_queued(id)

    def land(tx: Tx) -> Seq | None:
        if inbox.result_of(tx, ROOT, id).status != "queued":
            return None
        return _land(tx, id)

    landing = root.commit(land)

    if cancel_first:
        cancelled, placed = await both(cancelling, landing)
    else:
        placed, cancelled = await both(landing, cancelling)

    result = await root.result(id)
    entries = (await harness.entries(EntryQuery(conversation_id=ROOT))).items
    assert result is not None
    if cancel_first:
        assert (cancelled, placed) == ("cancelled", None)
        assert (result.status, entries) == ("cancelled", [])
    else:
        assert cancelled == "placed"
        assert (result.status, result.placement_entry_id) == ("running", placed)
        assert [entry.id for entry in entries] == [placed]
    waiting = await root.commit(lambda tx: inbox.queued(tx, ROOT))
    assert waiting == []


class _Group:
    """A generation that answers a group of inputs, or hands it on to what follows."""

    def __init__(self, *, hand_on: bool) -> None:
        self.stop = Stop()
        self.hand_on = hand_on
        self.next_stop = Stop()
        self.first = Script(self.execute, abort=self.cancel)
        self.second = Tool(self.answer, abort=self.cancel)

    async def execute(self, task: Task, runtime: TaskRuntime) -> None:
        await runtime.commit(lambda tx: tx.patch(task.id, Running(task.state.note)))
        await self.stop.wait()

        def plan(tx: Tx) -> None:
            inputs = _inputs(task)
            if self.hand_on:
                tx.task(self.second, Planned(note=task.state.note))
            else:
                answer = tx.entry(_ANSWER, "answer")
                for id in inputs:
                    inbox.resolve(tx, ROOT, id, "done", answer=answer)
            tx.settle(task.id, Done())

        await runtime.commit(plan)

    async def answer(self, task: Task, runtime: TaskRuntime) -> None:
        await runtime.commit(lambda tx: tx.patch(task.id, Running(task.state.note)))
        await self.next_stop.wait()

        def plan(tx: Tx) -> None:
            for id in _inputs(task):
                inbox.resolve(tx, ROOT, id, "done")
            tx.settle(task.id, Done())

        await runtime.commit(plan)

    async def cancel(self, task: Task, runtime: TaskRuntime) -> None:
        def plan(tx: Tx) -> None:
            for id in _inputs(task):
                inbox.resolve(tx, ROOT, id, "cancelled", reason="aborted")
            tx.settle(task.id, Aborted())

        await runtime.commit(plan)


_ANSWER = EntryKind[object]("answer")


def _inputs(task: Task) -> list[Seq]:
    return [Seq(int(id)) for id in task.state.note.split()]


@pytest.mark.parametrize("hand_on", [True, False])
@pytest.mark.parametrize("abort_first", [True, False])
@on_loop
async def test_an_abort_races_the_end_of_a_group_of_inputs(
    world: World,
    hand_on: bool,  # noqa: FBT001 - a parameter of the test
    abort_first: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    group = _Group(hand_on=hand_on)
    harness = await world.open(group.first, group.second)
    root = await harness.root()
    ids = [await root.accept(HELLO), await root.accept(HELLO)]

    def start(tx: Tx) -> Seq:
        waiting = inbox.queued(tx, ROOT)
        for item in waiting:
            inbox.place(tx, ROOT, item.id, item.value)
        return tx.task(group.first, Planned(note=" ".join(str(item.id) for item in waiting)))

    await root.commit(start)
    driving = asyncio.ensure_future(root.drive())
    await group.stop.reached.wait()
    if abort_first:
        aborting = asyncio.ensure_future(root.abort())
        group.stop.go()
        await aborting
    else:
        group.stop.go()
        if hand_on:
            await group.next_stop.reached.wait()
        else:
            await settle_down(harness)
        await root.abort()
    group.next_stop.go()

    assert await driving == "idle"
    results = [await root.result(id) for id in ids]
    ended_well = not abort_first and not hand_on
    expected = "done" if ended_well else "cancelled"
    assert [result.status for result in results if result] == [expected] * 2
    assert len(harness._driver.scheduler.live) == 0


@on_loop
async def test_inputs_of_one_group_share_the_final_answer(world: World) -> None:
    group = _Group(hand_on=False)
    group.stop.go()
    harness = await world.open(group.first, group.second)
    root = await harness.root()
    ids = [await root.accept(HELLO) for _ in range(3)]

    def start(tx: Tx) -> Seq:
        waiting = inbox.queued(tx, ROOT)
        for item in waiting:
            inbox.place(tx, ROOT, item.id, item.value)
        return tx.task(group.first, Planned(note=" ".join(str(item.id) for item in waiting)))

    await root.commit(start)
    await root.drive()

    results = [await root.result(id) for id in ids]
    answers = {result.result_entry_id for result in results if result}
    assert len(answers) == 1
    assert answers != {None}


@on_loop
async def test_a_terminal_result_never_changes(world: World) -> None:
    harness = await world.open()
    root = await harness.root()
    id = await root.accept(HELLO)
    await root.commit(partial(_land, input_id=id))
    await root.commit(lambda tx: inbox.resolve(tx, ROOT, id, "done"))
    before = await root.result(id)

    for status in ("done", "failed", "cancelled", "stopped"):
        error = await outcome(root.commit(lambda tx, s=status: inbox.resolve(tx, ROOT, id, s)))  # type: ignore[misc]
        assert isinstance(error, BuilderError)
        assert f"input {id} is done" in str(error)
    assert await root.cancel_queued(id) == "placed"

    assert await root.result(id) == before


@on_loop
async def test_a_known_request_names_its_receipt_and_compares_payloads(world: World) -> None:
    harness = await world.open()
    root = await harness.root()
    id = await root.accept(HELLO, request_id="r")
    last = (await harness.inspect()).last_seq

    same = await outcome(root.accept(HELLO, request_id="r"))
    other = await outcome(root.accept(EntryDraft("user", data="else"), request_id="r"))
    given = await root.accept(HELLO, request_id="r", on_duplicate="return")

    assert isinstance(same, RequestAlreadyAcceptedError)
    assert (same.input_id, same.conversation, same.same_payload) == (id, ROOT, True)
    assert isinstance(other, RequestAlreadyAcceptedError)
    assert (other.input_id, other.same_payload) == (id, False)
    assert given == id
    assert (await harness.inspect()).last_seq == last
    again = await world.open()
    assert (await again.acceptance("r")).input_id == id  # type: ignore[union-attr]


@on_loop
async def test_request_ids_are_good_for_the_whole_session(world: World) -> None:
    harness = await world.open()
    root = await harness.root()
    other = await root.fork("start")
    id = await root.accept(HELLO, request_id="r")

    error = await outcome(other.accept(HELLO, request_id="r"))

    assert isinstance(error, RequestAlreadyAcceptedError)
    assert (error.input_id, error.conversation) == (id, ROOT)


@pytest.mark.parametrize("on_duplicate", ["raise", "return"])
@on_loop
async def test_of_two_acceptances_at_once_one_wins(world: World, on_duplicate: str) -> None:
    harness = await world.open()
    root = await harness.root()

    first, second = await both(
        root.accept(HELLO, request_id="r", on_duplicate=on_duplicate),  # type: ignore[arg-type]
        root.accept(HELLO, request_id="r", on_duplicate=on_duplicate),  # type: ignore[arg-type]
    )

    if on_duplicate == "return":
        assert first == second
    else:
        assert isinstance(second, RequestAlreadyAcceptedError)
        assert second.input_id == first
    assert len(await root.commit(lambda tx: inbox.queued(tx, ROOT))) == 1


@on_loop
async def test_withdrawing_says_what_was_there(world: World) -> None:
    harness = await world.open()
    root = await harness.root()
    waiting, placed = await root.accept(HELLO), await root.accept(HELLO)
    await root.commit(partial(_land, input_id=placed))

    assert await root.cancel_queued(waiting) == "cancelled"
    assert await root.cancel_queued(waiting) == "cancelled"
    assert await root.cancel_queued(placed) == "placed"
    assert await root.cancel_queued(Seq(9_999)) == "not_found"
    assert await root.result(Seq(9_999)) is None
    with pytest.raises(UnknownInputError, match="IN-1"):
        await root.commit(lambda tx: inbox.resolve(tx, ROOT, Seq(9_999), "done"))


@on_loop
async def test_an_abort_withdraws_steering_and_follow_ups_and_keeps_the_rest(world: World) -> None:
    harness = await world.open()
    root = await harness.root()
    ids = {
        mode: await root.accept(HELLO, mode=mode)
        for mode in ("write", "steer", "followUp", "nextRun")
    }

    await root.abort()

    statuses = {mode: (await root.result(id)).status for mode, id in ids.items()}  # type: ignore[union-attr]
    assert statuses == {
        "write": "queued",
        "steer": "cancelled",
        "followUp": "cancelled",
        "nextRun": "queued",
    }


@on_loop
async def test_concurrent_acceptances_start_one_and_queue_the_rest(world: World) -> None:
    """Fact 17, with a scripted kind in the place of the generation."""
    harness = await world.open()
    stop = Stop()

    kind = Script(through(stop))
    harness.task_kinds.register(kind)
    root = await harness.root()

    def accept(tx: Tx) -> Seq:
        id = inbox.accept(tx, ROOT, HELLO)
        if not harness._driver.scheduler.busy(ROOT):
            tx.task(kind, Planned(note=str(id)))
        return id

    ids = await both(*(root.commit(accept) for _ in range(5)))

    assert len(set(ids)) == 5
    assert len((await harness.inspect()).start) == 1
    stop.go()
    assert await root.drive() == "idle"
