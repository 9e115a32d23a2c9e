"""Entries and forks, written one by one into a session that holds nothing else."""

from __future__ import annotations

from itertools import count
from typing import Literal

from pico_store.address import Seq
from pico_store.batch import MainBatch
from pico_store.records import ContextEdit, Conversation, Entry, ForkPoint, JsonObject
from pico_store.storage import Storage, Store

ROOT = Seq(1)
NAMES = count()
"""Numbers for sessions, so that each is new."""


def rooted(store: Store) -> Storage:
    """Return a new session of a store, with its root."""
    storage = store.create(f"s{next(NAMES)}")
    storage.commit(MainBatch((Conversation(id=ROOT),)))
    return storage


def said(text: object) -> JsonObject:
    return {"role": "user", "content": [{"type": "text", "text": str(text)}]}


def write(
    storage: Storage,
    conversation: Seq = ROOT,
    *edits: ContextEdit,
    head: Seq | Literal["self"] | None = None,
) -> Seq:
    """Commit an entry that says its own number."""
    number = Seq(storage.last_seq + 1)
    entry = Entry(
        id=number,
        conversation_id=conversation,
        kind="k",
        data={"n": [number]},
        model=[said(number)],
        head=number if head == "self" else head,
        edits=edits or None,
    )
    storage.commit(MainBatch((entry,)))
    return number


def fork(storage: Storage, conversation: Seq, at: Seq) -> Seq:
    number = Seq(storage.last_seq + 1)
    storage.commit(MainBatch((Conversation(id=number, parent=ForkPoint(conversation, at)),)))
    return number
