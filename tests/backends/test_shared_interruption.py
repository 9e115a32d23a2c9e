"""What an interruption of the thread that writes for several does to the others, and to itself."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

import pytest

from pico_lmdb import LmdbStore
from pico_sqlite import SqliteStore
from pico_store.errors import StoreBusyError
from pico_store.sharing import Request, SharedCommits, Signal
from pico_store.storage import Storage
from tests.backends.sqlite.scene import ROOT_BATCH, setting

Shared: TypeAlias = SqliteStore | LmdbStore


@pytest.fixture(params=[SqliteStore, LmdbStore])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shared]:
    """A store whose commits wait for the disk, and share the wait."""
    with closing(request.param(str(tmp_path / "a"), durability="power")) as found:
        yield found


class _InterruptionError(BaseException):
    pass


def _interrupting(
    file: str, function: str, when: str = "call"
) -> Callable[[FrameType, str, Any], Any]:
    """Return a tracer that raises where a function is entered, or left, for the first time."""
    done = False

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal done
        code = frame.f_code
        if done or code.co_name != function or file not in code.co_filename:
            return None
        if event == when:
            done = True
            raise _InterruptionError
        return trace

    return trace


def _lock(store: Shared) -> threading.Lock:
    """Return what whoever writes holds."""
    return store._writer.lock if isinstance(store, SqliteStore) else store._environment.lock


def _sessions(store: Shared) -> tuple[Storage, Storage]:
    one, other = store.create("a"), store.create("b")
    one.commit(ROOT_BATCH)
    other.commit(ROOT_BATCH)
    return one, other


def _lasts(store: Shared) -> list[int]:
    """Return how far the sessions are, whatever became of their handles."""
    return [session.last_seq for session in store.sessions()]


def _again(store: Shared, storage: Storage) -> Storage:
    """Return a handle that commits; LMDB's goes out of use where its thread was interrupted."""
    if isinstance(store, SqliteStore):
        return storage
    storage.close()
    return store.open(storage.session_id)


def _traced(
    act: Callable[[], object], place: tuple[str, str, str] | tuple[str, str]
) -> Callable[[], object]:
    """Return the act, interrupted at a place."""

    def run() -> object:
        sys.settrace(_interrupting(*place))
        try:
            return act()
        finally:
            sys.settrace(None)

    return run


def _two_at_once(
    store: Shared, first: Callable[[], object], second: Callable[[], object]
) -> list[object]:
    """Let two commits wait for the writer until both are there; return what came of each."""
    outcomes: list[object] = ["hangs", "hangs"]

    def run(index: int, act: Callable[[], object]) -> None:
        try:
            outcomes[index] = act()
        except BaseException as error:  # noqa: BLE001 - it is what is asked for
            outcomes[index] = error

    threads = []
    with _lock(store):
        for index, act in enumerate((first, second)):
            threads.append(threading.Thread(target=run, args=(index, act), daemon=True))
            threads[-1].start()
            while store._writer.shared.waiting <= index and threads[-1].is_alive():
                time.sleep(0.001)
    for thread in threads:
        thread.join(20)
    return outcomes


@pytest.mark.parametrize(
    "place",
    [
        ("sharing", "set"),
        ("sharing", "set", "return"),
        ("sharing", "_finish"),
        ("sharing", "_wake_next"),
        ("sharing", "_wake_next", "return"),
    ],
    ids=lambda place: "-".join(place[1:]),
)
def test_a_commit_that_is_interrupted_while_it_wakes_others_ends(
    store: Shared, place: tuple[str, str]
) -> None:
    one, other = _sessions(store)

    mine, theirs = _two_at_once(
        store, _traced(lambda: one.commit(setting(1)), place), lambda: other.commit(setting(1))
    )

    assert isinstance(mine, _InterruptionError)
    assert not isinstance(theirs, (BaseException, str)), theirs
    assert _lasts(store) == [2, 2]
    _again(store, one).commit(setting(2))
    other.commit(setting(2))


@pytest.mark.parametrize("when", ["call", "return"])
def test_a_commit_that_is_interrupted_while_it_sleeps_leaves_no_other_asleep(
    store: Shared, when: str
) -> None:
    one, other = _sessions(store)

    theirs, mine = _two_at_once(
        store,
        lambda: other.commit(setting(1)),
        _traced(lambda: one.commit(setting(1)), ("sharing", "wait", when)),
    )

    assert isinstance(mine, _InterruptionError)
    assert not isinstance(theirs, (BaseException, str)), theirs
    first, second = _lasts(store)
    assert (first, second) == ((2, 2) if when == "return" else (1, 2))
    other.commit(setting(2))
    _again(store, one).commit(setting(3))


