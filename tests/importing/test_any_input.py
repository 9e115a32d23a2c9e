"""Whatever a file holds is refused by name or becomes a session that commits could have made."""

import io
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from pico_store.backends import open_store
from pico_store.importing import TranscriptError, read_transcript
from pico_store.importing.load import import_transcript
from pico_store.records import JsonObject, JsonValue
from tests.importing.committing import commit_all
from tests.importing.reading import opened
from tests.importing.transcripts import pi_header

NAMES = st.sampled_from(["u1", "u2", "u3", "a1", "a2", "x", ""])
CALLS = st.sampled_from(["c1", "c2", "c3"])
odd: st.SearchStrategy[JsonValue] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(st.characters(), max_size=5),
    ),
    lambda part: st.one_of(
        st.lists(part, max_size=3), st.dictionaries(st.text(max_size=3), part, max_size=3)
    ),
    max_leaves=5,
)


def member(likely: st.SearchStrategy[JsonValue]) -> st.SearchStrategy[JsonValue]:
    """Draw what belongs there, and rarely anything else."""
    return st.integers(0, 19).flatmap(lambda dice: odd if dice == 0 else likely)


def an_object(**members: st.SearchStrategy[JsonValue]) -> st.SearchStrategy[JsonObject]:
    return st.fixed_dictionaries(
        {}, optional={name: member(value) for name, value in members.items()}
    )


texts: st.SearchStrategy[JsonValue] = st.text(st.characters(), max_size=4)
blocks: st.SearchStrategy[JsonValue] = st.lists(
    st.one_of(
        texts.map(lambda text: {"type": "text", "text": text}),
        CALLS.map(lambda id: {"type": "tool_use", "id": id, "name": "n", "input": {}}),
        CALLS.map(lambda id: {"type": "tool_result", "tool_use_id": id, "content": "r"}),
        CALLS.map(lambda id: {"type": "toolCall", "id": id, "name": "n", "arguments": {}}),
        st.just({"type": "document"}),
        odd,
    ),
    max_size=3,
)
flags: st.SearchStrategy[JsonValue] = st.booleans()
claude_messages: st.SearchStrategy[JsonValue] = st.fixed_dictionaries(
    {"role": st.just("user"), "content": st.one_of(texts, blocks)},
    optional={
        "id": st.sampled_from(["m1", "m2"]),
        "stop_reason": st.sampled_from(["tool_use", "refusal", "new"]),
        "usage": an_object(input_tokens=st.integers(0, 9)),
    },
)
claude_records = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["user", "assistant", "user", "assistant", "system"]),
        "uuid": NAMES,
        "parentUuid": st.one_of(st.none(), NAMES),
        "message": claude_messages,
    },
    optional={
        "sessionId": texts,
        "isSidechain": flags,
        "agentId": NAMES,
        "isCompactSummary": flags,
        "isApiErrorMessage": flags,
        "logicalParentUuid": NAMES,
        "timestamp": st.sampled_from(["2026-01-02T03:04:05Z", "never", "0001-01-01T00:00:00"]),
        "extra": odd,
    },
)
pi_records = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["message", "message", "model_change", "session"]),
        "message": st.fixed_dictionaries(
            {
                "role": st.sampled_from(["user", "assistant", "toolResult", "other"]),
                "content": st.one_of(texts, blocks),
                "provider": st.just("p"),
                "model": st.just("m"),
                "stopReason": st.sampled_from(["stop", "toolUse", "aborted"]),
                "toolCallId": CALLS,
                "toolName": st.just("n"),
            },
            optional={"usage": an_object(input=st.integers(0, 9)), "timestamp": st.integers()},
        ),
    },
    optional={"id": NAMES, "parentId": NAMES, "extra": odd},
)


def check(data: bytes) -> None:
    """Import into memory; what is imported must be what commits could have made."""
    store = open_store("memory:")
    try:
        import_transcript(read_transcript(io.BytesIO(data)), store, "s")
    except TranscriptError:
        assert store.sessions() == []
        return
    items = list(opened(store).export())
    again = store.create("again")
    commit_all(again, items)
    assert list(again.export()) == items
    store.close()


def lines(records: list[JsonObject]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


@given(st.lists(claude_records, min_size=1, max_size=12))
@settings(max_examples=150)
def test_any_claude_code_records(records: list[JsonObject]) -> None:
    check(lines(records))


@given(st.lists(pi_records, max_size=8))
@settings(max_examples=100)
def test_any_pi_records(records: list[JsonObject]) -> None:
    check(lines([pi_header(), *records]))


@given(st.binary(max_size=200), st.integers(0, 300))
@settings(max_examples=100)
def test_any_bytes_within_a_transcript(noise: bytes, place: int) -> None:
    user: JsonObject = {"type": "message", "message": {"role": "user", "content": "hi"}}
    good = lines([pi_header(), user, user])

    check(good[:place] + noise + good[place:])
