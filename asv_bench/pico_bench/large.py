"""A session of many entries, made once and kept in a folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Final

from pico_bench.text import cut, prose
from pico_bench.turns import ROOT, Turns, opening
from pico_store.address import Seq
from pico_store.backends import open_store
from pico_store.batch import MainBatch
from pico_store.records import BatchRange, Conversation, Entry
from pico_store.snapshot import SnapshotHeader, SnapshotItem
from pico_store.storage import Storage

SESSION: Final = "large"
_ENTRY_CHARACTERS: Final = 900
_ENTRIES_A_BATCH: Final = 4
_ENTRIES_A_HEAD: Final = 400
_LAST_TURNS: Final = 25
_FORM: Final = 1
"""Changes with what is made here, so that a kept session of another form is not taken for it."""


def session_url(folder: str, entries: int) -> str:
    """Return the URL of a kept session."""
    return f"sqlite:{_path(folder, entries)}"


def make_session(folder: str, entries: int) -> None:
    """Make a session of so many entries of about 1 KB, unless the folder has it.

    The entries come in batches of four, every 400th with a head; at the end stand some ordinary
    turns, so that the newest part looks like that of any session.
    """
    path = _path(folder, entries)
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    store = open_store(f"sqlite:{unfinished}")
    store.load(SESSION, items(entries))
    storage = store.open(SESSION)
    _commit_turns(storage, entries)
    # Closing empties the log into the file, so that the file by itself is the session.
    store.close()
    os.replace(unfinished, path)


def make_jsonl_session(folder: str, entries: int) -> str:
    """Make the same entries, each four a commit, as a JSONL session; return its store's URL."""
    path = _path(folder, entries).with_suffix(".jsonl")
    if not path.exists():
        unfinished = path.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        store = open_store(f"jsonl:{unfinished}?durability=process")
        storage = store.create(SESSION)
        storage.commit(opening())
        found = (item for item in items(entries) if isinstance(item, Entry))
        while batch := tuple(islice(found, _ENTRIES_A_BATCH)):
            storage.commit(MainBatch(batch))
        _commit_turns(storage, entries)
        store.close()
        os.replace(unfinished, path)
    return f"jsonl:{path}?durability=process"


def _commit_turns(storage: Storage, entries: int) -> None:
    turns = Turns(last=entries + 1)
    for _ in range(_LAST_TURNS):
        for batch in turns.turn():
            storage.commit(batch)


def _path(folder: str, entries: int) -> Path:
    return Path(folder) / f"entries-{entries}-form-{_FORM}.db"


def items(entries: int) -> Iterator[SnapshotItem]:
    """Yield the snapshot of a session of so many entries of about 1 KB, four to a batch."""
    last = Seq(entries + 1)
    yield SnapshotHeader(last, ("assistant", "user"))
    yield Conversation(id=ROOT)
    random = Random(entries)
    for number in range(entries):
        id = Seq(number + 2)
        role = "assistant" if number % 2 else "user"
        text = cut(random, prose(), _ENTRY_CHARACTERS)
        yield Entry(
            id=id,
            conversation_id=ROOT,
            kind=role,
            model=[{"role": role, "content": [{"type": "text", "text": text}]}],
            head=id if number % _ENTRIES_A_HEAD == 0 else None,
        )
    yield BatchRange(ROOT, ROOT)
    for first in range(ROOT + 1, last + 1, _ENTRIES_A_BATCH):
        yield BatchRange(Seq(first), Seq(min(first + _ENTRIES_A_BATCH - 1, last)))


def make_lmdb_session(folder: str, entries: int) -> str:
    """Make the same session in an LMDB store, unless the folder has it; return the store's URL."""
    path = _path(folder, entries).with_suffix(".lmdb")
    if not path.exists():
        unfinished = path.with_suffix(".unfinished-lmdb")
        shutil.rmtree(unfinished, ignore_errors=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        store = open_store(f"lmdb:{unfinished}?durability=process")
        store.load(SESSION, items(entries))
        storage = store.open(SESSION)
        _commit_turns(storage, entries)
        store.close()
        os.replace(unfinished, path)
    return f"lmdb:{path}?durability=process"
