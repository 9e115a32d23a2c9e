"""Frames of one stream are written in a short way, which ends where anything else begins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from pico_sqlite import SqliteStore
from pico_sqlite.storage import SqliteStorage
from pico_store.address import ScratchAddress, Seq
from pico_store.batch import (
    DeleteConversation,
    ListAppend,
    ListClear,
    MainBatch,
    MainWrite,
    ScratchBatch,
    SettleTask,
)
from pico_store.errors import (
    InvalidBatchError,
    InvalidValueError,
    OwnershipLostError,
    StaleWriterError,
)
from pico_store.query import BatchQuery, ListQuery
from pico_store.records import BatchRange, Conversation, JsonValue
from pico_store.snapshot import SnapshotHeader, SnapshotItem
from tests.backends.sqlite.scene import ROOT, ROOT_BATCH, entry, task

FORKED, TASK, OTHER = Seq(2), Seq(3), Seq(4)
FRAMES, OTHERS = ScratchAddress(TASK, "frames"), ScratchAddress(OTHER, "frames")


def frame(value: JsonValue, address: ScratchAddress = FRAMES) -> ScratchBatch:
    """Return a batch that shares its address with the others, as one who streams does."""
    return ScratchBatch(address.task, (ListAppend(address, value),))


@pytest.fixture
def storage(path: str) -> Iterator[SqliteStorage]:
    """A session whose task has streamed two frames."""
    with closing(SqliteStore(path)) as store:
        storage = store.create("a")
        storage.commit(ROOT_BATCH)
        tasks = (task(TASK, FORKED), task(OTHER, FORKED))
        storage.commit(MainBatch((Conversation(id=FORKED), *tasks)))
        for index in range(2):
            storage.commit(frame(index))
        yield storage


def _values(storage: SqliteStorage, address: ScratchAddress = FRAMES) -> list[JsonValue]:
    return [item.value for item in storage.read_list(address, ListQuery()).items]


@pytest.mark.parametrize("deleted", [False, True])
def test_no_frame_follows_the_end_of_its_task(storage: SqliteStorage, deleted: bool) -> None:  # noqa: FBT001
    ends = [MainBatch((SettleTask(id, "done", {"status": "done"}),)) for id in (TASK, OTHER)]
    for end in ends if deleted else ends[:1]:
        storage.commit(end)
    if deleted:
        storage.commit(MainBatch((DeleteConversation(FORKED),)))
    last = storage.last_seq

    for _ in range(2):
        with pytest.raises(InvalidBatchError, match="TASK-4"):
            storage.commit(frame("late"))

    assert storage.last_seq == last
    assert _values(storage) == []


@pytest.mark.parametrize(
    "between",
    [
        (entry(7),),
        (ListClear(FRAMES),),
        (ListAppend(ScratchAddress(TASK, "frames", "k"), 9), ListAppend(FRAMES, 9)),
        (ListAppend(OTHERS, 9),),
    ],
    ids=["main", "clear", "two", "other stream"],
)
def test_what_comes_between_frames_counts(
    storage: SqliteStorage, between: tuple[MainWrite, ...]
) -> None:
    first = between[0]
    other = isinstance(first, ListAppend) and first.address is OTHERS
    if isinstance(first, ListAppend | ListClear):
        storage.commit(ScratchBatch(OTHER if other else TASK, between))  # type: ignore[arg-type]
    else:
        storage.commit(MainBatch(between))

    done = [storage.commit(frame(index)) for index in (2, 3)]

    at = 7 + len(between)
    assert done == [BatchRange(Seq(at), Seq(at), TASK), BatchRange(Seq(at + 1), Seq(at + 1), TASK)]
    kept = [0, 1, 2, 3] if not isinstance(first, ListClear) else [2, 3]
    assert _values(storage) == (kept if len(between) == 1 else [0, 1, 9, 2, 3])
    assert _values(storage, OTHERS) == ([9] if other else [])
    batches = storage.scan_batches(BatchQuery()).items
    assert [batch.last for batch in batches] == [1, 4, 5, 6, at - 1, at, at + 1]


def test_streams_take_turns(storage: SqliteStorage) -> None:
    for index in range(4):
        storage.commit(frame(index, OTHERS if index % 2 else FRAMES))

    assert _values(storage) == [0, 1, 0, 2]
    assert _values(storage, OTHERS) == [1, 3]


def test_a_refused_frame_takes_no_number(storage: SqliteStorage) -> None:
    with pytest.raises(InvalidValueError, match=r"writes\[0\].value"):
        storage.commit(frame(float("nan")))
    assert storage.commit(frame(2)).first == 7

    assert _values(storage) == [0, 1, 2]


def test_an_expected_number_is_compared(storage: SqliteStorage) -> None:
    with pytest.raises(StaleWriterError, match="SEQ-8"):
        storage.commit(frame(2), expected_first=Seq(6))
    storage.commit(frame(2), expected_first=Seq(7))

    assert _values(storage) == [0, 1, 2]


def test_no_frame_follows_a_taken_over_session(storage: SqliteStorage, path: str) -> None:
    with closing(SqliteStore(path)) as store:
        taken = store.open("a", take_over=True)
        taken.commit(frame("its own"))

        for _ in range(2):
            with pytest.raises(OwnershipLostError, match="epoch 1 is over"):
                storage.commit(frame("late"))

        assert _values(taken) == [0, 1, "its own"]
        assert _values(storage) == [0, 1, "its own"]


def test_frames_go_on_behind_the_end_of_an_extent(store: SqliteStore) -> None:
    last = Seq((1 << 20) - 3)
    items: list[SnapshotItem] = [
        SnapshotHeader(last, ()),
        Conversation(id=ROOT),
        task(last),
        BatchRange(ROOT, ROOT),
        BatchRange(last, last),
    ]
    store.load("b", items)
    streaming, address = store.open("b"), ScratchAddress(last, "frames")

    done = [streaming.commit(frame(index, address)).first for index in range(6)]

    assert done == list(range(last + 1, last + 7))
    assert _values(streaming, address) == list(range(6))
