"""What opening a session reads, counted: nested owners are not read one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pico_harness import Harness, Tx
from pico_store.address import Seq
from pico_store.batch import MainBatch, MainWrite, SettleTask
from pico_store.records import Conversation, Task
from pico_store.storage import Storage
from tests.harness.scripted import Planned, Script
from tests.harness.worlds import World, make_world, on_loop

LEVELS = 1_000
BACKENDS = ("memory", "sqlite", "lmdb", "jsonl")


class Counting:
    """A storage that counts its reads by method."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.reads: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._storage, name)
        if not name.startswith(("get_", "scan_", "read_list", "newest_head")):
            return found

        def counted(*arguments: object, **named: object) -> object:
            self.reads[name] += 1
            return found(*arguments, **named)

        return counted


async def reads_of_open(world: World, kind: Script) -> tuple[Harness, Counter[str], int]:
    """Open the session; return what was read, by method, and how many rows were decoded."""
    counting: list[Counting] = []

    def wrap(storage: Storage) -> Any:
        counting.append(Counting(storage))
        return counting[0]

    harness = await world.open(kind, wrap=wrap)
    rows = world.storages[-1].counters.rows_decoded
    return harness, Counter(counting[0].reads), rows


def nested(kind: Script) -> Callable[[Tx], Seq]:
    """Return what makes tasks that own a conversation each, with the next task in it."""

    def plan(tx: Tx) -> Seq:
        above = Seq(1)
        for _ in range(LEVELS):
            owner = tx.task(kind, Planned(), conversation=above)
            above = tx.create_conversation(owner=owner)
        return tx.task(kind, Planned(), conversation=above)

    return plan


@pytest.mark.parametrize("backend", BACKENDS)
@on_loop
async def test_a_chain_of_live_owners_is_one_read(tmp_path: Path, backend: str) -> None:
    with closing(make_world(backend, tmp_path).store) as store:
        world = World(store)
        kind = Script()
        harness = await world.open(kind)
        await harness.commit(nested(kind))
        await harness.close()

        harness, reads, rows = await reads_of_open(world, kind)

        assert reads == {"scan_tasks": 1, "get_conversations": 1}
        assert rows <= LEVELS + 2
        await (await harness.root()).drive()
        assert (await harness.inspect()).start == ()
        await harness.close()


@pytest.mark.parametrize("backend", BACKENDS)
@on_loop
async def test_many_owners_that_ended_are_read_together(tmp_path: Path, backend: str) -> None:
    """Live tasks in a thousand conversations whose owners are terminal: one level is two reads."""
    with closing(make_world(backend, tmp_path).store) as store:
        world = World(store)
        storage = store.create("a")
        storage.commit(MainBatch((Conversation(Seq(1)),)))
        for step in range(LEVELS):
            _add_child(storage, Seq(2 + step * 4))
        storage.close()
        kind = Script()

        harness, reads, rows = await reads_of_open(world, kind)

        # The root is read too, once it is known that it is above.
        assert reads == {"scan_tasks": 1, "get_conversations": 2, "get_tasks": 1}
        assert rows <= 3 * LEVELS + 1
        assert len(harness._driver.scheduler.ancestry) == LEVELS + 1
        await harness.drive()
        assert len(kind.calls) == LEVELS
        await harness.close()


def _add_child(storage: Storage, first: Seq) -> None:
    owner = _task(first, Seq(1))
    child = Conversation(Seq(first + 1), owner=first)
    below = _task(Seq(first + 2), child.id)
    settled = SettleTask(first, "done", {"status": "done"})
    storage.commit(MainBatch((owner, child, below, settled)))


def _task(id: Seq, conversation: Seq) -> Task:
    return Task(
        id=id,
        conversation_id=conversation,
        kind="script",
        status="planned",
        role="start",
        state={"status": "planned"},
    )


@on_loop
async def test_links_are_what_they_are_when_read_one_by_one(memory: World) -> None:
    """Owners that are live and owners that ended, in turns, in two trees."""
    storage = memory.store.create("a")
    storage.commit(MainBatch((Conversation(Seq(1)), Conversation(Seq(2)))))
    ends = [
        _chain(storage, Seq(1), "live ended live ended ended"),
        _chain(storage, Seq(2), "ended"),
    ]
    storage.close()

    harness = await memory.open(Script())

    ancestry, admission = harness._driver.scheduler.ancestry, harness._driver.admission
    for id, depth in zip(ends, (6, 2), strict=True):
        lineage = list(ancestry.lineage(id))
        assert len(lineage) == depth
        for below, above in zip(lineage, [*lineage[1:], None], strict=True):
            assert admission.above(below) == above
    assert len(ancestry) == 8


def _chain(storage: Storage, above: Seq, owners: str) -> Seq:
    """Nest conversations whose owners are live or ended, with a live task in the last one."""
    for owner in owners.split():
        first = Seq(storage.last_seq + 1)
        writes: list[MainWrite] = [_task(first, above), Conversation(Seq(first + 1), owner=first)]
        if owner == "ended":
            writes.append(SettleTask(first, "done", {"status": "done"}))
        storage.commit(MainBatch(tuple(writes)))
        above = Seq(first + 1)
    storage.commit(MainBatch((_task(Seq(storage.last_seq + 1), above),)))
    return above
