"""Claude Code transcripts become sessions: the main path as root, other branches as forks."""

import pytest

from pico_store.importing import TranscriptError
from pico_store.records import JsonObject
from pico_store.storage import Store
from tests.importing.reading import context_said, conversations, entries, opened, said, unmapped
from tests.importing.transcripts import (
    assistant,
    import_bytes,
    jsonl,
    record,
    result,
    text,
    time,
    use,
    user,
)


def test_a_straight_transcript_is_one_conversation(store: Store) -> None:
    report = import_bytes(
        store,
        jsonl(
            [
                user("u1", None, "hello"),
                assistant("a1", "u1", "m1", text("hi"), use("c1")),
                user("u2", "a1", [result("c1")]),
                assistant("a2", "u2", "m2", text("bye")),
            ]
        ),
    )

    storage = opened(store)
    assert said(storage) == ["hello", "hi", ">c1", "<c1", "bye"]
    assert report.conversations == 1
    assert report.format == "claude-code"


def test_the_records_of_one_answer_are_one_entry(store: Store) -> None:
    import_bytes(
        store,
        jsonl(
            [
                user("u1", None, "hello"),
                assistant("a1", "u1", "m1", text("one")),
                assistant("a2", "a1", "m1", use("c1")),
                assistant("a3", "a2", "m2", text("another answer")),
            ]
        ),
    )

    first, second = (e for e in entries(opened(store)) if e.kind == "assistant")
    assert first.model == [
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "one"},
                {
                    "type": "toolCall",
                    "id": "c1",
                    "name": "Bash",
                    "arguments": {"command": "ls"},
                },
            ],
            "provider": "anthropic",
            "model": "claude-x",
            "usage": {"input": 3, "output": 5},
            "stopReason": "toolUse",
            "responseId": "m1",
            "timestamp": 1767323041500,
        }
    ]
    assert [left["uuid"] for left in unmapped(first)] == ["a1", "a2"]
    assert second.model is not None


def test_results_of_calls_that_ran_at_once_are_no_branches(store: Store) -> None:
    # The file hangs each result on the record of its call: the first is a side branch in it.
    report = import_bytes(
        store,
        jsonl(
            [
                user("u1", None, "hello"),
                assistant("a1", "u1", "m1", use("c1")),
                assistant("a2", "a1", "m1", use("c2")),
                user("r1", "a1", [result("c1")]),
                user("r2", "a2", [result("c2")]),
                assistant("a3", "r2", "m2", text("done")),
            ]
        ),
    )

    assert said(opened(store)) == ["hello", ">c1", ">c2", "<c1", "<c2", "done"]
    assert report.conversations == 1


def test_what_follows_the_first_of_two_results_follows_both(store: Store) -> None:
    import_bytes(
        store,
        jsonl(
            [
                user("u1", None, "hello"),
                assistant("a1", "u1", "m1", use("c1")),
                assistant("a2", "a1", "m1", use("c2")),
                user("r2", "a2", [result("c2")]),
                user("r1", "a1", [result("c1")]),
                assistant("a3", "r2", "m2", text("done")),
            ]
        ),
    )

    storage = opened(store)
    assert said(storage) == ["hello", ">c1", ">c2", "<c2", "<c1", "done"]
    assert len(conversations(storage)) == 1


def test_a_result_between_the_records_of_an_answer_parts_nothing(store: Store) -> None:
    import_bytes(
        store,
        jsonl(
            [
                user("u1", None, "hello"),
                assistant("a1", "u1", "m1", use("c1")),
                user("r1", "a1", [result("c1")]),
                assistant("a2", "r1", "m1", use("c2")),
                user("r2", "a2", [result("c2")]),
            ]
        ),
    )

    storage = opened(store)
    assert said(storage) == ["hello", ">c1", ">c2", "<c1", "<c2"]
    assert len(conversations(storage)) == 1


def test_a_call_that_was_run_again_is_a_fork(store: Store) -> None:
    import_bytes(
        store,
        jsonl(
            [
                user("u1", None, "hello"),
                assistant("a1", "u1", "m1", use("c1")),
                user("r1", "a1", [result("c1", "first")]),
                user("r2", "a1", [result("c1", "second")]),
            ]
        ),
    )

    storage = opened(store)
    root, fork = conversations(storage)
    assert root.parent is None
    assert fork.parent is not None
    assert said(storage, root.id) == said(storage, fork.id) == ["hello", ">c1", "<c1"]


