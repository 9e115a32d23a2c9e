"""The folder: its files and their modes, what is refused untouched, and the levels."""

from __future__ import annotations

import gc
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import lmdb
import msgspec
import pytest

from pico_lmdb import LmdbStore, folder
from pico_lmdb.layout import FORMAT, FORMAT_VERSION
from pico_store.backends import open_store
from pico_store.batch import ListAppend, ScratchBatch, ValueSet
from pico_store.errors import (
    NewerFormatError,
    NotAStoreError,
    StorageClosedError,
    StoreDamagedError,
    StoreIOError,
    StoreUnusableError,
    StoreUrlError,
)
from pico_store.storage import Durability
from tests.backends.lmdb.scene import ROOT_BATCH, TASK, exported, fill, noting, scratch, setting

LEVELS: Final[tuple[Durability, ...]] = ("power", "ordered", "process")


def _contents(path: str) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in Path(path).rglob("*") if file.is_file()}


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o777])
def test_everything_is_private_from_its_first_byte(path: str, mask: int) -> None:
    made: list[tuple[str, int]] = []
    before = os.umask(mask)
    try:
        with closing(LmdbStore(path)) as store:
            store.create("a").commit(ROOT_BATCH)
            store.backup(f"{path}-copy")
            # Vacuum makes the data file anew.
            for act in (lambda: None, store.vacuum):
                act()
                for place in (path, f"{path}-copy"):
                    for file in [Path(place), *Path(place).iterdir()]:
                        made.append((file.name, stat.S_IMODE(file.stat().st_mode)))
    finally:
        os.umask(before)

    folders = {"a": 0o700, "a-copy": 0o700}
    files = dict.fromkeys(("format", "data.mdb", "lock.mdb"), 384)
    assert set(made) == set((folders | files).items())


# --- What is refused ---


def _write(path: str, files: dict[str, bytes]) -> None:
    os.mkdir(path)
    for name, content in files.items():
        Path(path, name).write_bytes(content)


def _newer(path: str) -> None:
    _store(path)
    Path(path, "format").write_bytes(b'{"format":"pico-lmdb","version":2,"more":[]}')


def _newer_inside(path: str) -> None:
    _store(path)
    _change(path, lambda t: t.put(FORMAT, msgspec.msgpack.encode(FORMAT_VERSION + 1)))


def _change(path: str, change: Callable[[lmdb.Transaction], object]) -> None:
    with lmdb.open(path, max_dbs=16) as engine, engine.begin(write=True) as transaction:
        change(transaction)
    os.unlink(f"{path}/lock.mdb")


def _store(path: str) -> None:
    with closing(LmdbStore(path)) as store:
        fill(store.create("a"))
    os.unlink(f"{path}/lock.mdb")


def _other_environment(path: str) -> None:
    os.mkdir(path)
    _change(path, lambda t: t.put(b"a", b"b"))


def _marked_environment(path: str) -> None:
    _other_environment(path)
    Path(path, "format").write_bytes(b'{"format":"pico-lmdb","version":1}')


def _cut(path: str) -> None:
    _store(path)
    size = os.stat(f"{path}/data.mdb").st_size
    os.truncate(f"{path}/data.mdb", size - 4_096)


def _headless(path: str) -> None:
    _store(path)
    with open(f"{path}/data.mdb", "r+b") as file:
        file.write(b"\0" * 64)


_REFUSED: Final[dict[str, tuple[Callable[[str], None], type[Exception], str]]] = {
    "a file": (lambda p: Path(p).touch(), NotAStoreError, "not a folder"),
    "a folder of something else": (
        lambda p: _write(p, {"notes.txt": b"milk"}),
        NotAStoreError,
        "something else",
    ),
    "an environment of something else": (_other_environment, NotAStoreError, "something else"),
    "one that says it is a store": (_marked_environment, NotAStoreError, "another program"),
    "no format": (lambda p: _write(p, {"format": b"{"}), NotAStoreError, "not that of a store"),
    "another format": (
        lambda p: _write(p, {"format": b'{"format":"x","version":1}'}),
        NotAStoreError,
        "format 'x'",
    ),
    "a newer format": (_newer, NewerFormatError, "format 2, written by a newer pico"),
    "a newer format inside": (_newer_inside, NewerFormatError, "format 2"),
    "a file that is cut off": (_cut, StoreDamagedError, "cut off there"),
    "a file without header": (_headless, StoreDamagedError, "offset 0"),
}


@pytest.mark.parametrize("name", _REFUSED)
def test_what_cannot_be_used_is_refused_and_left_as_it_is(name: str, path: str) -> None:
    make, error, words = _REFUSED[name]
    make(path)
    before = _contents(path) if os.path.isdir(path) else Path(path).read_bytes()

    for create in (True, False):
        with pytest.raises(error, match=words) as raised:
            LmdbStore(path, create=create)
        assert path in str(raised.value)

    after = _contents(path) if os.path.isdir(path) else Path(path).read_bytes()
    if isinstance(after, dict):
        # LMDB's own table of readers is no data.
        after.pop(f"{path}/lock.mdb", None)
    assert after == before


