"""JSONL-4, TASK-4: main log and scratch files come together again after a crash."""

from __future__ import annotations

from pathlib import Path

import pytest

from pico_jsonl import JsonlStore
from pico_jsonl.lines import header_body
from pico_store.address import ScratchAddress, Seq
from pico_store.batch import ListClear, ListRemove, MainBatch, ScratchBatch, ValueSet
from pico_store.errors import InvalidBatchError, NewerFormatError, StoreDamagedError
from pico_store.query import BatchQuery, ListQuery
from tests.backends.jsonl.scene import (
    ROOT,
    ROOT_BATCH,
    TASK,
    append_line,
    contents,
    copied,
    digest_of,
    frame,
    made,
    main_100_scratch_150,
    main_of,
    note,
    opened,
    scratch_of,
    settling,
    task,
)

FRAMES = ScratchAddress(TASK, "frames")


@pytest.fixture
def killed(path: Path, tmp_path: Path) -> Path:
    """A store whose process died with main number 100 and live scratch 101 to 150."""
    store = JsonlStore(str(path), durability="process")
    storage = store.create("a")
    storage.commit(ROOT_BATCH)
    main_100_scratch_150(storage)
    there = copied(path, tmp_path / "killed")
    store.close()
    return there


def test_live_scratch_is_replayed_and_its_numbers_are_used(killed: Path) -> None:
    with opened(killed) as storage:
        assert storage.last_seq == 150
        assert storage.open_report.notes == ()
        frames = storage.read_list(FRAMES, ListQuery()).items
        assert [frame.value for frame in frames] == list(range(50))
        assert [frame.id for frame in frames] == list(range(101, 151))
        assert note(storage) == 151
        assert storage.commit(frame("next")).first == 152

    with opened(killed) as storage:
        assert storage.last_seq == 152
        assert len(storage.scan_batches(BatchQuery(limit=1000)).items) == 100 + 50 + 2


@pytest.mark.parametrize("name", ["scratch-0{}.jsonl", "scratch-{}².jsonl", "scratch-{}.jsonl~"])
def test_a_copy_of_a_scratch_file_is_not_read_as_scratch(killed: Path, name: str) -> None:
    found = next(killed.glob("*/scratch-*.jsonl"))
    number = found.stem.removeprefix("scratch-")
    found.with_name(name.format(number)).write_bytes(found.read_bytes())

    with opened(killed) as storage:
        assert storage.last_seq == 150


def test_clears_and_removals_in_scratch_count_for_the_numbers(killed: Path) -> None:
    with opened(killed) as storage:
        storage.commit(ScratchBatch(TASK, (ListRemove(FRAMES, Seq(150)), ListClear(FRAMES))))

    with opened(killed) as storage:
        assert storage.last_seq == 152
        assert storage.read_list(FRAMES, ListQuery()).items == []


def test_settling_takes_the_file_away(killed: Path) -> None:
    with opened(killed) as storage:
        assert scratch_of(killed).exists()
        storage.commit(settling())
        assert not scratch_of(killed).exists()
        assert storage.last_seq == 151

    with opened(killed) as storage:
        assert storage.last_seq == 151
        assert sorted(file.name for file in (killed / "a").iterdir()) == [
            "control",
            "main.jsonl",
            f"owner-{storage.epoch}",
        ]


@pytest.mark.parametrize(
    "text", [None, b"", b"\xff\n\n", b'{"format":"pico-jsonl","version":99}\n']
)
def test_retired_scratch_is_ignored_whatever_is_in_it(
    killed: Path, tmp_path: Path, text: bytes | None
) -> None:
    stale = scratch_of(killed).read_bytes() if text is None else text
    with opened(killed) as storage:
        storage.commit(settling())
    mark = digest_of(killed)
    scratch_of(killed).write_bytes(stale)

    assert digest_of(killed) == mark, "to a reader"
    with opened(killed) as storage:
        assert storage.last_seq == 151
        assert storage.open_report.notes == ()
        assert not scratch_of(killed).exists()
        with pytest.raises(InvalidBatchError):
            storage.commit(frame("late"))