def test_an_error_of_one_session_is_no_other_session_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of SQLite, where a batch's rows are made within the shared transaction."""
    with closing(SqliteStore(str(tmp_path / "a"), durability="power")) as store:
        one, other = store.create("a"), store.create("b")
        one.commit(ROOT_BATCH)
        other.commit(ROOT_BATCH)
        fail = one._rows.write

        def broken(checked: object) -> None:
            fail(checked)  # type: ignore[arg-type]
            raise TypeError("a fault of ours")

        monkeypatch.setattr(one._rows, "write", broken)

        mine, theirs = _two_at_once(
            store, lambda: one.commit(setting(1)), lambda: other.commit(setting(1))
        )

        assert isinstance(mine, TypeError)
        assert not isinstance(theirs, BaseException), theirs
        assert (one.last_seq, other.last_seq) == (1, 2)


@pytest.mark.parametrize("function", ["_write_group", "_take", "_write_one", "apply"])
def test_who_is_interrupted_before_the_end_leaves_the_others_certain(
    store: Shared, function: str
) -> None:
    if function == ("apply" if isinstance(store, SqliteStore) else "_write_one"):
        function = "_write_group"
    file = {"_take": "sharing", "apply": "changes"}.get(function, "writer")
    one, other = _sessions(store)

    mine, theirs = _two_at_once(
        store,
        _traced(lambda: one.commit(setting(1)), (file, function)),
        lambda: other.commit(setting(1)),
    )

    assert isinstance(mine, _InterruptionError)
    if function == "_take":
        # Not taken yet: whoever comes next writes it.
        assert not isinstance(theirs, (BaseException, str)), theirs
    else:
        assert isinstance(theirs, StoreBusyError), theirs
    assert _lasts(store) == [1, 2 if function == "_take" else 1]
    other.commit(setting(2))
    _again(store, one).commit(setting(3))


@pytest.mark.parametrize("place", ["committed", "durable"])
def test_who_is_interrupted_after_the_end_has_written_for_the_others(
    store: Shared, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = _sessions(store)
    writer = store._writer
    name = "_transact" if place == "committed" and isinstance(store, LmdbStore) else "_write_group"
    real = getattr(writer, name)

    def done(*arguments: object) -> None:
        real(*arguments)
        monkeypatch.undo()
        raise _InterruptionError

    # The queue was made with the method of before.
    monkeypatch.setattr(writer, name, done)
    monkeypatch.setattr(writer.shared, "_write", writer._write_group)

    mine, theirs = _two_at_once(
        store, lambda: one.commit(setting(1)), lambda: other.commit(setting(1))
    )

    assert isinstance(mine, _InterruptionError)
    assert not isinstance(theirs, (BaseException, str)), theirs
    assert _lasts(store) == [2, 2]


class _Interruptible(Signal):
    """A signal whose sleeper is interrupted whenever the test says so."""

    __slots__ = ("interruptions",)

    def __init__(self) -> None:
        super().__init__()
        self.interruptions = threading.Semaphore(0)

    def wait(self) -> None:
        while not self._set:
            if self.interruptions.acquire(timeout=0.001):
                raise _InterruptionError


def test_a_thread_that_is_interrupted_again_and_again_leaves_no_other_asleep() -> None:
    """While the leader writes for it: it may not go before that is done, but it does."""
    requests = [Request() for _ in range(4)]
    sleepy = _Interruptible()
    requests[1].done = sleepy
    written: list[Request] = []
    gate = threading.Lock()

    def write(group: tuple[Request, ...]) -> None:
        if requests[1] in group:
            sleepy.interruptions.release()
            while not requests[1].leaves:
                time.sleep(0.001)
            sleepy.interruptions.release()
            threads[1].join(20)
        written.extend(group)

    def alone(act: Callable[[], None]) -> None:
        with gate:
            act()

    shared = SharedCommits[Request](alone, write, lambda error, group: None)
    ends: list[object] = ["hangs"] * len(requests)

    def run(index: int) -> None:
        try:
            shared.commit(requests[index])
            ends[index] = None
        except _InterruptionError as error:
            ends[index] = error

    threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(len(requests))]
    with gate:
        for number, thread in enumerate(threads):
            thread.start()
            while shared.waiting <= number:
                time.sleep(0.001)
    for thread in threads:
        thread.join(20)

    assert written == requests
    assert isinstance(ends.pop(1), _InterruptionError)
    assert ends == [None, None, None]
