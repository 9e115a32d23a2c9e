"""The n-th write, sync or truncation fails, once or from then on, for every n of a few commits."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from random import Random
from typing import Final

import apsw

from fuzz import injected, strace
from fuzz.attack import Attack, Attempt
from fuzz.failing import check_failed, commit_until_failure
from fuzz.place import FILE_BACKENDS, LEVELS, folder, open_session, store_at
from fuzz.script import Script, make_script
from fuzz.vfs import watched
from pico_jsonl import JsonlStore
from pico_jsonl.disk import Disk
from pico_store.storage import Durability, Store

COMMITS: Final = 3


@dataclass(slots=True)
class Failures:
    """Which calls fail: the n-th from now on, and what follows it if it is for good."""

    left: int = 0
    """0: none."""
    for_good: bool = False
    code: int = errno.EIO
    met: int = 0
    """How many have failed."""

    def plan(self, at: int, *, for_good: bool, code: int) -> None:
        """Let the n-th call from now on fail."""
        self.left, self.for_good, self.code, self.met = at, for_good, code, 0

    def mend(self) -> None:
        """Let no call fail."""
        self.left = 0

    def fails(self) -> bool:
        """Count a call; tell whether it fails."""
        if self.left == 0:
            return False
        if self.left > 1:
            self.left -= 1
            return False
        self.met += 1
        if not self.for_good:
            self.left = 0
        return True


class _SqliteFailures:
    """Fails calls of SQLite's."""

    def __init__(self, failures: Failures) -> None:
        self._failures = failures

    def before(self, call: str, path: str) -> None:
        if not path.endswith("-shm") and self._failures.fails():
            full = self._failures.code == errno.ENOSPC and call == "write"
            raise apsw.FullError("planned") if full else apsw.IOError("planned")

    def opened(self, handle: int, path: str, flags: int) -> None:
        """Nothing to do."""

    def wrote(self, handle: int, data: bytes, offset: int) -> None:
        """Nothing to do."""

    def truncated(self, handle: int, size: int) -> None:
        """Nothing to do."""

    def synced(self, handle: int) -> None:
        """Nothing to do."""

    def synced_folder(self, path: str) -> None:
        """Nothing to do."""

    def deleted(self, path: str) -> None:
        """Nothing to do."""


def failing_disk(failures: Failures, random: Random) -> Disk:
    """Return the calls of the JSONL backend, which fail as planned."""

    def check() -> None:
        if failures.fails():
            raise OSError(failures.code, os.strerror(failures.code))

    def write(fd: int, text: bytes) -> int:
        try:
            check()
        except OSError:
            # A part of what fails may be written all the same.
            done = random.choice((0, 0, random.randrange(len(text))))
            if done:
                os.write(fd, text[:done])
            raise
        return os.write(fd, text)

    def sync(fd: int) -> None:
        check()
        os.fdatasync(fd)

    def cut(fd: int, size: int) -> None:
        check()
        os.ftruncate(fd, size)

    return Disk(write, sync, cut)


@contextmanager
def _opener(
    backend: str, path: str, level: Durability, failures: Failures, random: Random
) -> Iterator[Callable[[], Store]]:
    """Give what opens the store on a disk that fails as planned."""
    if backend == "sqlite":
        with watched(_SqliteFailures(failures)):
            yield partial(store_at, backend, path, level)
    else:
        disk = failing_disk(failures, random)
        yield lambda: JsonlStore(path, durability=level, disk=disk)


def attempt(backend: str, seed: int) -> Attempt:
    """Fail each call of a few commits of one history, each failure by itself.

    Calls of LMDB's are made within its library: one of them fails, in a process of its own.
    """
    if backend == "lmdb":
        return injected.attempt(backend, seed)
    random = Random(seed)
    script = make_script(seed)
    level = random.choice(LEVELS)
    done = Attempt()
    start = random.randint(1, max(1, len(script.batches) - COMMITS - 1))
    for_good, code = random.random() < 0.5, random.choice((errno.EIO, errno.ENOSPC))
    with folder() as where:
        for at in count(1):
            path = os.path.join(where, str(at))
            failures = Failures()
            with _opener(backend, path, level, failures, random) as open_store:
                failures.plan(0, for_good=for_good, code=code)
                wrong = _fail_at(open_store, script, start, at, failures)
            if not failures.met:
                break
            done.tries += 1
            if wrong:
                kind = "from then on" if for_good else "once"
                what = f"call {at} of batch {start} and following fails {kind} with "
                done.failures.append(f"{wrong} ({what}{os.strerror(code)}, level {level})")
                break
    return done


def _fail_at(
    open_store: Callable[[], Store], script: Script, start: int, at: int, failures: Failures
) -> str:
    store = open_store()
    storage = open_session(store)
    for batch in script.batches[:start]:
        storage.commit(batch)
    for_good, code = failures.for_good, failures.code
    failures.plan(at, for_good=for_good, code=code)
    stop = min(start + COMMITS, len(script.batches))
    _, failed = commit_until_failure(storage, script, start, stop)
    if failed is None:
        # A checkpoint or a cut that nobody waits for may fail without harm.
        failures.mend()
        store.close()
        return ""
    return check_failed(store, storage, script, failed, failures.mend, open_store)


def _missing(backend: str) -> str:
    return strace.why_not() if backend == "lmdb" else ""


ATTACK: Final = Attack("errors", FILE_BACKENDS, attempt, _missing)
