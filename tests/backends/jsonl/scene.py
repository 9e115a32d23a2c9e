"""Sessions to try things on, and lines that are made by hand."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pico_jsonl import JsonlStore
from pico_jsonl.control import Control
from pico_jsonl.lines import check_seal, header_body, seal
from pico_jsonl.opening import Place, load_for_reader
from pico_jsonl.storage import JsonlStorage
from pico_memory.snapshot import snapshot
from pico_store.address import ScratchAddress, Seq, SessionAddress
from pico_store.batch import Batch, ListAppend, MainBatch, ScratchBatch, SettleTask, ValueSet
from pico_store.digest import digest
from pico_store.records import Conversation, Entry, JsonValue, Task
from pico_store.snapshot import SnapshotItem
from pico_store.storage import Durability

ROOT = Seq(1)
TASK = Seq(100)
ROOT_BATCH = MainBatch((Conversation(id=ROOT),))
NAME = SessionAddress("s", "name")


def main_of(path: Path, session: str = "a") -> Path:
    """Return where a session's main log is; its id stands for itself."""
    return path / session / "main.jsonl"


def scratch_of(path: Path, task: int = TASK, session: str = "a") -> Path:
    """Return where a task's scratch is."""
    return path / session / f"scratch-{task}.jsonl"


def entry(id: int, *, data: JsonValue = None) -> Entry:
    """Return an entry of the root."""
    return Entry(id=Seq(id), conversation_id=ROOT, kind="note", data=data)


def task(id: int) -> Task:
    """Return a new task of the root."""
    state: dict[str, JsonValue] = {"status": "ready"}
    return Task(Seq(id), ROOT, "work", "ready", "start", state)


def note(storage: JsonlStorage, data: JsonValue = None) -> Seq:
    """Commit an entry and return its number."""
    return storage.commit(MainBatch((entry(storage.last_seq + 1, data=data),))).last


def setting(value: JsonValue) -> MainBatch:
    """Return a batch that sets a value of the session."""
    return MainBatch((ValueSet(NAME, value),))


def frame(value: JsonValue, task: Seq = TASK) -> ScratchBatch:
    """Return a batch that appends to a list in a task's scratch."""
    return ScratchBatch(task, (ListAppend(ScratchAddress(task, "frames"), value),))


def settling(task: Seq = TASK) -> MainBatch:
    """Return a batch that ends a task."""
    return MainBatch((SettleTask(task, "done", {"status": "done"}),))


def main_100_scratch_150(storage: JsonlStorage) -> None:
    """Bring a session to main number 100, a live task, and its scratch, 101 to 150."""
    while storage.last_seq < TASK - 1:
        note(storage)
    storage.commit(MainBatch((task(TASK),)))
    for number in range(50):
        storage.commit(frame(number))
    assert storage.last_seq == 150


def copied(path: Path, to: Path) -> Path:
    """Return a copy of a store, as a process that was killed would leave it."""
    to.mkdir(mode=0o700)
    for source in sorted(path.rglob("*")):
        target = to / source.relative_to(path)
        if source.is_dir():
            target.mkdir(mode=0o700)
        elif not source.name.startswith("owner-"):
            target.write_bytes(source.read_bytes())
    return to


def contents(path: Path) -> dict[str, bytes]:
    """Return every file of a store, to see that nothing changed."""
    return {str(file): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


@contextmanager
def made(path: Path, durability: Durability = "ordered") -> Iterator[JsonlStorage]:
    """Make a store, and an empty session in it."""
    store = JsonlStore(str(path), durability=durability)
    try:
        yield store.create("a")
    finally:
        store.close()


@contextmanager
def opened(path: Path, durability: Durability = "ordered") -> Iterator[JsonlStorage]:
    """Open a store anew, and its session for writing."""
    store = JsonlStore(str(path), durability=durability)
    try:
        yield store.open("a")
    finally:
        store.close()


def exported(path: Path, durability: Durability = "ordered") -> list[SnapshotItem]:
    """Return what a store that is opened anew shows of its session to a reader."""
    store = JsonlStore(str(path), durability=durability)
    try:
        return list(store.open("a", read_only=True).export())
    finally:
        store.close()


def read_digest(path: Path) -> str:
    """Return the digest of a store's session, read in the shortest way."""
    loaded = load_for_reader(Place("a", str(path / "a")), "process")
    return digest(snapshot(loaded.state).items())


def digest_of(path: Path, durability: Durability = "ordered") -> str:
    """Return the digest of a store's session."""
    return digest(exported(path, durability))


def last_crc(text: bytes) -> int:
    """Return the checksum that the next line of a log goes on from."""
    crc = 0
    for line in text.splitlines(keepends=True):
        crc = check_seal(line, crc)
    return crc


def append_line(log: Path, body: bytes, crc: int | None = None) -> bytes:
    """Append a line to a log with a checksum that fits, or goes on from a given one."""
    text = log.read_bytes() if log.exists() else b""
    line, _ = seal(body, last_crc(text) if crc is None else crc)
    log.write_bytes(text + line)
    return line


def make_by_hand(path: Path, bodies: list[bytes], session: str = "a") -> None:
    """Make a store whose session's log has these lines behind the first one."""
    JsonlStore(str(path)).close()
    (path / session).mkdir(mode=0o700)
    Control(str(path / session / "control"), writable=True).close()
    for body in [header_body(session, None), *bodies]:
        append_line(main_of(path, session), body)


def commit_all(storage: JsonlStorage, batches: list[Batch]) -> None:
    """Commit batches one after another."""
    for batch in batches:
        storage.commit(batch)


def open_descriptors() -> int:
    """Return how many files this process has open, those of forgotten objects aside."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))
