"""What a newcomer gets wrong is refused when it is written, not when it is read or driven."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pico_harness import (
    ArgumentError,
    EntryKind,
    Harness,
    KindError,
    Options,
    StoredTypeError,
    TaskKind,
    TaskOf,
    TaskParkedError,
    TaskRuntime,
    TaskState,
    conversation_value,
    session_value,
)
from pico_harness.live import LiveIndex, LiveTask
from pico_store.address import Seq
from pico_store.backends import open_store
from pico_store.errors import SessionOwnedError
from tests.harness.worlds import World, on_loop


class Asked(TaskState, frozen=True):
    url: str = ""


class Fetched(TaskState, frozen=True):
    pass


class Fetch(TaskKind[Asked | Fetched]):
    name = "fetch"
    states = {Asked: "start", Fetched: "terminal"}  # noqa: RUF012 - a declaration

    async def execute(self, task: TaskOf[Asked | Fetched], runtime: TaskRuntime) -> None:
        if task.state == Asked("cancelled"):
            inner = asyncio.ensure_future(asyncio.sleep(9))
            inner.cancel()
            await inner
        if task.state == Asked("long"):
            raise ValueError("x" * 100_000_000)
        await runtime.commit(lambda tx: tx.settle(task.id, Fetched()))

    recover = execute
    abort = execute


class Unknown(Fetch):
    name = "unknown"


WRONG: Any = 3


@on_loop
async def test_a_storage_has_one_harness(tmp_path: Path) -> None:
    store = open_store(f"sqlite:{tmp_path}/a.db")
    storage = store.create("a")
    first = await Harness.open(storage)

    with pytest.raises(SessionOwnedError, match="a harness on this storage already"):
        await Harness.open(storage)

    assert await first.drive() == "idle"
    await first.close()
    await (await Harness.open(store.open("a"))).close()
    store.close()


@on_loop
async def test_a_storage_that_could_not_be_opened_stays_usable() -> None:
    store = open_store("memory:")
    storage = store.create("a")
    with pytest.raises(StoredTypeError):
        await Harness.open(storage, root_values={conversation_value("n", int, rewind=True): "no"})

    harness = await Harness.open(storage)

    assert (await harness.inspect()).last_seq == 1
    await harness.close()
    store.close()


@on_loop
async def test_what_could_not_be_read_again_is_not_written(world: World) -> None:
    kind = Fetch()
    harness = await world.open(kind)
    root = await harness.root()
    before = (await harness.inspect()).last_seq

    for plan in (
        lambda tx: tx.task(kind, Asked(WRONG)),
        lambda tx: tx.entry(EntryKind("e", int), "no"),
        lambda tx: tx.value(session_value("n", int)).set("no"),
    ):
        with pytest.raises(StoredTypeError, match=r"[Ee]xpected `"):
            await root.commit(plan)

    assert (await harness.inspect()).last_seq == before


@on_loop
async def test_an_input_that_nobody_could_place_is_not_accepted(world: World) -> None:
    harness = await world.open()
    root = await harness.root()
    before = (await harness.inspect()).last_seq
    wrong: list[Any] = ["hi", None, 5]

    for draft in wrong:
        with pytest.raises(ArgumentError, match="an EntryDraft"):
            await root.accept(draft)

    assert (await harness.inspect()).last_seq == before


@pytest.mark.parametrize("url", ["cancelled", "long"])
@on_loop
async def test_only_the_task_ends_whatever_it_raised(url: str) -> None:
    kind = Fetch()
    options = Options(on_task_fault="task")
    storage = open_store("memory:").create("a")
    harness = await Harness.open(storage, tasks=[kind], options=options)
    root = await harness.root()
    id = await root.commit(lambda tx: tx.task(kind, Asked(url)))

    assert await root.drive() == "idle"

    task = await harness.get_task(id)
    assert task is not None
    assert task.status == "faulted"
    assert len(str(task.state["error"])) < 10_000
    await harness.close()


@on_loop
async def test_a_class_is_no_kind() -> None:
    wrong: Any = Fetch

    with pytest.raises(KindError, match=r"allowed: an instance, Fetch\(\)"):
        await Harness.open(open_store("memory:").create("a"), tasks=[wrong])


@on_loop
async def test_parked_work_holds_up_only_what_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is looked at after a settlement is the parked task and what waits for it, no more."""
    looked: list[Seq] = []
    look = LiveIndex.__getitem__

    def counted(index: LiveIndex, id: Seq) -> LiveTask:
        looked.append(id)
        return look(index, id)

    monkeypatch.setattr(LiveIndex, "__getitem__", counted)
    store = open_store("memory:")
    kind, unknown = Fetch(), Unknown()
    harness = await Harness.open(store.create("a"), tasks=[kind, unknown])
    root = await harness.root()
    parked = await root.commit(lambda tx: tx.task(unknown, Asked(), background=True))
    await harness.close()
    harness = await Harness.open(store.open("a"), tasks=[kind])
    root = await harness.root()
    ids: list[Seq] = []
    for _ in range(300):
        ids.append(await root.commit(lambda tx: tx.task(kind, Asked(), after=ids[-1:])))

    looked.clear()

    assert await root.drive() == "idle"

    # A few for each of the 300; looking at all of them after each settlement would be 45,000.
    assert len(looked) < 10 * len(ids)
    stuck = await root.commit(lambda tx: tx.task(kind, Asked(), after=[parked]))
    with pytest.raises(TaskParkedError, match=str(stuck)):
        await root.drive()
    await harness.close()
