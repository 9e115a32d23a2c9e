"""DUR-2, DUR-3, DUR-4, JSONL-1, JSONL-5: names, rights, formats, and what is no store."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pico_jsonl import JsonlStore, backend
from pico_jsonl.names import folder_name
from pico_store.address import Seq
from pico_store.backends import open_store
from pico_store.batch import MainBatch
from pico_store.errors import (
    NewerFormatError,
    NotAStoreError,
    SessionExistsError,
    StoreDamagedError,
    StoreUnusableError,
    StoreUrlError,
)
from pico_store.storage import Durability, VerifyReport
from tests.backends.jsonl.scene import (
    ROOT_BATCH,
    contents,
    frame,
    made,
    main_100_scratch_150,
    main_of,
    note,
    opened,
    settling,
    task,
)

ODD = [
    "../../x",
    "..",
    ".",
    "/",
    "a/b",
    "a\x00b",
    "A",
    "a",
    "a ",
    "a\n",
    "%41",
    "\u00e9",
    "e\u0301",
]
ODD += ["x" * 1024, "x" * 1023 + "y", "X" * 300, "\u00e9" * 512, "~", "con", ".new-1", "store.json"]


@contextmanager
def _umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


# --- Names ---


def test_names_of_folders_are_plain_and_no_two_are_alike_in_any_case() -> None:
    names = [folder_name(id) for id in ODD]

    assert len({name.casefold() for name in names}) == len(ODD)
    for name in names:
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-%~")
        assert 0 < len(name) <= 255
        assert name == name.casefold()
    assert folder_name("session-1_b") == "session-1_b"
    assert folder_name("A.\u00e9") == "%41%2e%c3%a9"


def test_sessions_of_any_id_are_kept_apart(path: Path) -> None:
    store = JsonlStore(str(path), durability="process")
    for id in ODD:
        storage = store.create(id)
        storage.commit(ROOT_BATCH)
        note(storage, id)
        storage.close()
        with pytest.raises(SessionExistsError):
            store.create(id)
    assert [info.id for info in store.sessions()] == sorted(ODD)
    for id in ODD:
        assert store.open(id).get_entries([2])[2].data == id  # type: ignore[index, list-item]
    store.close()

    assert {file.parent for file in path.rglob("*")} == {
        path,
        *(path / folder_name(i) for i in ODD),
    }


def test_a_folder_with_another_sessions_log_is_told(path: Path) -> None:
    with made(path):
        pass
    (path / "a").rename(path / "b")

    store = JsonlStore(str(path))
    with pytest.raises(StoreDamagedError, match="'a'"):
        store.sessions()
    with pytest.raises(StoreDamagedError, match="'a'"):
        store.open("b")
    (problem,) = store.verify().problems
    assert (problem.session, problem.where) == ("b", str(path / "b"))
    assert "'a'" in problem.what


@pytest.mark.parametrize("text", [None, b"", b"not a log\n"])
def test_a_session_without_its_log_does_not_hide_the_others_from_verify(
    path: Path, text: bytes | None
) -> None:
    store = JsonlStore(str(path))
    for name in ("a", "b", "c"):
        store.create(name).commit(ROOT_BATCH)
    store.close()
    assert JsonlStore(str(path)).verify() == VerifyReport(6)
    main_of(path, "a").unlink()
    if text is not None:
        main_of(path, "a").write_bytes(text)
    main_of(path, "c").write_bytes(main_of(path, "c").read_bytes().replace(b"main", b"mian"))

    report = JsonlStore(str(path)).verify()

    assert report.records == 3
    assert [problem.session for problem in report.problems] == ["a", "c"]


# --- Rights ---


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o777])
@pytest.mark.parametrize("durability", ["ordered", "process"])
def test_files_are_0600_and_folders_0700_whatever_the_umask(
    path: Path, tmp_path: Path, mask: int, durability: Durability
) -> None:
    with _umask(mask):
        store = JsonlStore(str(path), durability=durability)
        storage = store.create("a")
        storage.commit(ROOT_BATCH)
        main_100_scratch_150(storage)
        storage.commit(settling())
        storage.commit(MainBatch((task(152),)))
        storage.commit(frame(1, storage.last_seq))
        seen = list(path.rglob("*"))
        store.vacuum()
        storage.commit(frame(1, Seq(152)))
        store.backup(str(tmp_path / "backup"))
        seen += [*path.rglob("*"), *(tmp_path / "backup").rglob("*")]
        modes = {file: stat.S_IMODE(file.stat().st_mode) for file in seen if file.exists()}
        store.close()

    assert len(modes) > 6
    for file, mode in modes.items():
        assert mode == (0o700 if file.is_dir() else 0o600), file
    for folder in (path, tmp_path / "backup"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_rights_are_there_from_the_first_byte(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    created: list[int] = []
    real_open = os.open

    def watched(name: str, flags: int, mode: int = 0o777, **more: int) -> int:
        fd = real_open(name, flags, mode, **more)
        if flags & os.O_CREAT:
            created.append(stat.S_IMODE(os.fstat(fd).st_mode))
        return fd

    monkeypatch.setattr("os.open", watched)
    with _umask(0), made(path) as storage:
        storage.commit(ROOT_BATCH)

    assert len(created) >= 4
    assert set(created) == {0o600}


# --- Formats ---


def test_the_first_line_says_format_version_and_session(path: Path) -> None:
    with made(path) as storage:
        storage.commit(ROOT_BATCH)

    first, second = main_of(path).read_bytes().splitlines()
    assert first.startswith(b'{"format":"pico-jsonl","version":1,"session":"a","crc32":"')
    assert second.startswith(b'{"first":1,"kind":"main","writes":[{"type":"createConversation"')


@pytest.mark.parametrize("which", ["store.json", "a/main.jsonl"])
def test_a_newer_format_is_refused_untouched(path: Path, which: str) -> None:
    with made(path) as storage:
        storage.commit(ROOT_BATCH)
    file = path / which
    file.write_bytes(file.read_bytes().replace(b'"version":1', b'"version":2', 1))
    before = contents(path)

    with pytest.raises(NewerFormatError, match="upgrade pico"), opened(path):
        pass
    with pytest.raises(NewerFormatError):
        JsonlStore(str(path)).open("a", read_only=True)

    assert contents(path) == before


@pytest.mark.parametrize(
    "marker", [b"", b"{}", b"[]", b"\xff", b'{"format":"other","version":1}', b'{"version":1}']
)
def test_a_folder_of_something_else_is_refused_untouched(path: Path, marker: bytes) -> None:
    path.mkdir()
    (path / "store.json").write_bytes(marker)
    before = contents(path)

    with pytest.raises(NotAStoreError, match="store"):
        JsonlStore(str(path))

    assert contents(path) == before


def test_a_folder_with_files_is_no_place_for_a_store(path: Path) -> None:
    path.mkdir()
    (path / "notes.txt").write_bytes(b"milk")
    before = contents(path)

    with pytest.raises(NotAStoreError, match=r"store\.json"):
        JsonlStore(str(path))

    assert contents(path) == before


def test_an_empty_folder_becomes_a_store_and_a_missing_one_only_if_asked(
    path: Path, tmp_path: Path
) -> None:
    path.mkdir()
    assert JsonlStore(str(path)).sessions() == []
    with pytest.raises(StoreUnusableError, match="no store at"):
        JsonlStore(str(tmp_path / "missing"), create=False)
    with pytest.raises(StoreUnusableError, match="no store at"):
        JsonlStore(str(tmp_path / "missing" / "deeper"))
    assert not (tmp_path / "missing").exists()


def test_many_make_one_store_at_once(path: Path) -> None:
    path.mkdir()
    # What another process has begun.
    (path / ".new-0123").write_bytes(b"")

    assert JsonlStore(str(path)).sessions() == []


# --- URLs ---


def test_urls_and_options(path: Path) -> None:
    store = open_store(f"jsonl:{path}?durability=power")
    assert store.url == f"jsonl:{path}?durability=power"
    assert store.create("a").commit_waits
    store.close()
    store = open_store(f"jsonl:{path}")
    assert store.url == f"jsonl:{path}"
    assert not store.open("a").commit_waits
    store.close()
    with pytest.raises(StoreUrlError, match="power, ordered, process"):
        open_store(f"jsonl:{path}?durability=fast")
    with pytest.raises(StoreUrlError, match="unknown option 'sync'"):
        open_store(f"jsonl:{path}?sync=off")
    with pytest.raises(StoreUrlError, match="jsonl:FOLDER"):
        open_store("jsonl:")
    assert backend.promises.multi_process


def test_the_names_of_new_files_are_made_durable(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync

    def watched(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        real(fd)

    monkeypatch.setattr("os.fsync", watched)
    store = JsonlStore(str(path), durability="power")
    assert str(path) in synced
    assert str(path.parent) in synced
    synced.clear()
    store.create("a")
    assert synced.count(str(path)) == 1
    assert any(".new-" in name for name in synced), "the session's own folder, before its name"
    synced.clear()
    store.vacuum()
    assert str(path / "a") in synced
    store.close()
    synced.clear()
    store = JsonlStore(str(path), durability="process")
    store.create("b")
    assert synced == []
    store.close()
