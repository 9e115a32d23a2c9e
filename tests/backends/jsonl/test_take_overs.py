"""OWN-2: processes that take one session from one another lose and mix up nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pico_jsonl import JsonlStore
from pico_store.address import SessionAddress
from pico_store.batch import ListAppend, MainBatch
from pico_store.errors import (
    OwnershipLostError,
    SessionOwnedError,
    StoreBusyError,
)
from pico_store.query import ListQuery
from tests.backends.jsonl.scene import ROOT_BATCH, made, opened

TAKEN = SessionAddress("taken")
PROCESSES = 3
ROUNDS = 60


def take_over(path: str, name: str) -> None:
    """Take the session again and again; print what was committed, and as which number."""
    store = JsonlStore(path, durability="process")
    for turn in range(ROUNDS):
        try:
            storage = store.open("a", take_over=turn % 4 > 0)
            for number in range(turn % 7 + 1):
                text = f"{name}.{turn}.{number}"
                print(text, storage.commit(MainBatch((ListAppend(TAKEN, text),))).first)
            storage.close()
            if turn % 20 == 0:
                store.vacuum()
        except (OwnershipLostError, SessionOwnedError, StoreBusyError):
            continue


def test_processes_that_take_a_session_from_one_another_lose_nothing(path: Path) -> None:
    with made(path, "process") as storage:
        storage.commit(ROOT_BATCH)
    command = [sys.executable, "-m", "tests.backends.jsonl.test_take_overs", str(path)]
    children = [
        subprocess.Popen([*command, str(number)], stdout=subprocess.PIPE, text=True)
        for number in range(PROCESSES)
    ]
    told = "".join(child.communicate()[0] for child in children)
    assert [child.returncode for child in children] == [0] * PROCESSES

    acknowledged = {int(line.split()[1]): line.split()[0] for line in told.splitlines()}
    assert len(acknowledged) == len(told.splitlines()) > 0, "no number was given twice"
    assert JsonlStore(str(path)).verify().problems == ()
    with opened(path, "process") as storage:
        assert storage.open_report.notes == ()
        page = storage.read_list(TAKEN, ListQuery(limit=10_000))
    assert page.next is None
    found = {item.id: item.value for item in page.items}
    # A process may lose the session after a commit and before it can tell.
    assert acknowledged.items() <= found.items()


if __name__ == "__main__":
    take_over(*sys.argv[1:])
