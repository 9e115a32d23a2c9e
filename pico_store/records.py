"""The records that a session consists of. Each is also the write that creates it in a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar  # noqa: TID251 - see JsonValue

from msgspec import UNSET, Struct, UnsetType

from pico_store.address import Seq

# msgspec cannot decode into a recursive alias; it is told that anything goes, and
# `strict_json.pack` is what enforces the type.
if TYPE_CHECKING:
    JsonValue: TypeAlias = (
        bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"] | None
    )
else:
    JsonValue = Any
"""Strict JSON: exactly these types; SPEC.md, clauses JSON-1 to JSON-6."""

JsonObject: TypeAlias = dict[str, JsonValue]

TaskRole: TypeAlias = Literal["start", "inflight", "terminal"]
At: TypeAlias = Seq | Literal["start"]
"""A historical position: an entry that the conversation shows, or before the first entry."""

T = TypeVar("T")


class ForkPoint(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Where a fork left its parent."""

    conversation_id: Seq
    at: Seq
    """An entry that the parent shows; inclusive."""


class Conversation(
    Struct,
    frozen=True,
    rename="camel",
    omit_defaults=True,
    tag_field="type",
    tag="createConversation",
    forbid_unknown_fields=True,
):
    """A transcript's identity and its two links: history (``parent``) and ownership (``owner``)."""

    id: Seq
    parent: ForkPoint | None = None
    owner: Seq | None = None
    """The task that created it."""


class Omit(
    Struct, frozen=True, rename="camel", tag_field="action", tag="omit", forbid_unknown_fields=True
):
    """Take an earlier entry out of the context."""

    target: Seq


class Replace(
    Struct,
    frozen=True,
    rename="camel",
    tag_field="action",
    tag="replace",
    forbid_unknown_fields=True,
):
    """Show other messages in place of an earlier entry's own."""

    target: Seq
    messages: list[JsonObject]


ContextEdit: TypeAlias = Omit | Replace


class Entry(
    Struct,
    frozen=True,
    rename="camel",
    omit_defaults=True,
    tag_field="type",
    tag="entry",
    forbid_unknown_fields=True,
):
    """One immutable item of a transcript."""

    id: Seq
    conversation_id: Seq
    kind: str
    """1 … 1,024 bytes of UTF-8."""
    key: str | None = None
    """An indexed name within the kind, not unique, such as the call that a result answers."""
    by_task_id: Seq | None = None
    """The task that wrote it."""
    data: JsonValue | UnsetType = UNSET
    """Kind-specific data, never model input by itself; absent and ``null`` differ."""
    model: list[JsonObject] | None = None
    """The messages that this entry contributes to the context."""
    head: Seq | None = None
    """The first entry of the context from here on: this entry or an earlier visible one."""
    edits: tuple[ContextEdit, ...] | None = None
    """Changes to what earlier visible entries contribute; the last for a target wins."""


class Task(
    Struct,
    frozen=True,
    rename="camel",
    omit_defaults=True,
    tag_field="type",
    tag="task",
    forbid_unknown_fields=True,
):
    """One durable unit of work of a conversation."""

    id: Seq
    conversation_id: Seq
    kind: str
    """1 … 1,024 bytes of UTF-8."""
    status: str
    """The same as ``state["status"]``, kept beside it so that storage need not decode state."""
    role: TaskRole
    state: JsonObject
    after: tuple[Seq, ...] = ()
    """Tasks that must be terminal before this one starts; fixed at creation."""
    background: bool = False
    """Fixed at creation."""
    turn: bool = False
    """Whether it is part of its conversation's turn; fixed at creation."""
    abort: bool = False
    """The durable request to cancel; set once, never cleared."""
    owns: tuple[Seq, ...] = ()
    """Conversations that name this task as owner, ascending; derived, never written."""


class Version(Struct, Generic[T], frozen=True):
    """A value and the number of the write that set it."""

    seq: Seq
    value: T


class KeyedVersion(Struct, Generic[T], frozen=True):
    """A keyed value of a namespace, as a scan returns it."""

    key: str
    seq: Seq
    value: T


class Element(Struct, Generic[T], frozen=True):
    """A list element; its id is the number of its append."""

    id: Seq
    value: T


class BatchRange(
    Struct,
    frozen=True,
    # Numbers lead to nothing: the collector need not follow them.
    gc=False,
    rename="camel",
    omit_defaults=True,
    tag_field="type",
    tag="batch",
    forbid_unknown_fields=True,
):
    """The numbers that one commit consumed, both inclusive."""

    first: Seq
    last: Seq
    task: Seq | None = None
    """The task whose scratch it wrote; ``None`` for a main batch."""


class Page(Struct, Generic[T], frozen=True):
    """A bounded result of a scan."""

    items: list[T]
    read_at: Seq
    """``last_seq`` at the read; 0 in an empty session."""
    next: Seq | None = None
    """The last item's id, present only if another item matches: the next page's cursor."""


class ValuePage(Struct, frozen=True):
    """A bounded result of ``scan_values``, whose cursor is a key."""

    items: list[KeyedVersion[JsonValue]]
    read_at: Seq
    """``last_seq`` at the read; 0 in an empty session."""
    next: str | None = None
    """The last item's key, present only if another key matches."""
