"""Messages of Claude Code transcripts, in the model provider's own form, mapped to entries."""

from __future__ import annotations

from collections.abc import Mapping

from pico_store.importing.fields import Fields, read_blocks, set_present
from pico_store.importing.transcript import Draft, message_draft
from pico_store.records import JsonObject, JsonValue

_STOP_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "toolUse",
    "refusal": "error",
}
_COUNTS = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cacheRead": "cache_read_input_tokens",
    "cacheWrite": "cache_creation_input_tokens",
}
_NO_MODEL = "<synthetic>"


def tool_calls(content: JsonValue) -> dict[str, str]:
    """Return the tool calls among content blocks: names by id."""
    return {
        str(block["id"]): str(block.get("name"))
        for block in _objects(content)
        if block.get("type") == "tool_use" and isinstance(block.get("id"), str)
    }


def answered_calls(content: JsonValue) -> set[str]:
    """Return the ids of the tool calls that content blocks answer."""
    return {
        str(block["tool_use_id"])
        for block in _objects(content)
        if block.get("type") == "tool_result" and isinstance(block.get("tool_use_id"), str)
    }


def _objects(content: JsonValue) -> list[JsonObject]:
    if not isinstance(content, list):
        return []
    return [block for block in content if isinstance(block, dict)]


def assistant_draft(records: list[Fields], sent: int) -> Draft:
    """Return the entry of one answer, which the file holds in one record a content block.

    Args:
        records: The answer's records, in order; at least one.
        sent: Unix time in milliseconds.
    """
    content: list[JsonValue] = []
    usage: JsonObject | None = None
    response = model = stop = None
    failed = False
    for record in records:
        message = record.need_part("message")
        message.text("role")
        content += read_blocks(message, "content", _assistant_block)
        response = message.text("id") or response
        model = message.text("model") or model
        stop = message.text("stop_reason") or stop
        # What the last record counts is the answer's; the earlier ones were still being streamed.
        usage = _usage(message) or usage
        failed = record.flag("isApiErrorMessage") or failed
        record.keep("message", message.left)
        record.text("type")
    calls = any(isinstance(b, dict) and b.get("type") == "toolCall" for b in content)
    reason = _STOP_REASONS.get(stop or "", "toolUse" if calls else "stop")
    if failed:
        reason = "error"
    mapped: JsonObject = {
        "role": "assistant",
        "content": content,
        "provider": "anthropic",
        "model": model or "unknown",
    }
    set_present(mapped, [("usage", usage)])
    mapped["stopReason"] = reason
    set_present(mapped, [("responseId", response)])
    if reason == "error":
        mapped["errorMessage"] = _first_text(content) or stop or "error"
    mapped["timestamp"] = sent
    return message_draft(
        records[0].line,
        "assistant",
        mapped,
        [record.left for record in records],
        # What the agent put in the model's mouth was never said by one.
        projected=bool(content) and reason != "error" and model != _NO_MODEL,
    )


def user_drafts(record: Fields, sent: int, calls: Mapping[str, str]) -> list[Draft]:
    """Return the entries of a user record: each tool result it carries, then what was said.

    Args:
        record: The whole record.
        sent: Unix time in milliseconds.
        calls: The names of the tool calls in the file, by id.
    """
    message = record.need_part("message")
    message.text("role")
    record.text("type")
    results: list[JsonObject] = []

    def read(kind: str, block: Fields) -> JsonObject | None:
        if kind != "tool_result" or not isinstance(block.left.get("tool_use_id"), str):
            return _user_block(kind, block)
        results.append(_tool_result(block, sent, calls))
        return results[-1]

    plain = message.left.get("content")
    if isinstance(plain, str):
        message.text("content")
        said: JsonValue = plain
    else:
        blocks = read_blocks(message, "content", read)
        said = [block for block in blocks if block.get("role") != "toolResult"]
    summary = record.flag("isCompactSummary")
    record.keep("message", message.left)
    drafts: list[Draft] = []
    for result in results:
        # The record's own fields stand once, at its first entry.
        left = [] if drafts else [record.left]
        key = str(result["toolCallId"])
        drafts.append(message_draft(record.line, "tool_result", result, left, key=key))
    if said or not drafts:
        mapped: JsonObject = {"role": "user", "content": said, "timestamp": sent}
        drafts.append(
            message_draft(
                record.line,
                "summary" if summary else "user",
                mapped,
                [] if drafts else [record.left],
                projected=bool(said),
                starts_context=summary,
            )
        )
    return drafts


def _tool_result(block: Fields, sent: int, calls: Mapping[str, str]) -> JsonObject:
    call = block.need_text("tool_use_id")
    return {
        "role": "toolResult",
        "toolCallId": call,
        "toolName": calls.get(call, "unknown"),
        "content": [*read_blocks(block, "content", _user_block)],
        "isError": block.flag("is_error"),
        "timestamp": sent,
    }


def _user_block(kind: str, block: Fields) -> JsonObject | None:
    if kind == "text":
        return {"type": "text", "text": block.need_text("text")}
    if kind != "image":
        return None
    found = block.left.get("source")
    if not isinstance(found, dict) or found.get("type") != "base64":
        return None
    source = block.need_part("source")
    source.text("type")
    data = source.need_text("data")
    mapped: JsonObject = {"type": "image", "data": data, "mimeType": source.need_text("media_type")}
    block.keep("source", source.left)
    return mapped


def _assistant_block(kind: str, block: Fields) -> JsonObject | None:
    match kind:
        case "text":
            return {"type": "text", "text": block.need_text("text")}
        case "thinking":
            mapped: JsonObject = {"type": "thinking", "thinking": block.need_text("thinking")}
            return set_present(mapped, [("signature", block.text("signature"))])
        case "redacted_thinking":
            data = block.need_text("data")
            return {"type": "thinking", "thinking": "", "signature": data, "redacted": True}
        case "tool_use":
            mapped = {
                "type": "toolCall",
                "id": block.need_text("id"),
                "name": block.need_text("name"),
            }
            mapped["arguments"] = block.need_part("input").left
            return mapped
        case _:
            return None


def _usage(message: Fields) -> JsonObject | None:
    usage = message.part("usage")
    if usage is None:
        return None
    counts = {name: usage.number(theirs) for name, theirs in _COUNTS.items()}
    mapped = set_present({}, counts.items())
    known = [count for count in counts.values() if count is not None]
    if len(known) == len(counts):
        mapped["totalTokens"] = sum(known)
    message.keep("usage", usage.left)
    return mapped or None


def _first_text(content: list[JsonValue]) -> str | None:
    for block in content:
        if isinstance(block, dict) and isinstance(block.get("text"), str):
            return str(block["text"])
    return None
