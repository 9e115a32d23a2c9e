"""There is no room: a limit on the size of files, and a small file system in memory.

Commits fail with an error of their own, earlier ones stay, and with room again the session goes on.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from random import Random
from typing import Final

from fuzz.attack import Attack, Attempt
from fuzz.failing import check_failed, commit_until_failure
from fuzz.isolated import isolated
from fuzz.place import FILE_BACKENDS, LEVELS, files_of, folder, open_session, store_at
from fuzz.recovery import check_prefix
from fuzz.script import Script, make_script
from pico_store.errors import PicoError
from pico_store.storage import Durability

_DISK_BYTES: Final = 3 << 20
_MORE_BYTES: Final = 60_000
_LIMIT: Final = "RLIMIT_FSIZE"
_DISK: Final = "a small disk"


def attempt(backend: str, seed: int) -> Attempt:
    """Commit one history without enough room for it."""
    random = Random(seed)
    script = make_script(seed)
    level = random.choice(LEVELS)
    by_disk = random.random() < 0.5 and can_mount()
    way = _DISK if by_disk else _LIMIT
    done = Attempt(1)
    with folder() as where, _disk(where, mounted=by_disk):
        fill = _fill_disk if by_disk else _limit_files
        run = partial(_run, backend, where, script, level, random, fill)
        ended = isolated(run)
    if ended.signal:
        done.failures.append(f"the process {ended.how} ({way}, level {level})")
    done.failures += [f"{line} ({way}, level {level})" for line in ended.lines if line]
    return done


Room = tuple[Callable[[], None], Callable[[], None]]
"""What takes the room away, and what gives it back."""


def _run(
    backend: str,
    where: str,
    script: Script,
    level: Durability,
    random: Random,
    fill: Callable[[str, str, Random], Room],
    say: Callable[[str], None],
) -> None:
    path = os.path.join(where, "store")
    store = store_at(backend, path, level)
    storage = open_session(store)
    start = random.randint(1, max(1, len(script.batches) // 2))
    commit_until_failure(storage, script, 0, start)
    take, give = fill(where, path, random)
    take()
    _, failed = commit_until_failure(storage, script, start, len(script.batches))
    if failed is None:
        store.close()
        say(_reopen(backend, path, level, script, give))
        return
    reopen = partial(store_at, backend, path, level)
    say(check_failed(store, storage, script, failed, give, reopen))


def _reopen(
    backend: str, path: str, level: Durability, script: Script, give: Callable[[], None]
) -> str:
    """Open a session whose history fitted, without room; that may be refused in our own words."""
    try:
        store = store_at(backend, path, level)
        store.close()
    except PicoError:
        pass
    give()
    store = store_at(backend, path, level)
    try:
        return check_prefix(store, script, len(script.batches), len(script.batches))[1]
    finally:
        store.close()


def _limit_files(where: str, path: str, random: Random) -> Room:
    """Let files grow a little further and no more."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    largest = max(map(len, files_of(path).values()))
    limit = largest + random.randrange(random.choice((100, 5_000, _MORE_BYTES)))
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]

    def take() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))

    def give() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))

    return take, give


def _fill_disk(where: str, path: str, random: Random) -> Room:
    """Fill a disk but for a little."""
    ballast = os.path.join(where, "ballast")
    left = random.randrange(random.choice((5_000, 20_000, _MORE_BYTES)))

    def take() -> None:
        free = os.statvfs(where)
        size = free.f_bavail * free.f_frsize - left
        with open(ballast, "wb") as file:
            file.write(bytes(max(0, size)))

    def give() -> None:
        if os.path.exists(ballast):
            os.unlink(ballast)

    return take, give


@contextmanager
def _disk(where: str, *, mounted: bool) -> Iterator[None]:
    """Make a folder a small disk, if asked."""
    if not mounted:
        yield
        return
    options = f"size={_DISK_BYTES}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "pico-fuzz", where], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", where], check=True)


@cache
def can_mount() -> bool:
    """Tell whether a small disk can be had here: only root may make one."""
    if os.geteuid() != 0:
        return False
    with folder() as where:
        command = ["mount", "-t", "tmpfs", "-o", "size=64k", "pico-fuzz", where]
        try:
            made = subprocess.run(command, capture_output=True, check=False).returncode == 0
        except FileNotFoundError:
            return False
        if made:
            subprocess.run(["umount", where], check=True)
    return made


ATTACK: Final = Attack("full", FILE_BACKENDS, attempt)
