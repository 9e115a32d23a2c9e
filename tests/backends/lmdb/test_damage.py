"""Damage: found by verify, in a process that it may kill, and never read as data."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import lmdb
import pytest

from pico_lmdb import LmdbStore, verify
from pico_lmdb.layout import (
    ADDRESSES,
    BATCHES,
    CONVERSATIONS,
    HEADS,
    KEYS,
    LISTS,
    LIVE,
    MAIN,
    RECORDS,
    SCRATCH,
    SESSION,
    TAIL,
    TASKS,
    TRANSCRIPTS,
    TREES,
    VERSIONS,
)
from tests.backends.lmdb.scene import fill, noting

SEALED: Final = {
    "record 10": (RECORDS, b""),
    "conversation": (CONVERSATIONS, b"r"),
    "address": (ADDRESSES, b""),
    "value of write": (VERSIONS, b""),
    "list element": (LISTS, b""),
    "batch boundaries": (BATCHES, b""),
    "batch boundaries at the end": (MAIN, TAIL),
    "task": (MAIN, LIVE),
    "scratch": (MAIN, SCRATCH),
    "session": (MAIN, SESSION),
}
INDEXES: Final = {"transcripts": TRANSCRIPTS, "tasks": TASKS, "heads": HEADS, "keys": KEYS}


@pytest.fixture
def made(path: str) -> str:
    """The path of a store that nobody has open."""
    with closing(LmdbStore(path, durability="process")) as store:
        storage = store.create("a")
        fill(storage)
        for _ in range(40):
            storage.commit(noting(storage))
    return path


def _change(path: str, tree: int, prefix: bytes, change: Callable[[bytes], bytes | None]) -> None:
    """Change the last row of a prefix, or delete it."""
    with lmdb.open(path, max_dbs=16) as engine:
        db = engine.open_db(TREES[tree - 1]) if tree else None
        with engine.begin(write=True) as transaction:
            rows = [
                (bytes(key), bytes(row))
                for key, row in transaction.cursor(db)
                if bytes(key).startswith(prefix) and row
            ] or [(bytes(key), bytes(row)) for key, row in transaction.cursor(db)]
            key, row = rows[-1]
            changed = change(row)
            if changed is None:
                transaction.delete(key, b"", db)
            else:
                transaction.put(key, changed, db=db)


def _flipped(row: bytes) -> bytes:
    return row[:-5] + bytes([row[-5] ^ 1]) + row[-4:]


@pytest.mark.parametrize("what", SEALED)
def test_verify_names_a_damaged_row(made: str, what: str) -> None:
    tree, prefix = SEALED[what]
    _change(made, tree, prefix, _flipped)

    with closing(LmdbStore(made)) as store:
        report = store.verify()

    assert len(report.problems) == 1
    assert what.split(" at ")[0].split(" 10")[0] in report.problems[0].where
    assert "checksum" in report.problems[0].what


@pytest.mark.parametrize("name", INDEXES)
def test_verify_misses_a_row_of_an_index(made: str, name: str) -> None:
    _change(made, INDEXES[name], b"", lambda row: None)

    with closing(LmdbStore(made)) as store:
        problems = store.verify().problems

    assert any(f"missing in {name}" in problem.what for problem in problems)


@pytest.mark.parametrize("key", [b"Y\0\0\0\1", b"\xf0newer", b"!later"])
def test_verify_names_a_row_of_an_unknown_kind(made: str, key: bytes) -> None:
    """A flipped bit in a tag hides a row, and not everything would miss it."""
    with lmdb.open(made, max_dbs=16) as engine, engine.begin(write=True) as transaction:
        transaction.put(key, b"row")

    with closing(LmdbStore(made)) as store:
        (problem,) = store.verify().problems

    assert repr(key) in problem.what


def test_verify_names_a_tree_that_this_version_has_not(made: str) -> None:
    with lmdb.open(made, max_dbs=16) as engine:
        engine.open_db(b"later")

    with closing(LmdbStore(made)) as store:
        (problem,) = store.verify().problems

    assert "'later'" in problem.what


def test_verify_says_nothing_of_a_whole_store_and_changes_nothing(made: str) -> None:
    before = Path(made, "data.mdb").read_bytes()
    with closing(LmdbStore(made)) as store:
        report = store.verify()

    assert report.problems == ()
    assert report.records > 60
    assert Path(made, "data.mdb").read_bytes() == before


def test_a_check_imports_nothing_from_the_folder_it_is_run_in(
    made: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pico_lmdb", "pico_store", "msgspec"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(7)")
    monkeypatch.chdir(tmp_path)
    with closing(LmdbStore(made)) as store:
        assert store.verify().problems == ()


def test_a_check_that_is_killed_is_a_problem(made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    command = f"import os; os.kill(os.getpid(), {int(signal.SIGSEGV)})"
    monkeypatch.setattr(verify, "_ARGUMENTS", ("-c", command))
    with closing(LmdbStore(made)) as store:
        (problem,) = store.verify().problems

    assert problem.where == "file"
    assert f"signal {int(signal.SIGSEGV)}" in problem.what


def test_pages_of_rubbish_are_a_problem_and_kill_nobody(made: str) -> None:
    size = os.stat(f"{made}/data.mdb").st_size
    chance = random.Random(1)
    with open(f"{made}/data.mdb", "r+b") as file:
        for page in range(2, size // 4_096):
            file.seek(page * 4_096 + 16)
            file.write(chance.randbytes(4_080))

    report = verify.verify_folder(made)

    assert report.problems