def test_scratch_of_a_task_that_never_was_is_removed_before_anything_is_appended(
    killed: Path,
) -> None:
    # After a power cut the main log may end before the task that a scratch file belongs to.
    ghost = scratch_of(killed, 151)
    ghost.write_bytes(b"")
    append_line(ghost, header_body("a", Seq(151)))
    append_line(
        ghost,
        b'{"first":152,"kind":"scratch","task":151,"writes":[{"type":"list.append",'
        b'"address":{"scope":"scratch","task":151,"namespace":"frames"},"value":"ghost"}]',
    )
    assert JsonlStore(str(killed)).sessions()[0].last_seq == 150

    with opened(killed) as storage:
        assert storage.last_seq == 150
        assert not ghost.exists()
        storage.commit(MainBatch((task(151),)))
        address = ScratchAddress(Seq(151), "frames")
        assert storage.read_list(address, ListQuery()).items == []


def test_a_lost_scratch_file_lowers_no_number(killed: Path) -> None:
    scratch_of(killed).unlink()

    assert JsonlStore(str(killed)).sessions()[0].last_seq == 150
    with opened(killed) as storage:
        assert storage.last_seq == 150
        (told,) = storage.open_report.notes
        assert "101 to 150" in told
        assert storage.get_tasks([TASK])[TASK].role == "start"
        assert storage.read_list(FRAMES, ListQuery()).items == []
        assert storage.commit(frame("again")).first == 151

    with opened(killed) as storage:
        assert storage.last_seq == 151
        assert storage.open_report.notes == ()


def test_a_lost_control_file_lowers_nothing_that_the_logs_tell(killed: Path) -> None:
    (killed / "a" / "control").unlink()

    with opened(killed) as storage:
        assert (storage.last_seq, storage.epoch) == (150, 1)


@pytest.mark.parametrize("blank", [b"", b"\0" * 64])
def test_a_control_file_that_a_power_cut_emptied_is_made_anew(killed: Path, blank: bytes) -> None:
    (killed / "a" / "control").write_bytes(blank)

    assert digest_of(killed)
    with opened(killed) as storage:
        assert (storage.last_seq, storage.epoch) == (150, 1)


@pytest.mark.parametrize("text", [b"", b"\0" * 100])
def test_a_scratch_file_that_a_power_cut_emptied_is_begun_anew(killed: Path, text: bytes) -> None:
    scratch_of(killed).write_bytes(text)

    with opened(killed) as storage:
        assert storage.last_seq == 150, "known from the control file"
        assert storage.open_report.dropped_bytes == len(text)
        storage.commit(frame("again"))

    with opened(killed) as storage:
        (found,) = storage.read_list(FRAMES, ListQuery()).items
        assert found.value == "again"


def test_a_scratch_file_of_another_task_is_not_taken_for_this_ones(killed: Path) -> None:
    text = scratch_of(killed).read_bytes()
    scratch_of(killed).write_bytes(text.replace(b'"task":100', b'"task":101', 1))
    before = contents(killed)

    with pytest.raises(StoreDamagedError, match="task 101"), opened(killed, "process"):
        pass

    assert contents(killed) == before


def test_scratch_of_a_newer_format_is_refused(killed: Path) -> None:
    text = scratch_of(killed).read_bytes()
    scratch_of(killed).write_bytes(text.replace(b'"version":1', b'"version":2', 1))
    before = contents(killed)

    with pytest.raises(NewerFormatError, match=r"scratch-100\.jsonl"), opened(killed):
        pass

    assert contents(killed) == before


def _scratch_line(first: int, task: int = TASK) -> bytes:
    return (
        b'{"first":%d,"kind":"scratch","task":%d,"writes":[{"type":"list.append",'
        b'"address":{"scope":"scratch","task":%d,"namespace":"frames"},"value":1}]'
    ) % (first, task, task)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (_scratch_line(150), "numbers 150"),
        (_scratch_line(151, 99), "another file"),
        (b'{"first":151,"kind":"main","writes":[]', "another file"),
        (_scratch_line(151).replace(b'"namespace"', b'"namespace":"x","namespace"'), "repeated"),
        (_scratch_line(151).replace(b'"writes":[', b'"writes":[],"more":['), "more"),
        (
            b'{"first":151,"kind":"scratch","task":100,"writes":[{"type":"list.remove",'
            b'"address":{"scope":"scratch","task":100,"namespace":"frames"},"element":7}]',
            "VAL-5",
        ),
    ],
)
def test_a_sealed_scratch_line_that_may_not_stand_there_is_refused(
    killed: Path, body: bytes, reason: str
) -> None:
    append_line(scratch_of(killed), body)
    before = contents(killed)

    with pytest.raises(StoreDamagedError, match=reason), opened(killed, "process"):
        pass

    assert contents(killed) == before


