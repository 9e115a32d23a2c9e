"""Another process on the same folder, which does as it is told and may be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb
import msgspec

from pico_lmdb import LmdbStore
from pico_lmdb.engine import Transaction
from pico_lmdb.storage import LmdbStorage
from pico_store.errors import PicoError
from pico_store.options import BUSY_MS_DEFAULT
from pico_store.query import EntryQuery
from tests.backends.lmdb.scene import ROOT, ROOT_BATCH, noting


class Worker:
    """A process with a store open, seen from here."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def ask(self, act: str) -> str:
        """Let it act, and return what came of it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(act + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, "the other process ended"
        return msgspec.json.decode(answer, type=str)

    def kill(self) -> None:
        """End it as a power switch would."""
        self.process.kill()
        self.process.wait()


@contextmanager
def worker(path: str) -> Iterator[Worker]:
    """Start a process; it is killed at the end."""
    root = str(Path(__file__).parents[3])
    command = [sys.executable, "-m", __name__, path]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root
    )
    try:
        yield Worker(process)
    finally:
        process.kill()
        process.communicate()


def _serve(path: str) -> None:
    store: LmdbStore | None = None
    storage: LmdbStorage | None = None
    engine: lmdb.Environment | None = None
    held: list[lmdb.Transaction] = []
    begun: list[Transaction] = []

    def act(words: list[str]) -> object:
        nonlocal store, storage, engine
        match words:
            case ["hold", count]:
                # As a reader that never ends; the store itself has none.
                engine = lmdb.open(path, max_dbs=16, create=False, map_size=1 << 20)
                held.extend(engine.begin() for _ in range(int(count)))
                return "held"
            case ["create", session, map_bytes]:
                store = LmdbStore(path, durability="process", map_bytes=int(map_bytes))
                storage = store.create(session)
                storage.commit(ROOT_BATCH)
            case ["open", session, *wait]:
                busy_ms = int(wait[0]) if wait else BUSY_MS_DEFAULT
                store = LmdbStore(path, durability="process", map_bytes=1 << 20, busy_ms=busy_ms)
                storage = store.open(session, read_only=True)
            case ["commit", count, size]:
                assert storage is not None
                for _ in range(int(count)):
                    storage.commit(noting(storage, data="x" * int(size)))
            case ["stall"]:
                # As if it were stopped in the middle of a commit.
                assert store is not None
                store._environment.take_turn(0)
                begun.append(store._environment.begin_write())
                return "stalled"
            case ["leave"]:
                assert store is not None
                store._environment.presence.end()
                return "left"
            case ["fork"]:
                child = os.fork()
                if child == 0:
                    signal.pause()
                return child
            case ["count"]:
                assert storage is not None
                query = EntryQuery(conversation_id=ROOT, limit=10_000)
                return len(storage.scan_entries(query).items)
        assert storage is not None
        return storage.last_seq

    for line in sys.stdin:
        try:
            answer = str(act(line.split()))
        except PicoError as error:
            answer = f"{type(error).__name__}: {error}"
        print(msgspec.json.encode(answer).decode(), flush=True)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