def test_a_file_that_is_cut_off_is_named_with_its_end(path: str) -> None:
    _cut(path)
    size = os.stat(f"{path}/data.mdb").st_size

    with pytest.raises(StoreDamagedError, match=f"data.mdb: offset {size}: cut off"):
        LmdbStore(path)


def test_a_store_that_is_not_there_is_not_made_to_be_looked_at(tmp_path: Path, path: str) -> None:
    with pytest.raises(StoreUnusableError, match="no store at"):
        LmdbStore(path, create=False)
    os.mkdir(path)
    with pytest.raises(StoreUnusableError, match="no store at"):
        LmdbStore(path, create=False)

    assert list(Path(path).iterdir()) == []


def test_a_store_that_lost_its_data_is_no_empty_store(path: str) -> None:
    _store(path)
    os.unlink(f"{path}/data.mdb")

    with pytest.raises(StoreUnusableError, match=r"data.mdb is gone; restore a backup"):
        LmdbStore(path, create=False)


def test_a_data_file_that_was_left_half_made_is_made_anew(path: str) -> None:
    LmdbStore(path).close()
    whole = Path(path, "data.mdb").read_bytes()
    for left in (b"", bytes(8_192), whole[:512] + bytes(7_680), bytes(4_096) + whole[4_096:4_608]):
        Path(path, "data.mdb").write_bytes(left)
        with pytest.raises(StoreDamagedError):
            LmdbStore(path, create=False)
        with closing(LmdbStore(path)) as store:
            store.create("a").commit(ROOT_BATCH)
    data = bytearray(Path(path, "data.mdb").read_bytes())
    data[:4_096] = bytes(4_096)
    Path(path, "data.mdb").write_bytes(data)
    with pytest.raises(StoreDamagedError, match="no header"):
        LmdbStore(path)
    assert Path(path, "data.mdb").read_bytes() == bytes(data), "a session was in it"


def test_a_folder_that_was_left_half_made_is_made_whole(path: str) -> None:
    _write(path, {"format-0123456789abcdef": b'{"for'})

    with closing(LmdbStore(path)) as store:
        store.create("a").commit(ROOT_BATCH)

    assert len(exported(path)) == 3


