"""A caller may be cancelled at every await of every public method: whole or absent, never between.

Each method is driven by hand and cancelled when it waits for the n-th time, for every n. What a
fresh open of the store then sees equals what it saw before the call, or what the whole call leaves.
"""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from pico_harness import (
    Call,
    Cancellation,
    ConversationHandle,
    EntryDraft,
    Harness,
    TaskRuntime,
    inbox,
)
from pico_harness.call import enter_call
from pico_harness.handles import ListHandle, ValueHandle
from pico_harness.harness import ROOT
from pico_store.address import Seq
from pico_store.query import ConversationQuery, EntryQuery, TaskQuery
from tests.harness.names import COUNT, ITEMS, MARK, MEMO, NOTE
from tests.harness.scripted import Planned, Running, Script, Stop, Task, Tool
from tests.harness.worlds import World, make_world, on_loop, outcome, settle_down

BACKENDS = ("memory", "memory-held", "jsonl", "sqlite", "sqlite-power", "lmdb", "lmdb-power")


class Configured(Script):
    """A kind with something to configure."""

    config = {"mark": MARK}  # noqa: RUF012 - as users write it


@dataclass(slots=True)
class Scene:
    """An open session with something of everything, and a task that waits in its method."""

    world: World
    harness: Harness
    root: ConversationHandle
    runtime: TaskRuntime
    task: Seq
    idle_task: Seq
    entry: Seq
    input: Seq
    element: Seq
    spare: Seq
    stop: Stop
    kind: Script


Case: TypeAlias = Callable[[Scene], Coroutine[Any, Any, object]]


async def make_scene(world: World) -> Scene:
    stop = Stop()
    runtimes: list[TaskRuntime] = []

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        await runtime.commit(lambda tx: tx.patch(task.id, Running()))
        runtimes.append(runtime)
        await stop.wait()

    kind = Configured(execute)
    harness = await world.open(kind)
    root = await harness.root()
    task = await root.commit(lambda tx: tx.task(kind, Planned(), background=True))
    await root.drive()
    await stop.reached.wait()
    spare = await harness.commit(lambda tx: tx.create_conversation())
    idle = await harness.commit(lambda tx: tx.task(kind, Planned(), conversation=spare))
    entry = await root.commit(lambda tx: tx.entry(NOTE, 1, model=[{"role": "user"}]))
    item = await root.accept(EntryDraft("note"), request_id="first")
    element = await harness.list(ITEMS).append(1)
    empty = await harness.commit(lambda tx: tx.create_conversation())
    await settle_down(harness)
    return Scene(
        world, harness, root, runtimes[0], task, idle, entry, item, element, empty, stop, kind
    )


def _reads(name: str, of: Callable[[Scene], Any]) -> dict[str, Case]:
    """Return the reads that a harness and a runtime share."""
    return {
        f"{name}.get_entry": lambda s: of(s).get_entry(s.entry),
        f"{name}.get_entries": lambda s: of(s).get_entries([s.entry]),
        f"{name}.entries": lambda s: of(s).entries(EntryQuery(conversation_id=ROOT)),
        f"{name}.get_task": lambda s: of(s).get_task(s.task),
        f"{name}.get_tasks": lambda s: of(s).get_tasks([s.task]),
        f"{name}.tasks": lambda s: of(s).tasks(TaskQuery()),
        f"{name}.conversations": lambda s: of(s).conversations(ConversationQuery()),
        f"{name}.conversation": lambda s: of(s).conversation(ROOT),
    }


