"""Sessions of the pi agent become sessions of a store."""

import pytest
from msgspec import UNSET

from pico_store.importing import TranscriptError
from pico_store.records import JsonObject, JsonValue
from pico_store.storage import Store
from tests.importing.reading import conversations, entries, opened, said
from tests.importing.transcripts import (
    SESSION,
    import_bytes,
    jsonl,
    pi_assistant,
    pi_call,
    pi_header,
    pi_message,
    pi_result,
    pi_user,
)


def test_messages_become_entries_in_the_order_of_the_file(store: Store) -> None:
    report = import_bytes(
        store,
        jsonl(
            [
                pi_header(),
                pi_user(1, "look"),
                pi_assistant(2, {"type": "text", "text": "well"}, pi_call("c1"), pi_call("c2")),
                pi_result(3, "c1", "one"),
                pi_result(4, "c2", "two"),
                pi_assistant(5, {"type": "text", "text": "done"}),
            ]
        ),
    )

    storage = opened(store)
    assert said(storage) == ["look", "well", ">c1", ">c2", "<c1", "<c2", "done"]
    assert [c.id for c in conversations(storage)] == [1]
    assert (report.format, report.entries, report.conversations) == ("pi", 6, 1)


def test_a_message_keeps_the_vocabulary_and_the_rest_stays_in_data(store: Store) -> None:
    cost: JsonObject = {"input": 1, "output": 2, "cacheRead": 0, "cacheWrite": 0, "total": 3}
    usage: JsonObject = {"input": 1, "output": 2, "cacheRead": 4, "cacheWrite": 8, "cost": cost}
    thinking: JsonValue = {"type": "thinking", "thinking": "hm", "thinkingSignature": "sig"}
    call = {**pi_call("c"), "partialJson": "{"}

    import_bytes(store, jsonl([pi_header(), pi_assistant(2, thinking, call, usage=usage)]))

    (entry,) = (e for e in entries(opened(store)) if e.kind == "assistant")
    assert entry.model == [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "sig"},
                {"type": "toolCall", "id": "c", "name": "read", "arguments": {"path": "a"}},
            ],
            "provider": "p",
            "model": "m",
            "usage": {**usage, "totalTokens": 15},
            "stopReason": "stop",
            "timestamp": 1002,
        }
    ]
    left = {"api": "some-api", "content": {"1": {"partialJson": "{"}}}
    assert entry.data == {"records": [{"timestamp": "2026-01-02T03:04:02.500Z", "message": left}]}


def test_a_result_is_found_by_its_call(store: Store) -> None:
    import_bytes(
        store, jsonl([pi_header(), pi_assistant(1, pi_call("c1")), pi_result(2, "c1", "one")])
    )

    (entry,) = (e for e in entries(opened(store)) if e.kind == "tool_result")
    assert entry.key == "c1"


@pytest.mark.parametrize("reason", ["aborted", "error", "deferred"])
def test_an_answer_that_did_not_finish_is_kept_out_of_the_model(store: Store, reason: str) -> None:
    answer = pi_assistant(
        2, {"type": "text", "text": "I"}, stopReason=reason, errorMessage="stopped"
    )

    import_bytes(store, jsonl([pi_header(), pi_user(1, "hi"), answer]))

    (entry,) = (e for e in entries(opened(store)) if e.kind == "assistant")
    assert entry.model is None
    assert isinstance(entry.data, dict)
    message = entry.data["message"]
    assert isinstance(message, dict)
    assert (message["stopReason"], message["errorMessage"]) == (reason, "stopped")


def test_an_answer_without_content_is_kept_out_of_the_model(store: Store) -> None:
    import_bytes(store, jsonl([pi_header(), pi_user(1, "hi"), pi_assistant(2)]))

    (entry,) = (e for e in entries(opened(store)) if e.kind == "assistant")
    assert entry.model is None


def test_other_records_are_kept_as_they_are_and_counted(store: Store) -> None:
    change: JsonObject = {"type": "model_change", "timestamp": "t", "modelId": "n"}
    unheard: JsonObject = {"type": "unheard of", "x": [1, {"y": None}]}
    role = pi_message(5, role="bashExecution", command="ls")

    report = import_bytes(store, jsonl([pi_header(), pi_user(1, "hi"), change, unheard, role]))

    found = {e.kind: e for e in entries(opened(store))}
    assert report.notes == {"message": 1, "model_change": 1, "session": 1, "unheard of": 1}
    assert found["import.unheard of"].data == unheard
    assert found["import.unheard of"].model is None
    assert found["import.model_change"].data == change
    assert found["import.message"].data == role


def test_the_file_names_the_session(store: Store) -> None:
    from_file = jsonl([pi_header(), pi_user(1, "hi")])

    import_bytes(store, from_file, SESSION)

    assert [info.id for info in store.sessions()] == [SESSION]


def test_parents_in_the_file_make_forks(store: Store) -> None:
    def at(record: JsonObject, id: str, parent: str | None) -> JsonObject:
        return {**record, "id": id, "parentId": parent}

    answer = pi_assistant(2, {"type": "text", "text": "one"})
    again = pi_assistant(4, {"type": "text", "text": "two"})
    import_bytes(
        store,
        jsonl(
            [
                pi_header(version=3),
                at(pi_user(1, "hi"), "a", None),
                at(answer, "b", "a"),
                at({"type": "label"}, "c", "a"),
                at(again, "d", "c"),
            ]
        ),
    )

    storage = opened(store)
    root, fork = conversations(storage)
    assert said(storage) == ["hi", "two"]
    assert said(storage, fork.id) == ["hi", "one"]
    assert root.parent is None


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ({"role": "user", "content": 7}, "line 2: message.content is a number; needed: a text or"),
        ({"role": "user", "content": ["x"]}, "line 2: message.content[0] is a text; needed: an"),
        ({"role": "toolResult", "content": []}, "line 2: no message.toolCallId; needed: a text"),
        (
            {"role": "assistant", "content": [{"type": "text"}]},
            "line 2: no message.content[0].text; needed: a text",
        ),
        (
            {"role": "assistant", "content": [], "provider": "p", "model": 1},
            "line 2: message.model is a number; needed: a text",
        ),
    ],
)
def test_a_message_of_another_form_is_named(
    store: Store, message: JsonObject, problem: str
) -> None:
    with pytest.raises(TranscriptError) as caught:
        import_bytes(store, jsonl([pi_header(), {"type": "message", "message": message}]))

    assert str(caught.value).startswith(problem)
    assert store.sessions() == []


def test_absent_data_stays_absent(store: Store) -> None:
    bare: JsonObject = {"type": "message", "message": {"role": "user", "content": "hi"}}

    import_bytes(store, jsonl([pi_header(), bare]))

    (entry,) = (e for e in entries(opened(store)) if e.kind == "user")
    assert entry.data is UNSET
