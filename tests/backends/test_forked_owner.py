"""OWN-1 on every backend of files: an owner that forked and was killed holds nothing any more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pico_store.address import Seq
from pico_store.backends import open_store
from pico_store.batch import MainBatch
from pico_store.errors import SessionOwnedError, StorageClosedError
from pico_store.records import Conversation

SCHEMES = ("sqlite", "lmdb", "jsonl")

# The store is dropped where nothing but the handle needs it, as a program may well do.
OWNER = """
import ctypes, os, sys, time
from pico_store.backends import open_store
url, fork, keeps, locked = sys.argv[1:]
store = open_store(url)
storage = store.create("a")
if locked == "locked":
    # As a thread would hold it that is in the middle of something when the child is made.
    session = storage._session
    session._control.acquire()
if keeps == "drops":
    del store
ready, told = os.pipe()
child = os.fork() if fork == "os" else ctypes.CDLL(None).fork()
if child == 0:
    os.write(told, b"x")
    time.sleep(60)
    os._exit(0)
os.read(ready, 1)
print(child, flush=True)
sys.stdin.read()
"""


@contextmanager
def killed_owner(url: str, *how: str) -> Iterator[int]:
    """Leave the child of an owner that is gone; give the owner's number."""
    command = [sys.executable, "-c", OWNER, url, *how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        child = int(owner.stdout.readline())
        try:
            owner.kill()
            owner.wait()
            yield owner.pid
        finally:
            os.kill(child, signal.SIGKILL)


def _url(scheme: str, folder: Path) -> str:
    return f"{scheme}:{folder}/store"


@pytest.mark.parametrize("keeps", ["keeps", "drops"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_killed_owner_that_forked_frees_its_session_at_once(
    tmp_path: Path, scheme: str, keeps: str
) -> None:
    url = _url(scheme, tmp_path)

    with killed_owner(url, "os", keeps, ""):
        store = open_store(url, create=False)
        storage = store.open("a")
        storage.commit(MainBatch((Conversation(Seq(1)),)))
        assert storage.epoch == 2
        store.close()


def test_nor_does_its_child_keep_the_lock_of_a_jsonl_session(tmp_path: Path) -> None:
    """What the owner held for a moment when it was killed is not held by its child."""
    url = _url("jsonl", tmp_path)

    with killed_owner(url, "os", "drops", "locked"):
        store = open_store(url, create=False)
        assert store.open("a").epoch == 2
        store.close()


def test_what_holds_a_jsonl_session_beyond_its_owner_is_named(tmp_path: Path) -> None:
    """A child that was forked beneath Python has the lock, and cannot be told from its owner."""
    url = _url("jsonl", tmp_path)

    with killed_owner(url, "c", "keeps", "") as owner:
        store = open_store(url, create=False)
        with pytest.raises(SessionOwnedError, match=f"process {owner} .*has ended.* forked"):
            store.open("a")
        assert store.open("a", take_over=True).epoch == 2
        store.close()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_child_can_do_nothing_with_a_handle_whose_store_was_dropped(
    tmp_path: Path, scheme: str
) -> None:
    storage = open_store(_url(scheme, tmp_path)).create("a")
    child = os.fork()
    if child == 0:
        refused = 0
        for act in (
            lambda: storage.commit(MainBatch((Conversation(Seq(1)),))),
            lambda: storage.last_seq,
        ):
            try:
                act()
            except StorageClosedError as error:
                refused += "fork" in str(error)
        os._exit(refused)

    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 2
    assert storage.commit(MainBatch((Conversation(Seq(1)),))).first == 1
    storage.close()
