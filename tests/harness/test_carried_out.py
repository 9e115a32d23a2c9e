"""What was decided and cannot be carried out ends the session; nobody waits for it (TASKS-3)."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from pico_harness import FaultReport, Harness, Options, TaskRuntime, current_call
from pico_harness.call import HOST, Call, Invocation
from pico_harness.errors import ArgumentError, SessionFaultedError
from pico_harness.telemetry import End, Span
from tests.harness.names import COUNT
from tests.harness.scripted import Planned, Script, Task, Tool, hang
from tests.harness.worlds import World, both, on_loop, outcome, until_inflight

R = TypeVar("R")


class Exporter:
    """Telemetry that fails to begin."""

    def __init__(self, error: type[BaseException]) -> None:
        self._error = error

    def begin(self, invocation: Invocation, /, *, session_id: str) -> Span:
        raise self._error("planted")

    def end(self, end: End, /) -> None:
        raise AssertionError("it never began")


@on_loop
async def test_a_span_that_is_cancelled_costs_no_task(world: World) -> None:
    options = Options(telemetry=Exporter(asyncio.CancelledError))
    kind = Script()
    harness = await world.open(kind, options=options)
    root = await harness.root()
    await root.commit(lambda tx: [tx.task(kind, Planned()) for _ in range(3)])

    assert await root.drive() == "idle"
    await harness.close()


@on_loop
async def test_a_method_that_cannot_begin_faults_the_session(world: World) -> None:
    """And what was decided beside it is neither waited for nor lost."""
    kind, tool = Script(hang), Tool()
    harness = await world.open(kind, tool)
    root = await harness.root()
    first = await root.commit(lambda tx: tx.task(kind, Planned()))
    driving = asyncio.ensure_future(outcome(root.drive()))
    waiting = asyncio.ensure_future(outcome(harness.wait_for_task(first)))
    await until_inflight(harness, 1)
    loop = asyncio.get_running_loop()

    def refuse(*_: object, **__: object) -> Any:
        raise TypeError("no context in this factory")

    loop.set_task_factory(refuse)
    found = await outcome(root.commit(lambda tx: [tx.task(tool, Planned()) for _ in range(3)]))
    loop.set_task_factory(None)

    # The commit itself is stored.
    assert isinstance(found, list)
    errors = [await driving, await waiting, await outcome(root.drive())]
    assert [type(error) for error in errors] == [SessionFaultedError] * 3
    assert "no context in this factory" in str(errors[0])
    await harness.close()
    mended = await world.open(Script(), tool)
    assert await (await mended.root()).drive() == "idle"
    assert len(tool.calls) == 3


class Refusing:
    """Begins nothing any more once it is told so; until then everything at once."""

    def __init__(self) -> None:
        self.refuses = False
        self.asked = 0

    def __call__(self, work: Callable[[], R], /) -> asyncio.Future[R]:
        self.asked += 1
        if self.refuses:
            raise RuntimeError("can't start new thread")
        result: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        result.set_result(work())
        return result


@on_loop
async def test_a_commit_that_cannot_be_begun_holds_up_nobody(memory: World) -> None:
    away = Refusing()
    harness = await memory.open(options=Options(away=away))
    away.refuses = True
    values = [harness.value(COUNT).set(n) for n in range(3)]

    found = await both(*values, harness.root())

    assert isinstance(found[0], RuntimeError)
    assert [type(error) for error in found[1:3]] == [SessionFaultedError] * 2
    assert "can't start new thread" in str(found[1])
    # The storage is given back all the same.
    await harness.close()
    again = await Harness.open(memory.store.open("a"))
    assert await again.value(COUNT).get() is None
    await again.close()


@on_loop
async def test_a_close_that_cannot_be_begun_closes_none_the_less(memory: World) -> None:
    away = Refusing()
    harness = await memory.open(options=Options(away=away))
    away.refuses = True

    await harness.close()

    await (await Harness.open(memory.store.open("a"))).close()


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_a_listener_that_ends_the_program_leaves_a_faulted_session(
    world: World, error: type[BaseException]
) -> None:
    heard: list[str] = []
    kept: list[Harness] = []

    def listen(report: FaultReport) -> None:
        heard.append(report.problem)
        raise error

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        raise ValueError("planted")

    async def ask() -> None:
        kind = Script(execute)
        harness = await world.open(kind, options=Options(on_report=listen))
        kept.append(harness)
        root = await harness.root()
        await root.commit(lambda tx: tx.task(kind, Planned()))
        await root.drive()

    async def hear() -> object:
        return await outcome(kept[0].drive())

    loop = asyncio.new_event_loop()
    with pytest.raises(error):
        loop.run_until_complete(ask())
    found = loop.run_until_complete(hear())
    loop.run_until_complete(kept[0].close())
    loop.run_until_complete(_cancel_all())
    loop.close()

    assert isinstance(found, SessionFaultedError)
    assert "raised ValueError: planted" in str(found)
    assert len(heard) == 1


async def _cancel_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


@on_loop
async def test_a_decision_that_is_lost_on_the_line_keeps_no_slot(world: World) -> None:
    kind, tool = Script(hang), Tool()
    harness = await world.open(kind, tool)
    root = await harness.root()
    await root.commit(lambda tx: tx.task(kind, Planned()))
    driving = asyncio.ensure_future(outcome(root.drive()))
    await until_inflight(harness, 1)

    def listen(*_: object) -> None:
        raise MemoryError("planted")

    harness._driver.listeners.append(listen)
    errors = [await outcome(root.commit(lambda tx: tx.task(tool, Planned()))), await driving]

    assert [type(error) for error in errors] == [MemoryError, SessionFaultedError]
    await harness.close()
    assert tool.calls == []


@on_loop
async def test_a_drive_that_fails_halfway_is_not_taken_for_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it served has its slot; a later drive would wait for what nobody starts."""
    kind = Script()
    harness = await world.open(kind)
    root = await harness.root()
    await root.commit(lambda tx: tx.task(kind, Planned()))

    def fail(_: object) -> None:
        raise MemoryError("planted")

    with monkeypatch.context() as broken:
        broken.setattr(harness._driver.scheduler, "waiting", fail)
        first = await outcome(root.drive())
    second = await outcome(root.drive())

    assert [type(error) for error in (first, second)] == [MemoryError, SessionFaultedError]
    assert kind.calls == []
    await harness.close()


@on_loop
async def test_the_call_of_the_host_can_be_cancelled_by_nobody(world: World) -> None:
    """It is that of every session in the process."""
    harness = await world.open()

    with pytest.raises(ArgumentError, match="cancellable"):
        current_call().cancellation.cancel("enough")

    call = current_call().cancellable()
    call.cancellation.cancel("enough")
    await harness.value(COUNT).set(1)


@on_loop
async def test_calls_that_the_host_makes_and_forgets_leave_nothing(memory: World) -> None:
    await memory.open()
    before = len(HOST.cancellation._callbacks)

    for _ in range(100):
        current_call().cancellable()
    gc.collect()

    assert len(HOST.cancellation._callbacks) == before
    assert not [one for one in gc.get_objects() if isinstance(one, Call)][2:]