def test_a_branch_becomes_a_fork_at_the_entry_where_it_parts(store: Store) -> None:
    import_bytes(
        store,
        jsonl(
            [
                user("u1", None, "hello"),
                assistant("a1", "u1", "m1", text("hi")),
                user("u2", "a1", "go left"),
                assistant("a2", "u2", "m2", text("left")),
                user("u3", "a1", "go right"),
                assistant("a3", "u3", "m3", text("right")),
            ]
        ),
    )

    storage = opened(store)
    root, fork = conversations(storage)
    assert said(storage) == ["hello", "hi", "go right", "right"]
    assert said(storage, fork.id) == ["hello", "hi", "go left", "left"]
    assert fork.parent is not None
    parted = storage.get_entries([fork.parent.at])[fork.parent.at]
    assert parted.kind == "assistant"
    assert fork.parent.conversation_id == root.id


def test_a_branch_of_a_branch_is_a_fork_of_the_fork(store: Store) -> None:
    import_bytes(
        store,
        jsonl(
            [
                user("u1", None, "0"),
                user("b1", "u1", "b1"),
                user("b2", "b1", "b2"),
                user("c2", "b1", "c2"),
                user("m1", "u1", "m1"),
            ]
        ),
    )

    storage = opened(store)
    root, first, second = conversations(storage)
    assert said(storage, root.id) == ["0", "m1"]
    assert said(storage, first.id) == ["0", "b1", "c2"]
    assert said(storage, second.id) == ["0", "b1", "b2"]
    assert second.parent is not None
    assert second.parent.conversation_id == first.id


def test_a_second_beginning_is_a_conversation_that_inherits_nothing(store: Store) -> None:
    import_bytes(store, jsonl([user("u1", None, "first try"), user("u2", None, "second try")]))

    storage = opened(store)
    _, other = conversations(storage)
    assert said(storage) == ["second try"]
    assert said(storage, other.id) == ["first try"]
    assert other.parent is None


def test_a_sidechain_is_a_conversation_of_its_own(store: Store) -> None:
    import_bytes(
        store,
        jsonl(
            [
                user("u1", None, "do it"),
                assistant("a1", "u1", "m1", use("c1", "Task")),
                user("s1", None, "subtask", isSidechain=True),
                assistant("s2", "s1", "m9", text("sub done"), isSidechain=True),
                user("r1", "a1", [result("c1")]),
                assistant("s3", "a1", "m8", text("another agent"), isSidechain=True),
            ]
        ),
    )

    storage = opened(store)
    _, first, second = conversations(storage)
    assert said(storage) == ["do it", ">c1", "<c1"]
    assert said(storage, first.id) == ["subtask", "sub done"]
    assert said(storage, second.id) == ["another agent"]
    assert (first.parent, second.parent) == (None, None)


def test_the_main_conversation_passes_over_a_sidechain_it_hangs_on(store: Store) -> None:
    import_bytes(
        store,
        jsonl(
            [
                user("u1", None, "hello"),
                user("s1", "u1", "subtask", isSidechain=True),
                user("u2", "s1", "go on"),
            ]
        ),
    )

    storage = opened(store)
    assert said(storage) == ["hello", "go on"]
    assert said(storage, conversations(storage)[1].id) == ["subtask"]


def test_an_answer_ends_where_somebody_else_speaks(store: Store) -> None:
    import_bytes(
        store,
        jsonl(
            [
                user("u1", None, "hello"),
                assistant("a1", "u1", "m1", text("one")),
                user("u2", "a1", "again"),
                assistant("a2", "u2", "m1", text("two")),
            ]
        ),
    )

    assert [e.kind for e in entries(opened(store))] == ["user", "assistant"] * 2


def test_a_file_of_a_sidechain_alone_is_the_root_conversation(store: Store) -> None:
    lines = [
        user("s1", None, "subtask", isSidechain=True, agentId="x"),
        assistant("s2", "s1", "m9", text("done"), isSidechain=True, agentId="x"),
    ]

    report = import_bytes(store, jsonl(lines))

    assert said(opened(store)) == ["subtask", "done"]
    assert report.conversations == 1