def test_a_number_in_two_files_is_refused(killed: Path) -> None:
    # The main log goes on with a number that the scratch file uses.
    append_line(
        main_of(killed),
        b'{"first":150,"kind":"main","writes":[{"type":"value.set","address":'
        b'{"scope":"session","namespace":"s"},"value":1}]',
    )
    before = contents(killed)

    with pytest.raises(StoreDamagedError, match="main log uses"), opened(killed, "process"):
        pass

    assert contents(killed) == before


def test_two_scratch_files_with_one_number_are_refused(path: Path) -> None:
    store = JsonlStore(str(path))
    storage = store.create("a")
    storage.commit(ROOT_BATCH)
    storage.commit(MainBatch((task(2), task(3))))
    storage.commit(frame(1, Seq(2)))
    storage.commit(frame(1, Seq(3)))
    store.close()
    log = scratch_of(path, 3)
    header = log.read_bytes().splitlines(keepends=True)[0]
    log.write_bytes(header)
    append_line(log, _scratch_line(4, 3))
    before = contents(path)

    with pytest.raises(StoreDamagedError, match="number 4"), opened(path):
        pass

    assert contents(path) == before


def test_any_number_of_live_tasks_can_stream(path: Path) -> None:
    count = 150
    with made(path) as storage:
        storage.commit(ROOT_BATCH)
        storage.commit(MainBatch(tuple(task(id) for id in range(2, count + 2))))
        for turn in range(3):
            for id in range(2, count + 2):
                storage.commit(frame(turn, Seq(id)))
        storage.commit(settling(Seq(5)))
        storage.commit(ScratchBatch(Seq(6), (ValueSet(ScratchAddress(Seq(6), "v"), {"a": [1]}),)))
        last = storage.last_seq

    with opened(path) as storage:
        assert storage.last_seq == last
        for id in (2, 4, 6, count + 1):
            address = ScratchAddress(Seq(id), "frames")
            found = [item.value for item in storage.read_list(address, ListQuery()).items]
            assert found == [0, 1, 2]


def test_a_retired_file_is_used_again_and_shows_nothing_of_before(
    path: Path, tmp_path: Path
) -> None:
    retired: list[Path] = []
    with made(path) as storage:
        storage.commit(ROOT_BATCH)
        id = ROOT
        for turn in range(3):
            id = Seq(storage.last_seq + 1)
            storage.commit(MainBatch((task(id),)))
            for number in range(5 - turn):
                storage.commit(frame([turn, number], id))
            assert not any(file.exists() for file in retired)
            if turn < 2:
                storage.commit(settling(id))
                retired.append(scratch_of(path, id))
                assert retired[-1].exists()
        killed = copied(path, tmp_path / "killed")
        storage.commit(settling(id))

    assert list((path / "a").glob("scratch-*")) == []
    with opened(killed) as storage:
        found = storage.read_list(ScratchAddress(id, "frames"), ListQuery()).items
        assert [item.value for item in found] == [[2, 0], [2, 1], [2, 2]]


def test_half_a_log_that_a_killed_process_left_goes(killed: Path) -> None:
    (killed / "a" / "new-00.jsonl").write_bytes(b"half a vacuum")

    with opened(killed) as storage:
        assert storage.last_seq == 150
        assert not (killed / "a" / "new-00.jsonl").exists()


@pytest.mark.parametrize("size", [10, 65_000, 65_536, 70_000, 300_000])
def test_the_last_number_is_found_whatever_the_last_line_weighs(path: Path, size: int) -> None:
    with made(path) as storage:
        storage.commit(ROOT_BATCH)
        for more in range(3):
            note(storage, "x" * (size + more))
            assert JsonlStore(str(path)).sessions()[0].last_seq == storage.last_seq
    with main_of(path).open("ab") as file:
        file.write(b'{"first":5,"kind":"main","writes":[' + b" " * size)

    assert JsonlStore(str(path)).sessions()[0].last_seq == 4
