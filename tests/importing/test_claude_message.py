"""Messages of Claude Code transcripts take the vocabulary of entries, and the rest is kept."""

import pytest

from pico_store.records import JsonObject
from pico_store.storage import Store
from tests.importing.reading import entries, opened, unmapped
from tests.importing.transcripts import assistant, import_bytes, jsonl, result, text, use, user


def test_results_come_before_what_was_said_with_them(store: Store) -> None:
    image: JsonObject = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"},
    }
    import_bytes(
        store,
        jsonl(
            [
                user("u1", None, "hello"),
                assistant("a1", "u1", "m1", use("c1", "Read"), use("c2")),
                user(
                    "u2",
                    "a1",
                    [
                        text("and stop"),
                        result("c1", [text("seen"), image], is_error=True),
                        result("c2"),
                    ],
                    toolUseResult={"stdout": "x"},
                ),
            ]
        ),
    )

    *_, first, second, spoken = entries(opened(store))
    assert first.key == "c1"
    assert first.model == [
        {
            "role": "toolResult",
            "toolCallId": "c1",
            "toolName": "Read",
            "content": [
                {"type": "text", "text": "seen"},
                {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            ],
            "isError": True,
            "timestamp": 1767323041500,
        }
    ]
    assert second.key == "c2"
    assert spoken.model is not None
    assert spoken.model[0]["content"] == [{"type": "text", "text": "and stop"}]
    (left,) = unmapped(first)
    assert left["toolUseResult"] == {"stdout": "x"}
    assert left["uuid"] == "u2"


def test_blocks_without_a_counterpart_stay_in_data(store: Store) -> None:
    document: JsonObject = {"type": "document", "source": {"type": "file", "file_id": "f"}}
    import_bytes(
        store,
        jsonl([user("u1", None, [document]), user("u2", "u1", [text("see"), document])]),
    )

    only, mixed = entries(opened(store))
    assert only.model is None
    assert mixed.model is not None
    assert mixed.model[0]["content"] == [{"type": "text", "text": "see"}]
    (left,) = unmapped(mixed)
    message = left["message"]
    assert isinstance(message, dict)
    assert message["content"] == {"1": document}


@pytest.mark.parametrize(
    ("stop", "reason"),
    [("end_turn", "stop"), ("max_tokens", "length"), ("new one", "stop"), (None, "stop")],
)
def test_why_an_answer_ended_is_translated(store: Store, stop: str | None, reason: str) -> None:
    answer = assistant("a1", "u1", "m1", text("hi"))
    message = answer["message"]
    assert isinstance(message, dict)
    message["stop_reason"] = stop

    import_bytes(store, jsonl([user("u1", None, "hello"), answer]))

    entry = entries(opened(store))[-1]
    assert entry.model is not None
    assert entry.model[0]["stopReason"] == reason


def test_an_error_in_the_place_of_an_answer_is_kept_out_of_the_model(store: Store) -> None:
    failed = assistant("a1", "u1", "m1", text("overloaded"), isApiErrorMessage=True)

    import_bytes(store, jsonl([user("u1", None, "hello"), failed]))

    entry = entries(opened(store))[-1]
    assert entry.model is None
    assert isinstance(entry.data, dict)
    message = entry.data["message"]
    assert isinstance(message, dict)
    assert (message["stopReason"], message["errorMessage"]) == ("error", "overloaded")


def test_redacted_thinking_keeps_its_bytes(store: Store) -> None:
    hidden: JsonObject = {"type": "redacted_thinking", "data": "QUJD"}

    import_bytes(store, jsonl([user("u1", None, "x"), assistant("a", "u1", "m", hidden)]))

    entry = entries(opened(store))[-1]
    assert entry.model is not None
    assert entry.model[0]["content"] == [
        {"type": "thinking", "thinking": "", "signature": "QUJD", "redacted": True}
    ]
