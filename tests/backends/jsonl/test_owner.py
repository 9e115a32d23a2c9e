"""OWN-1, OWN-2, OWN-5: claims, epochs, and take-overs while somebody commits."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import pico_jsonl.control
import pico_jsonl.keeping
import pico_jsonl.session
from pico_jsonl import JsonlStore
from pico_jsonl.control import EPOCH, Control, busy_word, pack_word, read_control
from pico_jsonl.opening import Place, load_for_owner
from pico_jsonl.session import check_in_place
from pico_jsonl.storage import JsonlStorage
from pico_store.errors import (
    OwnershipLostError,
    SessionOwnedError,
    StorageClosedError,
    StoreBusyError,
    StoreDamagedError,
    UnknownSessionError,
)
from pico_store.storage import Owner
from tests.backends.jsonl.scene import (
    ROOT_BATCH,
    contents,
    frame,
    main_100_scratch_150,
    main_of,
    note,
    opened,
    scratch_of,
    settling,
)


@pytest.fixture
def other(path: Path, storage: JsonlStorage) -> JsonlStore:
    """A second store of the same folder, as another process would have one."""
    return JsonlStore(str(path), now_ms=lambda: 1_234)


def test_a_second_open_names_process_host_and_since(path: Path) -> None:
    store = JsonlStore(str(path), now_ms=lambda: 1_700_000_000_123)
    storage = store.create("a")
    before = contents(path)

    for second in (store, JsonlStore(str(path))):
        with pytest.raises(SessionOwnedError) as found:
            second.open("a")
        for part in (str(os.getpid()), os.uname().nodename, "2023-11-14 22:13:20 UTC"):
            assert part in str(found.value)
        assert contents(path) == before
        (info,) = second.sessions()
        assert info.owner == Owner(os.getpid(), os.uname().nodename, 1_700_000_000_123)

    storage.close()
    assert store.sessions()[0].owner is None
    store.close()


def test_a_claim_whose_process_is_gone_is_taken_over(path: Path) -> None:
    JsonlStore(str(path)).create("a").close()
    # A reused process id does not matter: nobody holds the lock of the file.
    claim = path / "a" / "owner-7"
    claim.write_text(f'{{"pid":{os.getpid()},"host":"elsewhere","sinceMs":1}}\n')

    assert JsonlStore(str(path)).sessions()[0].owner == Owner(os.getpid(), "elsewhere", 1)
    with opened(path) as storage:
        assert storage.epoch == 8
        assert not claim.exists()


@pytest.mark.parametrize("text", ["", "{", '{"pid":"x"}'])
def test_a_claim_without_its_text_is_none_that_holds(path: Path, text: str) -> None:
    JsonlStore(str(path)).create("a").close()
    (path / "a" / "owner-7").write_text(text)

    with opened(path) as storage:
        storage.commit(ROOT_BATCH)


def test_a_handle_that_nobody_closed_gives_its_session_back(path: Path) -> None:
    store = JsonlStore(str(path))
    storage = store.create("a")
    storage.commit(ROOT_BATCH)
    with pytest.raises(SessionOwnedError):
        store.open("a")

    del storage

    again = store.open("a")
    assert note(again) == 2
    store.close()


def test_a_fenced_handle_writes_nothing_to_any_file(
    path: Path, storage: JsonlStorage, other: JsonlStore
) -> None:
    main_100_scratch_150(storage)
    new = other.open("a", take_over=True)
    assert new.last_seq == 150
    before = contents(path)

    for batch in (frame("late"), settling(), ROOT_BATCH):
        with pytest.raises(OwnershipLostError, match="taken over"):
            storage.commit(batch)
    assert contents(path) == before
    storage.close()
    assert contents(path) == before

    new.commit(settling())
    assert not scratch_of(path).exists()
    other.close()


def test_a_take_over_waits_for_a_commit_that_is_being_written(
    path: Path, storage: JsonlStorage, other: JsonlStore
) -> None:
    session = storage._session
    assert session is not None
    writing, write_on = threading.Event(), threading.Event()
    write = session.writer._write

    def slow(fd: int, text: bytes) -> int:
        writing.set()
        write_on.wait()
        return write(fd, text)

    session.writer._write = slow
    done: list[int] = []
    committer = threading.Thread(target=lambda: done.append(note(storage)))
    committer.start()
    writing.wait()
    taken: list[JsonlStorage] = []
    taker = threading.Thread(target=lambda: taken.append(other.open("a", take_over=True)))
    taker.start()
    while read_control(str(path / "a" / "control"))[EPOCH] == storage.epoch:
        pass
    assert not taken
    write_on.set()
    committer.join()
    taker.join()

    assert done == [2], "the commit was under way before the take-over"
    assert taken[0].last_seq == 2
    with pytest.raises(OwnershipLostError):
        note(storage)
    other.close()


def test_a_take_over_of_an_owner_that_is_stuck_gives_up_and_may_be_tried_again(
    path: Path, storage: JsonlStorage, other: JsonlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pico_jsonl.control, "_WAIT_S", 0.01)
    control = Control(str(path / "a" / "control"), writable=True)
    control.words[busy_word(storage.epoch)] = 1

    with pytest.raises(StoreBusyError, match="does not end a commit"):
        other.open("a", take_over=True)

    with pytest.raises(OwnershipLostError):
        note(storage)
    control.words[busy_word(storage.epoch)] = 0
    control.close()
    assert note(other.open("a", take_over=True)) == 2
    other.close()


def test_the_lock_of_a_session_is_waited_for_and_given_up(
    path: Path, storage: JsonlStorage, other: JsonlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pico_jsonl.control, "_WAIT_S", 0.01)
    storage.close()
    control = Control(str(path / "a" / "control"), writable=True)
    control.acquire()
    before = contents(path)

    for act in (lambda: other.open("a"), lambda: other.delete("a")):
        with pytest.raises(StoreBusyError, match="another process holds"):
            act()

    assert contents(path) == before
    other.open("a", read_only=True).close()
    control.close()
    other.open("a").close()


def test_owners_that_follow_one_another_never_clear_each_others_word() -> None:
    for epoch in range(1, 50):
        assert len({busy_word(epoch), busy_word(epoch + 1), busy_word(epoch + 2)}) == 3


def test_a_word_is_checked_by_a_prime() -> None:
    for value in (0, 1, 1020, 1021, 2**53 - 1):
        stored = pack_word(value)
        assert stored < 2**64
        for bit in range(64):
            flipped = stored ^ 1 << bit
            assert (flipped >> 10) % 1021 != flipped & 1023


def test_a_session_that_is_deleted_while_it_is_opened_is_unknown(
    path: Path, storage: JsonlStorage, other: JsonlStore
) -> None:
    storage.close()
    place = path / "a"
    control = Control(str(place / "control"), writable=True)
    other.delete("a")

    with pytest.raises(UnknownSessionError):
        check_in_place(Place("a", str(place)), control)
    control.close()
    other.close()


def test_after_a_fork_the_child_can_do_nothing_and_holds_nothing(
    path: Path, store: JsonlStore, storage: JsonlStorage
) -> None:
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write_end)
        refused = 0
        for act in (
            lambda: storage.commit(ROOT_BATCH),
            lambda: storage.last_seq,
            lambda: store.sessions(),
            lambda: store.open("a"),
        ):
            try:
                act()
            except StorageClosedError as error:
                refused += "fork" in str(error)
        # The child outlives the parent's handle.
        os.read(read_end, 1)
        os._exit(refused)
    os.close(read_end)
    storage.close()
    try:
        assert note(store.open("a")) == 2
    finally:
        os.close(write_end)
        _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 4


def test_an_owner_that_is_killed_frees_its_session_at_once(path: Path) -> None:
    code = (
        "import sys; from pico_jsonl import JsonlStore; from tests.backends.jsonl import scene\n"
        f"storage = JsonlStore({str(path)!r}).create('a'); storage.commit(scene.ROOT_BATCH)\n"
        "scene.main_100_scratch_150(storage); print('ready', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        store = JsonlStore(str(path))
        with pytest.raises(SessionOwnedError, match=str(process.pid)):
            store.open("a")
        assert store.open("a", read_only=True).last_seq == 150
        process.kill()
        process.wait()

        storage = store.open("a")

    assert storage.last_seq == 150
    assert storage.commit(frame("later")).first == 151
    store.close()
    assert main_of(path).exists()


def test_who_is_taken_over_right_after_the_opening_is_fenced(
    path: Path, storage: JsonlStorage, other: JsonlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.close()
    taken: list[JsonlStorage] = []
    confirm = pico_jsonl.session.confirm

    def and_lose(*all: Any) -> None:
        confirm(*all)
        monkeypatch.setattr(pico_jsonl.session, "confirm", confirm)
        taken.append(other.open("a", take_over=True))

    monkeypatch.setattr(pico_jsonl.session, "confirm", and_lose)
    slow = JsonlStore(str(path)).open("a")
    assert slow.epoch < taken[0].epoch
    before = contents(path)

    with pytest.raises(OwnershipLostError):
        note(slow)
    slow.close()

    assert contents(path) == before
    assert note(taken[0]) == 2
    other.close()


@pytest.mark.parametrize("after", ["write_main", "_write_anew"])
def test_a_vacuum_leaves_a_session_alone_that_is_taken_over_meanwhile(
    path: Path,
    storage: JsonlStorage,
    other: JsonlStore,
    monkeypatch: pytest.MonkeyPatch,
    after: str,
) -> None:
    storage.close()
    write = getattr(pico_jsonl.keeping, after)
    taken: list[JsonlStorage] = []

    def and_lose(*all: Any, **more: Any) -> object:
        made: object = write(*all, **more)
        taken.append(other.open("a", take_over=True))
        note(taken[0])
        return made

    monkeypatch.setattr(pico_jsonl.keeping, after, and_lose)
    report = JsonlStore(str(path)).vacuum()

    assert report.bytes_before == 0
    assert note(taken[0]) == 3
    other.close()
    assert not list((path / "a").glob("new-*"))
    with opened(path) as again:
        assert again.last_seq == 3


def test_a_fenced_handle_does_not_clear_the_word_of_a_later_owner(
    path: Path, storage: JsonlStorage, other: JsonlStore
) -> None:
    for _ in range(2):
        other.open("a", take_over=True)
    newest = other.open("a", take_over=True)
    assert busy_word(newest.epoch) == busy_word(storage.epoch)
    session = newest._session
    assert session is not None
    write, words = session.writer._write, session._control.words

    def disturbed(fd: int, text: bytes) -> int:
        with pytest.raises(OwnershipLostError):
            note(storage)
        storage.close()
        assert words[busy_word(newest.epoch)] == 1
        return write(fd, text)

    session.writer._write = disturbed
    assert note(newest) == 2
    assert words[busy_word(newest.epoch)] == 0
    other.close()


def test_a_word_that_a_killed_owner_left_set_keeps_nobody_waiting(
    path: Path, storage: JsonlStorage, other: JsonlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pico_jsonl.control, "_WAIT_S", 0.01)
    control = Control(str(path / "a" / "control"), writable=True)
    control.words[busy_word(storage.epoch + 1)] = 1
    control.close()
    storage.close()
    load = load_for_owner
    taken: list[JsonlStorage] = []

    def and_lose(*all: Any) -> object:
        monkeypatch.setattr(pico_jsonl.session, "load_for_owner", load)
        taken.append(other.open("a", take_over=True))
        return load(*all)

    monkeypatch.setattr(pico_jsonl.session, "load_for_owner", and_lose)
    with pytest.raises(OwnershipLostError):
        JsonlStore(str(path)).open("a")

    assert note(taken[0]) == 2
    other.close()


def test_what_a_new_owner_changes_is_not_taken_for_damage(
    path: Path, storage: JsonlStorage, other: JsonlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.close()
    load = load_for_owner
    taken: list[JsonlStorage] = []

    def and_lose(*all: Any) -> object:
        monkeypatch.setattr(pico_jsonl.session, "load_for_owner", load)
        taken.append(other.open("a", take_over=True))
        raise StoreDamagedError("a file that was used again")

    monkeypatch.setattr(pico_jsonl.session, "load_for_owner", and_lose)
    with pytest.raises(OwnershipLostError):
        JsonlStore(str(path)).open("a")

    assert note(taken[0]) == 2
    other.close()
