"""A foreign transcript as a reader understands it: a tree of messages, not yet numbered."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec import UNSET, UnsetType

from pico_store.records import JsonObject, JsonValue

NOTE_KIND_PREFIX = "import."
"""Records that are no messages become entries of kind ``import.<type>`` without a projection."""


@dataclass(frozen=True, slots=True)
class Draft:
    """An entry before it has a number."""

    line: int
    """Where the file holds it."""
    kind: str
    key: str | None = None
    data: JsonValue | UnsetType = UNSET
    model: list[JsonObject] | None = None
    starts_context: bool = False
    """Whether the context begins anew here: the entry is its own head."""


@dataclass(slots=True)
class Node:
    """One message and its place in the tree of messages."""

    line: int
    """The line it begins on."""
    last_line: int
    """The line it ends on."""
    parent: int | None
    """The index of the node that it follows; ``None`` begins a transcript."""
    drafts: list[Draft]
    """At least one."""
    notes: list[Draft] = field(default_factory=list)
    """What the file holds beside the message; entries without a projection, right behind it."""
    side: bool = False
    """Whether it belongs to another conversation than the one that people had."""


@dataclass(slots=True)
class Transcript:
    """A foreign transcript, read whole and understood; nothing of it is written yet."""

    format: str
    session_id: str | None
    """The id that the file states."""
    nodes: list[Node] = field(default_factory=list)
    preface: list[Draft] = field(default_factory=list)
    """Notes before the first message."""
    lines: int = 0
    replaced: int = 0
    """Lone surrogates that U+FFFD stands for now."""
    repeated: int = 0
    """Records that the file held twice, word for word; taken once."""
    lost_parents: int = 0
    """Records that name a parent which the file lacks; each follows the last message above it."""


def note(line: int, record: JsonObject, name: str) -> Draft:
    """Return the draft that keeps a record as it is, out of the model's sight."""
    return Draft(line, NOTE_KIND_PREFIX + name, data=record)


def message_draft(
    line: int,
    kind: str,
    message: JsonObject,
    unmapped: list[JsonObject],
    *,
    projected: bool = True,
    key: str | None = None,
    starts_context: bool = False,
) -> Draft:
    """Return the draft of a message.

    Args:
        line: Where the file holds it.
        kind: The entry kind.
        message: In the vocabulary that the model's side speaks.
        unmapped: What its records hold beyond that, one object a record; kept in ``data``.
        projected: False: the model never sees it, and ``data`` holds the message.
        key: An indexed name, such as the call that a result answers.
        starts_context: Whether the context begins anew here.
    """
    data: JsonObject = {}
    if not projected:
        data["message"] = message
    if any(unmapped):
        data["records"] = list(unmapped)
    return Draft(
        line,
        kind,
        key=key,
        data=data or UNSET,
        model=[message] if projected else None,
        starts_context=starts_context,
    )
