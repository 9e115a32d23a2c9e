"""Another process at work on the same store: `python -m pico_conformance.rules.child` is one.

It speaks in lines: what it says on its output is numbers and words, what it hears on its input
is when to end. The rules of `processes` start it, and kill it.
"""

from __future__ import annotations

import contextlib
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator

from pico_conformance.rule import Lab
from pico_conformance.target import resolve_target
from pico_store.address import Seq
from pico_store.batch import MainBatch
from pico_store.errors import (
    CommitUncertainError,
    PicoError,
    RetryableError,
    StorageFaultedError,
    UnknownSessionError,
)
from pico_store.query import EntryQuery
from pico_store.records import Conversation, Entry
from pico_store.storage import Storage, Store

BATCH = 3
"""Entries that `write` commits at once."""


@contextlib.contextmanager
def child(lab: Lab, act: str, session: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Start a process that does one of `ACTS`; it is killed at the end if it still runs."""
    command = [sys.executable, "-m", __name__, lab.target.name, lab.place.path, act, session]
    process = subprocess.Popen(
        [*command, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            assert stream is not None
            # What a killed child never read is of no interest.
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def heard(process: subprocess.Popen[str]) -> str:
    """Return the next line that the child says; fail with what it complains about."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        assert process.stderr is not None
        complaint = process.stderr.read()
        raise AssertionError(f"the other process ended: {complaint[-1000:]}")
    return line.strip()


def ended(process: subprocess.Popen[str]) -> str:
    """Tell the child to end; return the rest of what it says."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdin.close()
    # Not by `communicate`, which does not see what `heard` left in the buffer.
    said, complaint = process.stdout.read(), process.stderr.read()
    assert process.wait() == 0, f"the other process failed: {complaint[-1000:]}"
    return said


def open_or_create(store: Store, session: str) -> Storage:
    """Open a session, which is created with a root if it is not there."""
    try:
        return store.open(session)
    except UnknownSessionError:
        storage = store.create(session)
        storage.commit(MainBatch((Conversation(id=Seq(1)),)))
        return storage


def commit_entries(storage: Storage, count: int = BATCH, data: str = "") -> Seq:
    """Commit some entries of the root as one batch and return the last number."""
    first = storage.last_seq + 1
    entries = (Entry(Seq(first + i), Seq(1), "note", data=data) for i in range(count))
    return storage.commit(MainBatch(tuple(entries))).last


def _hold(store: Store, session: str) -> None:
    storage = open_or_create(store, session)
    _say(storage.epoch)
    sys.stdin.read()
    storage.close()


def _take(store: Store, session: str) -> None:
    storage = store.open(session, take_over=True)
    _say(commit_entries(storage))
    sys.stdin.read()


def _write(store: Store, session: str, count: str) -> None:
    storage = open_or_create(store, session)
    for _ in range(int(count)):
        _say(commit_entries(storage))
    storage.close()


def _read(store: Store, session: str) -> None:
    """Read until the first reader's batch is missing a part or the writer has done enough."""
    storage = store.open(session, read_only=True)
    _say("ready")
    query = EntryQuery(conversation_id=Seq(1), limit=10_000)
    rounds = 0
    while not rounds or storage.last_seq < 1 + 100 * BATCH:
        page = storage.scan_entries(query)
        assert len(page.items) % BATCH == 0, f"{len(page.items)} entries are no whole batches"
        assert len(page.items) == page.read_at - 1, f"{len(page.items)} entries at {page.read_at}"
        storage.close()
        storage = store.open(session, read_only=True)
        rounds += 1
    _say(rounds)


def _fill(store: Store, session: str, bytes_more: str) -> None:
    """Commit until the disk is full, make room, and go on; say what came of it."""
    storage = open_or_create(store, session)
    commit_entries(storage)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(bytes_more), hard))
    acknowledged, error = int(storage.last_seq), None
    for _ in range(10_000):
        try:
            acknowledged = commit_entries(storage, 1, "x" * 5_000)
        except PicoError as failure:
            error = failure
            break
    _say(type(error).__name__)
    _say(acknowledged)
    if isinstance(error, RetryableError):
        _say(storage.last_seq)
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        _say(commit_entries(storage, 1))
    elif isinstance(error, CommitUncertainError):
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        try:
            _say(commit_entries(storage, 1))
        except StorageFaultedError:
            _say("faulted")
    storage.close()


def _say(word: object) -> None:
    print(word, flush=True)


ACTS: dict[str, Callable[..., None]] = {
    "hold": _hold,
    "take": _take,
    "write": _write,
    "read": _read,
    "fill": _fill,
}


def main(target: str, path: str, act: str, session: str, *arguments: str) -> None:
    """Do one act on a session of the store at a path."""
    store = resolve_target(target).open_store(path)
    ACTS[act](store, session, *arguments)
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
