"""What the harness costs over storage: CPU time a task, flat however much went before."""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Final

from pico_bench.case import CaseError, Numbers, Setting
from pico_bench.finished import SESSION, finished_url, make_finished
from pico_bench.harness_kinds import BRIEF, ENDLESS, Planned
from pico_harness.conversation import ConversationHandle
from pico_harness.harness import ROOT, Harness
from pico_store.address import Seq
from pico_store.backends import open_store
from pico_store.batch import MainBatch, PatchTask, SettleTask
from pico_store.records import Conversation, JsonObject, Task
from pico_store.storage import Storage

_CHUNK: Final = 100
"""Tasks between two looks at the clock; both sides take turns, and so meet the same noise."""
_LAST: Final = 1_000
"""The tasks at either end that are compared."""
_WARM_UP: Final = 200


def alone(setting: Setting) -> Numbers:
    """Measure tasks that a host creates one after another, each when the one before ended."""
    return asyncio.run(_over_storage(setting, _one_by_one))


def together(setting: Setting) -> Numbers:
    """Measure tasks that a host creates one after another without waiting, and then drives."""
    return asyncio.run(_over_storage(setting, _at_once))


def flat(setting: Setting) -> Numbers:
    """Measure the last tasks of many beside the first ones of a session that has none yet."""
    return asyncio.run(_growth(setting, _nothing))


def flat_background(setting: Setting) -> Numbers:
    """Measure the same with many live background tasks beside them."""
    return asyncio.run(_growth(setting, _background))


def flat_children(setting: Setting) -> Numbers:
    """Measure the same with many finished child conversations in the session."""
    return asyncio.run(_growth(setting, _children))


# --- Over storage ---


async def _over_storage(
    setting: Setting, work: Callable[[ConversationHandle, int], Awaitable[None]]
) -> Numbers:
    store = open_store("memory:")
    harness = await Harness.open(store.create("harness"), tasks=(BRIEF,))
    handle = await harness.root()
    raw = store.create("raw")
    raw.commit(MainBatch((Conversation(ROOT),)))
    await work(handle, _WARM_UP)
    _commit_all(raw, _batches(raw, _WARM_UP))
    _settle_memory()
    over: list[float] = []
    below: list[float] = []
    for _ in range(max(1, setting.turns // _CHUNK)):
        batches = _batches(raw, _CHUNK)
        start = time.process_time()
        _commit_all(raw, batches)
        middle = time.process_time()
        await work(handle, _CHUNK)
        end = time.process_time()
        below.append((middle - start) / _CHUNK * 1e6)
        over.append((end - middle) / _CHUNK * 1e6 - below[-1])
    await harness.close()
    store.close()
    return {"over_us": statistics.median(over), "storage_us": statistics.median(below)}


async def _one_by_one(handle: ConversationHandle, count: int) -> None:
    for number in range(count):
        await handle.commit(lambda tx, number=number: tx.task(BRIEF, Planned(number)))  # type: ignore[misc]
        await handle.drive()


async def _at_once(handle: ConversationHandle, count: int) -> None:
    for number in range(count):
        await handle.commit(lambda tx, number=number: tx.task(BRIEF, Planned(number)))  # type: ignore[misc]
    await handle.drive()


def _batches(storage: Storage, count: int) -> list[MainBatch]:
    """Return what the harness commits for so many tasks."""
    found: list[MainBatch] = []
    for number in range(count):
        id = Seq(storage.last_seq + 1 + 3 * number)
        planned, running, done = (
            _state(status, number) for status in ("planned", "running", "done")
        )
        found.append(MainBatch((Task(id, ROOT, BRIEF.name, "planned", "start", planned),)))
        found.append(MainBatch((PatchTask(id, "running", "inflight", running),)))
        found.append(MainBatch((SettleTask(id, "done", done),)))
    return found


def _state(status: str, number: int) -> JsonObject:
    return {"status": status, "number": number}


def _commit_all(storage: Storage, batches: list[MainBatch]) -> None:
    for batch in batches:
        storage.commit(batch)


def _settle_memory() -> None:
    # What stands there by now is not the measured code's to be collected again and again.
    gc.collect()
    gc.freeze()


# --- Flat ---


async def _growth(
    setting: Setting, prepare: Callable[[Setting, Storage], Awaitable[Harness]]
) -> Numbers:
    store = open_store("memory:")
    grown = await prepare(setting, store.create("grown"))
    fresh = await _nothing(setting, store.create("fresh"))
    old, new = await grown.root(), await fresh.root()
    last = min(_LAST, max(_CHUNK, setting.tasks // 10))
    await _one_by_one(old, max(0, setting.tasks - last))
    await _one_by_one(new, _WARM_UP)
    _settle_memory()
    ratios: list[float] = []
    for turn in range(last // _CHUNK * 2):
        # Half a chunk each, each side as often first as second.
        order = (old, new) if turn % 2 else (new, old)
        spent = {handle: await _spent(handle, _CHUNK // 2) for handle in order}
        ratios.append(spent[old] / spent[new])
    await grown.close()
    await fresh.close()
    store.close()
    return {"ratio": statistics.median(ratios)}


async def _spent(handle: ConversationHandle, count: int) -> float:
    start = time.process_time()
    await _one_by_one(handle, count)
    return time.process_time() - start


async def _nothing(_: Setting, storage: Storage) -> Harness:
    return await Harness.open(storage, tasks=(BRIEF, ENDLESS))


async def _background(setting: Setting, storage: Storage) -> Harness:
    harness = await _nothing(setting, storage)
    root = await harness.root()
    for number in range(setting.tasks // 10):
        await root.commit(
            lambda tx, number=number: tx.task(ENDLESS, Planned(number), background=True)  # type: ignore[misc]
        )
    await root.drive()
    # Once around the loop, so that all of them have begun.
    while (await harness.inspect()).start:
        await asyncio.sleep(0)
    return harness


async def _children(setting: Setting, storage: Storage) -> Harness:
    make_finished(storage, setting.tasks)
    return await _nothing(setting, storage)


# --- Opening ---


def make(setting: Setting) -> Numbers:
    """Make a SQLite session of many finished child conversations, unless it is kept already."""
    finished_url(setting.kept, setting.tasks)
    return {}


def opening(setting: Setting) -> Numbers:
    """Count the rows that opening and driving such a session decodes, with two live tasks in it."""
    return asyncio.run(_opening(finished_url(setting.kept, setting.tasks)))


async def _opening(url: str) -> Numbers:
    with closing(open_store(url, create=False)) as store:
        await _plant_two(store.open(SESSION))
        storage = store.open(SESSION)
        harness = await Harness.open(storage, tasks=(BRIEF,))
        opened = storage.counters.rows_decoded
        live = len((await harness.inspect()).start)
        await harness.drive()
        driven = storage.counters.rows_decoded
        await harness.close()
    if live != 2:
        raise CaseError(f"{live} live tasks were found, not 2")
    return {"opened": opened, "rows": driven}


async def _plant_two(storage: Storage) -> None:
    """Leave a live task in the root, and one in a child conversation that it owns."""
    harness = await Harness.open(storage, tasks=(BRIEF,))
    root = await harness.root()
    owner = await root.commit(lambda tx: tx.task(BRIEF, Planned(1)))
    child = await root.commit(lambda tx: tx.create_conversation(owner=owner))
    await harness.commit(lambda tx: tx.task(BRIEF, Planned(2), conversation=child))
    await harness.close()