CASES: dict[str, Case] = {
    **_reads("Harness", lambda s: s.harness),
    **_reads("TaskRuntime", lambda s: s.runtime),
    "Harness.root": lambda s: s.harness.root(),
    "Harness.delete_conversation": lambda s: s.harness.delete_conversation(s.spare),
    "Harness.commit": lambda s: s.harness.commit(lambda tx: tx.value(COUNT).set(2)),
    "Harness.drive": lambda s: s.harness.drive(),
    "Harness.abort_task": lambda s: s.harness.abort_task(s.idle_task),
    "Harness.wait_for_task": lambda s: s.harness.wait_for_task(s.task),
    "Harness.resume_task": lambda s: s.harness.resume_task(s.task),
    "Harness.inspect": lambda s: s.harness.inspect(),
    "Harness.acceptance": lambda s: s.harness.acceptance("first"),
    "Harness.shutdown": lambda s: s.harness.shutdown(),
    "Harness.close": lambda s: s.harness.close(),
    "ConversationHandle.snapshot": lambda s: s.root.snapshot(),
    "ConversationHandle.commit": lambda s: s.root.commit(lambda tx: tx.entry(NOTE, 2)),
    "ConversationHandle.drive": lambda s: s.root.drive(),
    "ConversationHandle.abort": lambda s: s.root.abort(),
    "ConversationHandle.fork": lambda s: s.root.fork(s.entry, abort=True, values={MARK: 3}),
    "ConversationHandle.accept": lambda s: s.root.accept(EntryDraft("note"), request_id="next"),
    "ConversationHandle.result": lambda s: s.root.result(s.input),
    "ConversationHandle.cancel_queued": lambda s: s.root.cancel_queued(s.input),
    "ConversationHandle.config": lambda s: s.root.config(s.kind),
    "ConversationHandle.configure": lambda s: s.root.configure(s.kind, {"mark": 4}),
    "ConversationHandle.context": lambda s: s.root.context(),
    "TaskRuntime.commit": lambda s: s.runtime.commit(lambda tx: tx.entry(NOTE, 3)),
    "TaskRuntime.scratch": lambda s: s.runtime.scratch(lambda tx: tx.value(MEMO).set(1)),
    "TaskRuntime.sleep": lambda s: s.runtime.sleep(s.runtime.now() + 3_600_000),
    "TaskRuntime.config": lambda s: s.runtime.config(s.kind),
    "TaskRuntime.abort_task": lambda s: s.runtime.abort_task(s.idle_task),
    "TaskRuntime.wait_for_task": lambda s: s.runtime.wait_for_task(s.idle_task, 3_600_000),
    "ValueHandle.get": lambda s: s.harness.value(COUNT).get(),
    "ValueHandle.set": lambda s: s.harness.value(COUNT).set(5),
    "ValueHandle.delete": lambda s: s.harness.value(COUNT).delete(),
    "ListHandle.read": lambda s: s.harness.list(ITEMS).read(),
    "ListHandle.append": lambda s: s.harness.list(ITEMS).append(2),
    "ListHandle.remove": lambda s: s.harness.list(ITEMS).remove(s.element),
    "ListHandle.clear": lambda s: s.harness.list(ITEMS).clear(),
}
_ENDS = ("Harness.close", "Harness.shutdown")
# Opens a session of its own; the last test below is about it.
_OPENS = {"Harness.open"}


def _is_awaited(member: object) -> bool:
    """Tell whether what a method returns is a coroutine, made by itself or by another."""
    returned = getattr(member, "__annotations__", {}).get("return", "")
    return inspect.iscoroutinefunction(member) or "Coroutine" in returned


def test_every_public_method_has_a_case() -> None:
    classes = (Harness, ConversationHandle, TaskRuntime, ValueHandle, ListHandle)
    methods = {
        f"{owner.__name__}.{name}"
        for owner in classes
        for name, member in inspect.getmembers(owner)
        if not name.startswith("_") and _is_awaited(member)
    }

    assert methods == CASES.keys() | _OPENS


class Stepped:
    """A call that is driven by hand and cancelled when it waits for the n-th time."""

    def __init__(self, call: Coroutine[Any, Any, object], nth: int) -> None:
        self._call = call
        self._nth = nth
        self.waits = 0

    def __await__(self) -> Generator[Any, Any, object]:
        step = self._call.__await__()
        error: BaseException | None = None
        while True:
            try:
                waited = step.send(None) if error is None else step.throw(error)
            except StopIteration as stopped:
                return stopped.value
            self.waits += 1
            if self.waits == self._nth:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            error = None
            try:
                yield waited
            except BaseException as raised:  # noqa: BLE001 - thrown into the call
                error = raised


async def _run(stepped: Stepped) -> object:
    return await stepped


async def _cancelled_at(scene: Scene, name: str, nth: int) -> bool:
    """Run a call, cancelling it when it waits for the n-th time; False if it never does."""
    stepped = Stepped(_in_task(scene, name), nth)
    task = asyncio.ensure_future(_run(stepped))
    await settle_down(scene.harness)
    if not task.done():
        # It waits for what will not happen.
        task.cancel()
    await outcome(task)
    return stepped.waits >= nth


def _in_task(scene: Scene, name: str) -> Coroutine[Any, Any, object]:
    """Return the call of a case; a runtime's in the name of its invocation."""
    call = CASES[name](scene)
    return _as_invocation(scene, call) if name.startswith("TaskRuntime.") else call


async def _as_invocation(scene: Scene, call: Coroutine[Any, Any, object]) -> object:
    enter_call(Call(Cancellation(), scene.harness._driver.scheduler.running[scene.task]))
    return await call


# What these leave depends on how far the work came that they started.
_WORKS = ("Harness.drive", "Harness.shutdown")


@pytest.mark.parametrize("mode", BACKENDS)
@pytest.mark.parametrize("name", list(CASES))
def test_a_cancelled_caller_leaves_all_or_nothing(name: str, mode: str, tmp_path: Path) -> None:
    whole = _try(name, mode, tmp_path / "whole", 0)

    nth = 1
    while (left := _try(name, mode, tmp_path / str(nth), nth)).reached:
        assert left.after in (left.before, whole.after) or name in _WORKS
        nth += 1

    assert nth < 12
    assert left.before == whole.before


