"""What the processes do that tests start and kill; run as a module with a part and a URL."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from pico_harness import EntryDraft, Harness, TaskRuntime
from pico_store.backends import open_store
from pico_store.batch import Batch
from pico_store.records import BatchRange
from pico_store.storage import Storage
from tests.harness.names import COUNT
from tests.harness.scripted import Planned, Running, Script, Stop, Task, Tool, hang


def say(word: str) -> None:
    """Tell the test that a point is reached."""
    print(word, flush=True)


def stay(word: str) -> None:
    """Tell the test, and stay here until it kills the process."""
    say(word)
    while True:
        time.sleep(60)


def storage_at(url: str) -> Storage:
    """Open or create session ``a``."""
    store = open_store(url)
    known = {info.id for info in store.sessions()}
    return store.open("a") if "a" in known else store.create("a")


class Staying:
    """A storage that stays in the middle of a commit."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.before: Callable[[Batch], None] = lambda batch: None
        self.after: Callable[[Batch], None] = lambda batch: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def commit(self, batch: Batch) -> BatchRange:
        self.before(batch)
        done = self._storage.commit(batch)
        self.after(batch)
        return done


async def accept(url: str) -> None:
    storage: Any = Staying(storage_at(url))
    harness = await Harness.open(storage)
    root = await harness.root()
    storage.after = lambda batch: stay("durable")
    await root.accept(EntryDraft("user", data="hello"), request_id="lost")


async def _hold_in_flight(kind: Script, harness: Harness, count: int) -> asyncio.Future[Any]:
    root = await harness.root()
    await root.commit(lambda tx: [tx.task(kind, Planned()) for _ in range(count)])
    driving = asyncio.ensure_future(root.drive())
    while len((await harness.inspect()).inflight) < count:
        await asyncio.sleep(0)
    return driving


async def five(url: str) -> None:
    kind = Script(hang)
    harness = await Harness.open(storage_at(url), tasks=[kind])
    await _hold_in_flight(kind, harness, 5)
    stay("running")


async def shutdown(url: str) -> None:
    async def clean_up(task: Task, runtime: TaskRuntime) -> None:
        stay("cleaning")

    kind, tool = Script(hang, abort=clean_up), Tool(hang)
    harness = await Harness.open(storage_at(url), tasks=[kind, tool])
    root = await harness.root()

    def spawn(tx: Any) -> None:
        owner = tx.task(kind, Planned())
        child = tx.create_conversation(owner=owner)
        tx.task(tool, Planned(), conversation=child)

    await root.commit(spawn)
    for mode in ("nextRun", "followUp"):
        await root.accept(EntryDraft("user"), mode=mode)
    driving = asyncio.ensure_future(root.drive())
    while len((await harness.inspect()).inflight) < 2:
        await asyncio.sleep(0)
    tool._methods["abort"] = lambda task, runtime: Stop().wait_through()
    await harness.shutdown()
    await driving


async def mark(url: str, point: str) -> None:
    async def clean_up(task: Task, runtime: TaskRuntime) -> None:
        if point == "during-abort":
            stay(point)
        await runtime.commit(lambda tx: tx.settle(task.id, kinds["Aborted"]()))

    from_states = {state.__name__: state for state in Script.states}
    kinds: dict[str, Any] = from_states
    kind = Script(hang, abort=clean_up)
    storage: Any = Staying(storage_at(url))
    harness = await Harness.open(storage, tasks=[kind])
    driving = await _hold_in_flight(kind, harness, 1)
    (task,) = (await harness.inspect()).inflight
    if point == "before-mark":
        storage.before = lambda batch: stay(point)
    if point == "after-mark":
        storage.after = lambda batch: stay(point)
    await harness.abort_task(task.id)
    await driving
    stay(point)


async def crash(url: str) -> None:
    async def crashes(task: Task, runtime: TaskRuntime) -> None:
        if isinstance(task.state, Planned):
            await runtime.commit(lambda tx: tx.patch(task.id, Running()))
        stay("in flight")

    kind = Script(crashes, recover=crashes)
    storage = storage_at(url)
    new = not storage.last_seq
    harness = await Harness.open(storage, tasks=[kind])
    root = await harness.root()
    if new:
        await root.commit(lambda tx: tx.task(kind, Planned()))
    await root.drive()


async def hold(url: str) -> None:
    await Harness.open(storage_at(url))
    stay("held")


async def _work(url: str) -> Harness:
    kind = Script(hang)
    harness = await Harness.open(storage_at(url), tasks=[kind])
    await _hold_in_flight(kind, harness, 3)
    return harness


async def _end(url: str, how: str) -> None:
    harness = await _work(url)
    if how == "closes-twice":
        await harness.close()
        await harness.close()
    if how == "closes-during-commit":
        setting = asyncio.ensure_future(harness.value(COUNT).set(1))
        await asyncio.sleep(0)
        await harness.close()
        await setting
    if how == "interrupted":
        # As if Ctrl-C came while everything waits.
        raise KeyboardInterrupt


def exit(url: str, how: str) -> None:
    if how == "loop-closed":
        loop = asyncio.new_event_loop()
        harness = loop.run_until_complete(_work(url))
        running = asyncio.all_tasks(loop)
        for task in running:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*running, return_exceptions=True))
        loop.close()
        assert harness is not None
    else:
        try:
            asyncio.run(_end(url, how))
        except KeyboardInterrupt:
            pass
    say("done")


PARTS: dict[str, Callable[..., Awaitable[None]]] = {
    "accept": accept,
    "five": five,
    "shutdown": shutdown,
    "mark": mark,
    "crash": crash,
    "hold": hold,
}

if __name__ == "__main__":
    _, name, *rest = sys.argv
    if name == "exit":
        exit(*rest)
    else:
        asyncio.run(PARTS[name](*rest))  # type: ignore[arg-type]
