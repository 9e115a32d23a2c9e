"""DEL-5, DUR-7, DUR-11: a log written anew holds the same, takes less, and harms no reader."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pico_jsonl.store
from pico_jsonl import JsonlStore
from pico_jsonl.control import SYNCED, Control, read_control
from pico_jsonl.folder import sweep
from pico_jsonl.storage import JsonlStorage
from pico_store.address import ConversationAddress, ScratchAddress, Seq, SessionAddress
from pico_store.batch import ListAppend, MainBatch, ValueDelete, ValueSet
from pico_store.digest import digest
from pico_store.errors import (
    RefusedError,
    SessionOwnedError,
    StorageFaultedError,
    StoreIOError,
)
from pico_store.query import ListQuery
from pico_store.snapshot import SnapshotHeader
from tests.backends.jsonl.scene import (
    NAME,
    ROOT,
    ROOT_BATCH,
    TASK,
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
)
from tests.backends.sqlite.scene import HISTORY, batches

LAST = 32


@pytest.fixture
def full(store: JsonlStore) -> JsonlStorage:
    """A session with something at every kind of place."""
    storage = store.create("a")
    for batch in HISTORY:
        storage.commit(batch)
    assert storage.last_seq == LAST
    return storage


def test_the_log_holds_the_same_and_goes_on(
    path: Path, store: JsonlStore, full: JsonlStorage
) -> None:
    mark = digest(full.export())

    report = store.vacuum()

    assert digest(full.export()) == mark == digest_of(path)
    assert report.bytes_after == main_of(path).stat().st_size
    assert not list((path / "a").glob("scratch-*"))
    for batch in batches(full.last_seq).values():
        if batch.writes[0] != batches(full.last_seq)["deletion"].writes[0]:
            full.commit(batch)
            break
    full.commit(frame("later", Seq(15)))
    mark = digest(full.export())
    store.close()
    assert digest_of(path) == mark
    assert JsonlStore(str(path)).verify().problems == ()


@pytest.mark.parametrize("name", batches(LAST))
def test_every_kind_of_write_goes_on_from_a_snapshot(
    path: Path, tmp_path: Path, store: JsonlStore, full: JsonlStorage, name: str
) -> None:
    plain = copied(path, tmp_path / "plain")
    store.vacuum()
    full.commit(batches(LAST)[name])
    store.close()
    with opened(plain) as storage:
        storage.commit(batches(LAST)[name])

    assert digest_of(path) == digest_of(plain)
    store = JsonlStore(str(path))
    store.vacuum()
    assert store.verify().problems == ()
    store.close()
    assert digest_of(path) == digest_of(plain)


def test_a_session_that_nobody_has_open_is_vacuumed_too(
    path: Path, store: JsonlStore, full: JsonlStorage
) -> None:
    full.close()
    mark = digest_of(path)
    before = store.sessions()

    store.vacuum()

    assert digest_of(path) == mark
    assert store.sessions() == before, "the epoch is not raised, nobody owns it"
    assert main_of(path).read_bytes().splitlines()[1].startswith(b'{"snapshot":')


def test_a_session_of_another_owner_is_left_alone(
    path: Path, store: JsonlStore, full: JsonlStorage
) -> None:
    before = contents(path)

    report = JsonlStore(str(path)).vacuum()

    assert contents(path) == before
    assert (report.bytes_before, report.bytes_after) == (0, 0)
    assert note(full) == LAST + 1


def test_readers_of_the_old_log_finish(path: Path, store: JsonlStore, full: JsonlStorage) -> None:
    stream = full.export()
    seen = [next(stream)]
    expected = list(full.export())
    elsewhere = JsonlStore(str(path)).open("a", read_only=True)

    store.vacuum()
    note(full, "later")

    assert [*seen, *stream] == expected
    assert list(elsewhere.export()) == expected
    assert JsonlStore(str(path)).open("a", read_only=True).last_seq == LAST + 1


def test_scratch_that_was_folded_in_counts_once(path: Path, tmp_path: Path) -> None:
    store = JsonlStore(str(path))
    storage = store.create("a")
    storage.commit(ROOT_BATCH)
    main_100_scratch_150(storage)
    before = scratch_of(path).read_bytes()
    store.vacuum()
    # As if the process had died before it removed the file, whose task goes on afterwards.
    there = copied(path, tmp_path / "copy")
    scratch_of(there).write_bytes(before)
    mark = digest(storage.export())
    store.close()

    assert digest_of(there) == mark
    with opened(there) as found:
        assert found.last_seq == 150
        found.commit(frame("later"))
    with opened(there) as found:
        items = found.read_list(ScratchAddress(TASK, "frames"), ListQuery()).items
        assert [item.value for item in items] == [*range(50), "later"]
        found.commit(settling())
    with opened(there) as found:
        assert found.last_seq == 152


def test_an_interruption_once_the_new_log_is_in_place_faults_the_handle(
    path: Path, store: JsonlStore, full: JsonlStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = full._session
    assert session is not None
    mark = digest(full.export())

    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(session.writer, "go_on_in", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.vacuum()

    with pytest.raises(StorageFaultedError, match="vacuum was interrupted"):
        note(full)
    with pytest.raises(StorageFaultedError, match="vacuum was interrupted"):
        list(full.export())
    full.close()
    assert digest_of(path) == mark
    assert note(store.open("a")) == LAST + 1


def test_an_interruption_before_that_changes_nothing(
    path: Path, store: JsonlStore, full: JsonlStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark, before = digest(full.export()), main_of(path).read_bytes()

    def failing(*arguments: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", failing)
        with pytest.raises(StoreIOError):
            store.vacuum()

    assert main_of(path).read_bytes() == before
    assert sorted(os.listdir(path / "a"))[:2] == ["control", "main.jsonl"]
    assert not list((path / "a").glob("new-*"))
    assert digest(full.export()) == mark
    assert note(full) == LAST + 1


def test_the_watermark_is_never_beyond_what_the_new_log_has(
    path: Path, store: JsonlStore, full: JsonlStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(100):
        full.commit(MainBatch((ValueSet(NAME, number),)))
    full.close()
    full = store.open("a")
    rename = os.rename

    def dying(source: str, target: str) -> None:
        rename(source, target)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "rename", dying)
    with pytest.raises(KeyboardInterrupt):
        store.vacuum()

    size = main_of(path).stat().st_size
    assert read_control(str(path / "a" / "control"))[SYNCED] <= size


def test_policies_are_written_only_where_nothing_else_tells_them(
    path: Path, store: JsonlStore
) -> None:
    storage = store.create("a")
    gone, kept = ConversationAddress(ROOT, "gone"), ConversationAddress(ROOT, "kept", rewind=True)
    storage.commit(MainBatch((*ROOT_BATCH.writes, ValueSet(gone, 1), ValueSet(kept, 2))))
    storage.commit(MainBatch((ValueDelete(gone), ListAppend(kept, 3))))
    mark = digest(storage.export())

    store.vacuum()

    assert main_of(path).read_bytes().count(b'"type":"policy"') == 1
    assert digest(storage.export()) == mark
    assert storage.rewind_policy(gone, "value") is False
    assert storage.rewind_policy(kept, "list") is True


def test_a_loaded_session_is_a_snapshot_and_can_be_written(
    path: Path, store: JsonlStore, full: JsonlStorage
) -> None:
    items = list(full.export())

    store.load("b", iter(items))

    copy = store.open("b")
    assert list(copy.export()) == items
    assert copy.epoch == 1
    assert main_of(path, "b").read_bytes().count(b"\n") < 8
    assert note(copy) == LAST + 1
    assert copy.commit(frame("x", Seq(14))).first == LAST + 2
    store.close()
    store = JsonlStore(str(path))
    assert store.open("b").last_seq == LAST + 2
    assert store.verify().problems == ()
    store.close()


def test_what_may_not_be_loaded_leaves_nothing_behind(
    path: Path, store: JsonlStore, full: JsonlStorage
) -> None:
    items = list(full.export())
    before = contents(path)
    for wrong in (
        items[:5],
        items[1:],
        [*items[:-1], items[0]],
        [SnapshotHeader(Seq(0), ("b", "a"))],
    ):
        with pytest.raises(RefusedError):
            store.load("b", iter(wrong))

    assert contents(path) == before
    assert sorted(os.listdir(path)) == ["a", "store.json"]


def test_a_backup_has_every_session_as_it_is_and_keeps_epochs(
    path: Path, tmp_path: Path, store: JsonlStore, full: JsonlStorage
) -> None:
    other = store.create("../b")
    other.commit(ROOT_BATCH)
    other.close()
    target = tmp_path / "backup"

    store.backup(str(target))

    copy = JsonlStore(str(target))
    assert [(info.id, info.last_seq, info.epoch) for info in copy.sessions()] == [
        ("../b", 1, 1),
        ("a", LAST, 1),
    ]
    assert list(copy.open("a", read_only=True).export()) == list(full.export())
    assert copy.verify().problems == ()
    assert copy.open("a").epoch == 2
    before = contents(target)
    copy.close()
    with pytest.raises(StoreIOError, match="exists"):
        store.backup(str(target))
    assert set(contents(target)) == {name for name in before if "owner-" not in name}
    assert [name for name in os.listdir(tmp_path) if "new" in name] == []


def test_a_deleted_session_leaves_nothing_behind(
    path: Path, store: JsonlStore, full: JsonlStorage
) -> None:
    with pytest.raises(SessionOwnedError):
        store.delete("a")
    full.close()
    (path / ".gone-0123").mkdir()

    store.delete("a")

    assert os.listdir(path) == ["store.json"]


_MAKING = """
import sys
from pico_store.backends import open_store
store = open_store(sys.argv[1])
storage = store.open("a", read_only=True)
def items():
    for item in storage.export():
        yield item
    print("making", flush=True)
    sys.stdin.read()
