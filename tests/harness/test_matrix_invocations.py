"""Design §10.2: invocations, marks, settlements and dependencies, each race in both orders."""

from __future__ import annotations

import asyncio

import pytest

from pico_harness import TaskRuntime, Tx
from pico_harness.errors import (
    AuthorityError,
    HarnessError,
    TaskCancelledError,
    UnknownTaskError,
)
from pico_store.address import Seq
from tests.harness.scripted import (
    Aborted,
    Done,
    Joiner,
    Planned,
    Running,
    Script,
    Stop,
    Task,
    Tool,
    begin,
    finish,
    give_up,
    run_through,
    through,
)
from tests.harness.worlds import World, both, on_loop, outcome, planned, settle_down


@on_loop
async def test_an_abort_starts_only_after_the_effect_returned(world: World) -> None:
    stop = Stop()
    order: list[str] = []

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        await begin(task, runtime)
        await stop.wait_through()
        order.append("execute returns")

    async def abort(task: Task, runtime: TaskRuntime) -> None:
        order.append("abort starts")
        await give_up(task, runtime)

    kind = Script(execute, abort=abort)
    harness, root, id = await planned(world, kind)
    driving = asyncio.ensure_future(root.drive())
    await stop.reached.wait()

    await harness.abort_task(id)
    await settle_down(harness)
    held_back = list(order)
    stop.go()

    assert await driving == "idle"
    assert held_back == []
    assert order == ["execute returns", "abort starts"]
    assert kind.calls == [("execute", id), ("abort", id)]


@on_loop
async def test_an_effect_that_settled_first_leaves_nothing_to_abort(world: World) -> None:
    kind = Script()
    harness, root, id = await planned(world, kind)
    await root.drive()

    with pytest.raises(UnknownTaskError, match=f"task {id} is terminal"):
        await harness.abort_task(id)

    assert kind.calls == [("execute", id)]


@pytest.mark.parametrize("what", ["main", "scratch"])
@on_loop
async def test_writes_after_the_mark_are_refused_before_their_builder(
    world: World, what: str
) -> None:
    stop = Stop()
    built: list[object] = []
    errors: list[HarnessError] = []

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        await begin(task, runtime)
        await stop.wait_through()
        try:
            if what == "main":
                await runtime.commit(lambda tx: built.append(tx))
            else:
                await runtime.scratch(lambda tx: built.append(tx))
        except HarnessError as error:
            errors.append(error)
            raise

    kind = Script(execute)
    harness, root, id = await planned(world, kind)
    driving = asyncio.ensure_future(root.drive())
    await stop.reached.wait()
    await harness.abort_task(id)
    stop.go()

    assert await driving == "idle"
    assert built == []
    assert [type(error) for error in errors] == [TaskCancelledError]
    assert (await harness.get_task(kind, id)).state == Aborted()  # type: ignore[union-attr]


@on_loop
async def test_a_mark_beats_the_settlement_admitted_after_it(world: World) -> None:
    stop = Stop()

    kind = Script(through(stop))
    harness, root, id = await planned(world, kind)
    driving = asyncio.ensure_future(root.drive())
    await stop.reached.wait()

    marked = asyncio.ensure_future(harness.abort_task(id))
    stop.go()

    await marked
    assert await driving == "idle"
    assert (await harness.get_task(kind, id)).state == Aborted()  # type: ignore[union-attr]


@on_loop
async def test_a_settlement_beats_the_mark_admitted_after_it(world: World) -> None:
    marking: list[asyncio.Future[None]] = []

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        await begin(task, runtime)
        settling = asyncio.ensure_future(finish(task, runtime))
        await asyncio.sleep(0)
        marking.append(asyncio.ensure_future(harness.abort_task(task.id)))
        await settling

    kind = Script(execute)
    harness, root, id = await planned(world, kind)
    await root.drive()

    # Asked for by the task itself, whose authority ended with its settlement.
    assert isinstance(await outcome(marking[0]), HarnessError)
    assert (await harness.get_task(kind, id)).state == Done()  # type: ignore[union-attr]
    assert kind.calls == [("execute", id)]