@dataclass(frozen=True, slots=True)
class Left:
    """What a fresh open saw before a call and after, and whether the call waited so often."""

    before: str
    after: str
    reached: bool


def _try(name: str, mode: str, folder: Path, nth: int) -> Left:
    folder.mkdir()
    world = make_world(mode, folder)
    found: list[Left] = []

    @on_loop
    async def run() -> None:
        scene = await make_scene(world)
        harness = scene.harness
        before = world.digest()
        reached = await _cancelled_at(scene, name, nth)
        await settle_down(harness)
        found.append(Left(before, world.digest(), reached))
        if name not in ("Harness.close", "Harness.shutdown"):
            await _check_works(harness)
        await harness.close()
        again = await world.open(scene.kind)
        live = [*(await again.inspect()).inflight, *(await again.inspect()).start]
        assert {task.id for task in live} == {
            id
            for id, task in (await again.get_tasks([scene.task, scene.idle_task])).items()
            if task.role != "terminal"
        }
        await again.close()

    try:
        run()
    finally:
        world.store.close()
    return found[0]


async def _check_works(harness: Harness) -> None:
    """See that nothing is left of the call in memory, and that the session works on."""
    assert len(harness._driver.scheduler.waits) == 0
    assert harness._driver.line.idle
    last = (await harness.inspect()).last_seq
    id = await harness.commit(lambda tx: tx.entry(NOTE, conversation=ROOT))
    assert id == last + 1


@pytest.mark.parametrize("mode", BACKENDS)
def test_a_cancelled_open_leaves_a_root_or_nothing(mode: str, tmp_path: Path) -> None:
    for nth in range(1, 4):
        folder = tmp_path / str(nth)
        folder.mkdir()
        world = make_world(mode, folder)
        _cancel_open(world, nth)
        world.store.close()


@on_loop
async def _cancel_open(world: World, nth: int) -> None:
    await outcome(asyncio.ensure_future(_run(Stepped(world.open(), nth))))

    again = await world.open()

    assert (await again.inspect()).last_seq == 1
    await again.close()


@pytest.mark.parametrize("mode", ["memory-held", "sqlite-power", "sqlite-held"])
def test_two_hundred_callers_give_up_at_random(mode: str, tmp_path: Path) -> None:
    """Field report 28: a request is found by its id exactly if it was accepted."""
    world = make_world(mode, tmp_path)
    _give_up_at_random(world)
    world.store.close()


@on_loop
async def _give_up_at_random(world: World) -> None:
    chance = random.Random(28)
    harness = await world.open()
    root = await harness.root()
    known: dict[str, object] = {}
    for n in range(200):
        request = f"r{n}"
        call = root.accept(EntryDraft("note", data=n), request_id=request)
        if n % 2:
            call = asyncio.wait_for(call, chance.random() / 1000)
        caller = asyncio.ensure_future(call)
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        if not n % 2:
            caller.cancel()
        known[request] = await outcome(caller)

    await settle_down(harness)
    receipts = {request: await harness.acceptance(request) for request in known}
    inputs = [receipt.input_id for receipt in receipts.values() if receipt]
    await harness.close()
    again = await world.open()
    root = await again.root()
    for request, answer in known.items():
        receipt = await again.acceptance(request)
        assert receipt == receipts[request]
        assert not isinstance(answer, int) or (receipt and receipt.input_id == answer)
    assert inputs == sorted(inputs)
    assert len(inputs) > 0
    assert [item.id for item in await root.commit(lambda tx: inbox.queued(tx, ROOT))] == inputs
    await again.close()


@on_loop
async def test_an_invocation_that_ignores_its_cancellation_blocks_its_own_slot_only() -> None:
    world = make_world("memory", Path())
    stop = Stop()

    async def stubborn(task: Task, runtime: TaskRuntime) -> None:
        await runtime.commit(lambda tx: tx.patch(task.id, Running()))
        await stop.wait_through()

    kind, tool = Script(stubborn), Tool()
    harness = await world.open(kind, tool)
    root = await harness.root()
    id = await root.commit(lambda tx: tx.task(kind, Planned(), background=True))
    await root.drive()
    await stop.reached.wait()

    await harness.abort_task(id)
    others = await root.commit(lambda tx: [tx.task(tool, Planned()) for _ in range(3)])
    assert await root.drive() == "idle"
    closing = asyncio.ensure_future(harness.close())
    await settle_down(harness)

    assert [call[1] for call in tool.calls] == others
    assert stop.cancelled == 2
    assert kind.calls == [("execute", id)]
    assert not closing.done()
    stop.go()
    await closing
