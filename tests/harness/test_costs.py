"""What a task costs, counted: commits, reads, asyncio tasks, and what is left of it afterwards."""

import asyncio
import gc
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import pytest

from pico_bench.finished import make_finished
from pico_bench.harness_kinds import BRIEF, ENDLESS, Aborted, Done, Planned
from pico_harness.call import HOST, Call
from pico_harness.conversation import ConversationHandle
from pico_harness.errors import CallCancelledError
from pico_harness.harness import Harness
from pico_store.address import Seq
from pico_store.backends import open_store
from pico_store.storage import Counters, Storage

T = TypeVar("T")
Work = Callable[[Harness, Storage], Awaitable[None]]
BACKENDS = ("memory", "sqlite", "lmdb", "jsonl")


def run(folder: Path, backend: str, work: Work) -> None:
    """Run work on a new session of a backend."""

    async def main() -> None:
        query = "" if backend == "memory" else f"{folder}/s?durability=process"
        store = open_store(f"{backend}:{query}")
        storage = store.create("costs")
        harness = await Harness.open(storage, tasks=(BRIEF, ENDLESS))
        await work(harness, storage)
        await harness.close()
        store.close()

    asyncio.run(main())


async def one(root: ConversationHandle, number: int = 1) -> Seq:
    id = await root.commit(lambda tx: tx.task(BRIEF, Planned(number)))
    assert await root.drive() == "idle"
    return id


def spent(before: Counters, after: Counters) -> tuple[int, int, int]:
    return (
        after.commits - before.commits,
        after.queries - before.queries,
        after.rows_decoded - before.rows_decoded,
    )


def copied(counters: Counters) -> Counters:
    return Counters(counters.commits, counters.queries, counters.rows_decoded)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_task_is_three_commits_and_no_read(tmp_path: Path, backend: str) -> None:
    async def work(harness: Harness, storage: Storage) -> None:
        root = await harness.root()
        await one(root)
        before = copied(storage.counters)
        for number in range(10):
            await one(root, number)
        assert spent(before, storage.counters) == (30, 0, 0)

    run(tmp_path, backend, work)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_task_after_others_reads_nothing_more(tmp_path: Path, backend: str) -> None:
    async def work(harness: Harness, storage: Storage) -> None:
        root = await harness.root()
        await one(root)
        before = copied(storage.counters)

        first = await root.commit(lambda tx: tx.task(BRIEF, Planned(1)))
        second = await root.commit(lambda tx: tx.task(BRIEF, Planned(2), after=(first,)))
        await root.drive()

        assert spent(before, storage.counters) == (6, 0, 0)
        found = await harness.get_tasks(BRIEF, (first, second))
        assert [task.state for task in found.values()] == [Done(1), Done(2)]

    run(tmp_path, backend, work)


@pytest.mark.parametrize("backend", ["memory", "sqlite", "lmdb"])
def test_open_and_drive_read_what_is_live_and_no_finished_children(
    tmp_path: Path, backend: str
) -> None:
    async def decoded(children: int) -> int:
        name = "" if backend == "memory" else f"{tmp_path}/{children}"
        with closing(open_store(f"{backend}:{name}")) as store:
            storage = store.create("a")
            make_finished(storage, children)
            harness = await Harness.open(storage, tasks=(BRIEF,))
            root = await harness.root()
            owner = await root.commit(lambda tx: tx.task(BRIEF, Planned(1)))
            child = await root.commit(lambda tx: tx.create_conversation(owner=owner))
            await harness.commit(lambda tx: tx.task(BRIEF, Planned(2), conversation=child))
            await harness.close()

            storage = store.open("a")
            harness = await Harness.open(storage, tasks=(BRIEF,))
            assert len((await harness.inspect()).start) == 2
            assert await harness.drive() == "idle"
            rows = storage.counters.rows_decoded
            await harness.close()
            return rows

    few, many = asyncio.run(decoded(1)), asyncio.run(decoded(2_000))
    assert few == many <= 4