@on_loop
async def test_a_cycle_back_to_the_first_status_is_a_transition(world: World) -> None:
    rounds = 3

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        if len(kind.calls) == rounds:
            await run_through(task, runtime)
            return
        await begin(task, runtime)
        await runtime.commit(lambda tx: tx.patch(task.id, Planned()))

    kind = Script(execute)
    _, root, id = await planned(world, kind)

    assert await root.drive() == "idle"
    assert kind.calls == [("execute", id)] * rounds


@on_loop
async def test_a_cycle_within_one_batch_is_a_transition(world: World) -> None:
    async def execute(task: Task, runtime: TaskRuntime) -> None:
        if len(kind.calls) == 2:
            await run_through(task, runtime)
            return

        def there_and_back(tx: Tx) -> None:
            tx.patch(task.id, Running())
            tx.patch(task.id, Planned())

        await runtime.commit(there_and_back)

    kind = Script(execute)
    harness = await world.open(kind)
    root = await harness.root()
    await root.commit(lambda tx: tx.task(kind, Planned()))

    assert await root.drive() == "idle"
    assert len(kind.calls) == 2


@on_loop
async def test_the_host_may_mark_a_task_and_change_nothing_else_of_it(world: World) -> None:
    kind = Script()
    harness, root, id = await planned(world, kind)
    before = (await harness.inspect()).last_seq

    patching = await outcome(root.commit(lambda tx: tx.patch(id, Running())))
    settling = await outcome(root.commit(lambda tx: tx.settle(id, Done())))

    assert isinstance(patching, AuthorityError)
    assert isinstance(settling, AuthorityError)
    assert (await harness.inspect()).last_seq == before
    await harness.abort_task(id)
    assert (await harness.get_task(id)).abort  # type: ignore[union-attr]


@on_loop
async def test_a_sibling_may_mark_a_task_and_change_nothing_else_of_it(world: World) -> None:
    refused: list[BaseException | None] = []
    other = Script()

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        target = task.state.tasks[0]  # type: ignore[union-attr]
        error = await outcome(runtime.commit(lambda tx: tx.settle(target, Done())))
        refused.append(error)
        assert await runtime.abort_task(target)
        await run_through(task, runtime)

    tool = Tool(execute)
    harness = await world.open(other, tool)
    root = await harness.root()
    blocked = Stop()
    other._methods["execute"] = lambda task, runtime: blocked.wait()
    first = await root.commit(lambda tx: tx.task(other, Planned()))
    await root.commit(lambda tx: tx.task(tool, Planned(tasks=[first])))

    assert await root.drive() == "idle"
    assert isinstance(refused[0], AuthorityError)
    assert (await harness.get_task(other, first)).state == Aborted()  # type: ignore[union-attr]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@on_loop
async def test_what_joins_two_tools_starts_once(world: World, order: tuple[int, int]) -> None:
    stops = [Stop(), Stop()]

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        await begin(task, runtime)
        await stops[int(task.state.note)].wait()
        await finish(task, runtime)

    tool, joiner = Tool(execute), Joiner()
    harness = await world.open(tool, joiner)
    root = await harness.root()
    tools = await root.commit(lambda tx: [tx.task(tool, Planned(n)) for n in "01"])
    last = await root.commit(lambda tx: tx.task(joiner, Planned(), after=tools))
    driving = asyncio.ensure_future(root.drive())
    for n in order:
        await stops[n].reached.wait()

    stops[order[0]].go()
    await harness.wait_for_task(tools[order[0]])
    await settle_down(harness)
    early = list(joiner.calls)
    stops[order[1]].go()

    assert await driving == "idle"
    assert early == []
    assert joiner.calls == [("execute", last)]


@on_loop
async def test_two_tools_that_settle_at_once_start_what_joins_them_once(world: World) -> None:
    tool, joiner = Tool(), Joiner()
    harness = await world.open(tool, joiner)
    root = await harness.root()
    tools = await root.commit(lambda tx: [tx.task(tool, Planned()) for _ in range(2)])
    last = await root.commit(lambda tx: tx.task(joiner, Planned(), after=tools))

    await both(root.drive(), harness.drive())

    assert joiner.calls == [("execute", last)]


