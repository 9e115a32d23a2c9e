"""Carrying a checked batch out on a session's state, whole or not at all.

Each kind of write notes how it is taken back before it changes anything, so that an interruption
at any point, also between two lines, leaves the old state or the new one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from pico_memory.rows import Body, ElementRow, TaskRow, VersionRow
from pico_memory.scope import ListName, ListState, RewindList, Scope, Scratch, ValueSpace
from pico_memory.state import SessionState, insert_sorted, remove_all_sorted, remove_sorted
from pico_memory.transcript import Transcript
from pico_store.address import Address, ConversationAddress, Seq
from pico_store.batch import (
    DeleteConversation,
    ListAppend,
    ListClear,
    ListRemove,
    PatchTask,
    SettleTask,
    ValueDelete,
    ValueSet,
)
from pico_store.check import CheckedBatch
from pico_store.records import BatchRange, Conversation, Entry, Task
from pico_store.view import TaskFacts

Frames: TypeAlias = tuple[Callable[..., None], SessionState, list[ElementRow], list[BatchRange]]
"""A list in a task's scratch and the batches of that scratch, as what takes an append back."""


def apply(
    state: SessionState, checked: CheckedBatch, bodies: Sequence[Body | None] | None = None
) -> BatchRange:
    """Carry out a batch that `check_batch` accepted for this very state.

    Args:
        state: Is changed.
        checked: The batch.
        bodies: What the rows get as payloads, if not those that the checks packed.

    Guarantees: Whatever is raised meanwhile, `SessionState.recover`, which every later use calls
    first, leaves the state as it was or as it is after the whole batch.
    """
    task, writes, seq = checked.task, checked.writes, checked.first
    if task is not None and len(writes) == 1 and type(writes[0]) is ListAppend:
        body = checked.bodies[0]
        assert body is not None
        return append_frame(frames(state, task, writes[0].address), task, seq, body)
    batch = BatchRange(seq, checked.last, task)
    journal = state.journal
    state.applying = checked.last
    try:
        if task is None:
            batches = state.batches
        else:
            scratch = state.scratch.get(task)
            if scratch is None:
                # Empty scratch needs no way back.
                scratch = state.scratch[task] = Scratch()
            batches = scratch.batches
        journal.append((_cut, batches, len(batches)))
        batches.append(batch)
        # Calling Seq, or zip with a keyword, costs more than a whole step of this loop.
        for write, payload in zip(writes, bodies or checked.bodies):  # noqa: B905
            _APPLY[type(write)](state, write, seq, payload)
            seq += 1  # type: ignore[assignment]
        if checked.deletions:
            for taken in checked.deletions.values():
                for id in reversed(taken):  # what is owned before the owner
                    _delete(state, id)
        state.last_seq = checked.last
        journal.clear()
    except BaseException:
        state.recover()
        raise
    return batch


def frames(state: SessionState, task: Seq, address: Address) -> Frames:
    """Return what `append_frame` appends to: a list in the scratch of a live task.

    The same until the task is settled, whatever else is written. Makes the list if need be: an
    empty one reads like none, so that this needs no way back.
    """
    scratch = state.scratch.get(task)
    if scratch is None:
        scratch = state.scratch[task] = Scratch()
    name: ListName = (address.namespace, address.key)
    items = scratch.scope.lists.get(name)
    if items is None:
        items = scratch.scope.lists[name] = []
    assert type(items) is list
    return _cut_after, state, items, scratch.batches


def append_frame(frames: Frames, task: Seq, seq: Seq, body: Body) -> BatchRange:
    """Carry out a batch that is one append to a task's scratch; as whole or absent as with `apply`.

    Streaming consists of this, and it takes half as long as the way for any batch.
    """
    _, state, items, batches = frames
    journal = state.journal
    batch = BatchRange(seq, seq, task)
    state.applying = seq
    try:
        journal.append(frames)
        items.append((seq, body))
        batches.append(batch)
        state.last_seq = seq
        journal.clear()
    except BaseException:
        state.recover()
        raise
    return batch