store.load("b", items())
"""


def test_a_vacuum_passes_over_a_session_that_is_deleted_meanwhile(
    store: JsonlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create("a").close()
    store.create("b").close()
    before = store.sessions()

    def late(path: str) -> None:
        sweep(path)
        monkeypatch.undo()
        store.delete("a")

    monkeypatch.setattr(pico_jsonl.store, "sweep", late)

    assert store.vacuum().bytes_after > 0
    assert store.sessions() == before[1:]


def test_vacuum_removes_what_a_killed_load_left_and_no_other(
    path: Path, store: JsonlStore, full: JsonlStorage
) -> None:
    """A load of gigabytes that was killed must not take their room for ever."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", _MAKING, f"jsonl:{path}"]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"making\n"

        store.vacuum()
        assert sum(name.startswith(".new-") for name in os.listdir(path)) == 1, "at work"

        process.kill()
    store.vacuum()

    assert sorted(os.listdir(path)) == ["a", "store.json"]


def test_a_power_cut_may_leave_the_control_file_of_before(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watermark is true of the new log before that has the name, durably."""
    durable: list[bytes] = []
    whole = Control.sync

    def noting(control: Control) -> None:
        whole(control)
        durable.append((path / "a" / "control").read_bytes())

    monkeypatch.setattr(Control, "sync", noting)
    with made(path) as storage:
        storage.commit(ROOT_BATCH)
        for number in range(20):
            note(storage, number)
            storage.commit(MainBatch((ValueSet(SessionAddress("v"), "x" * 200),)))
    store = JsonlStore(str(path))
    storage = store.open("a")
    store.vacuum()
    note(storage, "later")
    there = copied(path, tmp_path / "cut")
    store.close()
    (control,) = durable
    (there / "a" / "control").write_bytes(control)
    text = main_of(there).read_bytes()
    main_of(there).write_bytes(text[:-20] + bytes(20))

    with opened(there) as storage:
        assert storage.last_seq >= 40
