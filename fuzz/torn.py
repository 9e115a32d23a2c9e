"""The end of a file is cut off, or one of its pages is zeroed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from random import Random
from typing import Final

from fuzz.attack import Attack, Attempt
from fuzz.damage import Damage, commit_all, judge_all, put_damaged
from fuzz.place import FILE_BACKENDS, folder, store_at
from fuzz.recovery import check_logs, check_prefix
from fuzz.script import SESSION, Script, make_script
from pico_store.address import SessionAddress
from pico_store.batch import MainBatch, ValueSet
from pico_store.digest import digest
from pico_store.errors import PicoError

TRIES: Final = 80
_FRAME_HEADER_BYTES: Final = 24
_WAL_HEADER_BYTES: Final = 32


def attempt(backend: str, seed: int) -> Attempt:
    """Tear the files of one store in many ways, each by itself."""
    random = Random(seed)
    script = make_script(seed, batches_max=25)
    done = Attempt()
    with folder() as where:
        files = commit_all(backend, where, script, keep_open=backend != "lmdb")
        if backend == "jsonl":
            _tear_lines(where, script, files, random, done)
        else:
            _tear_pages(backend, where, script, files, random, done)
    return done


# --- JSONL: every offset of the last lines ---


def _tear_lines(
    where: str, script: Script, files: dict[str, bytes], random: Random, done: Attempt
) -> None:
    logs = [name for name in files if name.endswith(".jsonl") and "spare" not in name]
    files = {name: text for name, text in files.items() if "owner" not in name}
    name = random.choice(logs)
    content = files[name]
    lines = content.splitlines(keepends=True)
    start = len(content) - sum(map(len, lines[-2:]))
    for end in random.sample(range(start, len(content)), min(TRIES, len(content) - start)):
        done.tries += 1
        put_damaged(where, files, Damage(name, "", content[:end]))
        whole = content[:end].count(b"\n") - 1 if "main" in name else None
        wrong = _open_torn(where, script, whole)
        if wrong:
            done.failures.append(f"{name} cut off at {end}: {wrong}")


def _open_torn(where: str, script: Script, lines: int | None) -> str:
    """Open a store whose log was cut off; it must have the batches of the whole lines."""
    store = store_at("jsonl", os.path.join(where, "store"))
    try:
        storage = store.open(SESSION)
    except PicoError as error:
        return "" if lines is not None and lines < 0 else f"{type(error).__name__}: {error}"
    else:
        mains, wrong = check_logs(storage.export(), script, 0, len(script.batches))
        if not wrong and lines is not None and mains != lines:
            wrong = f"{lines} lines are whole, {mains} batches are there"
        if not wrong and storage.last_seq:
            # What is appended must not follow half a line.
            storage.commit(MainBatch((ValueSet(SessionAddress("later"), True),)))
            shown = digest(storage.export())
            storage.close()
            if digest(store.open(SESSION).export()) != shown:
                wrong = "what was committed afterwards is not there"
        return wrong
    finally:
        store.close()


# --- SQLite and LMDB: pages ---


def _tear_pages(
    backend: str,
    where: str,
    script: Script,
    files: dict[str, bytes],
    random: Random,
    done: Attempt,
) -> None:
    if backend == "sqlite" and random.random() < 0.5:
        _tear_log(where, script, files, random, done)
        return
    if backend == "sqlite":
        files = commit_all(backend, where, script)
    (name,) = [name for name in files if name in ("store", "store/data.mdb")]
    page = 2048 if backend == "sqlite" else 4096
    damages = list(_page_damages(name, files[name], page, random))
    for wrong in judge_all(backend, where, script, files, damages):
        done.tries += 1
        if wrong:
            done.failures.append(wrong)


def _page_damages(name: str, content: bytes, page: int, random: Random) -> Iterator[Damage]:
    """Yield a file with each page zeroed, cut off at each, and cut off anywhere."""
    for start in range(0, len(content), page):
        zeroed = content[:start] + bytes(page) + content[start + page :]
        yield Damage(name, f"page at {start} zeroed", zeroed)
        yield Damage(name, f"cut off at {start}", content[:start])
    for _ in range(10):
        end = random.randrange(len(content))
        yield Damage(name, f"cut off at {end}", content[:end])


def _tear_log(
    where: str, script: Script, files: dict[str, bytes], random: Random, done: Attempt
) -> None:
    """Damage SQLite's log, behind which nothing counts: what is left are the batches before."""
    name = "store-wal"
    content = files[name]
    size = _FRAME_HEADER_BYTES + 2048
    starts = range(_WAL_HEADER_BYTES, len(content), size)
    chosen = random.sample(starts, min(TRIES // 2, len(starts)))
    damages = [content[:start] + bytes(size) + content[start + size :] for start in chosen]
    damages += [content[: random.randrange(len(content))] for _ in range(TRIES // 2)]
    for damaged in damages:
        done.tries += 1
        put_damaged(where, files, Damage(name, "", damaged))
        store = store_at("sqlite", os.path.join(where, "store"))
        try:
            if not store.sessions():
                continue
            wrong = check_prefix(store, script, 0, len(script.batches))[1]
        finally:
            store.close()
        if wrong:
            done.failures.append(f"a log with {len(damaged)} bytes: {wrong}")


ATTACK: Final = Attack("torn", FILE_BACKENDS, attempt)
