"""The questions that a scan answers.

Every query pages the same way. Ascending by default; ``after`` and ``before`` are exclusive.
``before`` alone returns the ``limit`` newest matches below it, newest first, and the page's
``next`` is then passed as ``before``. Both together: an ascending window.
"""

from __future__ import annotations

from msgspec import Struct

from pico_store.address import Address, Seq
from pico_store.records import At, TaskRole

LIMIT_DEFAULT = 100


class ConversationQuery(
    Struct,
    frozen=True,
    rename="camel",
    omit_defaults=True,
    kw_only=True,
    forbid_unknown_fields=True,
):
    """Live conversations by id. Filters given together all apply."""

    parent: Seq | None = None
    """Forked from this conversation."""
    owner: Seq | None = None
    """Owned by this task."""
    owner_conversation: Seq | None = None
    """Owned by any task of this conversation."""
    after: Seq | None = None
    before: Seq | None = None
    limit: int = LIMIT_DEFAULT
    """At least 1; clamped at 10,000."""


class EntryQuery(
    Struct,
    frozen=True,
    rename={"conversation_id": "conversationId", "from_": "from"},
    omit_defaults=True,
    kw_only=True,
    forbid_unknown_fields=True,
):
    """Entries that one conversation shows, inherited ones included, by id."""

    conversation_id: Seq
    kind: str | None = None
    key: str | None = None
    """Needs ``kind`` with it."""
    from_: Seq | None = None
    """Inclusive; need not be an entry."""
    through: Seq | None = None
    """Inclusive; need not be an entry."""
    after: Seq | None = None
    before: Seq | None = None
    limit: int = LIMIT_DEFAULT
    """At least 1; clamped at 10,000."""


class TaskQuery(
    Struct,
    frozen=True,
    rename="camel",
    omit_defaults=True,
    kw_only=True,
    forbid_unknown_fields=True,
):
    """Tasks by id. Filters given together all apply."""

    conversation_ids: tuple[Seq, ...] | None = None
    """``None``: the whole session. Empty: an empty page."""
    live: bool | None = None
    """True: not terminal. False: terminal only."""
    role: TaskRole | None = None
    kind: str | None = None
    abort: bool | None = None
    """True: marked. False: unmarked only."""
    background: bool | None = None
    turn: bool | None = None
    after: Seq | None = None
    before: Seq | None = None
    limit: int = LIMIT_DEFAULT
    """At least 1; clamped at 10,000."""


class ValueQuery(
    Struct,
    frozen=True,
    rename="camel",
    omit_defaults=True,
    kw_only=True,
    forbid_unknown_fields=True,
):
    """Present keyed values of one namespace, by key in Unicode code point order.

    ``scope`` is an address whose key is absent. In a conversation it covers both policies, so its
    ``rewind`` is ignored: inherited rewindable keys are shown unless an own write of the key,
    sticky or rewindable, stands before them.
    """

    scope: Address
    after: str | None = None
    """Exclusive."""
    limit: int = LIMIT_DEFAULT
    """At least 1; clamped at 10,000."""


class ListQuery(
    Struct,
    frozen=True,
    rename="camel",
    omit_defaults=True,
    kw_only=True,
    forbid_unknown_fields=True,
):
    """Visible elements of one list, by id."""

    at: At | None = None
    """An entry that the conversation shows, or ``"start"``; only for rewindable addresses."""
    after: Seq | None = None
    before: Seq | None = None
    limit: int = LIMIT_DEFAULT
    """At least 1; clamped at 10,000."""


class BatchQuery(
    Struct,
    frozen=True,
    rename="camel",
    omit_defaults=True,
    kw_only=True,
    forbid_unknown_fields=True,
):
    """Batch boundaries by first number: main batches, and the scratch batches of live tasks."""

    after: Seq | None = None
    before: Seq | None = None
    limit: int = LIMIT_DEFAULT
    """At least 1; clamped at 10,000."""
