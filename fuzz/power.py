"""The power fails: what was not synced is lost, reordered or torn; the store is opened anew.

With `power`, every acknowledged main batch must be there; with `ordered`, what is there must be the
batches before some moment. `process` promises nothing.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final, NamedTuple, TypeAlias

from fuzz import strace
from fuzz.attack import Attack, Attempt
from fuzz.image import Image, images
from fuzz.isolated import isolated
from fuzz.place import FILE_BACKENDS, folder, put_files, store_at
from fuzz.recorded_os import recording_os
from fuzz.recorded_run import commit_script
from fuzz.recording import Recording
from fuzz.recovery import check_logs, check_prefix, is_there
from fuzz.script import SESSION, Script, make_script
from fuzz.vfs import watched
from pico_jsonl import JsonlStore
from pico_jsonl.disk import Disk
from pico_store.errors import PicoError
from pico_store.storage import Durability, Store

IMAGES: Final = 150
_STORE: Final = "store"

Opener: TypeAlias = Callable[[str, Durability, Disk], Store]
"""Opens a store at a path; the JSONL backend makes the calls that it is given."""


class Recorded(NamedTuple):
    """A history, and what a disk was asked for it."""

    backend: str
    level: Durability
    script: Script
    recording: Recording


def attempt(backend: str, seed: int, opener: Opener | None = None) -> Attempt:
    """Record one history and open what power cuts leave of it."""
    random = Random(seed)
    level: Durability = random.choice(("power", "ordered"))
    done = Attempt()
    with folder() as where:
        root = os.path.join(where, "disk")
        os.mkdir(root)
        # SQLite's calls are heard of by a layer of ours, now and then by the system's.
        by_system = backend == "sqlite" and not opener and random.random() < 0.1
        if backend == "lmdb" or (by_system and not strace.why_not()):
            recorded = _record_elsewhere(backend, seed, level, where, root)
        else:
            recorded = record_here(backend, seed, level, root, opener or OPENERS[backend])
        ops = recorded.recording.ops
        for batch in _in_groups(list(images(ops, random, IMAGES)), 25):
            _try(recorded, batch, where, random.randrange(2**32), done)
    return done


def _in_groups(found: list[Image], size: int) -> list[list[Image]]:
    return [found[start : start + size] for start in range(0, len(found), size)]


# --- Recording ---


def _open_sqlite(path: str, level: Durability, disk: Disk) -> Store:
    return store_at("sqlite", path, level)


def _open_jsonl(path: str, level: Durability, disk: Disk) -> Store:
    return JsonlStore(path, durability=level, disk=disk)


OPENERS: Final[dict[str, Opener]] = {"sqlite": _open_sqlite, "jsonl": _open_jsonl}


class _SqliteWatcher:
    """Puts what SQLite does to its files into a recording."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def before(self, call: str, path: str) -> None:
        """Let it happen."""

    def opened(self, handle: int, path: str, flags: int) -> None:
        self._recording.opened(handle, path, flags)

    def wrote(self, handle: int, data: bytes, offset: int) -> None:
        self._recording.wrote(handle, data, offset)

    def truncated(self, handle: int, size: int) -> None:
        self._recording.cut(handle, size)

    def synced(self, handle: int) -> None:
        self._recording.synced(handle)

    def synced_folder(self, path: str) -> None:
        self._recording.synced_folder_of(path)

    def deleted(self, path: str) -> None:
        self._recording.removed(path)


def record_here(backend: str, seed: int, level: Durability, root: str, opener: Opener) -> Recorded:
    """Commit a script in this process and record what SQLite or the JSONL backend does."""
    script, random = make_script(seed), Random(seed)
    recording = Recording(root)
    path = os.path.join(root, _STORE)
    count = 0

    def acknowledge() -> None:
        nonlocal count
        count += 1
        recording.acknowledged(count)

    if backend == "sqlite":
        # The backend makes the file before SQLite opens it.
        recording.opened(-1, path, os.O_CREAT)
        with watched(_SqliteWatcher(recording)):
            commit_script(partial(opener, path, level, Disk()), script, random, acknowledge)
    else:
        # Its owner's numbers change through memory.
        recording.mapped = {"control"}
        with recording_os(recording) as calls:
            disk = Disk(calls.write, calls.sync, calls.ftruncate)
            commit_script(partial(opener, path, level, disk), script, random, acknowledge)
    return Recorded(backend, level, script, recording)


