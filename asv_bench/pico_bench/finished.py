"""A session of many child conversations that are finished, made once and kept in a folder."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import Final

from pico_bench.harness_kinds import BRIEF
from pico_store.address import Seq
from pico_store.backends import open_store
from pico_store.batch import MainBatch, MainWrite, SettleTask
from pico_store.records import Conversation, JsonObject, Task
from pico_store.storage import Storage

SESSION: Final = "finished"
ROOT: Final = Seq(1)
_CHILDREN_A_BATCH: Final = 1_000
_FORM: Final = 1
"""Changes with what is made here, so that a kept session of another form is not taken for it."""


def finished_url(folder: str, children: int) -> str:
    """Return the URL of a kept session; made first if the folder does not have it."""
    path = Path(folder, f"finished-{_FORM}-{children}.db")
    if not path.exists():
        # Under another name until it is whole.
        unfinished = path.with_suffix(".new")
        unfinished.unlink(missing_ok=True)
        with closing(open_store(f"sqlite:{unfinished}?durability=process")) as store:
            storage = store.create(SESSION)
            make_finished(storage, children)
            storage.close()
        os.replace(unfinished, path)
    return f"sqlite:{path}"


def make_finished(storage: Storage, children: int) -> None:
    """Fill an empty session: a root, and child conversations whose tasks and owners are settled.

    Each child has an owner of its own in the root and one task.
    """
    storage.commit(MainBatch((Conversation(ROOT),)))
    made = 0
    while made < children:
        count = min(_CHILDREN_A_BATCH, children - made)
        writes: list[MainWrite] = []
        for number in range(made, made + count):
            writes += _child(Seq(storage.last_seq + 1 + len(writes)), number)
        storage.commit(MainBatch(tuple(writes)))
        made += count


def _child(first: Seq, number: int) -> list[MainWrite]:
    child, task = Seq(first + 1), Seq(first + 2)
    planned: JsonObject = {"status": "planned", "number": number}
    done: JsonObject = {"status": "done", "number": number}
    return [
        Task(first, ROOT, BRIEF.name, "planned", "start", planned),
        Conversation(child, owner=first),
        Task(task, child, BRIEF.name, "planned", "start", planned),
        SettleTask(task, "done", done),
        SettleTask(first, "done", done),
    ]
