"""Rare situations that a run must have met; a generator that misses one proves too little."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pico_conformance.model_state import FOREVER, State, is_rewindable, spot
from pico_store.address import ConversationAddress, Seq
from pico_store.batch import (
    DeleteConversation,
    ListAppend,
    ListClear,
    ListRemove,
    MainWrite,
    SettleTask,
    ValueDelete,
    ValueSet,
)
from pico_store.records import Conversation, Entry, Task

SITUATIONS: Final = (
    "a fork of a fork of a fork of a fork",
    "a fork at an inherited entry",
    "a fork at an entry of its own batch",
    "a fork exactly at a head",
    "a clear before a cut",
    "a clear after a cut",
    "a deleted conversation with a live fork",
    "a deleted conversation that nothing inherits",
    "a deleted conversation whose reach shrinks",
    "a deletion of owned conversations, two levels down",
    "a fork of what is deleted later, through a deleted one",
    "a conversation created and deleted in one batch",
    "a head on a head",
    "a head on an inherited entry",
    "an edit of an inherited entry",
    "an inherited element removed in a fork",
    "an inherited list cleared in a fork",
    "an element appended and removed in one batch",
    "a tombstone hides an inherited value",
    "an own value hides an inherited one",
    "a sticky write hides an inherited key",
    "an ancestor's sticky address under a rewindable one",
    "a sticky value deleted and set again",
    "an identical value set again",
    "a task created and settled in one batch",
    "a task that owns a conversation is settled",
    "scratch retired by a settlement",
    "scratch cleared and then retired",
    "a refusal, then a batch with the same numbers",
    "a reopening with live scratch",
)
"""By name; `situations` says when each is met."""


def situations(before: State, after: State, writes: tuple[MainWrite, ...]) -> Iterator[str]:
    """Yield the names of the situations that an accepted batch met."""
    seq = before.last_seq
    for write in writes:
        seq += 1
        if isinstance(write, Conversation):
            yield from _forked(before, after, write)
        elif isinstance(write, DeleteConversation):
            yield from _deleted(before, after, write, seq)
        elif isinstance(write, Entry):
            yield from _entry(after, write)
        elif isinstance(write, SettleTask):
            yield from _settled(before, after, write)
        elif isinstance(write, ListRemove | ListClear | ListAppend):
            yield from _list(before, after, write, seq)
        elif isinstance(write, ValueSet | ValueDelete):
            yield from _value(after, write, seq)


def _forked(before: State, after: State, write: Conversation) -> Iterator[str]:
    if write.parent is None:
        return
    source, at = write.parent.conversation_id, write.parent.at
    if len(list(after.chain(write.id))) >= 5:
        yield "a fork of a fork of a fork of a fork"
    entry = after.entries[at]
    if entry.conversation_id != source:
        yield "a fork at an inherited entry"
    if at > before.last_seq:
        yield "a fork at an entry of its own batch"
    if entry.head is not None:
        yield "a fork exactly at a head"
    for where, changes in after.changes.items():
        if where.holder == source and where.scope == "conversation":
            for change in changes:
                if isinstance(change.write, ListClear) and is_rewindable(change):
                    yield "a clear before a cut" if change.seq < at else "a clear after a cut"


def _deleted(before: State, after: State, write: DeleteConversation, seq: int) -> Iterator[str]:
    taken = [id for id, when in after.deleted.items() if when == seq]
    if after.inherited_through(write.id):
        yield "a deleted conversation with a live fork"
    else:
        yield "a deleted conversation that nothing inherits"
    if write.id > before.last_seq:
        yield "a conversation created and deleted in one batch"
    if len(taken) > 2:
        owners = {id: after.conversations[id].owner for id in taken}
        homes = {id: after.tasks[owner].conversation_id for id, owner in owners.items() if owner}
        if any(homes.get(homes.get(id, Seq(0)), Seq(0)) in taken for id in taken):
            yield "a deletion of owned conversations, two levels down"
    for id in before.deleted:
        if after.inherited_through(id) < before.inherited_through(id):
            yield "a deleted conversation whose reach shrinks"
    for id in after.deleted:
        for other in after.live_conversations():
            through = [source for source, _ in after.chain(other.id)]
            if id in through and sum(source in after.deleted for source in through) >= 2:
                yield "a fork of what is deleted later, through a deleted one"


def _entry(after: State, write: Entry) -> Iterator[str]:
    if write.head is not None:
        target = after.entries[write.head]
        if target.head is not None and target.id != write.id:
            yield "a head on a head"
        if target.conversation_id != write.conversation_id:
            yield "a head on an inherited entry"
    for edit in write.edits or ():
        if after.entries[edit.target].conversation_id != write.conversation_id:
            yield "an edit of an inherited entry"


def _settled(before: State, after: State, write: SettleTask) -> Iterator[str]:
    if write.id > before.last_seq:
        yield "a task created and settled in one batch"
    task: Task | None = after.task(write.id)
    if task is not None and task.owns:
        yield "a task that owns a conversation is settled"
    for where, changes in before.changes.items():
        if where.scope == "scratch" and where.holder == write.id:
            yield "scratch retired by a settlement"
            if any(isinstance(change.write, ListClear) for change in changes):
                yield "scratch cleared and then retired"


def _list(
    before: State, after: State, write: ListAppend | ListRemove | ListClear, seq: int
) -> Iterator[str]:
    if isinstance(write, ListRemove) and write.element > before.last_seq:
        yield "an element appended and removed in one batch"
    address = write.address
    if not isinstance(address, ConversationAddress) or not address.rewind:
        return
    if isinstance(write, ListAppend):
        return
    inherited = [
        change
        for source, through in after.chain(address.conversation, seq)
        if source != address.conversation
        for change in after.changes.get(spot(address, "list")._replace(holder=source), ())
        if isinstance(change.write, ListAppend) and change.seq <= through and is_rewindable(change)
    ]
    if isinstance(write, ListRemove):
        if any(change.seq == write.element for change in inherited):
            yield "an inherited element removed in a fork"
    elif inherited:
        yield "an inherited list cleared in a fork"


def _value(after: State, write: ValueSet | ValueDelete, seq: int) -> Iterator[str]:
    address = write.address
    where = spot(address, "value")
    earlier = [change for change in after.changes[where] if change.seq < seq]
    if isinstance(write, ValueSet) and earlier:
        last = earlier[-1].write
        if isinstance(last, ValueSet) and last.value == write.value:
            yield "an identical value set again"
    if not isinstance(address, ConversationAddress):
        return
    if not address.rewind and earlier and isinstance(earlier[-1].write, ValueDelete):
        yield "a sticky value deleted and set again"
    parent = after.conversations[address.conversation].parent
    if parent is None:
        return
    above = where._replace(holder=parent.conversation_id)
    hidden = after.value(above, rewind=True, at=parent.at) is not None
    if hidden and not address.rewind:
        yield "a sticky write hides an inherited key"
    elif hidden:
        deleted = isinstance(write, ValueDelete)
        yield (
            "a tombstone hides an inherited value"
            if deleted
            else "an own value hides an inherited one"
        )
    for source, _ in after.chain(parent.conversation_id, FOREVER):
        if address.rewind and after.policy(where._replace(holder=source)) is False:
            yield "an ancestor's sticky address under a rewindable one"