def _record_elsewhere(
    backend: str, seed: int, level: Durability, where: str, root: str
) -> Recorded:
    """Commit a script in a process of its own and record all that it asks of the system."""
    path = os.path.join(root, _STORE)
    arguments = ["fuzz.recorded_run", backend, path, level, str(seed)]
    arguments.append(os.path.join(where, strace.ACK_NAME))
    recording, said = strace.record(root, os.path.join(where, "calls"), arguments)
    assert not said, said
    return Recorded(backend, level, make_script(seed), recording)


# --- Opening what is left ---


def _try(recorded: Recorded, found: list[Image], where: str, seed: int, done: Attempt) -> None:
    """Open images; those of LMDB in a process that they may end."""

    def open_all(say: Callable[[str], None]) -> None:
        random = Random(seed)
        for image in found:
            say(check_image(recorded, image, where, random))

    if recorded.backend == "lmdb":
        ended = isolated(open_all)
        said = ended.lines
        if ended.signal or len(said) < len(found):
            said = [*said, f"the process that opened it {ended.how}"]
    else:
        said = []
        open_all(said.append)
    done.tries += len(said)
    for image, wrong in zip(found, said, strict=False):
        if wrong:
            place = f"level {recorded.level}, after operation {image.at} of "
            place += f"{len(recorded.recording.ops)}, {image.acknowledged} acknowledgements"
            done.failures.append(f"{wrong} ({place})")


def check_image(recorded: Recorded, image: Image, where: str, random: Random) -> str:
    """Open what a power cut left; return what is wrong."""
    start = os.path.join(where, "image")
    shutil.rmtree(start, ignore_errors=True)
    os.mkdir(start)
    for name in image.folders:
        os.makedirs(os.path.join(start, name), exist_ok=True)
    put_files(start, image.files)
    batches = max(image.acknowledged - 1, 0)
    try:
        store = store_at(recorded.backend, os.path.join(start, _STORE), recorded.level)
    except PicoError as error:
        return f"the store does not open: {type(error).__name__}: {error}"
    try:
        if not _must_exist(recorded, image) and not is_there(store):
            return ""
        script, sent = recorded.script, min(batches + 1, len(recorded.script.batches))
        kept = batches if recorded.level == "power" else 0
        if recorded.backend == "jsonl":
            return _check_jsonl(store, script, kept, sent)
        mains = [i for i in range(kept) if not script.is_scratch(i)]
        at_least = mains[-1] + 1 if mains else 0
        go_on = random.random() < 0.2
        return check_prefix(store, script, at_least, sent, go_on=go_on)[1]
    except PicoError as error:
        return f"{type(error).__name__}: {error}"
    finally:
        store.close()


def _must_exist(recorded: Recorded, image: Image) -> bool:
    """Tell whether the session was promised to be there: JSONL-5 promises more than DUR-1."""
    strict = recorded.level == "power" or recorded.backend == "jsonl"
    return strict and image.acknowledged > 0


def _check_jsonl(store: Store, script: Script, kept: int, sent: int) -> str:
    storage = store.open(SESSION)
    try:
        mains, wrong = check_logs(storage.export(), script, kept, sent)
        if wrong or sent == len(script.batches) or script.is_scratch(sent):
            return wrong
        # The next batch can be committed if nothing is missing that it may need or be numbered by.
        all_mains = sum(not script.is_scratch(index) for index in range(sent))
        if mains == all_mains and storage.last_seq == script.ranges[sent - 1].last:
            storage.commit(script.batches[sent])
            wrong = check_logs(storage.export(), script, kept, sent + 1)[1]
        return wrong
    finally:
        storage.close()


def _missing(backend: str) -> str:
    return strace.why_not() if backend == "lmdb" else ""


ATTACK: Final = Attack("power", FILE_BACKENDS, attempt, _missing)
