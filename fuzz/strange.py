"""Strange bytes as JSONL files, wire batches and transcripts: refused by name or taken whole.

Near-valid ones first: lines that were changed as JSON and sealed anew with a right checksum.
"""

from __future__ import annotations

import io
import json
import os
import signal
from collections.abc import Callable
from contextlib import ExitStack
from random import Random
from types import FrameType
from typing import Final, NoReturn

from fuzz.attack import Attack, Attempt
from fuzz.damage import commit_all
from fuzz.isolated import SECONDS_MAX
from fuzz.mutation import Json, dump, mutate_bytes, mutate_json
from fuzz.place import files_of, folder, put_files, store_at
from fuzz.script import SESSION, Script, make_script
from fuzz.transcript import some_transcript
from pico_jsonl.lines import seal
from pico_store.backends import open_store
from pico_store.codec import decode_batch, encode_batch
from pico_store.digest import digest
from pico_store.errors import InvalidValueError, PicoError, RefusedError
from pico_store.importing import TranscriptError, import_transcript, read_transcript

TRIES: Final = 40
_BATCHES_MAX: Final = 20


class _EndlessError(BaseException):
    """What no code of ours catches."""


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise _EndlessError


class Harness:
    """Hands strange inputs of one kind in, with what a seed chose beside them."""

    def __init__(self, target: str, seed: int) -> None:
        self._make, self._take = TARGETS[target]
        self._script = make_script(seed, batches_max=_BATCHES_MAX)
        self._stack = ExitStack()

    def __enter__(self) -> Harness:
        self._where = self._stack.enter_context(folder())
        self.given = self._make(self._script, self._where)
        """What inputs are made from: the lines of one that is right."""
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def take(self, data: bytes) -> str:
        """Hand one input in; return what is wrong."""
        before = signal.signal(signal.SIGALRM, _interrupt)
        signal.alarm(SECONDS_MAX)
        try:
            return self._take(data, self._script, self._where)
        except _EndlessError:
            return f"does not end within {SECONDS_MAX} s"
        except Exception as error:  # noqa: BLE001 - any other error than ours is a finding
            return f"raises {type(error).__name__}: {error!s:.300}"
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)

    def seeds(self) -> str:
        """Write what inputs are made from into a folder of files and return its path."""
        start = os.path.join(self._where, "seeds")
        files = {f"{number}": line for number, line in enumerate(self.given)}
        put_files(start, {**files, "all": b"".join(self.given)})
        return start


def attempt(target: str, seed: int) -> Attempt:
    """Make strange inputs from the things of one seed and hand each of them in."""
    random = Random(seed)
    done = Attempt()
    with Harness(target, seed) as harness:
        for _ in range(TRIES):
            data = _strange(target, harness.given, random)
            done.tries += 1
            wrong = harness.take(data)
            if wrong:
                done.failures.append(wrong)
                done.data = data
                break
    return done


def replay_bytes(target: str, seed: int, data: bytes) -> str:
    """Hand in one input that was found before; return what is wrong."""
    with Harness(target, seed) as harness:
        return harness.take(data)


def _strange(target: str, given: list[bytes], random: Random) -> bytes:
    lines = list(given)
    if target == "jsonl" and random.random() < 0.7:
        return _resealed(lines, random)
    if random.random() < 0.6:
        index = random.randrange(len(lines))
        value: Json = json.loads(lines[index])
        for _ in range(random.choice((1, 1, 2))):
            value = mutate_json(value, random)
        lines[index] = dump(value, random) + b"\n"
        return b"".join(lines) if target != "wire" else lines[index]
    data = b"".join(lines) if target != "wire" else random.choice(lines)
    return mutate_bytes(data, random)


# --- JSONL ---


def _log_lines(script: Script, where: str) -> list[bytes]:
    files = commit_all("jsonl", where, script)
    put_files(where, files)
    (main,) = [text for name, text in files.items() if name.endswith("main.jsonl")]
    return main.splitlines(keepends=True)


def _resealed(lines: list[bytes], random: Random) -> bytes:
    """Return a log with one line changed as JSON, all its checksums right."""
    index = random.randrange(len(lines))
    found, crc = b"", 0
    for number, line in enumerate(lines):
        value: Json = json.loads(line)
        assert isinstance(value, dict)
        del value["crc32"]
        if number == index:
            changed = mutate_json(value, random)
            value = changed if isinstance(changed, dict) and changed else {"x": changed}
        sealed, crc = seal(dump(value, random)[:-1], crc)
        found += sealed
    return found


def _take_log(data: bytes, script: Script, where: str) -> str:
    """Open a session with this main log: it is refused untouched, or can be read and proven."""
    path = os.path.join(where, "store")
    (name,) = [name for name in os.listdir(path) if not name.endswith(".json")]
    put_files(path, {f"{name}/main.jsonl": data})
    before = files_of(path)
    store = store_at("jsonl", path)
    try:
        found = digest(store.open(SESSION, read_only=True).export())
        if store.verify().problems:
            return ""
        other = open_store("memory:")
        other.load(SESSION, store.open(SESSION, read_only=True).export())
        again = digest(other.open(SESSION, read_only=True).export())
        return "" if found == again else "verify finds nothing, and a copy has another digest"
    except PicoError:
        return "" if files_of(path) == before else "a file was changed that was refused"
    finally:
        store.close()


# --- Wire batches ---


def _batches(script: Script, where: str) -> list[bytes]:
    return [encode_batch(batch) for batch in script.batches]


def _take_batch(data: bytes, script: Script, where: str) -> str:
    """Decode a batch and commit it after the script: it is refused without a trace, or taken."""
    try:
        batch = decode_batch(data)
    except InvalidValueError:
        return ""
    store = open_store("memory:")
    storage = store.create(SESSION)
    # It may be one that belongs anywhere among these.
    for index, known in enumerate(script.batches):
        try:
            made = storage.commit(batch)
        except RefusedError:
            if digest(storage.export()) != script.digests[index]:
                return "a refused batch left a trace"
        else:
            text = encode_batch(batch)
            if decode_batch(text) != batch:
                return "a batch that was taken is another one as JSON"
            return "" if made.last == storage.last_seq else "last_seq is not that of the batch"
        storage.commit(known)
    return ""


# --- Transcripts ---


def _transcript(script: Script, where: str) -> list[bytes]:
    return some_transcript(Random(script.seed))


def _take_transcript(data: bytes, script: Script, where: str) -> str:
    """Import it: refused with nothing written, or a session that can be loaded elsewhere."""
    store, other = open_store("memory:"), open_store("memory:")
    try:
        import_transcript(read_transcript(io.BytesIO(data)), store, SESSION)
    except TranscriptError:
        return "a refused transcript left a session" if store.sessions() else ""
    storage = store.open(SESSION, read_only=True)
    other.load(SESSION, storage.export())
    again = other.open(SESSION, read_only=True)
    same = digest(again.export()) == digest(storage.export())
    return "" if same else "the imported session cannot be copied"


TARGETS: Final[
    dict[
        str,
        tuple[Callable[[Script, str], list[bytes]], Callable[[bytes, Script, str], str]],
    ]
] = {
    "jsonl": (_log_lines, _take_log),
    "wire": (_batches, _take_batch),
    "import": (_transcript, _take_transcript),
}

ATTACK: Final = Attack("bytes", tuple(TARGETS), attempt)
