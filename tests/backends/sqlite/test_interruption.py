"""A commit that is interrupted or fails anywhere leaves the old state or the new one."""

from __future__ import annotations

import linecache
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache, partial
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any, Final

import apsw
import pytest

from pico_sqlite import SqliteStore
from pico_store.batch import Batch
from pico_store.errors import (
    CommitUncertainError,
    PicoError,
    StorageFaultedError,
    StoreBusyError,
    StoreFullError,
    StoreIOError,
)
from pico_store.snapshot import SnapshotItem
from pico_store.storage import Durability
from tests.backends.sqlite.scene import LAST, batches, fill

LEVELS: Final[tuple[Durability, ...]] = ("ordered", "power")
NAMES: Final = tuple(batches(LAST))
# What is particular to `power` is the same for every batch.
CASES: Final = [
    *(("ordered", name) for name in NAMES),
    *(("power", name) for name in ("scratch", "one append")),
]


class _InterruptionError(BaseException):
    """What no code of ours expects."""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with a session that has something at every kind of place."""
    path = str(tmp_path_factory.mktemp("template") / "a.db")
    with closing(SqliteStore(path)) as store:
        fill(store.create("a"))
    return path


def _after(template: str, path: str, *commits: Batch) -> list[SnapshotItem]:
    """Return what the session is after commits that nothing disturbs."""
    _restore(template, path)
    with closing(SqliteStore(path)) as store:
        storage = store.open("a")
        for batch in commits:
            storage.commit(batch)
        return list(storage.export())


def _restore(template: str, path: str) -> None:
    for end in ("-wal", "-shm"):
        if os.path.exists(path + end):
            os.unlink(path + end)
    shutil.copy(template, path)


class _Interrupter:
    """Counts the lines of the backend that run below a call, and raises at one of them."""

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
        if event == "call" and "/pico_sqlite/" not in code.co_filename:
            return None
        if event == "line" and _can_interrupt(code.co_filename, frame.f_lineno):
            self.lines.append(f"{Path(code.co_filename).name}:{frame.f_lineno}")
            if len(self.lines) == self._at:
                raise _InterruptionError
        return self._trace


def _places(lines: list[str]) -> list[int]:
    """Return where to interrupt: at each line when it runs first, and when it runs last."""
    first = {line: at for at, line in reversed(list(enumerate(lines, 1)))}
    last = {line: at for at, line in enumerate(lines, 1)}
    return sorted({*first.values(), *last.values()})


@cache
def _can_interrupt(file: str, number: int) -> bool:
    """Tell whether the interpreter could be interrupted at a line.

    It delivers signals at calls and jumps. Only a tracer can raise at the line of a ``with``
    that is told again when its lock is about to be given back, or at a bare ``try``.
    """
    return not linecache.getline(file, number).strip().startswith(("with ", "try:"))


class _Session:
    """The session, opened anew from the template whenever a commit changed it."""

    def __init__(self, template: str, path: str, durability: Durability) -> None:
        self._template = template
        self._path = path
        self._durability = durability
        self._stores: list[SqliteStore] = []
        self.renew()

    def renew(self) -> None:
        """Begin again with the template."""
        self.close()
        _restore(self._template, self._path)
        self.store = SqliteStore(self._path, durability=self._durability, busy_ms=0)
        self.storage = self.store.open("a")
        other = SqliteStore(self._path)
        self._reader = other.open("a", read_only=True)
        self._stores = [self.store, other]

    def close(self) -> None:
        """Close what is open."""
        for store in self._stores:
            store.close()

    def shown(self) -> list[SnapshotItem]:
        """Return what the file holds, having made sure that the handle shows the same."""
        found = list(self._reader.export())
        assert list(self.storage.export()) == found
        return found


@pytest.fixture
def sessions(template: str, path: str) -> Iterator[Callable[[Durability], _Session]]:
    opened: list[_Session] = []

    def make(durability: Durability) -> _Session:
        opened.append(_Session(template, path, durability))
        return opened[-1]

    yield make
    for session in opened:
        session.close()


@pytest.mark.parametrize(("durability", "name"), CASES)
def test_a_commit_interrupted_at_any_line_is_whole_or_absent(
    template: str,
    tmp_path: Path,
    sessions: Callable[[Durability], _Session],
    durability: Durability,
    name: str,
) -> None:
    batch, then = batches(LAST)[name], batches(LAST)["one append"]
    spare = str(tmp_path / "spare.db")
    old, new = _after(template, spare), _after(template, spare, batch)
    following = _after(template, spare, batch, then) if name != "records" else new
    session = sessions(durability)

    undisturbed = _Interrupter()
    undisturbed.run(partial(session.storage.commit, batch))
    assert session.shown() == new
    session.renew()
    outcomes = []
    for at in _places(undisturbed.lines):
        # As cold as after opening, so that the lines are the same each time.
        session.storage._remember()
        interrupter = _Interrupter(at)
        assert interrupter.run(partial(session.storage.commit, batch))
        where = interrupter.lines[-1]
        shown = session.shown()
        assert shown in (old, new), f"half a commit, interrupted at {where}"
        outcomes.append(shown == new)
        if shown == new:
            if name != "records":
                session.storage.commit(then)
                assert session.shown() == following, f"after {where}"
            session.renew()

    assert set(outcomes) == {False, True}
    assert len(outcomes) > 20
    session.storage.commit(batch)
    assert session.shown() == new


FAILURES: Final[dict[str, tuple[BaseException, type[BaseException]]]] = {
    "an I/O error": (apsw.IOError("no disk"), StoreIOError),
    "a full disk": (apsw.FullError("no room"), StoreFullError),
    "a busy file": (apsw.BusyError("not now"), StoreBusyError),
    "an interruption": (KeyboardInterrupt(), KeyboardInterrupt),
}


class _Failing:
    """Fails the n-th statement of the writing connection, once."""

    def __init__(self, failure: BaseException, at: int) -> None:
        self._failure = failure
        self._left = at
        self.statement = ""

    def __call__(self, cursor: apsw.Cursor, sql: str, bindings: object) -> bool:
        self._left -= 1
        if self._left == 0:
            self.statement = sql
            raise self._failure
        return True


@pytest.mark.parametrize("name", FAILURES)
@pytest.mark.parametrize("durability", LEVELS)
def test_a_commit_whose_statement_fails_is_absent(
    template: str,
    tmp_path: Path,
    sessions: Callable[[Durability], _Session],
    durability: Durability,
    name: str,
) -> None:
    failure, expected = FAILURES[name]
    spare = str(tmp_path / "spare.db")
    old = _after(template, spare)
    session = sessions(durability)
    for batch_name, batch in batches(LAST).items():
        for at in count(1):
            failing = _Failing(failure, at)
            session.store._writer.db.exec_trace = failing
            try:
                session.storage.commit(batch)
            except (PicoError, KeyboardInterrupt) as error:
                raised = error
            else:
                break
            finally:
                session.store._writer.db.exec_trace = None
            where = f"{batch_name}: {failing.statement}"
            # Only the last statement can have happened although it failed.
            last = failing.statement.startswith(("COMMIT", "INSERT INTO scratch SELECT"))
            if last and isinstance(failure, apsw.IOError):
                assert isinstance(raised, CommitUncertainError), where
                with pytest.raises(StorageFaultedError, match="no disk"):
                    session.storage.commit(batch)
                with pytest.raises(StorageFaultedError):
                    list(session.storage.export())
                session.storage.close()
                session.storage = session.store.open("a")
            else:
                assert type(raised) is expected, where
            assert session.shown() == old, where
        assert at > 1
        assert session.shown() == _after(template, spare, batch), batch_name
        session.renew()


def test_a_commit_that_failed_after_it_was_durable_is_found_when_it_is_opened_anew(
    template: str, tmp_path: Path, sessions: Callable[[Durability], _Session]
) -> None:
    def failing(run: Callable[..., Any]) -> Callable[..., Any]:
        def execute(sql: str, *values: Any) -> Any:
            done = run(sql, *values)
            if sql == "COMMIT" or sql.startswith("INSERT INTO scratch SELECT"):
                raise apsw.IOError("no disk")
            return done

        return execute

    session = sessions("ordered")
    for name, batch in batches(LAST).items():
        writer, frames = session.store._writer, session.storage._frames
        writer._run = failing(writer._run)
        frames._run = failing(frames._run)

        with pytest.raises(CommitUncertainError, match="reopen"):
            session.storage.commit(batch)
        with pytest.raises(StorageFaultedError):
            session.storage.commit(batch)

        writer._run = writer.db.cursor().execute
        session.storage.close()
        session.storage = session.store.open("a")
        assert session.shown() == _after(template, str(tmp_path / "spare.db"), batch), name
        session.renew()


def test_a_failure_that_leaves_no_way_to_read_faults_the_handle(
    sessions: Callable[[Durability], _Session],
) -> None:
    session = sessions("ordered")
    storage, batch = session.storage, batches(LAST)["state"]
    failing = _Failing(apsw.FullError("no room"), 1)
    session.store._writer.db.exec_trace = failing

    def unreadable(cursor: apsw.Cursor, sql: str, bindings: object) -> bool:
        if failing.statement:
            raise apsw.IOError("no disk")
        return True

    for db in session.store._readers._idle:
        db.exec_trace = unreadable

    with pytest.raises(StoreFullError):
        storage.commit(batch)
    with pytest.raises(StorageFaultedError, match="cannot be read"):
        storage.commit(batch)

    for db in session.store._readers._idle:
        db.exec_trace = None
    storage.close()
    session.storage = session.store.open("a")
    session.storage.commit(batch)
