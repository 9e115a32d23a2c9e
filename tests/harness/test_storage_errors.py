"""A storage that fails at any operation, the harness's own included: typed errors, exact state."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from pico_harness import EntryDraft, Harness, TaskRuntime, Tx
from pico_harness.errors import RejectedError, SessionClosedError, SessionFaultedError
from pico_harness.harness import ROOT
from pico_harness.losses import CRASHES
from pico_store.address import ScratchAddress, Seq
from pico_store.batch import Batch, MainBatch, ScratchBatch, SettleTask
from pico_store.errors import (
    CommitUncertainError,
    OwnershipLostError,
    StoreFullError,
    StoreIOError,
)
from pico_store.records import BatchRange
from pico_store.storage import Storage
from tests.harness.names import COUNT
from tests.harness.scripted import (
    Done,
    Planned,
    Script,
    Stop,
    Task,
    Tool,
    hang,
)
from tests.harness.worlds import World, both, on_loop, outcome, planned, settle_down


class Failing:
    """A storage whose next commits or reads fail as told."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.fail_commit: Callable[[Batch], BaseException | None] = lambda batch: None
        self.fail_read: BaseException | None = None
        self.committed: list[Batch] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._storage, name)
        if name.startswith(("get_", "scan_", "read_list")) and self.fail_read is not None:
            raise self.fail_read
        return found

    def commit(self, batch: Batch) -> BatchRange:
        error = self.fail_commit(batch)
        if error is not None:
            raise error
        self.committed.append(batch)
        return self._storage.commit(batch)


async def _open(world: World, *kinds: Script) -> tuple[Harness, Failing]:
    made: list[Failing] = []

    def wrap(storage: Storage) -> Any:
        made.append(Failing(storage))
        return made[0]

    return await world.open(*kinds, wrap=wrap), made[0]


def _always(error: BaseException) -> Callable[[Batch], BaseException | None]:
    return lambda batch: error


def _no(batch: Batch) -> None:
    return None


@pytest.mark.parametrize("error", [StoreFullError("full"), StoreIOError("no access")], ids=repr)
@on_loop
async def test_a_commit_that_can_be_retried_leaves_the_session_as_it_was(
    world: World, error: Exception
) -> None:
    kind = Script()
    harness, storage = await _open(world, kind)
    root = await harness.root()
    last = (await harness.inspect()).last_seq
    storage.fail_commit = _always(error)

    errors = await both(
        harness.value(COUNT).set(1),
        root.accept(EntryDraft("note"), request_id="r"),
        root.commit(lambda tx: tx.task(kind, Planned())),
        root.fork("start"),
    )
    storage.fail_commit = _no

    assert errors == [error] * 4
    assert (await harness.inspect()).last_seq == last
    assert len(harness._driver.scheduler.live) == 0
    assert await root.commit(lambda tx: tx.task(kind, Planned())) == last + 1
    assert await root.drive() == "idle"


@pytest.mark.parametrize(
    "error", [CommitUncertainError("?"), OwnershipLostError("gone"), OSError("odd")], ids=repr
)
@on_loop
async def test_a_commit_that_is_lost_faults_the_session(world: World, error: Exception) -> None:
    stop = Stop()
    kind = Script(lambda task, runtime: stop.wait())
    harness, storage = await _open(world, kind)
    root = await harness.root()
    id = await root.commit(lambda tx: tx.task(kind, Planned()))
    waits = [asyncio.ensure_future(outcome(call)) for call in _waits(harness, id)]
    await stop.reached.wait()
    await settle_down(harness)
    storage.fail_commit = _always(error)

    first, second = await both(harness.value(COUNT).set(1), harness.value(COUNT).set(2))
    ended = await asyncio.gather(*waits)

    assert first is error
    assert isinstance(second, SessionFaultedError)
    assert second.__cause__ is error
    assert [type(end) for end in ended] == [SessionFaultedError] * 2
    await harness.close()
    again = await world.open(kind)
    assert await again.value(COUNT).get() is None
    assert [task.id for task in (await again.inspect()).start] == [id]


def _waits(harness: Harness, id: Seq) -> list[Any]:
    return [harness.drive(), harness.wait_for_task(id)]


@on_loop
async def test_a_failed_read_of_links_rejects_the_drive_alone(world: World) -> None:
    kind = Script()
    harness, storage = await _open(world, kind)
    root = await harness.root()
    child = await root.commit(lambda tx: tx.create_conversation())
    handle = await harness.conversation(child)
    assert handle is not None
    storage.fail_read = StoreIOError("no access")

    refused = await outcome(handle.drive())
    storage.fail_read = None

    assert isinstance(refused, StoreIOError)
    id = await handle.commit(lambda tx: tx.task(kind, Planned()))
    assert await handle.drive() == "idle"
    assert kind.calls == [("execute", id)]


