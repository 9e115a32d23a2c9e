"""A commit that is interrupted anywhere leaves the old state or the new one."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from pico_conformance.rules.everything import assert_same, everything, exact
from pico_memory.apply import apply, frames
from pico_memory.state import SessionState
from pico_memory.storage import MemoryStorage
from pico_store.address import Seq
from pico_store.batch import ListAppend, ScratchBatch
from pico_store.check import check_batch
from pico_store.records import BatchRange
from tests.backends.memory.scene import batches, history, opened

BATCHES = batches()


class _InterruptionError(BaseException):
    """What no code of ours expects."""


class _Interrupter:
    """Raises at the n-th line below a call that is of some kind, once."""

    def __init__(self, wanted: Callable[[FrameType], bool], at: int) -> None:
        self._wanted = wanted
        self._left = at
        self.where = ""

    def run(self, call: Callable[[], object]) -> bool:
        """Make the call; tell whether it was interrupted."""
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            call()
        except _InterruptionError:
            return True
        finally:
            sys.settrace(before)
        return False

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line" and self._wanted(frame):
            self._left -= 1
            if self._left == 0:
                self.where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
                raise _InterruptionError
        return self._trace


def _is_line(frame: FrameType, package: str) -> bool:
    """Tell whether a line of a package is one where an exception can meet a commit.

    The line of the ``with`` that holds the lock is told again when the lock is about to be given
    back. Only a tracer can raise there: the interpreter delivers signals at calls and jumps.
    """
    return frame.f_globals.get("__name__", "").startswith(package) and (
        "with self._lock:" not in linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    )


def _is_recovery(frame: FrameType | None) -> bool:
    """Tell whether a line is part of taking a batch back."""
    while frame is not None:
        if frame.f_code is SessionState.recover.__code__:
            return True
        frame = frame.f_back
    return False


def _export(storage: MemoryStorage) -> dict[str, str]:
    return {f"export[{index}]": exact(item) for index, item in enumerate(storage.export())}


@pytest.mark.parametrize("name", BATCHES)
def test_an_interrupted_commit_is_whole_or_absent(name: str) -> None:
    items, batch = history(), BATCHES[name]
    done = opened(items)
    done.commit(batch)
    old, new, new_export = everything(opened(items)), everything(done), _export(done)
    assert old != new

    outcomes = set()
    for at in count(1):
        storage = opened(items)
        interrupter = _Interrupter(partial(_is_line, package="pico_memory."), at)
        if not interrupter.run(partial(storage.commit, batch)):
            break
        committed = storage.last_seq == done.last_seq
        outcomes.add(committed)
        what = f"an interruption at {interrupter.where}"
        assert_same(new if committed else old, everything(storage), what)
        if not committed:
            storage.commit(batch)
            assert_same(new_export, _export(storage), f"a commit after {what}")

    assert outcomes == {False, True}


@pytest.mark.parametrize("name", BATCHES)
def test_an_interrupted_check_changes_nothing(name: str) -> None:
    items, batch = history(), BATCHES[name]
    old = _export(opened(items))

    storage = opened(items)
    for at in count(1):
        interrupter = _Interrupter(partial(_is_line, package="pico_store."), at)
        if not interrupter.run(partial(storage.commit, batch)):
            break
        assert_same(old, _export(storage), f"an interruption at {interrupter.where}")

    assert at > 10
    assert _export(storage) != old


# An append alone is another way, see below.
@pytest.mark.parametrize("name", [name for name in BATCHES if "append" not in name])
def test_an_interrupted_recovery_is_completed_by_the_next_read(name: str) -> None:
    items, batch = history(), BATCHES[name]
    storage = opened(items)
    old = everything(storage)

    for at in count(1):
        storage = opened(items)
        view = storage._resident.view
        checked = check_batch(batch, view)
        # There is no such conversation: what comes last fails, with all else done.
        checked.deletions[len(batch.writes)] = [Seq(0)]
        interrupter = _Interrupter(_is_recovery, at)
        try:
            interrupter.run(partial(apply, view.state, checked))
        except KeyError:
            break
        assert_same(old, everything(storage), f"an interruption at {interrupter.where}")

    assert at > 3
    assert_same(old, everything(storage), "a failure")


@pytest.mark.parametrize("made", [0, 1, 2])
@pytest.mark.parametrize("name", ["one append", "first append"])
def test_an_interrupted_recovery_of_an_append_is_completed_by_the_next_read(
    name: str, made: int
) -> None:
    items, batch = history(), BATCHES[name]
    write = batch.writes[0]
    assert isinstance(batch, ScratchBatch)
    assert isinstance(write, ListAppend)
    old = everything(opened(items))

    for at in count(1):
        storage = opened(items)
        state = storage._resident.view.state
        seq = state.applying = Seq(state.last_seq + 1)
        appended = frames(state, batch.task, write.address)
        state.journal.append(appended)
        if made > 0:
            appended[2].append((seq, b"\x01"))
        if made > 1:
            appended[3].append(BatchRange(seq, seq, batch.task))
        interrupted = _Interrupter(_is_recovery, at).run(state.recover)
        assert_same(old, everything(storage), f"interruption {at}")
        if not interrupted:
            break

    assert at > 3