@pytest.mark.parametrize("links", ["links", "no links"])
def test_two_that_make_a_folder_at_once_make_one_format_file(
    path: str, links: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(source: str, target: str) -> None:
        raise PermissionError(1, "Operation not permitted")

    folder.make_folder(path)
    with monkeypatch.context() as patch:
        if links == "no links":
            patch.setattr(os, "link", no_links)
        folder.write_format(path)
    first = os.stat(f"{path}/format").st_ino
    folder.write_format(path)

    assert os.stat(f"{path}/format").st_ino == first, "who locked it is not alone any more"
    assert os.listdir(path) == ["format"]
    LmdbStore(path).close()


def test_opening_and_closing_changes_no_byte_of_the_data(path: str) -> None:
    _store(path)
    before = _contents(path)
    with closing(LmdbStore(path, durability="power")) as store:
        store.open("a", read_only=True).entry_kinds()
        store.sessions()

    after = _contents(path)
    del after[f"{path}/lock.mdb"]
    assert after == before


@contextmanager
def _read_only(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let nothing be writable, as for a process without permission."""
    real = os.access

    def access(path: str, mode: int) -> bool:
        return not mode & os.W_OK and real(path, mode)

    with monkeypatch.context() as patch:
        patch.setattr(os, "access", access)
        yield


def test_a_folder_that_may_not_be_written_can_be_looked_at(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _store(path)
    items = exported(path)
    before = _contents(path)
    with _read_only(monkeypatch), closing(LmdbStore(path)) as store:
        storage = store.open("a", read_only=True)

        assert list(storage.export()) == items
        with pytest.raises(StoreIOError, match="Permission denied"):
            store.open("a")
        with pytest.raises(StoreIOError, match="Permission denied"):
            store.create("b")

    assert _contents(path) == before


# --- Levels ---


@pytest.mark.parametrize("level", LEVELS)
def test_each_level_has_its_settings(path: str, level: Durability) -> None:
    with closing(LmdbStore(path, durability=level)) as store:
        flags = store._environment.engine.flags()

        assert flags["sync"] is (level != "process")
        assert not flags["metasync"]
        assert not flags["writemap"]
        assert store.create("a").commit_waits is (level != "process")


@pytest.mark.parametrize("level", LEVELS)
def test_power_alone_syncs_what_makes_a_main_commit_count(path: str, level: Durability) -> None:
    class Counting:
        def __init__(self, engine: lmdb.Environment) -> None:
            self.engine = engine
            self.syncs = 0

        def sync(self, force: bool) -> None:  # noqa: FBT001 - LMDB's own
            assert force
            self.syncs += 1
            self.engine.sync(force)

        def __getattr__(self, name: str) -> object:
            return getattr(self.engine, name)

    with closing(LmdbStore(path, durability=level)) as store:
        storage = store.create("a")
        fill(storage)
        shared = store._environment
        counting = shared.engine = Counting(shared.engine)  # type: ignore[assignment]
        try:
            storage.commit(setting(1))
            assert counting.syncs == (level == "power")
            counting.syncs = 0

            for writes in ((ListAppend(scratch(), 1),), (ValueSet(scratch("k"), 1),)):
                storage.commit(ScratchBatch(TASK, writes))

            assert counting.syncs == 0
        finally:
            shared.engine = counting.engine


def test_a_process_has_one_environment_of_a_folder(path: str, tmp_path: Path) -> None:
    os.symlink(path, tmp_path / "link")
    with closing(LmdbStore(path)) as store, closing(LmdbStore(f"{tmp_path}/link")) as other:
        assert store._environment is other._environment
        store.create("a").commit(ROOT_BATCH)
        store.close()

        assert other.sessions()[0].last_seq == 1

    with closing(LmdbStore(path)) as store:
        assert store.sessions()[0].owner is None


@pytest.mark.parametrize("level", ["power", "ordered"])
def test_a_level_that_the_open_environment_cannot_keep_is_refused(
    path: str, level: Durability
) -> None:
    with closing(LmdbStore(path, durability="process")):
        with pytest.raises(StoreUnusableError, match="open in this process with durability=pro"):
            LmdbStore(path, durability=level)
        with closing(LmdbStore(path, durability="process")) as other:
            assert other.sessions() == []
    with (
        closing(LmdbStore(path, durability=level)),
        closing(LmdbStore(path, durability="process")) as weaker,
    ):
        assert weaker.sessions() == []


def test_wrong_options_name_what_is_allowed(path: str) -> None:
    for option, words in (
        ("durability=full", "allowed: power, ordered, process"),
        ("busy_ms=-1", "allowed: 0 to 3600000"),
        ("writemap=1", "allowed: busy_ms, compression, dur"),
    ):
        with pytest.raises(StoreUrlError, match=words):
            open_store(f"lmdb:{path}?{option}")

    assert not os.path.exists(path)


# --- Forks of the process ---


def _in_child(act: Callable[[], object]) -> str:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            try:
                answer = str(act())
            except BaseException as error:  # noqa: BLE001 - the parent asserts on what it was
                answer = f"{type(error).__name__}: {error}"
            os.write(writing, answer.encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        text = pipe.read().decode()
    os.waitpid(child, 0)
    return text


def test_what_a_fork_inherits_is_refused(path: str) -> None:
    with closing(LmdbStore(path)) as store:
        storage = store.create("a")
        storage.commit(ROOT_BATCH)
        for act in (
            lambda: storage.last_seq,
            lambda: storage.commit(noting(storage)),
            lambda: storage.entry_kinds(),
            lambda: store.sessions(),
            lambda: store.open("a", read_only=True),
        ):
            said = _in_child(act)
            assert said.startswith(StorageClosedError.__name__), said
            assert "os.fork()" in said
        said = _in_child(lambda: LmdbStore(path))
        assert said.startswith(StoreUnusableError.__name__), said
        assert "was open when this process was forked" in said
        assert _in_child(lambda: LmdbStore(f"{path}-other").sessions()) == "[]"
        _in_child(storage.close)
        _in_child(store.close)

        storage.commit(noting(storage))
        assert storage.last_seq == 2
        assert store.sessions()[0].owner is not None


def test_a_store_that_nobody_closed_gives_its_folder_back(path: str) -> None:
    store = LmdbStore(path, durability="process")
    store.create("a").commit(ROOT_BATCH)
    del store
    gc.collect()

    with closing(LmdbStore(path, durability="power")) as again:
        assert again.open("a").last_seq == 1


def test_a_data_file_that_is_cut_off_to_nothing_is_told(path: str) -> None:
    with closing(LmdbStore(path)) as store:
        fill(store.create("a"))
    Path(path, "data.mdb").write_bytes(b"")

    with pytest.raises(StoreDamagedError, match="empty"):
        LmdbStore(path, create=False)


def test_a_store_that_a_power_cut_met_in_the_making_is_made_anew(path: str) -> None:
    LmdbStore(path).close()
    data = Path(path, "data.mdb")
    # The second of the first two pages, and what follows, was not written yet.
    data.write_bytes(data.read_bytes()[:4_096] + bytes(4_096))
    torn = data.read_bytes()

    with pytest.raises(StoreDamagedError):
        LmdbStore(path, create=False)
    assert data.read_bytes() == torn
    with closing(LmdbStore(path)) as store:
        fill(store.create("a"))
        assert store.verify().problems == ()


def test_a_damaged_page_of_a_store_that_held_something_is_not_made_anew(path: str) -> None:
    with closing(LmdbStore(path)) as store:
        fill(store.create("a"))
    data = Path(path, "data.mdb")
    data.write_bytes(bytes(4_096) + data.read_bytes()[4_096:])

    with pytest.raises(StoreDamagedError, match="no header"):
        LmdbStore(path)
