"""JSONL-2, JSONL-3: an unfinished last line is cut off, wherever it ends."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from pico_jsonl import JsonlStore
from pico_store.batch import MainBatch
from pico_store.digest import digest
from pico_store.query import BatchQuery, EntryQuery
from pico_store.storage import Durability
from tests.backends.jsonl.scene import (
    ROOT,
    ROOT_BATCH,
    contents,
    copied,
    digest_of,
    entry,
    frame,
    main_100_scratch_150,
    main_of,
    note,
    opened,
    scratch_of,
)

LEVELS: tuple[Durability, ...] = ("power", "ordered", "process")
# Characters of one to four bytes, a line separator that is none, and one that JSON escapes.
TEXT = "aé\u2028\u0085🙂\n"


@pytest.fixture
def offsets(path: Path) -> list[int]:
    """Where the lines of a small session begin, and where the last one ends."""
    store = JsonlStore(str(path))
    storage = store.create("a")
    storage.commit(MainBatch((*ROOT_BATCH.writes, entry(2, data=TEXT))))
    note(storage, {TEXT: [TEXT]})
    storage.commit(MainBatch((entry(4, data=TEXT), entry(5, data=TEXT))))
    store.close()
    found = [0]
    for line in main_of(path).read_bytes().split(b"\n")[:-1]:
        found.append(found[-1] + len(line) + 1)
    return found


def test_every_cut_leaves_the_batches_before_it(
    path: Path, tmp_path: Path, offsets: list[int]
) -> None:
    whole = main_of(path).read_bytes()
    assert TEXT.encode()[:4] in whole
    lasts = {1: 0, 2: 2, 3: 3, 4: 5}
    for number, cut in enumerate(range(offsets[1], len(whole))):
        lines = sum(cut >= offset for offset in offsets[1:])
        there = copied(path, tmp_path / str(number))
        main_of(there).write_bytes(whole[:cut])

        with opened(there, "process") as storage:
            report = storage.open_report
            torn = cut - offsets[lines]
            assert storage.last_seq == lasts[lines], cut
            assert (report.dropped_bytes, report.dropped_at) == (torn, torn and offsets[lines])
            assert main_of(there).stat().st_size == offsets[lines]
            assert len(storage.scan_batches(BatchQuery()).items) == lines - 1
            if lines > 1:
                note(storage, "later")

        text = main_of(there).read_bytes()
        assert text.startswith(whole[: offsets[lines]])
        with opened(there, "process") as storage:
            assert storage.open_report.dropped_bytes == 0
            assert storage.last_seq == lasts[lines] + (lines > 1)


@pytest.mark.parametrize("durability", LEVELS)
def test_a_line_without_its_end_is_cut_although_it_is_whole(
    path: Path, offsets: list[int], durability: Durability
) -> None:
    main_of(path).write_bytes(main_of(path).read_bytes()[:-1])

    with opened(path, durability) as storage:
        assert storage.last_seq == 3
        assert storage.open_report.dropped_at == offsets[3]
        note(storage)

    assert main_of(path).read_bytes().count(b"\n") == 4


def test_a_reader_leaves_an_unfinished_line_alone(path: Path, offsets: list[int]) -> None:
    with opened(path) as storage:
        before = digest(storage.export())
    with main_of(path).open("ab") as file:
        file.write(b'{"first":6,"kind":"main","wri')
    files = contents(path)

    assert digest_of(path) == before
    assert contents(path) == files


def test_every_cut_of_scratch_leaves_the_batches_before_it(path: Path, tmp_path: Path) -> None:
    store = JsonlStore(str(path))
    storage = store.create("a")
    storage.commit(ROOT_BATCH)
    main_100_scratch_150(storage)
    store.close()
    whole = scratch_of(path).read_bytes()
    lines = whole.splitlines(keepends=True)
    start = len(whole) - len(lines[-1])
    numbers = count()
    for cut in [0, 1, len(lines[0]) - 1, len(lines[0]), *range(start, len(whole))]:
        there = copied(path, tmp_path / str(next(numbers)))
        # Without it, the numbers would be known to be used.
        (there / "a" / "control").unlink()
        scratch_of(there).write_bytes(whole[:cut])
        kept = whole[:cut].count(b"\n")
        last = 100 + max(kept - 1, 0)

        with opened(there, "process") as storage:
            assert storage.last_seq == last, cut
            torn = cut - len(b"".join(lines[:kept]))
            assert storage.open_report.dropped_bytes == torn
            storage.commit(frame("later"))

        with opened(there, "process") as storage:
            assert storage.open_report.dropped_bytes == 0
            assert storage.last_seq == last + 1
            assert len(storage.scan_batches(BatchQuery(after=storage.last_seq)).items) == 0


def test_lines_end_at_0x0a_alone(path: Path) -> None:
    others = "\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\u0000"
    with_store = JsonlStore(str(path))
    storage = with_store.create("a")
    storage.commit(ROOT_BATCH)
    note(storage, {others: others})
    with_store.close()

    assert main_of(path).read_bytes().count(b"\n") == 3
    with opened(path) as storage:
        (found,) = storage.scan_entries(EntryQuery(conversation_id=ROOT)).items
        assert found.data == {others: others}


def test_a_log_that_ends_before_what_was_durable_is_told(path: Path, offsets: list[int]) -> None:
    """No crash cuts that off: batches are missing that somebody was told are safe."""
    whole = main_of(path).read_bytes()
    main_of(path).write_bytes(whole[: offsets[3]])
    files = contents(path)

    (problem,) = JsonlStore(str(path)).verify().problems
    reader = JsonlStore(str(path)).open("a", read_only=True)
    assert contents(path) == files
    with opened(path) as storage:
        for (note_of_it,) in (reader.open_report.notes, storage.open_report.notes, [problem.what]):
            assert f"offset {offsets[3]}; {len(whole)} bytes were durable" in note_of_it
        assert storage.last_seq == 3
    with opened(path) as storage:
        assert storage.open_report.notes == (), "told once"
    assert JsonlStore(str(path)).verify().problems == ()
