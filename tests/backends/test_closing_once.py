"""An interrupt that arrives as a file is closed has no file closed twice.

A second close takes whatever file has the number by then: another session's log, or a socket.
"""

from __future__ import annotations

import gc
import itertools
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from pico_store.backends import open_store
from pico_store.errors import PicoError
from tests.backends.sqlite.scene import ROOT_BATCH


class _Interrupted(BaseException):
    """As Ctrl-C does, it arrives when a call has done its work."""


def _work(url: str) -> None:
    store = open_store(url)
    try:
        storage = store.create("a")
        storage.commit(ROOT_BATCH)
        storage.close()
        store.open("a").close()
        store.vacuum()
    finally:
        store.close()


# Within a finaliser the interrupt has nowhere to go.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("url", ["jsonl:{}/work", "lmdb:{}/work", "sqlite:{}/work.db"])
def test_no_file_is_closed_twice(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[[int], None] = os.close
    left = 0
    twice: list[int] = []

    def close(fd: int) -> None:
        nonlocal left
        try:
            os.fstat(fd)
        except OSError:
            twice.append(fd)
        real(fd)
        left -= 1
        if left == 0:
            raise _Interrupted

    monkeypatch.setattr(os, "close", close)
    for number in itertools.count(1):
        folder = tmp_path / str(number)
        folder.mkdir()
        left = number
        with suppress(_Interrupted, PicoError):
            _work(url.format(folder))
        if left > 0:
            break
        gc.collect()
        assert twice == [], f"close number {number}"

    # SQLite closes its own files.
    assert number > 5 or url.startswith("sqlite")