# --- Values ---


def _value_set(state: SessionState, write: ValueSet, seq: Seq, body: Body) -> None:
    _put_version(state, write, (seq, body))


def _value_delete(state: SessionState, write: ValueDelete, seq: Seq, body: None) -> None:
    address = write.address
    if type(address) is ConversationAddress:
        _put_version(state, write, (seq, None))
        return
    # Session and scratch addresses have no policy that a tombstone would have to keep.
    scope = state.scope(address)
    space = None if scope is None else scope.values.get(address.namespace)
    if space is not None and (old := space.cells.get(address.key)) is not None:
        state.journal.append((_restore_value, space, address.key, old))
        del space.cells[address.key]
        space.drop_key(address.key)


def _put_version(state: SessionState, write: ValueSet | ValueDelete, version: VersionRow) -> None:
    address = write.address
    key = address.key
    spaces = _scope(state, write).values
    space = spaces.get(address.namespace)
    if space is None:
        space = spaces[address.namespace] = ValueSpace()
    cell = space.cells.get(key)
    if type(cell) is list:
        state.journal.append((_cut, cell, len(cell)))
        cell.append(version)
    elif cell is not None:
        state.journal.append((_restore_item, space.cells, key, cell))
        space.cells[key] = version
    else:
        state.journal.append((_forget_value, space, key))
        rewinds = type(address) is ConversationAddress and address.rewind
        space.cells[key] = [version] if rewinds else version
        space.add_key(key)


def _forget_value(space: ValueSpace, key: str | None) -> None:
    space.cells.pop(key, None)
    space.forget_order()


def _restore_value(space: ValueSpace, key: str | None, cell: VersionRow) -> None:
    space.cells[key] = cell
    space.forget_order()


# --- Lists ---


def _list_append(state: SessionState, write: ListAppend, seq: Seq, body: Body) -> None:
    address = write.address
    scope = state.scope(address)
    found = None if scope is None else scope.lists.get((address.namespace, address.key))
    if found is None:
        found = _list(state, write)
    items = found if type(found) is list else found.items  # type: ignore[union-attr]
    state.journal.append((_cut, items, len(items)))
    items.append((seq, body))


def _list_remove(state: SessionState, write: ListRemove, seq: Seq, body: None) -> None:
    found = _list(state, write)
    if type(found) is RewindList:
        state.journal.append((_drop_item, found.removed, write.element))
        found.removed[write.element] = seq
        return
    assert type(found) is list
    index = bisect_left(found, (write.element,))
    state.journal.append((_restore_element, found, index, found[index]))
    del found[index]


def _list_clear(state: SessionState, write: ListClear, seq: Seq, body: None) -> None:
    found = _list(state, write)
    if type(found) is RewindList:
        state.journal.append((_cut, found.clears, len(found.clears)))
        found.clears.append(seq)
        return
    assert type(found) is list
    state.journal.append((_restore_elements, found, tuple(found)))
    found.clear()


def _list(state: SessionState, write: ListAppend | ListRemove | ListClear) -> ListState:
    address = write.address
    lists = _scope(state, write).lists
    name: ListName = (address.namespace, address.key)
    found = lists.get(name)
    if found is None:
        state.journal.append((_drop_item, lists, name))
        rewinds = type(address) is ConversationAddress and address.rewind
        found = lists[name] = RewindList() if rewinds else []
    return found


def _restore_element(items: list[ElementRow], index: int, item: ElementRow) -> None:
    if index == len(items) or items[index][0] != item[0]:
        items.insert(index, item)


def _restore_elements(items: list[object], old: tuple[object, ...]) -> None:
    items[:] = old


# --- Scopes ---


