"""Whether damaged files are told, harmless, or silently wrong.

Files of a session that is known are changed and read. What raises an error of ours, or that
`verify` or the report of opening names, is told. What reads as before is harmless. Anything else is
a fault.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Final, NamedTuple

from fuzz.isolated import isolated
from fuzz.place import environment, files_of, open_session, put_files, store_at
from fuzz.script import SESSION, Script
from pico_conformance.model import Model
from pico_conformance.probe import ask, names_unknown, some_reads
from pico_store.digest import digest
from pico_store.errors import PicoError, RefusedError
from pico_store.storage import Storage, Store

_STORE: Final = "store"
_READS: Final = 8


class Damage(NamedTuple):
    """A change of one file."""

    file: str
    what: str
    content: bytes


def commit_all(
    backend: str, where: str, script: Script, *, keep_open: bool = False
) -> dict[str, bytes]:
    """Commit a script and return the files of its store.

    Args:
        backend: The store's kind.
        where: An empty folder.
        script: What to commit.
        keep_open: Whether the files are taken while the session is open.
    """
    path = os.path.join(where, _STORE)
    _clear(where)
    store = store_at(backend, path)
    storage = open_session(store)
    for batch in script.batches:
        storage.commit(batch)
    if keep_open:
        files = files_of(path)
        store.close()
    else:
        store.close()
        files = files_of(path)
    # What processes share while they run means nothing afterwards.
    return {name: text for name, text in files.items() if not name.endswith(("-shm", "lock.mdb"))}


def judge_all(
    backend: str, where: str, script: Script, files: dict[str, bytes], damages: Sequence[Damage]
) -> list[str]:
    """Return for each damage what is silently wrong with it; empty: nothing.

    Those of LMDB are read in a process that they may end; it counts as told if `pico verify` can
    still tell it.
    """
    if backend != "lmdb":
        return [_judge(backend, where, script, files, damage) for damage in damages]
    found: list[str] = []
    while len(found) < len(damages):
        rest = damages[len(found) :]
        ended = isolated(partial(_judge_each, backend, where, script, files, rest))
        found += ended.lines
        if len(found) < len(damages):
            command = [sys.executable, "-m", "fuzz.verifying", f"{backend}:{where}/{_STORE}"]
            done = subprocess.run(command, capture_output=True, env=environment(), check=False)
            code = done.returncode
            what = f"the process that read it {ended.how}, and pico verify ended with {code}"
            found.append("" if code in (1, 3) else what)
    return found


def _judge_each(
    backend: str,
    where: str,
    script: Script,
    files: dict[str, bytes],
    damages: Sequence[Damage],
    say: Callable[[str], None],
) -> None:
    for damage in damages:
        say(_judge(backend, where, script, files, damage))


def _judge(
    backend: str, where: str, script: Script, files: dict[str, bytes], damage: Damage
) -> str:
    try:
        return _judge_one(backend, where, script, files, damage)
    except Exception as error:  # noqa: BLE001 - any other error than ours is a finding
        place = traceback.extract_tb(error.__traceback__)[-1]
        at = f"{os.path.basename(place.filename)}:{place.lineno}"
        return f"{damage.what}: raises {type(error).__name__} at {at}: {error}"


def _judge_one(
    backend: str, where: str, script: Script, files: dict[str, bytes], damage: Damage
) -> str:
    put_damaged(where, files, damage)
    try:
        store = store_at(backend, os.path.join(where, _STORE), create=False)
    except PicoError:
        return ""
    try:
        wrong = _read(store, script)
        if wrong and not store.verify().problems:
            return f"{damage.what}: {wrong}, and verify finds nothing"
        return ""
    except PicoError:
        return ""
    finally:
        store.close()


def put_damaged(where: str, files: dict[str, bytes], damage: Damage) -> None:
    """Write the files of a store with one of them damaged, and nothing beside them."""
    _clear(where)
    put_files(where, {**files, damage.file: damage.content})


def _clear(where: str) -> None:
    shutil.rmtree(os.path.join(where, _STORE), ignore_errors=True)
    for name in os.listdir(where):
        if name.startswith(f"{_STORE}-") or name == _STORE:
            os.unlink(os.path.join(where, name))


def _read(store: Store, script: Script) -> str:
    """Return what is read wrong, without an error."""
    try:
        storage = store.open(SESSION, read_only=True)
    except RefusedError as error:
        return f"{type(error).__name__}: {error}"
    try:
        report = storage.open_report
        if report.dropped_bytes or report.notes:
            return ""
        if digest(storage.export()) != script.digests[-1]:
            return "another export"
        infos = [(info.id, int(info.last_seq)) for info in store.sessions()]
        if infos != [(SESSION, int(script.ranges[-1].last))]:
            return f"sessions() lists {infos}"
        return _compare(storage, script.model(), Random(script.seed))
    finally:
        storage.close()


def _is_told(answer: object) -> bool:
    if not isinstance(answer, type) or not issubclass(answer, PicoError):
        return False
    return not issubclass(answer, RefusedError)


def _compare(storage: Storage, model: Model, random: Random) -> str:
    for read in some_reads(model, random, _READS):
        expected, found = ask(model, read), ask(storage, read)
        if found.fits(expected) or names_unknown(model.state, read):
            continue
        if _is_told(found.value):
            return ""
        return f"another answer to {read!s:.200}"
    return ""
