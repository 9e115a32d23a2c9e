"""An imported session is one that commits could have made, and there is all of it or nothing."""

import io
from collections.abc import Iterator

import pytest

from pico_store.address import Seq
from pico_store.errors import SessionExistsError
from pico_store.importing import import_transcript, read_transcript
from pico_store.importing.load import PROVENANCE
from pico_store.limits import BATCH_WRITES_MAX
from pico_store.query import BatchQuery
from pico_store.records import JsonObject
from pico_store.snapshot import SnapshotItem
from pico_store.storage import Store
from tests.importing.committing import commit_all
from tests.importing.reading import opened, said
from tests.importing.transcripts import (
    assistant,
    import_bytes,
    jsonl,
    record,
    result,
    text,
    use,
    user,
)


def everything() -> list[JsonObject]:
    """Branches, sidechains, a compaction, notes and parallel calls in one file."""
    return [
        {"type": "summary", "summary": "t", "leafUuid": "a4"},
        user("u1", None, "hello"),
        assistant("a1", "u1", "m1", use("c1")),
        assistant("a2", "a1", "m1", use("c2")),
        user("s1", None, "sub", isSidechain=True, agentId="x"),
        user("r1", "a1", [result("c1"), text("extra")]),
        user("r2", "a2", [result("c2")]),
        assistant("a3", "r2", "m2", text("left")),
        user("u2", "r2", "right"),
        record("system", "y1", None, subtype="compact_boundary", logicalParentUuid="u2"),
        user("u3", "y1", "short", isCompactSummary=True),
        user("u4", "u1", "branch before the compaction"),
        assistant("a4", "u3", "m3", text("end")),
        user("u9", None, "other beginning"),
        assistant("a5", "a4", "m4", text("really the end")),
    ]


@pytest.mark.parametrize("count", [3, 6, 9, 12, 15])
def test_every_write_of_an_import_would_pass_as_a_commit(store: Store, count: int) -> None:
    import_bytes(store, jsonl(everything()[:count]))
    items = list(opened(store).export())

    again = store.create("again")
    commit_all(again, items)

    assert list(again.export()) == items


def test_a_long_import_is_made_of_batches_that_commits_allow(store: Store) -> None:
    lines = [user(f"u{i}", f"u{i - 1}" if i else None, str(i)) for i in range(BATCH_WRITES_MAX)]

    import_bytes(store, jsonl(lines))

    storage = opened(store)
    batches = storage.scan_batches(BatchQuery()).items
    assert [(b.first, b.last) for b in batches] == [
        (1, BATCH_WRITES_MAX),
        (BATCH_WRITES_MAX + 1, BATCH_WRITES_MAX + 2),
    ]


def test_large_messages_are_spread_over_batches(store: Store) -> None:
    lines = [user(f"u{i}", f"u{i - 1}" if i else None, "x" * (12 << 20)) for i in range(4)]

    import_bytes(store, jsonl(lines))

    batches = opened(store).scan_batches(BatchQuery()).items
    assert [b.last - b.first + 1 for b in batches] == [4, 2]
    assert batches[1].first == batches[0].last + 1


def test_the_session_says_what_it_was_made_from(store: Store) -> None:
    import_bytes(store, jsonl(everything()))

    found = opened(store).get_value(PROVENANCE)
    assert found is not None
    assert found.value == {"format": "claude-code", "lines": 15}


def test_an_existing_session_is_left_as_it_is(store: Store) -> None:
    import_bytes(store, jsonl([user("u1", None, "first")]))

    with pytest.raises(SessionExistsError):
        import_bytes(store, jsonl([user("u1", None, "second")]))

    assert said(opened(store)) == ["first"]


class _Failing:
    """A store that breaks while a session is being loaded."""

    def __init__(self, store: Store, after: int) -> None:
        self._store = store
        self._after = after

    def load(self, session_id: str, items: Iterator[SnapshotItem]) -> None:
        self._store.load(session_id, self._broken(items))

    def _broken(self, items: Iterator[SnapshotItem]) -> Iterator[SnapshotItem]:
        for index, item in enumerate(items):
            if index == self._after:
                raise OSError("the disk went away")
            yield item


@pytest.mark.parametrize("after", [0, 1, 10, 20])
def test_a_failure_midway_leaves_no_session(store: Store, after: int) -> None:
    transcript = read_transcript(io.BytesIO(jsonl(everything())))

    with pytest.raises(OSError, match="the disk went away"):
        import_transcript(transcript, _Failing(store, after), "s")  # type: ignore[arg-type]

    assert store.sessions() == []


def test_a_call_id_that_is_too_long_for_a_key_is_stored_without_one(store: Store) -> None:
    long = "c" * 1025
    import_bytes(
        store,
        jsonl([user("u1", None, "x"), assistant("a", "u1", "m", use(long)), result_of(long)]),
    )

    storage = opened(store)
    entry = storage.get_entries([storage.last_seq])[Seq(storage.last_seq)]
    assert entry.kind == "tool_result"
    assert entry.key is None
    assert entry.model is not None
    assert entry.model[0]["toolCallId"] == long


def result_of(call: str) -> JsonObject:
    return user("r", "a", [result(call)])