def _scope(
    state: SessionState, write: ValueSet | ValueDelete | ListAppend | ListRemove | ListClear
) -> Scope:
    scope = state.scope(write.address)
    if scope is None:
        address = write.address
        # A scratch batch made its scope before; an empty scope needs no way back.
        assert type(address) is ConversationAddress
        scope = state.scopes[address.conversation] = Scope()
    return scope


# --- Conversations ---


def _conversation(state: SessionState, write: Conversation, seq: Seq, body: None) -> None:
    state.journal.append((_forget_conversation, state, write))
    state.conversations[seq] = write
    state.conversation_ids.append(seq)
    if write.parent is not None:
        state.forks.setdefault(write.parent.conversation_id, []).append(write)
    if write.owner is not None:
        state.owned.setdefault(write.owner, []).append(seq)
        state.owned_from.setdefault(state.facts[write.owner].conversation, []).append(seq)


def _forget_conversation(state: SessionState, write: Conversation) -> None:
    state.conversations.pop(write.id, None)
    remove_sorted(state.conversation_ids, write.id)
    if write.parent is not None:
        forks = state.forks.get(write.parent.conversation_id)
        if forks and forks[-1].id == write.id:
            forks.pop()
    if write.owner is not None:
        remove_all_sorted(_owner_lists(state, write.owner), write.id)


def _owner_lists(state: SessionState, owner: Seq) -> list[list[Seq] | None]:
    """Return the indexes that hold the conversations of an owning task, as far as there are any."""
    facts = state.facts.get(owner)
    if facts is None:
        # Only a log that a stranger wrote names such an owner; what it began is taken back here.
        return [state.owned.get(owner)]
    return [state.owned.get(owner), state.owned_from.get(facts.conversation)]


def _delete_conversation(
    state: SessionState, write: DeleteConversation, seq: Seq, body: None
) -> None:
    """Do nothing: `apply` deletes all that the checks found to go with it."""


def _delete(state: SessionState, id: Seq) -> None:
    record = state.conversations[id]
    rows = {task: state.tasks[task] for task in state.tasks_of.get(id, ())}
    facts = {task: state.facts[task] for task in rows}
    state.journal.append((_restore_conversation, state, record, rows, facts))
    state.forget_caps()
    state.deleted[id] = record
    del state.conversations[id]
    remove_sorted(state.conversation_ids, id)
    if record.owner is not None:
        remove_all_sorted(_owner_lists(state, record.owner), id)
    for task in rows:
        del state.tasks[task]
        del state.facts[task]
    state.tasks_of.pop(id, None)


def _restore_conversation(
    state: SessionState,
    record: Conversation,
    rows: dict[Seq, TaskRow],
    facts: dict[Seq, TaskFacts],
) -> None:
    state.forget_caps()
    state.tasks.update(rows)
    state.facts.update(facts)
    if rows:
        state.tasks_of[record.id] = list(rows)
    state.conversations[record.id] = record
    state.deleted.pop(record.id, None)
    insert_sorted(state.conversation_ids, record.id)
    if record.owner is not None:
        for ids in _owner_lists(state, record.owner):
            if ids is not None:
                insert_sorted(ids, record.id)


# --- Entries ---


def _entry(state: SessionState, write: Entry, seq: Seq, body: Body) -> None:
    kind, key, head, conversation = write.kind, write.key, write.head, write.conversation_id
    transcript = state.transcripts.get(conversation)
    if transcript is None:
        transcript = state.transcripts[conversation] = Transcript()
    known = state.kinds.get(kind)
    if known is None:
        state.journal.append((_drop_item, state.kinds, kind))
        state.kinds[kind] = known = kind
    state.journal.append((_forget_entry, state, transcript, seq, kind, key))
    state.entries[seq] = (seq, conversation, known, key, write.by_task_id, head, body)
    transcript.add(seq, known, key, head)


def _forget_entry(
    state: SessionState, transcript: Transcript, id: Seq, kind: str, key: str | None
) -> None:
    transcript.cut(id, kind, key)
    state.entries.pop(id, None)


