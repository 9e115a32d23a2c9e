"""Accepted input: the queue, what became of each item, and receipts, all in its caller's batch."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Struct, UnsetType

from pico_harness.arguments import check_instance
from pico_harness.errors import (
    AuthorityError,
    BuilderError,
    RequestAlreadyAcceptedError,
    StoredTypeError,
    UnknownInputError,
)
from pico_harness.kinds import EntryKind
from pico_harness.state import conversation_list, conversation_value, session_value
from pico_harness.tx import Tx
from pico_store.address import Seq
from pico_store.names import check_name
from pico_store.query import ListQuery
from pico_store.records import Element, JsonObject, JsonValue
from pico_store.storage import Storage

InputMode: TypeAlias = Literal["write", "steer", "followUp", "nextRun"]
"""Where whoever places an input may put it (design §8.1).

Here they differ in one thing: an abort of the conversation cancels ``steer`` and ``followUp`` that
wait, and leaves the others queued.
"""
InputStatus: TypeAlias = Literal[
    "queued", "running", "placed", "done", "failed", "cancelled", "stopped"
]
TERMINAL: Final = frozenset(("placed", "done", "failed", "cancelled", "stopped"))


class EntryDraft(Struct, frozen=True, rename="camel", omit_defaults=True):
    """An entry that is not written yet."""

    kind: str
    key: str | None = None
    data: JsonValue | UnsetType = UNSET
    model: list[JsonObject] | None = None


class InboxItem(Struct, frozen=True, rename="camel", omit_defaults=True):
    """An input that waits for its place; its id is that of its list element."""

    mode: InputMode
    entry: EntryDraft
    request_id: str | None = None


class InputResult(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What became of an input.

    ``queued`` and ``running`` may change; every other status is for ever (IN-1).
    """

    status: InputStatus
    request_id: str | None = None
    placement_entry_id: Seq | None = None
    """The entry that it became."""
    result_entry_id: Seq | None = None
    """The entry that answers it."""
    reason: str | None = None