@on_loop
async def test_a_read_that_fails_after_the_check_hangs_nobody(world: World) -> None:
    """The drive finds its conversation, and then its links cannot be read."""
    kind = Script()
    harness, _ = await _open(world, kind)
    root = await harness.root()
    child = await root.commit(lambda tx: tx.create_conversation())
    handle = await harness.conversation(child)
    assert handle is not None
    ancestry = harness._driver.scheduler.ancestry
    above = ancestry._above

    def broken(conversation: Seq) -> Seq | None:
        raise StoreIOError("no access")

    ancestry._above = broken
    refused = await outcome(handle.drive())
    ancestry._above = above

    assert isinstance(refused, StoreIOError)
    id = await handle.commit(lambda tx: tx.task(kind, Planned()))
    assert await handle.drive() == "idle"
    assert kind.calls == [("execute", id)]


@on_loop
async def test_a_full_disk_while_a_loss_is_counted_ends_no_task(world: World) -> None:
    first = Script(hang)
    harness, _ = await _open(world, first)
    root = await harness.root()
    id = await root.commit(lambda tx: tx.task(first, Planned()))
    driving = asyncio.ensure_future(outcome(root.drive()))
    while not (await harness.inspect()).inflight:
        await asyncio.sleep(0)
    kind = Script()
    again, storage = await _open(world, kind)
    storage.fail_commit = lambda batch: (
        StoreFullError("full") if isinstance(batch, ScratchBatch) else None
    )

    assert await (await again.root()).drive() == "idle"
    assert (await again.get_task(kind, id)).state == Done("recovered")  # type: ignore[union-attr]
    await harness.close()
    await driving


@on_loop
async def test_orphaning_that_finds_no_room_rejects_the_drive_and_can_be_repeated(
    world: World,
) -> None:
    kind = Script()
    harness, root, id = await planned(world, kind)
    await harness.close()
    again, storage = await _open(world)
    error = StoreFullError("full")
    storage.fail_commit = _always(error)
    root = await again.root()

    refused = await outcome(root.drive())
    storage.fail_commit = _no

    assert refused is error
    assert (await again.get_task(id)).role == "start"  # type: ignore[union-attr]
    assert await root.drive() == "idle"
    assert (await again.get_task(id)).status == "orphaned"  # type: ignore[union-attr]


@on_loop
async def test_a_shutdown_that_finds_no_room_can_be_asked_for_again(world: World) -> None:
    kind = Script()
    harness, storage = await _open(world, kind)
    root = await harness.root()
    id = await root.commit(lambda tx: tx.task(kind, Planned()))
    error = StoreFullError("full")
    storage.fail_commit = _always(error)

    refused = await outcome(harness.shutdown())
    storage.fail_commit = _no
    await settle_down(harness)

    assert refused is error
    assert not (await harness.get_task(id)).abort  # type: ignore[union-attr]
    await harness.shutdown()
    again = await world.open(kind)
    assert (await again.get_task(id)).status == "aborted"  # type: ignore[union-attr]


@on_loop
async def test_a_fault_in_the_middle_of_a_shutdown_rejects_it(world: World) -> None:
    error = CommitUncertainError("?")
    kind = Script()
    harness, storage = await _open(world, kind)
    root = await harness.root()
    id = await root.commit(lambda tx: tx.task(kind, Planned()))
    storage.fail_commit = lambda batch: (
        error if isinstance(batch, MainBatch) and isinstance(batch.writes[0], SettleTask) else None
    )

    refused = await outcome(harness.shutdown())

    assert isinstance(refused, SessionFaultedError)
    assert refused.__cause__ is error
    await harness.close()
    again = await world.open(kind)
    assert (await again.get_task(id)).abort  # type: ignore[union-attr]
    assert await (await again.root()).drive() == "idle"


@on_loop
async def test_a_fault_rejects_a_shutdown_at_once_whatever_ignores_its_signal(
    memory: World,
) -> None:
    stop = Stop()
    kind = Script(abort=lambda task, runtime: stop.wait_through())
    harness, storage = await _open(memory, kind)
    root = await harness.root()
    await root.commit(lambda tx: tx.task(kind, Planned()))
    tool = Tool(abort=lambda task, runtime: runtime.commit(lambda tx: tx.settle(task.id, Done())))
    harness.task_kinds.register(tool)
    await root.commit(lambda tx: tx.task(tool, Planned()))
    storage.fail_commit = lambda batch: (
        CommitUncertainError("?")
        if isinstance(batch, MainBatch) and isinstance(batch.writes[0], SettleTask)
        else None
    )

    refused = asyncio.ensure_future(outcome(harness.shutdown()))
    await settle_down(harness)
    rejected = refused.done()
    stop.go()

    assert rejected
    assert isinstance(await refused, SessionFaultedError)
    await harness.close()