# --- Tasks ---


def _task(state: SessionState, write: Task, seq: Seq, body: Body) -> None:
    conversation = write.conversation_id
    own = _ids(state.tasks_of, conversation)
    live = _ids(state.live_of, conversation)
    state.journal.append((_forget_task, state, seq, own, live))
    state.tasks[seq] = (
        conversation,
        write.kind,
        write.status,
        write.role,
        tuple(write.after),
        write.background,
        write.turn,
        False,
        body,
    )
    state.facts[seq] = TaskFacts(conversation, True)
    state.task_ids.append(seq)
    own.append(seq)
    state.live.append(seq)
    live.append(seq)


def _forget_task(state: SessionState, id: Seq, own: list[Seq], live: list[Seq]) -> None:
    remove_all_sorted((state.task_ids, own, state.live, live), id)
    state.facts.pop(id, None)
    state.tasks.pop(id, None)


def _patch(state: SessionState, write: PatchTask, seq: Seq, body: Body | None) -> None:
    old = state.tasks[write.id]
    conversation, kind, status, role, after, background, turn, abort, state_body = old
    if body is not None:
        assert write.status is not None
        assert write.role is not None
        status, role, state_body = write.status, write.role, body
    abort = abort or write.abort
    state.journal.append((_restore_item, state.tasks, write.id, old))
    state.tasks[write.id] = (
        conversation,
        kind,
        status,
        role,
        after,
        background,
        turn,
        abort,
        state_body,
    )


def _settle(state: SessionState, write: SettleTask, seq: Seq, body: Body) -> None:
    id = write.id
    old, facts, scratch = state.tasks[id], state.facts[id], state.scratch.get(id)
    conversation, kind, _, _, after, background, turn, abort, _ = old
    live = state.live_of[conversation]
    state.journal.append((_restore_task, state, id, old, facts, scratch))
    state.tasks[id] = (
        conversation,
        kind,
        write.status,
        "terminal",
        after,
        background,
        turn,
        abort,
        body,
    )
    state.facts[id] = TaskFacts(conversation, False)
    remove_sorted(state.live, id)
    remove_sorted(live, id)
    if scratch is not None:
        del state.scratch[id]


def _restore_task(
    state: SessionState, id: Seq, old: TaskRow, facts: TaskFacts, scratch: Scratch | None
) -> None:
    if scratch is not None:
        state.scratch[id] = scratch
    insert_sorted(state.live_of[old[0]], id)
    insert_sorted(state.live, id)
    state.facts[id] = facts
    state.tasks[id] = old


def _ids(lists: dict[Seq, list[Seq]], key: Seq) -> list[Seq]:
    found = lists.get(key)
    if found is None:
        found = lists[key] = []
    return found


# --- Taking one change of a container back ---


def _cut(items: list[object], length: int) -> None:
    del items[length:]


def _cut_after(state: SessionState, items: list[ElementRow], batches: list[BatchRange]) -> None:
    """Drop what is not committed from two lists that ascend."""
    last = state.last_seq
    while items and items[-1][0] > last:
        items.pop()
    while batches and batches[-1].first > last:
        batches.pop()


def _drop_item(items: dict[object, object], key: object) -> None:
    items.pop(key, None)


def _restore_item(items: dict[object, object], key: object, old: object) -> None:
    items[key] = old


_Rule: TypeAlias = "Callable[[SessionState, Any, Seq, Any], None]"
_APPLY: dict[type, _Rule] = {
    ValueSet: _value_set,
    ValueDelete: _value_delete,
    ListAppend: _list_append,
    ListRemove: _list_remove,
    ListClear: _list_clear,
    Conversation: _conversation,
    DeleteConversation: _delete_conversation,
    Entry: _entry,
    Task: _task,
    PatchTask: _patch,
    SettleTask: _settle,
}
