"""Committing a script while somebody records what becomes of it: `python -m fuzz.recorded_run`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from random import Random

from fuzz.place import LEVELS, open_session, store_at
from fuzz.script import Script, make_script
from pico_store.storage import Store


def commit_script(
    open_store: Callable[[], Store],
    script: Script,
    random: Random,
    acknowledge: Callable[[], None],
) -> None:
    """Commit a script, with a vacuum or a reopening here and there.

    Args:
        open_store: Opens the store.
        script: What to commit.
        random: Chooses what happens between commits.
        acknowledge: Is told of the opened session first and then of each batch.
    """
    store = open_store()
    try:
        storage = open_session(store)
        acknowledge()
        for batch in script.batches:
            chance = random.random()
            if chance < 0.02:
                store.vacuum()
            elif chance < 0.05:
                store.close()
                store = open_store()
                storage = open_session(store)
            storage.commit(batch)
            acknowledge()
    finally:
        store.close()


def main(backend: str, path: str, level: str, seed: str, acknowledged: str) -> None:
    """Commit the script of a seed and write a byte to a file after each batch."""
    (durability,) = (known for known in LEVELS if known == level)
    fd = os.open(acknowledged, os.O_CREAT | os.O_WRONLY)
    commit_script(
        partial(store_at, backend, path, durability),
        make_script(int(seed)),
        Random(int(seed)),
        partial(_acknowledge, fd),
    )


def _acknowledge(fd: int) -> None:
    assert os.write(fd, b".") == 1


if __name__ == "__main__":
    main(*sys.argv[1:])
