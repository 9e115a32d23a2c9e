"""The payload of an entry in stored form: its data, model projection and edits."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from pico_store.address import Seq
from pico_store.errors import InvalidBatchError, InvalidValueError, LimitExceededError
from pico_store.limits import SEQ_MAX, VALUE_BYTES_MAX
from pico_store.records import ContextEdit, Entry, JsonObject, JsonValue, Omit, Replace
from pico_store.shown import shown
from pico_store.strict_json import json_size, pack, unpack

_OBJECT: Final = frozenset((dict,))


class EntryColumns(NamedTuple):
    """The parts of an entry that storage indexes or compares without decoding its body."""

    id: Seq
    conversation_id: Seq
    kind: str
    key: str | None
    by_task_id: Seq | None
    head: Seq | None


def pack_entry(entry: Entry) -> bytes:
    """Return the body of an entry after checking it; one absent part takes no room.

    Raises:
        RefusedError: A part is not strict JSON or not of the form that its field has.
    """
    body: JsonObject = {}
    if entry.model is not None:
        if type(entry.model) is not list or not _OBJECT.issuperset(map(type, entry.model)):
            problem = "not a list of objects; allowed: a list of messages"
            raise InvalidBatchError("ENT-1", "model", problem)
        body["model"] = entry.model  # type: ignore[assignment]
    if entry.data is not UNSET:
        body["data"] = entry.data
    if entry.edits is not None:
        if type(entry.edits) not in (tuple, list):
            problem = f"{type(entry.edits).__name__}; allowed: a tuple of Omit and Replace"
            raise InvalidBatchError("ENT-4", "edits", problem)
        body["edits"] = [_edit_object(edit, index) for index, edit in enumerate(entry.edits)]
    try:
        return pack(body, "")
    except InvalidValueError as error:
        if error.clause != "JSON-4":
            raise
    return _pack_deep(entry, body)


def _pack_deep(entry: Entry, body: JsonObject) -> bytes:
    """Pack a body that is deeper than a value may be, if no part of it is.

    The limit is for what the caller passed; the body itself adds up to three levels.
    """
    if entry.model is not None:
        pack(entry.model, "model")  # type: ignore[arg-type]
    if entry.data is not UNSET:
        pack(entry.data, "data")
    for index, edit in enumerate(entry.edits or ()):
        if isinstance(edit, Replace):
            pack(edit.messages, f"edits[{index}].messages")  # type: ignore[arg-type]
    if (size := json_size(body)) > VALUE_BYTES_MAX:
        problem = f"{size:,} bytes as JSON; allowed: {VALUE_BYTES_MAX:,}"
        raise LimitExceededError("JSON-5", "", problem)
    return msgspec.msgpack.encode(body)


def unpack_entry(columns: EntryColumns, body: bytes) -> Entry:
    """Return a fresh entry from its indexed parts and its body."""
    parts = unpack(body)
    assert type(parts) is dict
    data: JsonValue | UnsetType = parts.get("data", UNSET)
    edits = parts.get("edits")
    return Entry(
        id=columns.id,
        conversation_id=columns.conversation_id,
        kind=columns.kind,
        key=columns.key,
        by_task_id=columns.by_task_id,
        data=data,
        model=parts.get("model"),  # type: ignore[arg-type]
        head=columns.head,
        edits=None if edits is None else tuple(map(_edit, edits)),  # type: ignore[arg-type]
    )


def _edit_object(edit: object, index: int) -> JsonObject:
    if type(edit) is Omit:
        _check_target(edit.target, index)
        return {"target": edit.target}
    if type(edit) is Replace:
        _check_target(edit.target, index)
        if type(edit.messages) is not list or not _OBJECT.issuperset(map(type, edit.messages)):
            problem = "not a list of objects; allowed: a list of messages"
            raise InvalidBatchError("ENT-4", f"edits[{index}].messages", problem)
        return {"target": edit.target, "messages": edit.messages}  # type: ignore[dict-item]
    problem = f"{type(edit).__name__}; allowed: Omit or Replace"
    raise InvalidBatchError("ENT-4", f"edits[{index}]", problem)


def _check_target(target: object, index: int) -> None:
    # Before the body is packed, which would refuse some of these as values.
    if type(target) is not int or not 0 < target <= SEQ_MAX:
        problem = f"{shown(target)}; allowed: an integer from 1 to 2^53-1"
        raise InvalidBatchError("SEQ-2", f"edits[{index}].target", problem)


def _edit(part: JsonObject) -> ContextEdit:
    target = Seq(part["target"])  # type: ignore[arg-type]
    if "messages" in part:
        return Replace(target=target, messages=part["messages"])  # type: ignore[arg-type]
    return Omit(target=target)
