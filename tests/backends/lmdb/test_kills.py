"""Processes that are killed while they commit: what they were told is there, and nothing by half.

`python -m tests.backends.lmdb.test_kills COUNT LEVEL` kills twice so many, at any instant.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Final

import pytest

from pico_bench.turns import Turns, opening
from pico_lmdb import LmdbStore
from pico_store.backends import open_store
from pico_store.batch import Batch
from pico_store.digest import digest
from pico_store.storage import Durability

LEVELS: Final[tuple[Durability, ...]] = ("power", "ordered", "process")
SESSIONS: Final = ("a", "b")
_TURNS: Final = 3
_MAP_BYTES: Final = 1 << 16
"""So small that it grows again and again."""


class Course:
    """Batches that follow each other, and what a session is after each of them."""

    def __init__(self) -> None:
        load = Turns(1)
        self.batches: list[Batch] = [opening()]
        for _ in range(_TURNS):
            self.batches += load.turn()
        self.digests: list[str] = []
        self.places: dict[int, int] = {0: 0}
        """How many batches there were at a last number."""
        storage = open_store("memory:").create("a")
        self.digests.append(digest(storage.export()))
        for count, batch in enumerate(self.batches, 1):
            self.places[storage.commit(batch).last] = count
            self.digests.append(digest(storage.export()))


@pytest.fixture(scope="module")
def course() -> Course:
    return Course()


def _forked(act: Callable[[], None]) -> int:
    """Let a new process act; return its id."""
    child = os.fork()
    if child:
        return child
    try:
        act()
    except BaseException as error:  # noqa: BLE001 - nothing of it may get out
        os.write(2, "".join(traceback.format_exception(error)).encode())
        os._exit(1)
    os._exit(0)


def _commit_all(path: str, level: Durability, session: str, course: Course, told: int) -> None:
    """Commit what is missing of a session, and say so after each batch."""
    store = LmdbStore(path, durability=level, map_bytes=_MAP_BYTES, compress=True)
    there = session in {info.id for info in store.sessions()}
    storage = store.open(session) if there else store.create(session)
    done = course.places[storage.last_seq]
    os.write(told, bytes([done]))
    for count in range(done, len(course.batches)):
        storage.commit(course.batches[count])
        os.write(told, bytes([count + 1]))
        if count % 60 == 30:
            store.vacuum()
            os.write(told, bytes([count + 1]))


def _check(path: str, level: Durability, course: Course, told: dict[str, int]) -> None:
    """Assert that each session is as it was told, or one batch further."""
    with closing(LmdbStore(path, durability=level)) as store:
        sessions = {info.id for info in store.sessions()}
        for session, count in told.items():
            assert session in sessions or count == -1, f"{session} is gone"
            if session in sessions:
                storage = store.open(session)
                found = course.places.get(storage.last_seq)
                assert found is not None
                assert count in (-1, found - 1, found), f"{session}: {found}, told {count}"
                assert digest(storage.export()) == course.digests[found]


def kill_some(
    path: str, level: Durability, course: Course, chance: random.Random, *, pause: float
) -> bool:
    """Let two processes commit, kill them, and check; tell whether there is more to commit."""
    pipes = {session: os.pipe() for session in SESSIONS}
    children = {
        session: _forked(partial(_commit_all, path, level, session, course, told))
        for session, (_, told) in pipes.items()
    }
    for _, end in pipes.values():
        os.close(end)
    # Both are killed after some batch of the first, or soon after.
    said = dict.fromkeys(SESSIONS, b"")
    for _ in range(chance.randrange(1, 60)):
        said["a"] += os.read(pipes["a"][0], 1)
    if pause:
        time.sleep(chance.uniform(0, pause))
    for child in children.values():
        os.kill(child, signal.SIGKILL)
    for session, child in children.items():
        assert os.WEXITSTATUS(os.waitpid(child, 0)[1]) == 0
        while more := os.read(pipes[session][0], 1_024):
            said[session] += more
        os.close(pipes[session][0])
    told = {session: words[-1] if words else -1 for session, words in said.items()}
    checker = _forked(partial(_check, path, level, course, told))
    assert os.waitpid(checker, 0)[1] == 0
    return any(count < len(course.batches) for count in told.values())


@pytest.mark.parametrize("level", LEVELS)
def test_what_killed_processes_were_told_is_there(
    path: str, level: Durability, course: Course
) -> None:
    chance = random.Random(1)
    for _ in range(6):
        kill_some(path, level, course, chance, pause=0)


def main(count: int, level: Durability) -> None:
    """Kill twice so many, at any instant."""
    course, chance = Course(), random.Random(level)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/store"
        for _ in range(count):
            more = kill_some(path, level, course, chance, pause=0.005)
            if not more or chance.random() < 0.1:
                shutil.rmtree(path)
    print(f"{level}: {2 * count} processes killed, nothing lost")


if __name__ == "__main__":
    main(int(sys.argv[1]), next(level for level in LEVELS if level == sys.argv[2]))
