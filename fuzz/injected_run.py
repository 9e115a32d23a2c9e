"""Committing a script while calls to the system are made to fail: `python -m fuzz.injected_run`."""

from __future__ import annotations

import sys

import msgspec
from msgspec import Struct

from fuzz.failing import commit_until_failure
from fuzz.place import LEVELS, open_session, store_at
from fuzz.script import make_script
from pico_store.errors import PicoError, RetryableError


class Told(Struct, frozen=True):
    """What became of it."""

    there: int
    """How many batches were acknowledged."""
    error: str
    """The class of what was raised; empty: nothing was."""
    message: str
    is_ours: bool
    is_certain: bool
    again: str = ""
    """The class of what the next commit of the same batch raised."""
    is_open: bool = True
    """Whether the session was open when it was raised."""


def main(backend: str, path: str, level: str, seed: str) -> None:
    """Commit the script of a seed until something fails, try once more, and say what happened."""
    (durability,) = (known for known in LEVELS if known == level)
    script = make_script(int(seed))
    there, failed = 0, None
    again = ""
    try:
        store = store_at(backend, path, durability)
        storage = open_session(store)
        there, failed = commit_until_failure(storage, script, 0, len(script.batches))
        if failed is not None:
            there, second = commit_until_failure(storage, script, there, there + 1)
            again = "" if second is None else type(second.error).__name__
        store.close()
    except PicoError as error:
        _say(Told(there, type(error).__name__, str(error), True, True, is_open=False))
        return
    if failed is None:
        _say(Told(there, "", "", True, True))
        return
    raised = failed.error
    ours, certain = isinstance(raised, PicoError), isinstance(raised, RetryableError)
    _say(Told(there, type(raised).__name__, str(raised), ours, certain, again))


def _say(told: Told) -> None:
    print(msgspec.json.encode(told).decode(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
