"""DUR-5, OWN-3: a write, a sync or a cut that fails, at every place."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

import pico_jsonl.folder
import pico_jsonl.keeping
from pico_jsonl import JsonlStore
from pico_jsonl.disk import Disk
from pico_jsonl.storage import JsonlStorage
from pico_store.address import ScratchAddress
from pico_store.batch import Batch, MainBatch
from pico_store.digest import digest
from pico_store.errors import (
    CommitUncertainError,
    RetryableError,
    StorageFaultedError,
    StoreFullError,
    StoreIOError,
)
from pico_store.query import ListQuery
from pico_store.storage import Durability
from tests.backends.jsonl.scene import (
    ROOT_BATCH,
    TASK,
    contents,
    copied,
    digest_of,
    entry,
    frame,
    main_100_scratch_150,
    main_of,
    note,
    open_descriptors,
    opened,
    scratch_of,
    setting,
    settling,
    task,
)


@dataclass
class FailingDisk:
    """Calls to a disk, some of which fail."""

    writes_left: int = 1_000_000
    syncs_left: int = 1_000_000
    cuts_left: int = 1_000_000
    bytes_of_last: int = 0
    """How much of the write that fails is written all the same."""
    error: int = errno.EIO
    for_good: bool = True
    """Whether what failed once goes on failing."""

    def disk(self) -> Disk:
        """Return the calls."""
        return Disk(self._write, self._sync, self._cut)

    def _write(self, fd: int, text: bytes) -> int:
        if self.writes_left > 0:
            self.writes_left -= 1
            return os.write(fd, text)
        self.writes_left = 0 if self.for_good else 1_000_000
        if self.bytes_of_last:
            part = text[: self.bytes_of_last]
            self.bytes_of_last = 0
            self.writes_left = 0
            return os.write(fd, part)
        raise OSError(self.error, os.strerror(self.error))

    def _sync(self, fd: int) -> None:
        if self.syncs_left <= 0:
            raise OSError(self.error, os.strerror(self.error))
        self.syncs_left -= 1
        os.fdatasync(fd)

    def _cut(self, fd: int, size: int) -> None:
        if self.cuts_left <= 0:
            raise OSError(self.error, os.strerror(self.error))
        self.cuts_left -= 1
        os.ftruncate(fd, size)


@contextmanager
def failing(path: Path, durability: Durability) -> Iterator[tuple[JsonlStorage, FailingDisk]]:
    """Give a session with main number 100 and live scratch to 150 on a disk that can fail."""
    failures = FailingDisk()
    store = JsonlStore(str(path), durability=durability, disk=failures.disk())
    storage = store.create("a")
    storage.commit(ROOT_BATCH)
    main_100_scratch_150(storage)
    try:
        yield storage, failures
    finally:
        store.close()


BATCHES: dict[str, Batch] = {
    "main": MainBatch((entry(151, data="x" * 5_000), task(152))),
    "settling": settling(),
    "frame": frame("x" * 100),
    "first frame": frame("y"),
}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO])
@pytest.mark.parametrize("name", BATCHES)
def test_a_write_that_fails_is_cut_off_and_the_handle_goes_on(
    path: Path, name: str, code: int
) -> None:
    with failing(path, "process") as (storage, failures):
        mark, before = digest(storage.export()), contents(path)
        sizes = {0, 1, 20, 60}
        for size in sizes:
            failures.writes_left, failures.bytes_of_last, failures.error = 0, size, code

            expected = StoreIOError if code == errno.EIO else StoreFullError
            with pytest.raises(expected):
                storage.commit(BATCHES[name])

            assert digest(storage.export()) == mark
            assert contents(path) == before
            assert storage.last_seq == 150
        failures.writes_left = 1_000
        assert storage.commit(BATCHES[name]).first == 151
        mark = digest(storage.export())

    assert digest_of(path) == mark


def test_a_short_write_is_completed(path: Path) -> None:
    disk = Disk(write=lambda fd, text: os.write(fd, text[:7]))
    store = JsonlStore(str(path), disk=disk)
    storage = store.create("a")
    storage.commit(ROOT_BATCH)
    main_100_scratch_150(storage)
    mark = digest(storage.export())
    store.close()

    assert digest_of(path) == mark


def test_the_first_append_to_a_scratch_file_may_fail(path: Path) -> None:
    with failing(path, "process") as (storage, failures):
        storage.commit(settling())
        storage.commit(MainBatch((task(152),)))
        other = frame("first", storage.last_seq)
        for size in (0, 5, 90):
            failures.writes_left, failures.bytes_of_last = 0, size
            with pytest.raises(RetryableError):
                storage.commit(other)
        failures.writes_left = 1_000
        storage.commit(other)
        storage.commit(frame("second", other.task))
        last = storage.last_seq

    with opened(path) as found:
        assert found.last_seq == last
        frames = found.read_list(ScratchAddress(other.task, "frames"), ListQuery()).items
        assert [item.value for item in frames] == ["first", "second"]


@pytest.mark.parametrize("name", BATCHES)
def test_what_cannot_be_cut_off_faults_the_handle(path: Path, tmp_path: Path, name: str) -> None:
    with failing(path, "process") as (storage, failures):
        mark = digest(storage.export())
        failures.writes_left, failures.bytes_of_last, failures.cuts_left = 0, 30, 0

        with pytest.raises(CommitUncertainError, match="could not be cut off"):
            storage.commit(BATCHES[name])

        failures.writes_left = failures.cuts_left = 1_000
        left = contents(path)
        for act in (lambda: storage.commit(setting(1)), lambda: storage.last_seq):
            with pytest.raises(StorageFaultedError, match="cut off"):
                act()
        assert contents(path) == left
    there = copied(path, tmp_path / "copy")
    with opened(there) as found:
        assert digest(found.export()) == mark
        assert found.open_report.dropped_bytes == 30
        assert found.commit(BATCHES[name]).first == 151


def test_a_sync_that_fails_faults_the_handle_and_is_not_tried_again(path: Path) -> None:
    with failing(path, "power") as (storage, failures):
        failures.syncs_left = 0

        with pytest.raises(CommitUncertainError, match="could not be made durable"):
            note(storage)

        failures.syncs_left = 1_000
        with pytest.raises(StorageFaultedError):
            note(storage)
    assert failures.syncs_left == 1_000, "close asked the disk again"
    with opened(path) as found:
        assert found.last_seq in (150, 151)


@pytest.mark.parametrize(
    ("durability", "main", "scratch"), [("power", 1, 0), ("ordered", 0, 0), ("process", 0, 0)]
)
def test_how_often_the_disk_is_asked(
    path: Path, durability: Durability, main: int, scratch: int
) -> None:
    with failing(path, durability) as (storage, failures):
        before = failures.syncs_left
        for _ in range(10):
            note(storage)
        assert before - failures.syncs_left == 10 * main
        before = failures.syncs_left
        for _ in range(10):
            storage.commit(frame("x"))
        assert before - failures.syncs_left == 10 * scratch
        assert storage.commit_waits is (durability == "power")
        before = failures.syncs_left
    at_close = before - failures.syncs_left
    # The main log where it is not durable yet, and the scratch.
    assert at_close == {"power": 1, "ordered": 2, "process": 0}[durability]


def test_much_that_is_written_is_made_durable_before_the_session_is_closed(path: Path) -> None:
    with failing(path, "ordered") as (storage, failures):
        before = failures.syncs_left
        for _ in range(9):
            note(storage, "x" * (1 << 20))
        assert before - failures.syncs_left == 2


@pytest.mark.parametrize("durability", ["power", "ordered", "process"])
def test_an_opening_that_fails_at_any_call_can_be_tried_again(
    path: Path, durability: Durability
) -> None:
    with failing(path, durability) as (storage, _):
        mark = digest(storage.export())
    for log in (main_of(path), scratch_of(path)):
        log.write_bytes(log.read_bytes() + b'{"first":')
    tried = 0
    for left in count():
        failures = FailingDisk(syncs_left=left, cuts_left=left)
        store = JsonlStore(str(path), durability=durability, disk=failures.disk())
        descriptors = open_descriptors()
        try:
            storage = store.open("a")
        except RetryableError:
            tried += 1
        else:
            assert digest(storage.export()) == mark
            store.close()
            break
        assert open_descriptors() == descriptors

    assert tried >= 1


@pytest.mark.parametrize("durability", ["power", "ordered", "process"])
@pytest.mark.parametrize("act", ["create", "load", "vacuum", "backup"])
def test_making_something_fails_at_any_write_and_leaves_nothing_behind(
    path: Path, tmp_path: Path, durability: Durability, act: str
) -> None:
    with failing(path, durability) as (storage, _):
        items = list(storage.export())
    mark, before = digest(items), contents(path)
    acts: dict[str, Callable[[JsonlStore], object]] = {
        "create": lambda store: store.create("b"),
        "load": lambda store: store.load("b", items),
        "vacuum": lambda store: store.vacuum(),
        "backup": lambda store: store.backup(str(tmp_path / "backup")),
    }
    tried = 0
    for left in count():
        failures = FailingDisk(writes_left=left, bytes_of_last=10)
        store = JsonlStore(str(path), durability=durability, disk=failures.disk())
        try:
            acts[act](store)
        except RetryableError:
            tried += 1
            store.close()
            kept = {name: text for name, text in contents(path).items() if "control" not in name}
            assert kept.items() <= before.items()
            assert sorted(name.name for name in path.iterdir()) == ["a", "store.json"]
            assert sorted(name.name for name in tmp_path.iterdir()) == ["store"]
            continue
        store.close()
        break

    assert tried >= 1
    assert digest_of(path) == mark


def _unsynced(folder: str) -> None:
    raise OSError(errno.EIO, "Input/output error", folder)


def test_a_session_whose_name_is_not_durable_is_not_said_to_have_been_there(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = JsonlStore(str(path))

    def fail(folder: str) -> None:
        if folder == str(path):
            _unsynced(folder)

    monkeypatch.setattr(pico_jsonl.folder, "sync_folder", fail)

    with pytest.raises(StoreIOError, match="made, but its name could not be made durable"):
        store.create("a")

    assert [info.id for info in store.sessions()] == ["a"]
    store.close()


def test_a_vacuum_whose_log_has_no_durable_name_faults_the_handle(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with failing(path, "power") as (storage, _):
        mark = digest(storage.export())
    store = JsonlStore(str(path), durability="power")
    storage = store.open("a")
    monkeypatch.setattr(pico_jsonl.keeping, "sync_folder", _unsynced)

    with pytest.raises(CommitUncertainError, match="could not be made durable"):
        store.vacuum()
    with pytest.raises(StorageFaultedError):
        _ = storage.last_seq
    with pytest.raises(StoreIOError):
        store.backup(str(tmp_path / "backup"))

    assert not (tmp_path / "backup").exists()
    store.close()
    assert digest_of(path) == mark


def test_a_file_may_not_grow(path: Path) -> None:
    with failing(path, "ordered") as (storage, _):
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        size = main_of(path).stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 2_000, hard))
        try:
            while main_of(path).stat().st_size < size + 1_600:
                note(storage, "x" * 300)
            last = storage.last_seq
            with pytest.raises(StoreFullError, match="no room"):
                note(storage, "x" * 300)
            assert last > 150
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert note(storage) == last + 1

    with opened(path) as found:
        assert found.last_seq == last + 1
        assert found.get_tasks([TASK])
