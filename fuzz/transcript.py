"""Small transcripts of coding agents to make strange ones from."""

from __future__ import annotations

import json
from random import Random
from typing import Final

_WORDS: Final = ("kettle", "tea", "boil", "é", "", "a b", "\n", "🙂")


def some_transcript(random: Random) -> list[bytes]:
    """Return the lines of a transcript in one of the two formats."""
    records = _claude_code(random) if random.random() < 0.5 else _pi(random)
    return [json.dumps(record).encode() + b"\n" for record in records]


def _claude_code(random: Random) -> list[dict[str, object]]:
    records: list[dict[str, object]] = []
    parent: str | None = None
    for number in range(random.randint(1, 8)):
        name = f"u{number}"
        asks = number % 2 == 0
        content: str | list[dict[str, object]] = random.choice(_WORDS)
        if random.random() < 0.5:
            content = [{"type": "text", "text": random.choice(_WORDS)}]
            if not asks:
                call: dict[str, object] = {
                    "type": "tool_use",
                    "id": f"c{number}",
                    "name": "sh",
                    "input": {},
                }
                content = [*content, call]
            elif number:
                part: dict[str, object] = {
                    "type": "tool_result",
                    "tool_use_id": f"c{number - 1}",
                    "content": "ok",
                }
                content = [*content, part]
        records.append(
            {
                "type": "user" if asks else "assistant",
                "uuid": name,
                "parentUuid": parent,
                "sessionId": "s",
                "timestamp": f"2026-01-02T03:04:{number:02}.500Z",
                "message": {"role": "user" if asks else "assistant", "content": content},
            }
        )
        parent = name if random.random() < 0.8 else parent
    records.append({"type": "summary", "summary": "tea", "leafUuid": parent})
    return records


def _pi(random: Random) -> list[dict[str, object]]:
    records: list[dict[str, object]] = [
        {"type": "session", "id": "s", "timestamp": "2026-01-02T03:04:00.500Z", "cwd": "/home/dev"}
    ]
    for number in range(random.randint(1, 8)):
        message: dict[str, object] = {
            "role": ("user", "assistant", "toolResult")[number % 3],
            "content": [{"type": "text", "text": random.choice(_WORDS)}],
            "timestamp": 1_000 + number,
        }
        if number % 3 == 1:
            call = {"type": "toolCall", "id": f"c{number}", "name": "sh", "arguments": {}}
            message["content"] = [call]
            message |= {"provider": "p", "model": "m", "stopReason": "toolUse"}
        elif number % 3 == 2:
            message |= {"toolCallId": f"c{number - 1}", "toolName": "sh", "isError": False}
        time = f"2026-01-02T03:04:{number:02}.500Z"
        records.append({"type": "message", "timestamp": time, "message": message})
    return records
