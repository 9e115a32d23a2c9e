"""A store grows with what is said in it, not with how long it has been said."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pico_store.address import ConversationAddress, ScratchAddress, Seq
from pico_store.backends import open_store
from pico_store.batch import ListAppend, MainBatch, PatchTask, ScratchBatch, SettleTask, ValueSet
from pico_store.records import Conversation, Entry, Task
from pico_store.storage import Storage

ROOT = Seq(1)
LOG = ConversationAddress(ROOT, "log", rewind=True)
NOTE = ConversationAddress(ROOT, "note")


def _turn(storage: Storage) -> None:
    """A question, a streamed answer with a tool's output, and state that is as long each time."""
    task = Seq(storage.last_seq + 2)
    storage.commit(
        MainBatch(
            (
                Entry(
                    Seq(task - 1), ROOT, "user", model=[{"role": "user", "content": "why " * 50}]
                ),
                Task(task, ROOT, "answer", "asked", "start", {"status": "asked"}),
            )
        )
    )
    answering = PatchTask(task, "answering", "inflight", {"status": "answering"})
    storage.commit(MainBatch((answering,)))
    for _ in range(10):
        token = ListAppend(ScratchAddress(task, "partial"), "because " * 4)
        storage.commit(ScratchBatch(task, (token,)))
    storage.commit(ScratchBatch(task, (ValueSet(ScratchAddress(task, "output"), "o" * 2_000),)))
    answer = Seq(storage.last_seq + 4)
    storage.commit(
        MainBatch(
            (
                ListAppend(LOG, "l" * 100),
                ValueSet(NOTE, "n" * 500),
                SettleTask(task, "done", {"status": "done"}),
                Entry(
                    answer, ROOT, "assistant", model=[{"role": "assistant", "content": "b" * 600}]
                ),
            )
        )
    )


def _bytes_after(url: str, folder: Path, turns: int) -> int:
    store = open_store(url)
    storage = store.create("a")
    storage.commit(MainBatch((Conversation(ROOT),)))
    for _ in range(turns):
        _turn(storage)
    storage.close()
    store.close()
    return sum(os.path.getsize(path) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("scheme", ["jsonl", "lmdb", "sqlite"])
def test_twice_the_turns_take_twice_the_room(scheme: str, tmp_path: Path) -> None:
    sizes = []
    for turns in (150, 300):
        folder = tmp_path / str(turns)
        folder.mkdir()
        sizes.append(_bytes_after(f"{scheme}:{folder}/a?durability=process", folder, turns))

    assert sizes[1] <= 2.2 * sizes[0], f"{sizes[0]:,} bytes, then {sizes[1]:,}"
