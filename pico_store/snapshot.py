"""A session's logical state as a stream of items: what export yields and load takes.

Canonical order: the header, conversations, entries, tasks, address policies, value versions, list
elements, list markers, batch boundaries. Within each section by number; policies by conversation,
shape, namespace and key (no key first), by code point. What nothing can read any more is left
out: scratch of settled tasks, sticky history, and what a deleted conversation held beyond the
greatest position that a live fork inherits. So equal histories give equal streams on every
backend, before and after ``vacuum``.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import UNSET, Struct, UnsetType

from pico_store.address import Address, ConversationAddress, Seq, Shape
from pico_store.records import BatchRange, Conversation, Entry, JsonValue, Task


class SnapshotHeader(
    Struct, frozen=True, rename="camel", tag_field="type", tag="session", forbid_unknown_fields=True
):
    """The first item."""

    last_seq: Seq
    entry_kinds: tuple[str, ...]
    """By code point."""


class DeletedConversation(
    Struct, frozen=True, rename="camel", tag_field="type", tag="deleted", forbid_unknown_fields=True
):
    """A deleted conversation that some live fork still inherits from."""

    conversation: Conversation
    through: Seq
    """The greatest position that a live fork shows of it, inclusive."""


class AddressPolicy(
    Struct, frozen=True, rename="camel", tag_field="type", tag="policy", forbid_unknown_fields=True
):
    """The policy of an address of a live conversation, fixed by its first write."""

    address: ConversationAddress
    shape: Shape


class ValueVersion(
    Struct,
    frozen=True,
    rename="camel",
    omit_defaults=True,
    tag_field="type",
    tag="value",
    forbid_unknown_fields=True,
):
    """A version of a value: every one of a rewindable address, else the current one."""

    seq: Seq
    address: Address
    value: JsonValue | UnsetType = UNSET
    """Absent: a tombstone; only rewindable addresses keep one."""


class ListItem(
    Struct, frozen=True, rename="camel", tag_field="type", tag="element", forbid_unknown_fields=True
):
    """A list element: every one of a rewindable list, else the visible ones."""

    id: Seq
    address: Address
    value: JsonValue


class ListMarker(
    Struct,
    frozen=True,
    rename="camel",
    omit_defaults=True,
    tag_field="type",
    tag="marker",
    forbid_unknown_fields=True,
):
    """A removal or clear in a rewindable list."""

    seq: Seq
    address: ConversationAddress
    element: Seq | None = None
    """The element that it hides; absent: it hides all that were visible."""


SnapshotItem: TypeAlias = (
    SnapshotHeader
    | Conversation
    | DeletedConversation
    | Entry
    | Task
    | AddressPolicy
    | ValueVersion
    | ListItem
    | ListMarker
    | BatchRange
)
