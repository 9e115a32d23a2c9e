"""Entries and messages in one line each, for people."""

from __future__ import annotations

import json
from collections.abc import Iterable

from msgspec import UNSET

from pico_store.commands.output import shorten
from pico_store.records import Entry, JsonObject, JsonValue

_WIDTH = 100


def entry_line(entry: Entry) -> str:
    """Return an entry's id, kind, controls and the beginning of what it says."""
    parts = []
    if entry.head is not None:
        parts.append(f"[head {entry.head}]")
    if entry.edits:
        parts.append(f"[{len(entry.edits)} edits]")
    if entry.model is not None:
        parts.append(messages_excerpt(entry.model))
    elif entry.data is not UNSET:
        parts.append(_data(entry.data))
    return f"{entry.id:>8}  {entry.kind:<12}  {shorten(' '.join(parts), _WIDTH)}".rstrip()


def messages_excerpt(messages: Iterable[JsonObject]) -> str:
    """Return the beginning of what messages say."""
    return " | ".join(_message(message) for message in messages)


def _data(data: JsonValue) -> str:
    """Return the beginning of what an entry holds for others than the model."""
    message = data.get("message") if isinstance(data, dict) else None
    if isinstance(data, dict) and isinstance(message, dict) and "type" not in data:
        return f"(the model does not see this) {_message(message)}"
    return f"({json.dumps(data, ensure_ascii=False)[: _WIDTH * 4]})"


def _message(message: JsonObject) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content[: _WIDTH * 4]
    if not isinstance(content, list):
        return ""
    return " ".join(filter(None, map(_block, content)))


def _block(block: JsonValue) -> str:
    if not isinstance(block, dict):
        return ""
    match block.get("type"):
        case "text":
            return str(block.get("text"))[: _WIDTH * 4]
        case "thinking":
            return f"(thinking: {str(block.get('thinking'))[:_WIDTH]})"
        case "toolCall":
            arguments = json.dumps(block.get("arguments"), ensure_ascii=False)
            return f"→ {block.get('name')} {arguments[: _WIDTH * 4]}"
        case "image":
            return f"(image, {block.get('mimeType')})"
        case other:
            return f"({other})"
