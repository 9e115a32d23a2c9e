"""SEQ-10, OWN-2: what readers see beside a writer, and what they cost."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import pico_jsonl.opening
from pico_jsonl import JsonlStore
from pico_jsonl.opening import Place, load_for_reader
from pico_jsonl.scratch import ScratchLog
from pico_jsonl.storage import JsonlStorage
from pico_memory.state import SessionState
from pico_store.address import ScratchAddress, Seq
from pico_store.batch import MainBatch
from pico_store.digest import digest
from pico_store.query import EntryQuery, ListQuery
from tests.backends.jsonl.scene import (
    ROOT,
    ROOT_BATCH,
    contents,
    entry,
    frame,
    main_100_scratch_150,
    main_of,
    note,
    opened,
    scratch_of,
    settling,
    task,
)


def _between(monkeypatch: pytest.MonkeyPatch, act: Callable[[int], None]) -> None:
    """Do something each time a reader has read the main log, before it reads scratch."""
    read = pico_jsonl.opening._read_logs
    times: list[int] = []

    def watched(state: SessionState, place: Place, strays: list[str]) -> list[ScratchLog]:
        times.append(1)
        act(len(times))
        return read(state, place, strays)

    monkeypatch.setattr(pico_jsonl.opening, "_read_logs", watched)


def test_a_reader_sees_nothing_that_came_after_something_it_missed(
    path: Path, storage: JsonlStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    main_100_scratch_150(storage)
    mark = digest(storage.export())

    def act(time: int) -> None:
        note(storage)
        storage.commit(frame("after it"))

    _between(monkeypatch, act)
    reader = JsonlStore(str(path)).open("a", read_only=True)

    assert reader.last_seq == 150
    assert digest(reader.export()) == mark


def test_a_reader_sees_scratch_up_to_the_first_number_that_is_missing(
    path: Path, storage: JsonlStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.commit(MainBatch((task(2), task(3))))
    for turn in range(4):
        storage.commit(frame(turn, Seq(2)))
        storage.commit(frame(turn, Seq(3)))

    def act(time: int) -> None:
        storage.commit(frame("seen", Seq(2)))
        note(storage)
        storage.commit(frame("unseen", Seq(3)))

    _between(monkeypatch, act)
    reader = JsonlStore(str(path)).open("a", read_only=True)

    assert reader.last_seq == 12
    for id, last in ((2, "seen"), (3, 3)):
        items = reader.read_list(ScratchAddress(Seq(id), "frames"), ListQuery()).items
        assert items[-1].value == last


def test_a_reader_begins_anew_when_a_task_is_settled_meanwhile(
    path: Path, storage: JsonlStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    main_100_scratch_150(storage)

    def act(time: int) -> None:
        if time == 1:
            storage.commit(settling())

    _between(monkeypatch, act)
    reader = JsonlStore(str(path)).open("a", read_only=True)

    assert reader.last_seq == 151
    assert digest(reader.export()) == digest(storage.export())


def test_a_reader_is_not_misled_by_a_file_that_is_used_again(
    path: Path, storage: JsonlStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    main_100_scratch_150(storage)

    def act(time: int) -> None:
        if time == 1:
            # The file that the reader is about to read is emptied and given to another task.
            storage.commit(settling())
            storage.commit(MainBatch((task(152),)))
            storage.commit(frame("other", Seq(152)))

    _between(monkeypatch, act)
    reader = JsonlStore(str(path), durability="process").open("a", read_only=True)

    assert digest(reader.export()) == digest(storage.export())


def test_a_reader_begins_anew_when_the_log_is_replaced_meanwhile(
    path: Path, store: JsonlStore, storage: JsonlStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    main_100_scratch_150(storage)
    mark = digest(storage.export())

    def act(time: int) -> None:
        if time == 1:
            store.vacuum()

    _between(monkeypatch, act)
    reader = JsonlStore(str(path)).open("a", read_only=True)

    assert digest(reader.export()) == mark


def test_readers_elsewhere_see_whole_batches_while_somebody_writes(
    path: Path, storage: JsonlStorage
) -> None:
    # A writer that nobody holds back could write faster than this reads.
    turns = threading.Semaphore(0)
    stop = threading.Event()
    failed: list[BaseException] = []

    def write() -> None:
        try:
            while turns.acquire() and not stop.is_set():
                first = storage.last_seq + 1
                storage.commit(MainBatch((task(first), entry(first + 1), entry(first + 2))))
                for number in range(3):
                    storage.commit(frame(number, Seq(first)))
                storage.commit(settling(Seq(first)))
        except BaseException as error:
            failed.append(error)
            raise

    writer = threading.Thread(target=write)
    writer.start()
    seen: list[Seq] = []
    try:
        # The other thread may not get its turn for a while.
        while len(seen) < 30 or (seen[-1] == seen[0] and not failed):
            turns.release(4)
            loaded = load_for_reader(Place("a", str(path / "a")), "process", strict=True)
            state = loaded.state
            assert len(state.entries) == 2 * len(state.tasks)
            for id in state.live:
                scratch = state.scratch.get(id)
                count = 0 if scratch is None else len(scratch.batches)
                assert state.last_seq == id + 2 + count, "scratch is missing"
            seen.append(state.last_seq)
    finally:
        stop.set()
        turns.release()
        writer.join()

    assert not failed
    assert seen == sorted(seen)
    assert seen[-1] > seen[0]


def test_looking_writes_nothing_and_needs_no_right_to_write(
    path: Path, storage: JsonlStorage
) -> None:
    main_100_scratch_150(storage)
    before = contents(path)
    for file in (main_of(path), scratch_of(path), path / "a" / "control"):
        file.chmod(0o400)

    store = JsonlStore(str(path), create=False)
    reader = store.open("a", read_only=True)
    assert reader.last_seq == 150
    store.sessions()
    store.verify()
    store.close()

    assert contents(path) == before


def test_what_is_read_is_what_is_asked_for(path: Path, storage: JsonlStorage) -> None:
    for number in range(100):
        note(storage, number)
    storage.close()
    with opened(path) as found:
        text = main_of(path).read_bytes()
        # Entries 2 and 50 are not what they were; a page of others does not look at them.
        for damaged in (b'"id":2,', b'"id":50,'):
            text = text.replace(damaged, damaged.replace(b"id", b"ix"))
        main_of(path).write_bytes(text)

        page = found.scan_entries(EntryQuery(conversation_id=ROOT, after=Seq(50), limit=10))
        assert [item.id for item in page.items] == list(range(51, 61))
        assert found.counters.rows_decoded == 10
        assert found.newest_head(ROOT, Seq(100)) is None
        assert found.counters.rows_decoded == 10


def test_payloads_stay_in_the_file(path: Path) -> None:
    store = JsonlStore(str(path))
    storage = store.create("a")
    storage.commit(ROOT_BATCH)
    for _ in range(20):
        note(storage, "x" * 10_000)
    session = storage._session
    assert session is not None
    committed = session.resident.view.state
    with_bytes = [row for row in committed.entries.values() if type(row[6]) is not int]
    assert with_bytes == []
    store.close()
    with opened(path) as found:
        assert found._session is not None
        state = found._session.resident.view.state
        assert [row for row in state.entries.values() if type(row[6]) is not int] == []
        assert {row[2] for row in state.entries.values()} == {"note"}
        assert len({id(row[2]) for row in state.entries.values()}) == 1, "equal kinds are one text"


def test_descriptors_are_given_back(path: Path) -> None:
    def count() -> int:
        return len([name for name in os.listdir("/proc/self/fd") if _is_in(path, name)])

    store = JsonlStore(str(path))
    storage = store.create("a")
    storage.commit(ROOT_BATCH)
    main_100_scratch_150(storage)
    reader = JsonlStore(str(path)).open("a", read_only=True)
    stream = storage.export()
    next(stream)
    store.vacuum()
    assert count() > 3
    reader.close()
    store.close()
    del reader, storage, stream

    assert count() == 0


def _is_in(path: Path, descriptor: str) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}").startswith(str(path))
    except OSError:
        return False
