"""Small foreign transcripts, written by the tests themselves."""

import io
import json
from collections.abc import Iterable, Mapping

from pico_store.importing import ImportReport, import_transcript, read_transcript
from pico_store.records import JsonObject, JsonValue
from pico_store.storage import Store

SESSION = "7f1c0a52-0000-4000-8000-000000000001"


def jsonl(records: Iterable[Mapping[str, JsonValue]]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def import_bytes(store: Store, data: bytes, session: str = "s") -> ImportReport:
    return import_transcript(read_transcript(io.BytesIO(data)), store, session)


def time(second: int) -> str:
    return f"2026-01-02T03:04:{second:02}.500Z"


# --- pi ------------------------------------------------------------------------------------------


def pi_header(**more: JsonValue) -> JsonObject:
    return {"type": "session", "id": SESSION, "timestamp": time(0), "cwd": "/home/dev", **more}


def pi_message(second: int, **message: JsonValue) -> JsonObject:
    return {"type": "message", "timestamp": time(second), "message": message}


def pi_user(second: int, text: str) -> JsonObject:
    content: list[JsonValue] = [{"type": "text", "text": text}]
    return pi_message(second, role="user", content=content, timestamp=1000 + second)


def pi_assistant(second: int, *content: JsonValue, **more: JsonValue) -> JsonObject:
    return pi_message(
        second,
        role="assistant",
        content=[*content],
        api="some-api",
        provider="p",
        model="m",
        **{"stopReason": "stop", "timestamp": 1000 + second, **more},
    )


def pi_call(id: str, name: str = "read") -> JsonObject:
    return {"type": "toolCall", "id": id, "name": name, "arguments": {"path": "a"}}


def pi_result(second: int, call: str, text: str) -> JsonObject:
    return pi_message(
        second,
        role="toolResult",
        toolCallId=call,
        toolName="read",
        content=[{"type": "text", "text": text}],
        isError=False,
        timestamp=1000 + second,
    )


# --- Claude Code ---------------------------------------------------------------------------------


def record(kind: str, uuid: str, parent: str | None, **more: JsonValue) -> JsonObject:
    return {
        "type": kind,
        "uuid": uuid,
        "parentUuid": parent,
        "sessionId": SESSION,
        "isSidechain": False,
        "timestamp": time(1),
        **more,
    }


def user(uuid: str, parent: str | None, content: JsonValue, **more: JsonValue) -> JsonObject:
    return record("user", uuid, parent, message={"role": "user", "content": content}, **more)


def assistant(
    uuid: str, parent: str | None, answer: str, *content: JsonValue, **more: JsonValue
) -> JsonObject:
    message: JsonObject = {
        "id": answer,
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": [*content],
        "stop_reason": None,
        "usage": {"input_tokens": 3, "output_tokens": 5},
    }
    return record("assistant", uuid, parent, message=message, **more)


def text(said: str) -> JsonObject:
    return {"type": "text", "text": said}


def use(id: str, name: str = "Bash") -> JsonObject:
    return {"type": "tool_use", "id": id, "name": name, "input": {"command": "ls"}}


def result(call: str, content: JsonValue = "done", **more: JsonValue) -> JsonObject:
    return {"type": "tool_result", "tool_use_id": call, "content": content, **more}