def test_records_without_a_message_stay_behind_what_they_belong_to(store: Store) -> None:
    summary: JsonObject = {"type": "summary", "summary": "Title", "leafUuid": "a1"}
    snapshot: JsonObject = {"type": "file-history-snapshot", "messageId": "u1", "snapshot": {}}
    import_bytes(
        store,
        jsonl(
            [
                summary,
                user("u1", None, "hello"),
                snapshot,
                record("progress", "p1", "u1", data={"n": 1}),
                record("system", "y1", "p1", subtype="turn_duration"),
                assistant("a1", "y1", "m1", text("hi")),
            ]
        ),
    )

    storage = opened(store)
    assert [e.kind for e in entries(storage)] == [
        "import.summary",
        "user",
        "import.file-history-snapshot",
        "import.progress",
        "import.system",
        "assistant",
    ]
    assert entries(storage)[0].data == summary
    assert len(conversations(storage)) == 1


def test_a_branch_without_messages_is_no_conversation(store: Store) -> None:
    import_bytes(
        store,
        jsonl(
            [
                user("u1", None, "hello"),
                record("progress", "p1", "u1"),
                record("progress", "p2", "p1"),
                assistant("a1", "u1", "m1", text("hi")),
                record("system", "y1", "u1"),
            ]
        ),
    )

    assert len(conversations(opened(store))) == 1


def test_a_compaction_begins_the_context_and_keeps_the_history(store: Store) -> None:
    import_bytes(
        store,
        jsonl(
            [
                user("u1", None, "long ago"),
                assistant("a1", "u1", "m1", text("old")),
                record("system", "y1", None, subtype="compact_boundary", logicalParentUuid="a1"),
                user("u2", "y1", "in short: old", isCompactSummary=True),
                assistant("a2", "u2", "m2", text("new")),
            ]
        ),
    )

    storage = opened(store)
    assert said(storage) == ["long ago", "old", "in short: old", "new"]
    assert context_said(storage) == ["in short: old", "new"]
    assert [e.kind for e in entries(storage) if e.head is not None] == ["summary"]
    assert len(conversations(storage)) == 1


def test_a_parent_that_the_file_lacks_is_the_message_above(store: Store) -> None:
    import_bytes(
        store,
        jsonl([user("u1", "elsewhere", "one"), user("u2", "nowhere", "two")]),
    )

    storage = opened(store)
    assert said(storage) == ["one", "two"]
    assert len(conversations(storage)) == 1


def test_a_repeated_record_is_taken_once_and_counted(store: Store) -> None:
    once = user("u1", None, "hello")

    report = import_bytes(store, jsonl([once, once, user("u2", "u1", "bye")]))

    assert said(opened(store)) == ["hello", "bye"]
    assert report.repeated == 1


def test_two_records_with_one_uuid_are_both_kept(store: Store) -> None:
    lines = [user("u1", None, "hello"), user("u1", None, "other"), user("u2", "u1", "bye")]

    report = import_bytes(store, jsonl(lines))

    storage = opened(store)
    assert said(storage) == ["hello", "bye"]
    assert said(storage, conversations(storage)[1].id) == ["other"]
    assert report.repeated == 0


@pytest.mark.parametrize(
    "lines",
    [
        [user("u1", "u2", "a"), user("u2", "u1", "b")],
        [user("u1", "u1", "a")],
        [user("u0", None, "x"), record("system", "y1", "y2"), record("system", "y2", "y1")],
    ],
)
def test_parents_in_a_circle_are_refused(store: Store, lines: list[JsonObject]) -> None:
    with pytest.raises(TranscriptError, match=r"line [12]: follows itself, by its parents"):
        import_bytes(store, jsonl(lines))

    assert store.sessions() == []


def test_a_message_that_is_no_object_is_named(store: Store) -> None:
    lines = [user("u1", None, "x"), record("assistant", "a1", "u1", message="text")]

    with pytest.raises(TranscriptError, match="line 2: no message; needed: an object"):
        import_bytes(store, jsonl(lines))


def test_a_record_before_its_parent_finds_it(store: Store) -> None:
    lines = [
        user("u1", None, "one"),
        user("u3", "u2", "three"),
        user("u2", "u1", "two", timestamp=time(2)),
    ]

    import_bytes(store, jsonl(lines))

    assert said(opened(store)) == ["one", "two", "three"]


def test_ten_thousand_messages_deep_is_no_limit(store: Store) -> None:
    lines = [user("u0", None, "0")]
    lines += [user(f"u{i}", f"u{i - 1}", str(i)) for i in range(1, 10_000)]

    report = import_bytes(store, jsonl(lines))

    assert report.entries == 10_000
    assert report.conversations == 1
