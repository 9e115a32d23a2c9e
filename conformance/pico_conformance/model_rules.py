"""The model's rules: which clauses a batch breaks. Written from the contract alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from msgspec import UNSET

from pico_conformance.model_json import NAME_SIZE_MAX, faults, has_surrogate, is_too_large
from pico_conformance.model_state import State, shape_of, spot
from pico_store.address import ConversationAddress, ScratchAddress, Seq, SessionAddress
from pico_store.batch import (
    DeleteConversation,
    ListAppend,
    ListClear,
    ListRemove,
    PatchTask,
    SettleTask,
    StateWrite,
    ValueDelete,
    ValueSet,
)
from pico_store.errors import (
    InvalidBatchError,
    InvalidValueError,
    LimitExceededError,
    RefusedError,
)
from pico_store.records import Conversation, Entry, ForkPoint, Omit, Replace, Task

SEQ_MAX = 2**53 - 1
_STATE_WRITES = (ValueSet, ValueDelete, ListAppend, ListRemove, ListClear)


class Fault(NamedTuple):
    """A clause that a write breaks, and the class of error that says so."""

    clause: str
    error: type[RefusedError] = InvalidBatchError


Faults: TypeAlias = Iterator[Fault]


class Place(NamedTuple):
    """Where a write stands."""

    state: State
    """As the earlier writes of the batch left it."""
    seq: Seq
    task: object
    """The task of a scratch batch; ``None`` in a main batch."""
    after_entry: bool
    """Whether an entry stands before it in the batch."""


def write_faults(write: object, place: Place) -> list[Fault]:
    """Return every clause that a write breaks where it stands; none if it is allowed."""
    if place.seq == 1 and type(write) is not Conversation:
        return [Fault("SEQ-3")]
    if isinstance(write, _STATE_WRITES):
        return list(_state_write(write, place))
    if place.task is not None:
        return [Fault("SEQ-7")]
    if isinstance(write, Conversation):
        return list(_conversation(write, place))
    if isinstance(write, DeleteConversation):
        return list(_delete(write, place))
    if isinstance(write, Entry):
        return list(_entry(write, place))
    if isinstance(write, Task):
        return list(_task(write, place))
    if isinstance(write, PatchTask):
        return list(_patch(write, place))
    if isinstance(write, SettleTask):
        return list(_settle(write, place))
    return [Fault("SEQ-7")]


def is_seq(value: object) -> bool:
    """Tell whether something can be a number of the sequence at all."""
    return type(value) is int and 1 <= value <= SEQ_MAX


# --- State ---


def _state_write(write: StateWrite, place: Place) -> Faults:
    address = write.address
    if isinstance(address, ScratchAddress):
        if place.task is None or address.task != place.task:
            yield Fault("SEQ-7")
            return
    elif not isinstance(address, SessionAddress | ConversationAddress):
        yield Fault("VAL-1")
        return
    elif place.task is not None:
        yield Fault("SEQ-7")
        return
    names = [*_name(address.namespace)]
    if address.key is not None:
        names += _name(address.key, empty=True)
    yield from names
    if isinstance(address, ConversationAddress):
        broken = [*_known_conversation(address.conversation, place, "VAL-1")]
        yield from broken
        if type(address.rewind) is not bool:
            yield Fault("VAL-1")
        elif not broken and not names:
            policy = place.state.policy(spot(address, shape_of(write)))
            if policy is not None and policy != address.rewind:
                yield Fault("VAL-1")
            if address.rewind and place.after_entry:
                yield Fault("SEQ-7")
        names += broken
    if isinstance(write, ValueSet | ListAppend):
        yield from _json(write.value)
    if isinstance(write, ListRemove):
        if not is_seq(write.element):
            yield Fault("SEQ-2")
        elif not names:
            rewind = isinstance(address, ConversationAddress) and address.rewind
            if write.element not in place.state.elements(spot(address, "list"), rewind=rewind):
                yield Fault("VAL-5")


def _json(value: object) -> Faults:
    broken = {*faults(value)}
    yield from (Fault(clause, InvalidValueError) for clause in broken)
    if not broken and is_too_large(value):
        yield Fault("JSON-5", LimitExceededError)


def _name(text: object, *, empty: bool = False) -> Faults:
    if type(text) is not str:
        yield Fault("JSON-5")
    elif has_surrogate(text):
        yield Fault("JSON-3")
    elif len(text.encode()) > NAME_SIZE_MAX:
        yield Fault("JSON-5", LimitExceededError)
    elif not text and not empty:
        yield Fault("JSON-5")


# --- Conversations and entries ---


def _id(id: object, place: Place) -> Faults:
    if type(id) is not int or id != place.seq:
        yield Fault("SEQ-1")


def _known_conversation(id: object, place: Place, clause: str) -> Faults:
    if not is_seq(id):
        yield Fault("SEQ-2")
    elif not place.state.is_live(id):  # type: ignore[arg-type]
        yield Fault(clause)


def _known_task(id: object, place: Place, clause: str) -> Faults:
    if not is_seq(id):
        yield Fault("SEQ-2")
    elif place.state.task(id) is None:  # type: ignore[arg-type]
        yield Fault(clause)


def _conversation(write: Conversation, place: Place) -> Faults:
    yield from _id(write.id, place)
    if place.seq == 1 and (write.parent is not None or write.owner is not None):
        yield Fault("SEQ-3")
        return
    if write.parent is not None:
        if type(write.parent) is not ForkPoint:
            yield Fault("FORK-1")
        else:
            source, at = write.parent.conversation_id, write.parent.at
            if is_seq(source) and source in place.state.deleted:
                yield Fault("DEL-3")
            broken = [*_known_conversation(source, place, "FORK-1")]
            yield from broken
            if not is_seq(at):
                yield Fault("SEQ-2")
            elif not broken and not place.state.shows(source, at):
                yield Fault("FORK-1")
    if write.owner is not None:
        yield from _known_task(write.owner, place, "TASK-5")


def _delete(write: DeleteConversation, place: Place) -> Faults:
    broken = [*_known_conversation(write.id, place, "DEL-1")]
    yield from broken
    if not broken:
        state = place.state
        taken = state.subtree(write.id)
        if write.id == 1 or any(
            task.role != "terminal" and task.conversation_id in taken
            for task in state.tasks.values()
        ):
            yield Fault("DEL-1")


def _entry(write: Entry, place: Place) -> Faults:
    yield from _id(write.id, place)
    unknown = [*_known_conversation(write.conversation_id, place, "ENT-1")]
    yield from unknown
    yield from _name(write.kind)
    if write.key is not None:
        yield from _name(write.key, empty=True)
    if write.by_task_id is not None:
        yield from _known_task(write.by_task_id, place, "ENT-1")
    if write.data is not UNSET:
        yield from _json(write.data)
    if write.model is not None:
        yield from _messages(write.model, "ENT-1")
    if write.head is not None:
        yield from _head(write, place, known=not unknown)
    if write.edits is not None:
        if type(write.edits) not in (tuple, list):
            yield Fault("ENT-4")
        else:
            for edit in write.edits:
                yield from _edit(edit, write, place, known=not unknown)


def _messages(messages: object, clause: str) -> Faults:
    if type(messages) is not list or any(type(message) is not dict for message in messages):
        yield Fault(clause)
    else:
        yield from _json(messages)


def _head(write: Entry, place: Place, *, known: bool) -> Faults:
    head = write.head
    if not is_seq(head):
        yield Fault("SEQ-2")
    elif known:
        assert head is not None
        if head != place.seq and not place.state.shows(write.conversation_id, head):
            yield Fault("ENT-2")
        newest = place.state.newest_head(write.conversation_id, place.seq)
        if newest is not None and newest.head is not None and head < newest.head:
            yield Fault("ENT-2")


def _edit(edit: object, write: Entry, place: Place, *, known: bool) -> Faults:
    if type(edit) is not Omit and type(edit) is not Replace:
        yield Fault("ENT-4")
        return
    assert isinstance(edit, Omit | Replace)
    if isinstance(edit, Replace):
        yield from _messages(edit.messages, "ENT-4")
    if not is_seq(edit.target):
        yield Fault("SEQ-2")
    elif known and not place.state.shows(write.conversation_id, edit.target):
        yield Fault("ENT-4")


# --- Tasks ---


def _task(write: Task, place: Place) -> Faults:
    yield from _id(write.id, place)
    yield from _known_conversation(write.conversation_id, place, "TASK-1")
    yield from _name(write.kind)
    yield from _task_state(write.status, write.role, write.state, ("start", "inflight"))
    if type(write.after) not in (tuple, list):
        yield Fault("TASK-1")
    else:
        for id in write.after:
            yield from _known_task(id, place, "TASK-1")
        if any(write.after.count(id) > 1 for id in write.after):
            yield Fault("TASK-1")
    if write.owns:
        yield Fault("TASK-5")
    if write.abort:
        yield Fault("TASK-3")
    if {type(write.background), type(write.turn)} != {bool}:
        yield Fault("TASK-1")


def _task_state(status: object, role: object, state: object, roles: tuple[str, ...]) -> Faults:
    yield from _name(status)
    if role not in roles:
        yield Fault("TASK-2")
    if not isinstance(state, dict) or _is_subclassed(state):
        yield Fault("TASK-2")
        return
    if not _is_same_text(state.get("status"), status):
        yield Fault("TASK-2")
    yield from _json(state)


def _is_subclassed(state: object) -> bool:
    return type(state) is not dict


def _is_same_text(own: object, status: object) -> bool:
    return type(own) is str and own == status


def _patch(write: PatchTask, place: Place) -> Faults:
    if not is_seq(write.id):
        yield Fault("SEQ-2")
    elif not place.state.is_live_task(write.id):
        yield Fault("TASK-2")
    if type(write.abort) is not bool:
        yield Fault("TASK-3")
    parts = (write.status, write.role, write.state)
    if parts == (None, None, None):
        if not write.abort:
            yield Fault("TASK-2")
    elif any(part is None for part in parts):
        yield Fault("TASK-2")
    else:
        yield from _task_state(*parts, ("start", "inflight"))


def _settle(write: SettleTask, place: Place) -> Faults:
    if not is_seq(write.id):
        yield Fault("SEQ-2")
    elif not place.state.is_live_task(write.id):
        yield Fault("TASK-2")
    yield from _task_state(write.status, write.role, write.state, ("terminal",))
