"""Addresses of state: who owns a value or list, under which name, and whether it rewinds."""

from __future__ import annotations

from typing import Literal, NewType, TypeAlias

from msgspec import Struct

Seq = NewType("Seq", int)
"""A number in a session's one sequence, 1 … 2^53-1; a record's id is the number of its creation."""

Shape: TypeAlias = Literal["value", "list"]
"""What an address holds. A value and a list of one name are two addresses."""


class SessionAddress(
    Struct,
    frozen=True,
    tag_field="scope",
    tag="session",
    rename="camel",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """State of the whole session: one current value, shared by every conversation."""

    namespace: str
    """1 … 1,024 bytes of UTF-8, kept exactly."""
    key: str | None = None
    """0 … 1,024 bytes of UTF-8. ``None`` and ``""`` are different addresses."""


class ConversationAddress(
    Struct,
    frozen=True,
    tag_field="scope",
    tag="conversation",
    rename="camel",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """State of one conversation.

    Rewindable state has a history that forks inherit up to their cut; sticky state has one current
    value that no fork sees. The first write of an address fixes which of the two it is.
    """

    conversation: Seq
    namespace: str
    """1 … 1,024 bytes of UTF-8, kept exactly."""
    key: str | None = None
    """0 … 1,024 bytes of UTF-8. ``None`` and ``""`` are different addresses."""
    rewind: bool = False
    """True: rewindable. False: sticky."""


class ScratchAddress(
    Struct,
    frozen=True,
    tag_field="scope",
    tag="scratch",
    rename="camel",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """Working state of one live task; gone in the commit that settles the task."""

    task: Seq
    namespace: str
    """1 … 1,024 bytes of UTF-8, kept exactly."""
    key: str | None = None
    """0 … 1,024 bytes of UTF-8. ``None`` and ``""`` are different addresses."""


Address: TypeAlias = SessionAddress | ConversationAddress | ScratchAddress
MainAddress: TypeAlias = SessionAddress | ConversationAddress