class Receipt(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Proof that a request was accepted."""

    conversation_id: Seq
    input_id: Seq
    payload: str
    """A digest of what was accepted."""


Intake: TypeAlias = Callable[[Tx, Seq, Seq, InboxItem], None]
"""Gives an accepted input a place: the transaction, the conversation, the input's id, the item."""

INBOX = conversation_list("pi.inbox", InboxItem, rewind=False)
_RESULT = conversation_value("pi.inputResult", InputResult, rewind=False)
_REQUEST = session_value("pi.request", Receipt)
_PAGE: Final = 1_000


def accept(
    tx: Tx,
    conversation: Seq,
    draft: EntryDraft,
    *,
    mode: InputMode = "followUp",
    request_id: str | None = None,
) -> Seq:
    """Queue an input and return its id.

    Raises:
        RequestAlreadyAcceptedError: The request id was used in this session before.
    """
    check_may_queue(tx)
    payload = digest(conversation, draft, mode)
    if request_id is not None:
        first = tx.value(_REQUEST.at_key(request_id)).get()
        if first is not None:
            raise RequestAlreadyAcceptedError(
                request_id,
                first.input_id,
                first.conversation_id,
                same_payload=first.payload == payload,
            )
    item = InboxItem(mode, draft, request_id)
    id = tx.list(INBOX, conversation=conversation).append(item)
    result = InputResult("queued", request_id)
    tx.value(_RESULT.at_key(str(id)), conversation=conversation).set(result)
    if request_id is not None:
        tx.value(_REQUEST.at_key(request_id)).set(Receipt(conversation, id, payload))
    return id


def check_draft(draft: EntryDraft) -> None:
    """Refuse what could never become an entry, whatever may be stored at first.

    What the draft's data and messages hold is looked at when it is stored.
    """
    check_instance(draft, EntryDraft, "draft", "an EntryDraft, such as EntryDraft('note')")
    check_name(draft.kind, "draft.kind")
    if draft.key is not None:
        check_name(draft.key, "draft.key", empty=True)


def digest(conversation: Seq, draft: EntryDraft, mode: InputMode) -> str:
    """Return what tells two payloads apart.

    Raises:
        StoredTypeError: The draft holds what JSON cannot.
    """
    try:
        body = msgspec.json.encode((conversation, mode, draft), order="deterministic")
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        problem = f"draft: {error}; allowed: what JSON can hold"
        raise StoredTypeError("STATE-2", problem) from error
    return sha256(body).hexdigest()[:32]


def check_may_queue(tx: Tx) -> None:
    """Refuse input from an abort, which may not ask for more work (design §6.3)."""
    if not tx.creates:
        problem = "an abort invocation accepts input"
        raise AuthorityError("TASKS-7", f"{problem}; allowed: outcomes and clean-up")


def queued(tx: Tx, conversation: Seq) -> list[Element[InboxItem]]:
    """Return the items that wait, in the order of acceptance."""
    items: list[Element[InboxItem]] = []
    after: Seq | None = None
    inbox = tx.list(INBOX, conversation=conversation)
    while True:
        page = inbox.read(ListQuery(after=after, limit=_PAGE))
        items += page.items
        if page.next is None:
            return items
        after = page.next


def result_of(tx: Tx, conversation: Seq, input_id: Seq) -> InputResult:
    """Return what became of an input.

    Raises:
        UnknownInputError: The conversation accepted no such input.
    """
    found = tx.value(_RESULT.at_key(str(input_id)), conversation=conversation).get()
    if found is None:
        problem = f"conversation {conversation} has no input {input_id}"
        raise UnknownInputError("IN-1", problem)
    return found


def place(
    tx: Tx, conversation: Seq, input_id: Seq, item: InboxItem, *, status: InputStatus = "running"
) -> Seq:
    """Turn a waiting item into its entry, and return the entry's id.

    Args:
        tx: Rewindable state must be written before.
        conversation: Where it waits.
        input_id: Its id.
        item: What was read of it.
        status: ``running`` if something will answer it, ``placed`` if nothing will.
    """
    result = result_of(tx, conversation, input_id)
    if result.status != "queued":
        raise _settled_already(input_id, result, status)
    tx.list(INBOX, conversation=conversation).remove(input_id)
    draft = item.entry
    entry = tx.entry(
        EntryKind[JsonValue](draft.kind),
        None if draft.data is UNSET else draft.data,
        conversation=conversation,
        model=draft.model,
        key=draft.key,
    )
    _write(tx, conversation, input_id, result, status, placement=entry)
    return entry


def resolve(
    tx: Tx,
    conversation: Seq,
    input_id: Seq,
    status: InputStatus,
    *,
    answer: Seq | None = None,
    reason: str | None = None,
) -> None:
    """Say how a running input ended.

    Raises:
        BuilderError: It has ended already, or was never placed.
    """
    result = result_of(tx, conversation, input_id)
    if result.status != "running" or status not in TERMINAL:
        raise _settled_already(input_id, result, status)
    _write(tx, conversation, input_id, result, status, answer=answer, reason=reason)


def withdraw(
    tx: Tx, conversation: Seq, input_id: Seq, *, reason: str | None = None
) -> Literal["cancelled", "placed", "not_found"]:
    """Cancel an item that waits; say so where it has a place already (IN-6)."""
    name = tx.value(_RESULT.at_key(str(input_id)), conversation=conversation)
    result = name.get()
    if result is None:
        return "not_found"
    if result.status == "cancelled" and result.placement_entry_id is None:
        return "cancelled"
    if result.status != "queued":
        return "placed"
    tx.list(INBOX, conversation=conversation).remove(input_id)
    _write(tx, conversation, input_id, result, "cancelled", reason=reason)
    return "cancelled"


def _write(
    tx: Tx,
    conversation: Seq,
    input_id: Seq,
    before: InputResult,
    status: InputStatus,
    *,
    placement: Seq | None = None,
    answer: Seq | None = None,
    reason: str | None = None,
) -> None:
    after = msgspec.structs.replace(
        before,
        status=status,
        placement_entry_id=placement if placement is not None else before.placement_entry_id,
        result_entry_id=answer,
        reason=reason,
    )
    tx.value(_RESULT.at_key(str(input_id)), conversation=conversation).set(after)


def _settled_already(input_id: Seq, result: InputResult, status: InputStatus) -> BuilderError:
    problem = f"input {input_id} is {result.status} and would become {status}"
    return BuilderError(
        "IN-1", f"{problem}; allowed: queued to running or an end, running to an end"
    )


# --- Reads outside a transaction ---


def read_result(storage: Storage, conversation: Seq, input_id: Seq) -> InputResult | None:
    """Return what became of an input, or ``None`` if the conversation accepted no such input."""
    name = _RESULT.at_key(str(input_id))
    version = storage.get_value(name.address(conversation))
    return None if version is None else name.decode(version.value)


def read_receipt(storage: Storage, request_id: str) -> Receipt | None:
    """Return the receipt of a request, or ``None`` if it was not accepted."""
    name = _REQUEST.at_key(request_id)
    version = storage.get_value(name.address(None))
    return None if version is None else name.decode(version.value)
