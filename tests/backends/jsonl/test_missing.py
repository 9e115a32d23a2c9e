"""JSONL-2, DUR-6: what was durable and is gone is told; nothing is looked for without end."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from pico_jsonl import JsonlStore
from tests.backends.jsonl.scene import (
    ROOT_BATCH,
    main_100_scratch_150,
    main_of,
    note,
    opened,
    scratch_of,
    settling,
)


@pytest.mark.parametrize("lost", [1, 100])
def test_what_was_durable_and_is_gone_is_told(path: Path, lost: int) -> None:
    with closing(JsonlStore(str(path))) as store:
        storage = store.create("a")
        storage.commit(ROOT_BATCH)
        for number in range(3):
            note(storage, number)
    main_of(path).write_bytes(main_of(path).read_bytes()[:-lost])

    with closing(JsonlStore(str(path))) as store:
        (problem,) = store.verify().problems
        reader = store.open("a", read_only=True)
        notes = reader.open_report.notes
        with_owner = store.open("a").open_report.notes

    assert "were durable" in problem.what
    assert any("were durable" in note for note in notes)
    assert any("were durable" in note for note in with_owner)


def test_scratch_that_was_durable_and_lost_its_end_is_told(path: Path) -> None:
    with closing(JsonlStore(str(path))) as store:
        storage = store.create("a")
        storage.commit(ROOT_BATCH)
        main_100_scratch_150(storage)
    scratch_of(path).write_bytes(scratch_of(path).read_bytes()[:-1])

    with closing(JsonlStore(str(path))) as store:
        (problem,) = store.verify().problems

    assert "durable" in problem.what


def test_a_bad_line_before_a_settlement_ends_the_reading(path: Path) -> None:
    """What follows a bad line is not looked at again and again."""
    with closing(JsonlStore(str(path), durability="process")) as store:
        storage = store.create("a")
        storage.commit(ROOT_BATCH)
        main_100_scratch_150(storage)
        note(storage)
        storage.commit(settling())
    lines = main_of(path).read_bytes().splitlines(keepends=True)
    lines[-2] = lines[-2].replace(b'"kind":"', b'"kinb":"', 1)
    main_of(path).write_bytes(b"".join(lines))

    with opened(path) as storage:
        assert storage.open_report.dropped_bytes > 0
    main_of(path).write_bytes(b"".join(lines))
    with closing(JsonlStore(str(path))) as store:
        assert store.open("a", read_only=True).last_seq == 150
