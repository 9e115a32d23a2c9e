"""A disk without room: what was acknowledged stays, and a later commit goes through."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from pico_lmdb import LmdbStore
from pico_store.digest import digest
from pico_store.errors import CommitUncertainError, StoreFullError
from pico_store.storage import Durability
from tests.backends.lmdb.scene import ROOT_BATCH, noting

LEVELS: Final[tuple[Durability, ...]] = ("power", "ordered", "process")
_ROUNDS: Final = 12


@pytest.mark.parametrize("level", LEVELS)
def test_what_was_acknowledged_stays_when_the_disk_is_full(path: str, level: Durability) -> None:
    root = str(Path(__file__).parents[3])
    command = [sys.executable, "-m", __name__, path, level]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    full, uncertain = map(int, done.stdout.split())
    assert full + uncertain == _ROUNDS
    assert full > uncertain, "no room is mostly known before anything counts"


def main(path: str, level: Durability) -> None:
    """Fill a disk again and again, that of this process alone."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    chance = random.Random(level)
    store = LmdbStore(path, durability=level, map_bytes=1 << 16)
    storage = store.create("a")
    storage.commit(ROOT_BATCH)
    full = uncertain = 0
    for _ in range(_ROUNDS):
        size = os.stat(f"{path}/data.mdb").st_size
        # Also in the middle of a page.
        limit = size + chance.randrange(100_000)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        last, told = storage.last_seq, digest(storage.export())
        try:
            while True:
                last = storage.commit(noting(storage, data="x" * chance.randrange(9_000))).last
                told = digest(storage.export())
        except StoreFullError:
            full += 1
            assert storage.last_seq == last
            assert digest(storage.export()) == told
        except CommitUncertainError:
            uncertain += 1
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        if uncertain:
            storage.close()
            storage = store.open("a")
        assert storage.last_seq in (last, last + 1)
        if storage.last_seq == last:
            assert digest(storage.export()) == told
        assert storage.commit(noting(storage)).first == storage.last_seq
    assert store.verify().problems == ()
    expected = digest(storage.export())
    store.close()
    with closing(LmdbStore(path)) as again:
        assert digest(again.open("a").export()) == expected
    print(full, uncertain)


if __name__ == "__main__":
    main(sys.argv[1], next(level for level in LEVELS if level == sys.argv[2]))