async def _follow_on(world: World, *, abort_first: bool) -> tuple[Script, list[Seq]]:
    """Race an abort against a settlement that makes a successor; return what was made."""
    made: list[Seq] = []
    ready = Stop()

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        if task.state.note == "successor":
            await begin(task, runtime)
            await Stop().wait()

        def plan(tx: Tx) -> None:
            made.append(tx.task(kind, Planned("successor")))
            tx.settle(task.id, Done())

        await begin(task, runtime)
        await ready.wait()
        await runtime.commit(plan)

    kind = Script(execute)
    harness = await world.open(kind)
    root = await harness.root()
    await root.commit(lambda tx: tx.task(kind, Planned()))
    driving = asyncio.ensure_future(root.drive())
    await ready.reached.wait()
    if abort_first:
        aborting = asyncio.ensure_future(root.abort())
        ready.go()
        await aborting
    else:
        ready.go()
        while not made:
            await asyncio.sleep(0)
        await root.abort()
    assert await driving == "idle"
    page = await harness.get_tasks(kind, made)
    assert all(isinstance(task.state, Aborted) for task in page.values())
    assert not (await harness.inspect()).inflight
    return kind, made


@on_loop
async def test_an_abort_before_the_settlement_leaves_no_successor(world: World) -> None:
    _, made = await _follow_on(world, abort_first=True)

    assert made == []


@on_loop
async def test_an_abort_after_the_settlement_marks_the_successor(world: World) -> None:
    kind, made = await _follow_on(world, abort_first=False)

    assert len(made) == 1
    assert ("abort", made[0]) in kind.calls


@pytest.mark.parametrize("child_first", [True, False])
@on_loop
async def test_a_tool_marked_while_its_child_finishes_ends_aborted(
    world: World,
    child_first: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    in_child, driven = Stop(), Stop()
    children: list[Seq] = []

    async def work(task: Task, runtime: TaskRuntime) -> None:
        await begin(task, runtime)
        await in_child.wait()
        await finish(task, runtime)

    async def parent(task: Task, runtime: TaskRuntime) -> None:
        def spawn(tx: Tx) -> tuple[Seq, Seq]:
            child = tx.create_conversation(owner=task.id)
            tx.patch(task.id, Running())
            return child, tx.task(worker, Planned(), conversation=child)

        child, id = await runtime.commit(spawn)
        children.append(id)
        handle = await runtime.conversation(child)
        assert handle is not None
        await handle.drive()
        driven.reached.set()
        await driven.wait_through()
        await finish(task, runtime)

    worker, tool = Script(work), Tool(parent)
    harness = await world.open(worker, tool)
    root = await harness.root()
    id = await root.commit(lambda tx: tx.task(tool, Planned()))
    driving = asyncio.ensure_future(root.drive())
    await in_child.reached.wait()
    if child_first:
        in_child.go()
        await driven.reached.wait()
        await harness.abort_task(id)
        driven.go()
    else:
        await harness.abort_task(id)
        in_child.go()
        driven.go()

    assert await driving == "idle"
    assert (await harness.get_task(tool, id)).state == Aborted()  # type: ignore[union-attr]
    await harness.wait_for_task(children[0])
    assert (await harness.get_task(worker, children[0])).state == Done()  # type: ignore[union-attr]


@pytest.mark.parametrize("job_first", [True, False])
@on_loop
async def test_clean_up_of_a_job_that_ended_is_a_success(
    world: World,
    job_first: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    stop = Stop()
    found: list[bool] = []

    async def run_job(task: Task, runtime: TaskRuntime) -> None:
        await begin(task, runtime)
        await stop.wait()
        await finish(task, runtime)

    async def clean_up(task: Task, runtime: TaskRuntime) -> None:
        found.append(await runtime.abort_task(jobs[0]))
        await give_up(task, runtime)

    job, tool = Script(run_job), Tool(Script().execute, abort=clean_up)
    tool._methods["execute"] = lambda task, runtime: Stop().wait()
    harness = await world.open(job, tool)
    root = await harness.root()
    jobs = await root.commit(lambda tx: [tx.task(job, Planned(), background=True)])
    id = await root.commit(lambda tx: tx.task(tool, Planned()))
    driving = asyncio.ensure_future(root.drive())
    await stop.reached.wait()
    if job_first:
        stop.go()
        await harness.wait_for_task(jobs[0])

    await harness.abort_task(id)

    assert await driving == "idle"
    assert found == [not job_first]
    assert (await harness.get_task(tool, id)).state == Aborted()  # type: ignore[union-attr]
    await harness.wait_for_task(jobs[0])