class Made:
    """A task factory that counts what it makes."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(
        self, loop: asyncio.AbstractEventLoop, coro: Coroutine[object, object, T], **more: object
    ) -> asyncio.Task[T]:
        self.count += 1
        return asyncio.Task(coro, loop=loop, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("backend", ["memory", "sqlite"])
def test_an_invocation_is_one_asyncio_task(tmp_path: Path, backend: str) -> None:
    async def work(harness: Harness, storage: Storage) -> None:
        root = await harness.root()
        made = Made()
        asyncio.get_running_loop().set_task_factory(made)  # type: ignore[arg-type]
        for number in range(10):
            await one(root, number)
        assert made.count == 10

        # Its abort is an invocation of its own.
        id = await root.commit(lambda tx: tx.task(ENDLESS, Planned(1)))
        while not (await harness.inspect()).inflight:
            await asyncio.sleep(0)
        await harness.abort_task(id)
        await root.drive()
        assert made.count == 12
        found = await harness.get_task(ENDLESS, id)
        assert found is not None
        assert found.state == Aborted(1)
        asyncio.get_running_loop().set_task_factory(None)

    run(tmp_path, backend, work)


# --- What is left ---


def kept(harness: Harness) -> dict[str, int]:
    """Count what the harness holds that a task or a wait may have put there."""
    driver = harness._driver
    scheduler = driver.scheduler
    return {
        "live": len(scheduler.live),
        "conversations": len(scheduler.live.conversations()),
        "kinds": len(scheduler.live.kinds()),
        "ancestry": len(scheduler.ancestry),
        "waits": len(scheduler.waits),
        "running": len(scheduler.running),
        "listeners": len(driver.listeners),
        "callbacks": len(HOST.cancellation._callbacks),
        "links": len(driver.admission._links),
        "asyncio": len(asyncio.all_tasks()),
    }


def alive() -> Counter[str]:
    """Count the objects of the harness and of asyncio that anything still refers to."""
    gc.collect()
    return Counter(
        f"{type(one).__module__}.{type(one).__qualname__}"
        for one in gc.get_objects()
        if str(type(one).__module__).startswith(
            ("pico_harness", "asyncio", "_asyncio", "_contextvars")
        )
    )


def test_nothing_is_left_of_ten_thousand_tasks(tmp_path: Path) -> None:
    async def work(harness: Harness, storage: Storage) -> None:
        root = await harness.root()
        for number in range(10):
            await one(root, number)
        held, objects = kept(harness), alive()

        for number in range(10_000):
            await one(root, number)

        assert kept(harness) == held
        assert alive() - objects == Counter()

    run(tmp_path, "memory", work)


def test_the_process_has_as_many_objects_as_before(tmp_path: Path) -> None:
    async def work(harness: Harness, storage: Storage) -> None:
        root = await harness.root()
        for number in range(200):
            await one(root, number)
        gc.collect()
        before = len(gc.get_objects())

        for number in range(1_000):
            await one(root, number)

        gc.collect()
        # A few that the interpreter makes at its own time, and none for every task.
        assert len(gc.get_objects()) - before < 100

    run(tmp_path, "sqlite", work)


def test_nothing_is_left_of_aborted_tasks_and_their_children(tmp_path: Path) -> None:
    async def work(harness: Harness, storage: Storage) -> None:
        root = await harness.root()

        async def tree() -> None:
            owner = await root.commit(lambda tx: tx.task(ENDLESS, Planned(1)))
            child = await root.commit(lambda tx: tx.create_conversation(owner=owner))
            below = await harness.commit(
                lambda tx: tx.task(ENDLESS, Planned(2), conversation=child)
            )
            after = await root.commit(lambda tx: tx.task(BRIEF, Planned(3), after=(below, owner)))
            assert await root.abort() == 3
            await harness.drive()
            found = (await harness.get_tasks((owner, below, after))).values()
            assert [task.status for task in found] == ["aborted"] * 3

        await root.drive()
        await tree()
        held, objects = kept(harness), alive()
        for _ in range(300):
            await tree()

        assert kept(harness) == held
        assert alive() - objects == Counter()

    run(tmp_path, "memory", work)


def test_nothing_is_left_of_waits_however_they_end(tmp_path: Path) -> None:
    async def work(harness: Harness, storage: Storage) -> None:
        root = await harness.root()
        endless = await root.commit(lambda tx: tx.task(ENDLESS, Planned(1)))
        parent = Call()

        async def waits() -> None:
            assert not await harness.wait_for_task(endless, 0)
            cancelled = asyncio.create_task(harness.wait_for_task(endless))
            await asyncio.sleep(0)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            child = parent.cancellable()
            given_up = asyncio.create_task(harness.wait_for_task(endless, call=child))
            await asyncio.sleep(0)
            child.cancellation.cancel("enough")
            with pytest.raises(CallCancelledError):
                await given_up

        await waits()
        held, objects = kept(harness), alive()
        for _ in range(300):
            await waits()

        assert kept(harness) == held
        assert len(parent.cancellation._callbacks) == 0
        assert alive() - objects == Counter()

    run(tmp_path, "memory", work)
