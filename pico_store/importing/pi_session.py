"""Sessions of the `pi` coding agent: a header line, then one message or change a line."""

from __future__ import annotations

from pico_store.importing.errors import TranscriptError
from pico_store.importing.fields import Fields, read_blocks, set_present, unix_ms
from pico_store.importing.lines import Line
from pico_store.importing.transcript import Draft, Node, Transcript, message_draft, note
from pico_store.records import JsonObject, JsonValue

NAME = "pi"
_ROLES = ("user", "assistant", "toolResult")
_UNFINISHED = ("error", "aborted", "deferred")
_COUNTS = ("input", "output", "cacheRead", "cacheWrite")


def recognises(record: JsonObject) -> bool:
    """Tell whether a record can only come from such a session."""
    if record.get("type") == "session":
        return isinstance(record.get("id"), str)
    message = record.get("message")
    return (
        record.get("type") == "message"
        and isinstance(message, dict)
        and message.get("role") in _ROLES
    )


def read(lines: list[Line]) -> Transcript:
    """Return the transcript of a session's lines.

    Records follow one another; where they carry ``id`` and ``parentId``, these say what follows
    what, so that a file with branches gives forks.
    """
    transcript = Transcript(NAME, None)
    # By record id, the node that holds the record or that it stands behind.
    places: dict[str, int | None] = {}
    time = 0
    last: int | None = None
    for line in lines:
        record = line.record
        name = record.get("type")
        if not isinstance(name, str):
            raise TranscriptError("no type; needed: a text", line.number)
        if name == "session" and transcript.session_id is None:
            found = record.get("id")
            transcript.session_id = found if isinstance(found, str) else None
            transcript.preface.append(note(line.number, record, name))
            continue
        time = unix_ms(_text(record.get("timestamp"))) or time
        parent = record.get("parentId")
        place = last
        if isinstance(parent, str):
            place = places.get(parent, last)
            transcript.lost_parents += parent not in places and parent != transcript.session_id
        if _is_message(record):
            drafts = [_message(line, time)]
            transcript.nodes.append(Node(line.number, line.number, place, drafts))
            place = last = len(transcript.nodes) - 1
        else:
            notes = transcript.preface if place is None else transcript.nodes[place].notes
            notes.append(note(line.number, record, name))
        identity = record.get("id")
        if isinstance(identity, str):
            places[identity] = place
    return transcript


def _is_message(record: JsonObject) -> bool:
    if record.get("type") != "message":
        return False
    message = record.get("message")
    return isinstance(message, dict) and message.get("role") in _ROLES


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) else None


def _message(line: Line, time: int) -> Draft:
    fields = Fields(line.record, line.number)
    fields.text("type")
    message = fields.need_part("message")
    role = message.need_text("role")
    timestamp = message.number("timestamp")
    sent = int(timestamp) if timestamp is not None else time
    match role:
        case "user":
            mapped = _user(message, sent)
        case "assistant":
            mapped = _assistant(message, sent)
        case _:
            mapped = _tool_result(message, sent)
    fields.keep("message", message.left)
    projected = bool(mapped["content"]) or role == "toolResult"
    if role == "assistant":
        projected = projected and mapped["stopReason"] not in _UNFINISHED
    return message_draft(
        line.number,
        "tool_result" if role == "toolResult" else role,
        mapped,
        [fields.left],
        projected=projected,
        key=_text(mapped.get("toolCallId")),
    )


def _user(message: Fields, sent: int) -> JsonObject:
    content = message.left.get("content")
    if isinstance(content, str):
        message.text("content")
        return {"role": "user", "content": content, "timestamp": sent}
    blocks = read_blocks(message, "content", _block)
    return {"role": "user", "content": [*blocks], "timestamp": sent}


def _assistant(message: Fields, sent: int) -> JsonObject:
    mapped: JsonObject = {
        "role": "assistant",
        "content": [*read_blocks(message, "content", _block)],
        "provider": message.need_text("provider"),
        "model": message.need_text("model"),
    }
    set_present(mapped, [("usage", _usage(message))])
    mapped["stopReason"] = message.need_text("stopReason")
    optional = ("responseId", "errorMessage")
    set_present(mapped, [(name, message.text(name)) for name in optional])
    mapped["timestamp"] = sent
    return mapped


def _tool_result(message: Fields, sent: int) -> JsonObject:
    mapped: JsonObject = {
        "role": "toolResult",
        "toolCallId": message.need_text("toolCallId"),
        "toolName": message.need_text("toolName"),
        "content": [*read_blocks(message, "content", _block)],
    }
    set_present(mapped, [("details", message.value("details")), ("usage", _usage(message))])
    mapped["isError"] = message.flag("isError")
    mapped["timestamp"] = sent
    return mapped


def _usage(message: Fields) -> JsonObject | None:
    usage = message.part("usage")
    if usage is None:
        return None
    counts = [(name, usage.number(name)) for name in (*_COUNTS, "reasoning")]
    mapped = set_present({}, counts)
    total = usage.number("totalTokens")
    if total is None and all(name in mapped for name in _COUNTS):
        # Older sessions leave the sum out; it is no more than this sum.
        total = sum(count for name, count in counts if name in _COUNTS and count is not None)
    cost = usage.part("cost")
    set_present(mapped, [("totalTokens", total)])
    if cost is not None:
        mapped["cost"] = set_present({}, [(n, cost.number(n)) for n in (*_COUNTS, "total")])
        usage.keep("cost", cost.left)
    message.keep("usage", usage.left)
    return mapped


def _block(kind: str, block: Fields) -> JsonObject | None:
    match kind:
        case "text":
            mapped: JsonObject = {"type": "text", "text": block.need_text("text")}
            return set_present(mapped, [("signature", block.text("textSignature"))])
        case "thinking":
            mapped = {"type": "thinking", "thinking": block.need_text("thinking")}
            set_present(mapped, [("signature", block.text("thinkingSignature"))])
            return set_present(mapped, [("redacted", block.flag("redacted") or None)])
        case "image":
            data = block.need_text("data")
            return {"type": "image", "data": data, "mimeType": block.need_text("mimeType")}
        case "toolCall":
            mapped = {
                "type": "toolCall",
                "id": block.need_text("id"),
                "name": block.need_text("name"),
            }
            arguments = block.need_part("arguments")
            mapped["arguments"] = arguments.left
            return set_present(mapped, [("signature", block.text("thoughtSignature"))])
        case _:
            return None
