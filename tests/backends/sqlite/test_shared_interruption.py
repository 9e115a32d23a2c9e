"""What an interruption of the thread that writes for several does to the others, and to itself."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import closing
from types import FrameType
from typing import Any

import pytest

from pico_sqlite import SqliteStore
from pico_sqlite.writer import Writer
from pico_store.errors import StoreBusyError
from tests.backends.sqlite.scene import ROOT_BATCH, setting


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


@pytest.mark.parametrize(
    "place",
    [
        # Where an `Event` holds its own lock and its `with` has not begun.
        ("threading", "__enter__", "return"),
        ("writer", "set", "call"),
        ("writer", "set", "return"),
        ("writer", "_finish", "call"),
    ],
)
def test_a_commit_that_is_interrupted_while_it_wakes_others_ends(
    path: str, place: tuple[str, str, str]
) -> None:
    """In a thread of its own, which must not hang."""
    with closing(SqliteStore(path, durability="power")) as store:
        storage = store.create("a")
        storage.commit(ROOT_BATCH)

        def commit() -> None:
            sys.settrace(_interrupting(*place))
            try:
                storage.commit(setting(1))
            except _InterruptionError:
                pass
            finally:
                sys.settrace(None)

        thread = threading.Thread(target=commit, daemon=True)
        thread.start()
        thread.join(20)

        assert not thread.is_alive()
        assert storage.last_seq == 2
        storage.commit(setting(2))


def _two_at_once(
    store: SqliteStore, first: Callable[[], object], second: Callable[[], object]
) -> list[object]:
    """Let two commits wait for the writer until both are there; return what came of each."""
    outcomes: list[object] = [None, None]

    def run(index: int, act: Callable[[], object]) -> None:
        try:
            outcomes[index] = act()
        except BaseException as error:  # noqa: BLE001 - it is what is asked for
            outcomes[index] = error

    writer = store._writer
    with writer.lock:
        threads = []
        for index, act in enumerate((first, second)):
            threads.append(threading.Thread(target=run, args=(index, act)))
            threads[-1].start()
            while len(writer._waiting) <= index:
                pass
    for thread in threads:
        thread.join()
    return outcomes


def test_an_error_of_one_session_is_no_other_session_s(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(SqliteStore(path, durability="power")) as store:
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


@pytest.mark.parametrize("function", ["_write_one", "_commit"])
def test_who_is_interrupted_before_the_end_leaves_the_others_certain(
    path: str, function: str
) -> None:
    with closing(SqliteStore(path, durability="power")) as store:
        one, other = store.create("a"), store.create("b")
        one.commit(ROOT_BATCH)
        other.commit(ROOT_BATCH)

        def interrupted() -> object:
            sys.settrace(_interrupting("writer", function))
            try:
                return one.commit(setting(1))
            finally:
                sys.settrace(None)

        mine, theirs = _two_at_once(store, interrupted, lambda: other.commit(setting(1)))

        assert isinstance(mine, _InterruptionError)
        assert isinstance(theirs, StoreBusyError), theirs
        assert (one.last_seq, other.last_seq) == (1, 1)
        other.commit(setting(1))


def test_who_is_interrupted_after_the_end_has_written_for_the_others(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = Writer._commit

    def committed(writer: Writer) -> None:
        commit(writer)
        monkeypatch.undo()
        raise _InterruptionError

    with closing(SqliteStore(path, durability="power")) as store:
        one, other = store.create("a"), store.create("b")
        one.commit(ROOT_BATCH)
        other.commit(ROOT_BATCH)
        monkeypatch.setattr(Writer, "_commit", committed)

        mine, theirs = _two_at_once(
            store, lambda: one.commit(setting(1)), lambda: other.commit(setting(1))
        )

        assert isinstance(mine, _InterruptionError)
        assert not isinstance(theirs, BaseException), theirs
        assert (one.last_seq, other.last_seq) == (2, 2)