@on_loop
async def test_marks_of_more_tasks_than_a_batch_holds(memory: World) -> None:
    kind = Script()
    harness, _ = await _open(memory, kind)
    root = await harness.root()
    for count in (10_000, 5):
        await root.commit(lambda tx, count=count: [tx.task(kind, Planned()) for _ in range(count)])  # type: ignore[misc]

    assert await root.abort() == 10_005

    live = harness._driver.scheduler.live
    assert all(live[id].task.abort for id in live.ids())


@on_loop
async def test_a_shutdown_marks_more_tasks_than_a_batch_holds(memory: World) -> None:
    kind = Script()
    harness, _ = await _open(memory, kind)
    root = await harness.root()
    for count in (10_000, 5):
        await root.commit(lambda tx, count=count: [tx.task(kind, Planned()) for _ in range(count)])  # type: ignore[misc]

    await harness.shutdown()

    assert [call[0] for call in kind.calls] == ["abort"] * 10_005


@on_loop
async def test_a_close_waits_for_the_commit_under_way(held: World) -> None:
    assert held.gate is not None
    harness, _ = await _open(held)
    held.gate.shut()
    setting = asyncio.ensure_future(outcome(harness.value(COUNT).set(1)))
    await held.gate.arrival()

    closing = asyncio.ensure_future(harness.close())
    late = asyncio.ensure_future(outcome(harness.value(COUNT).set(2)))
    for _ in range(20):
        await asyncio.sleep(0)
    early = closing.done()
    held.gate.open()

    assert not early
    await closing
    assert await setting is None
    assert isinstance(await late, SessionClosedError)
    assert await (await held.open()).value(COUNT).get() == 1


@on_loop
async def test_a_fault_under_a_commit_still_answers_who_waits_for_it(held: World) -> None:
    assert held.gate is not None
    stop = Stop()

    async def breaks(task: Task, runtime: TaskRuntime) -> None:
        await stop.wait()
        raise ZeroDivisionError

    kind = Script(breaks)
    harness, _ = await _open(held, kind)
    root = await harness.root()
    await root.commit(lambda tx: tx.task(kind, Planned()))
    driving = asyncio.ensure_future(outcome(root.drive()))
    await stop.reached.wait()
    held.gate.shut()
    setting = asyncio.ensure_future(outcome(harness.value(COUNT).set(1)))
    behind = asyncio.ensure_future(outcome(harness.value(COUNT).set(2)))
    await held.gate.arrival()
    stop.go()
    for _ in range(20):
        await asyncio.sleep(0)
    held.gate.open()

    # What was admitted behind the commit comes before the end of the invocation.
    assert await setting is None
    await driving
    await behind
    await harness.close()
    again = await held.open(kind)
    assert await again.value(COUNT).get() in (1, 2)


@on_loop
async def test_an_interrupt_in_a_builder_writes_nothing(world: World) -> None:
    harness, _ = await _open(world)

    def plan(tx: Tx) -> None:
        tx.value(COUNT).set(1)
        raise KeyboardInterrupt

    found: list[BaseException] = []

    async def call() -> None:
        try:
            await harness.commit(plan)
        except KeyboardInterrupt as error:
            found.append(error)

    await call()

    assert len(found) == 1
    assert await harness.value(COUNT).get() is None
    await harness.value(COUNT).set(2)
    assert await harness.value(COUNT).get() == 2


@on_loop
async def test_an_abandoned_batch_of_a_dependency_rejects_before_the_commit(world: World) -> None:
    kind = Script()
    harness, storage = await _open(world, kind)
    other = await harness.commit(lambda tx: tx.create_conversation())
    id = await harness.commit(lambda tx: tx.task(kind, Planned(), conversation=ROOT))
    count = len(storage.committed)

    error = await outcome(
        harness.commit(lambda tx: tx.task(kind, Planned(), conversation=other, after=[id]))
    )

    assert isinstance(error, RejectedError)
    assert "another ownership tree" in str(error)
    assert len(storage.committed) == count


@on_loop
async def test_the_count_of_losses_is_taken_away_by_a_clean_close(world: World) -> None:
    first = Script(hang)
    harness, _ = await _open(world, first)
    root = await harness.root()
    id = await root.commit(lambda tx: tx.task(first, Planned()))
    driving = asyncio.ensure_future(outcome(root.drive()))
    while not (await harness.inspect()).inflight:
        await asyncio.sleep(0)
    stuck = Script(recover=lambda task, runtime: Stop().wait())
    again, storage = await _open(world, stuck)
    recovering = asyncio.ensure_future(outcome((await again.root()).drive()))
    while not stuck.calls:
        await asyncio.sleep(0)
    await settle_down(again)
    counted = storage.get_value(ScratchAddress(id, CRASHES)).value

    await again.close()
    await recovering
    third, last = await _open(world, stuck)

    assert counted == 1
    assert last.get_value(ScratchAddress(id, CRASHES)) is None
    await harness.close()
    await driving
    await third.close()
