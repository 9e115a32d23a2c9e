"""Other processes: one that works on a store as it is told, and one without privileges."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pico_sqlite import SqliteStore
from pico_sqlite.storage import SqliteStorage
from pico_store.errors import PicoError
from tests.backends.sqlite.scene import ROOT_BATCH, noting

_NOBODY = 65_534


@dataclass(frozen=True, slots=True)
class Worker:
    """A process that has a session open, seen from here."""

    process: subprocess.Popen[str]

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def ask(self, act: str) -> str:
        """Let it act, and return what came of it."""
        self.send(act)
        return self.hear()

    def send(self, act: str) -> None:
        """Let it begin to act."""
        assert self.process.stdin is not None
        self.process.stdin.write(act + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        """Return its next answer."""
        assert self.process.stdout is not None
        answer = self.process.stdout.readline()
        assert answer, "the other process ended"
        return msgspec.json.decode(answer, type=str)


@contextmanager
def worker(path: str, session: str = "a") -> Iterator[Worker]:
    """Start a process that opens a store, and a session in it; it is killed at the end."""
    root = str(Path(__file__).parents[3])
    command = [sys.executable, "-m", __name__, path, session]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root
    )
    try:
        yield Worker(process)
    finally:
        process.kill()
        process.communicate()


def in_child(act: Callable[[], object]) -> str:
    """Return what an act in a forked child returned, or the name and text of its error."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        # Nothing of the test's own may run in the child, whatever happens.
        try:
            os.close(reading)
            os.write(writing, _outcome(act).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as answer:
        text = answer.read().decode()
    os.waitpid(child, 0)
    return text


def as_nobody(act: Callable[[], object]) -> str:
    """Return what an act gives in a child that has no privileges."""

    def give_up_and_act() -> object:
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(_NOBODY)
            os.setuid(_NOBODY)
        return act()

    return in_child(give_up_and_act)


def _outcome(act: Callable[[], object]) -> str:
    try:
        return str(act())
    except BaseException as error:  # noqa: BLE001 - the parent asserts on what it was
        return f"{type(error).__name__}: {error}"


def _serve(path: str, session: str) -> None:
    store = SqliteStore(path)
    storage: SqliteStorage | None = None

    def act(words: list[str]) -> object:
        nonlocal storage
        match words:
            case ["open"]:
                storage = store.open(session)
                return storage.epoch
            case ["create"]:
                storage = store.create(session)
                storage.commit(ROOT_BATCH)
                return storage.epoch
            case ["commit", count]:
                assert storage is not None
                for _ in range(int(count)):
                    storage.commit(noting(storage))
                return storage.last_seq
            case ["close"]:
                store.close()
                return "closed"
        raise AssertionError(words)

    for line in sys.stdin:
        try:
            answer = str(act(line.split()))
        except PicoError as error:
            answer = f"{type(error).__name__}: {error}"
        print(msgspec.json.encode(answer).decode(), flush=True)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
