"""A commit that is interrupted anywhere leaves the old state or the new one, in file and memory."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from functools import cache
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

from pico_jsonl import JsonlStore
from pico_jsonl.storage import JsonlStorage
from pico_store.batch import Batch, ListAppend, ScratchBatch
from pico_store.digest import digest
from pico_store.snapshot import SnapshotItem
from pico_store.storage import Durability
from tests.backends.jsonl.scene import copied, exported, made
from tests.backends.sqlite.scene import HISTORY, LAST, TASK, batches, scratch, setting

PACKAGES: Final = ("/pico_jsonl/", "/pico_memory/")
STREAMED: Final = ScratchBatch(TASK, (ListAppend(scratch(None), "next"),))
BATCHES: Final = {
    **batches(LAST),
    "settling": batches(LAST)["records"],
    "streaming": STREAMED,
}
# What is committed before it: only a second append to one list takes the short way.
BEFORE: Final[dict[str, tuple[Batch, ...]]] = {"streaming": (STREAMED,)}


class _InterruptionError(BaseException):
    """What no code of ours expects."""


class _Interrupter:
    """Counts the lines that run below a call, and raises at one of them."""

    def __init__(self, at: int = 0) -> None:
        self._at = at
        self.lines: list[str] = []

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
        code = frame.f_code
        if event == "call" and not any(part in code.co_filename for part in PACKAGES):
            return None
        if event == "line" and _can_interrupt(code.co_filename, frame.f_lineno):
            self.lines.append(f"{Path(code.co_filename).name}:{frame.f_lineno}")
            if len(self.lines) == self._at:
                raise _InterruptionError
        return self._trace


@cache
def _can_interrupt(file: str, number: int) -> bool:
    """Tell whether the interpreter could be interrupted at a line.

    It delivers signals at calls and jumps. Only a tracer can raise at the line of a ``with``
    that is told again when its lock is about to be given back, or at a bare ``try``.
    """
    return not linecache.getline(file, number).strip().startswith(("with ", "try:"))


def _places(lines: list[str]) -> list[int]:
    """Return where to interrupt: at each line when it runs first, and when it runs last."""
    first = {line: at for at, line in reversed(list(enumerate(lines, 1)))}
    last = {line: at for at, line in enumerate(lines, 1)}
    return sorted({*first.values(), *last.values()})


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a session that has something at every kind of place."""
    path = tmp_path_factory.mktemp("template") / "store"
    with made(path, "process") as storage:
        for batch in HISTORY:
            storage.commit(batch)
    return path


class _Trial:
    """A copy of the template, open for writing."""

    def __init__(
        self, template: Path, path: Path, durability: Durability, before: tuple[Batch, ...]
    ) -> None:
        self.path = copied(template, path)
        self.store = JsonlStore(str(self.path), durability=durability)
        self.storage: JsonlStorage = self.store.open("a")
        for batch in before:
            self.storage.commit(batch)

    def finish(self, *batches: Batch) -> list[SnapshotItem]:
        """Commit, close and return what is there afterwards."""
        for batch in batches:
            self.storage.commit(batch)
        self.store.close()
        return exported(self.path, "process")


@pytest.mark.parametrize("durability", ["process", "power"])
@pytest.mark.parametrize("name", BATCHES)
def test_an_interrupted_commit_is_whole_or_absent(
    template: Path, tmp_path: Path, name: str, durability: Durability
) -> None:
    batch, before, numbers = BATCHES[name], BEFORE.get(name, ()), count()

    def trial() -> _Trial:
        return _Trial(template, tmp_path / str(next(numbers)), durability, before)

    first = trial()
    old = digest(first.storage.export())
    counting = _Interrupter()
    assert not counting.run(lambda: first.storage.commit(batch))
    new = digest(first.storage.export())
    assert digest(first.finish()) == new != old
    later = digest(trial().finish(batch, setting("later")))
    earlier = digest(trial().finish(setting("later")))
    outcomes = set()
    for at in _places(counting.lines):
        where = f"an interruption at {counting.lines[at - 1]}"
        one = trial()
        storage = one.storage

        assert _Interrupter(at).run(lambda storage=storage: storage.commit(batch)), where  # type: ignore[misc]

        committed = storage.last_seq > LAST + len(before)
        outcomes.add(committed)
        assert digest(storage.export()) == (new if committed else old), where
        # As a process that died right then leaves it.
        assert one.store.verify().problems == (), where
        if at % 2:
            found = one.finish()
            assert digest(found) == (new if committed else old), f"{where}, then closing"
        else:
            found = one.finish(setting("later"))
            assert digest(found) == (later if committed else earlier), f"{where}, then a commit"

    assert outcomes == {False, True}
