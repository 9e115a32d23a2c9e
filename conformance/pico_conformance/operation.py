"""Operations: what a history consists of.

They name records by label, so that any subset of a history is a history, and become writes only
when it is known which numbers the records got.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from pico_store.address import (
    Address,
    ConversationAddress,
    ScratchAddress,
    Seq,
    SessionAddress,
)
from pico_store.batch import (
    DeleteConversation,
    ListAppend,
    ListClear,
    ListRemove,
    MainWrite,
    PatchTask,
    SettleTask,
    ValueDelete,
    ValueSet,
)
from pico_store.records import (
    ContextEdit,
    Conversation,
    Entry,
    ForkPoint,
    JsonObject,
    JsonValue,
    Omit,
    Replace,
    Task,
    TaskRole,
)

Label: TypeAlias = int
"""Names a record within a history. 0 is the root, which every history creates first."""

ROOT: Label = 0

T = TypeVar("T")
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class Where(NamedTuple):
    """A value or list by label."""

    scope: Literal["session", "conversation", "scratch"]
    holder: Label
    """The conversation or task; of no meaning for the session."""
    namespace: str
    key: str | None = None
    rewind: bool = False


class NewConversation(NamedTuple):
    """Create a conversation."""

    label: Label
    parent: Label | None = None
    at: Label | None = None
    owner: Label | None = None


class Delete(NamedTuple):
    """Delete a conversation."""

    conversation: Label


class NewEntry(NamedTuple):
    """Append an entry."""

    label: Label
    conversation: Label
    kind: str = "note"
    key: str | None = None
    data: JsonValue | UnsetType = UNSET
    model: list[JsonObject] | None = None
    head: Label | None = None
    """Its own label: a head on itself."""
    edits: tuple[tuple[Label, list[JsonObject] | None], ...] = ()
    """Targets, each with the messages that replace it; ``None`` omits it."""
    by: Label | None = None


class NewTask(NamedTuple):
    """Create a task."""

    label: Label
    conversation: Label
    kind: str = "work"
    role: TaskRole = "start"
    state: JsonObject = {"status": "ready"}  # noqa: RUF012 - never changed
    after: tuple[Label, ...] = ()
    background: bool = False
    turn: bool = False


class Patch(NamedTuple):
    """Patch a task; without a state only its abort mark."""

    task: Label
    role: TaskRole | None = None
    state: JsonObject | None = None
    abort: bool = False


class Settle(NamedTuple):
    """End a task."""

    task: Label
    state: JsonObject = {"status": "done"}  # noqa: RUF012 - never changed


class Set(NamedTuple):
    """Set a value."""

    where: Where
    value: JsonValue


class Unset(NamedTuple):
    """Delete a value."""

    where: Where


class Append(NamedTuple):
    """Append to a list."""

    label: Label
    where: Where
    value: JsonValue


class Remove(NamedTuple):
    """Remove an element."""

    where: Where
    element: Label


class Clear(NamedTuple):
    """Clear a list."""

    where: Where


Step: TypeAlias = (
    NewConversation
    | Delete
    | NewEntry
    | NewTask
    | Patch
    | Settle
    | Set
    | Unset
    | Append
    | Remove
    | Clear
)


class Mistake(NamedTuple):
    """What is wrong with a batch on purpose; `pico_conformance.mistake` knows the names."""

    name: str
    position: int = 0
    """Before which step the wrong write stands."""
    seed: int = 0


class Commit(NamedTuple):
    """Commit a batch."""

    steps: tuple[Step, ...]
    scratch: Label | None = None
    """The task of a scratch batch."""
    mistake: Mistake | None = None
    expected: bool = False
    """Whether ``expected_first`` is given, rightly."""
    probe: int = 0
    """The seed of the reads that are compared afterwards."""


Act: TypeAlias = Literal[
    "reopen",
    "another process",
    "read only",
    "second owner",
    "take over",
    "load",
    "move",
    "vacuum",
    "verify",
    "backup",
    "near the end",
]


class Handle(NamedTuple):
    """Do something to the session as a whole that changes nothing that can be read.

    ``near the end`` is the one exception: it skips nearly all numbers of the sequence.
    """

    act: Act
    probe: int = 0


Operation: TypeAlias = Commit | Handle
History: TypeAlias = tuple[Operation, ...]


@dataclass(slots=True)
class Labels:
    """Which number each labelled record got, if it was written."""

    numbers: dict[Label, Seq] = field(default_factory=dict)

    def write(self, step: Step, seq: Seq) -> MainWrite | None:
        """Return the write that a step stands for; ``None`` if it names what was never written."""
        label: Label | None = None
        if isinstance(step, NewConversation | NewEntry | NewTask | Append):
            label = step.label
            self.numbers[label] = seq
        try:
            return _write(step, seq, self.numbers)
        except KeyError:
            if label is not None:
                del self.numbers[label]
            return None


def _write(step: Step, seq: Seq, numbers: dict[Label, Seq]) -> MainWrite:
    match step:
        case NewConversation():
            return _conversation(step, seq, numbers)
        case NewEntry():
            return _entry(step, seq, numbers)
        case NewTask():
            return _task(step, seq, numbers)
        case Delete():
            return DeleteConversation(numbers[step.conversation])
        case Patch():
            state = _fresh(step.state)
            status = None if state is None else _status(state)
            return PatchTask(numbers[step.task], status, step.role, state, step.abort)
        case Settle():
            ended = _fresh(step.state)
            return SettleTask(numbers[step.task], _status(ended), ended)
        case Set():
            return ValueSet(_address(step.where, numbers), _fresh(step.value))
        case Unset():
            return ValueDelete(_address(step.where, numbers))
        case Append():
            return ListAppend(_address(step.where, numbers), _fresh(step.value))
        case Remove():
            return ListRemove(_address(step.where, numbers), numbers[step.element])
        case Clear():
            return ListClear(_address(step.where, numbers))


def _address(where: Where, numbers: dict[Label, Seq]) -> Address:
    if where.scope == "session":
        return SessionAddress(where.namespace, where.key)
    if where.scope == "scratch":
        task = numbers[where.holder]
        # Callers keep an address or make it anew; a backend may take the very one for a promise.
        return (_kept if task % 2 else ScratchAddress)(task, where.namespace, where.key)
    holder = numbers[where.holder]
    return ConversationAddress(holder, where.namespace, where.key, where.rewind)


@lru_cache(maxsize=256)
def _kept(task: Seq, namespace: str, key: str | None) -> ScratchAddress:
    return ScratchAddress(task, namespace, key)


def _conversation(step: NewConversation, seq: Seq, numbers: dict[Label, Seq]) -> Conversation:
    parent = None
    if step.parent is not None and step.at is not None:
        parent = ForkPoint(numbers[step.parent], numbers[step.at])
    owner = None if step.owner is None else numbers[step.owner]
    return Conversation(id=seq, parent=parent, owner=owner)


def _entry(step: NewEntry, seq: Seq, numbers: dict[Label, Seq]) -> Entry:
    edits: list[ContextEdit] = []
    for target, messages in step.edits:
        if messages is None:
            edits.append(Omit(numbers[target]))
        else:
            edits.append(Replace(numbers[target], _fresh(messages)))
    return Entry(
        id=seq,
        conversation_id=numbers[step.conversation],
        kind=step.kind,
        key=step.key,
        by_task_id=None if step.by is None else numbers[step.by],
        data=step.data if step.data is UNSET else _fresh(step.data),
        model=_fresh(step.model),
        head=None if step.head is None else numbers[step.head],
        edits=tuple(edits) or None,
    )


def _task(step: NewTask, seq: Seq, numbers: dict[Label, Seq]) -> Task:
    state = _fresh(step.state)
    return Task(
        id=seq,
        conversation_id=numbers[step.conversation],
        kind=step.kind,
        status=_status(state),
        role=step.role,
        state=state,
        after=tuple(numbers[label] for label in step.after),
        background=step.background,
        turn=step.turn,
    )


def _status(state: JsonObject) -> str:
    status = state["status"]
    assert isinstance(status, str)
    return status


def _fresh(value: T) -> T:
    """Return a copy that nothing else holds; what cannot change is its own copy."""
    if type(value) is dict or type(value) is list:
        copied: T = _decode(_encode(value))
        return copied
    return value
