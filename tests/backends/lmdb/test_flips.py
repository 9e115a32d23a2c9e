"""Damaged files: a flipped bit or an early end is found or does no harm, and is never read as data.

Reading happens in processes of its own, since a damaged map can end the one that reads it.
`python -m tests.backends.lmdb.test_flips COUNT SEED` flips so many, and cuts a quarter of that.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from pico_lmdb import LmdbStore
from pico_lmdb.audit import audit_folder
from pico_lmdb.storage import LmdbStorage
from pico_store.address import Seq
from pico_store.batch import ListAppend, MainBatch, ValueSet
from pico_store.errors import PicoError, UnknownConversationError
from pico_store.query import (
    BatchQuery,
    ConversationQuery,
    EntryQuery,
    ListQuery,
    TaskQuery,
    ValueQuery,
)
from tests.backends.lmdb.scene import ROOT, ROOT_BATCH, fill, noting, rewindable, scratch, sticky

_ROWS: Final = 100
_KEY: Final = b"\0\0\0\1\0\0\0\0\0"
"""What most keys begin with, of leaves and of the pages above them."""
_SECONDS_MAX: Final = 60
"""Of one reading, after which it hangs."""


def _make(path: str, *, compress: bool) -> None:
    """Make a store whose trees have several pages."""
    with closing(LmdbStore(path, durability="process", compress=compress)) as store:
        storage = store.create("a")
        fill(storage)
        for number in range(_ROWS):
            storage.commit(noting(storage, data={"n": number, "text": "lorem ipsum " * 9}))
            value = ValueSet(sticky(f"key {number}"), number)
            storage.commit(MainBatch((value, ListAppend(sticky("list"), number))))
        store.create("b").commit(ROOT_BATCH)
        if compress:
            store.vacuum()


def _questions(storage: LmdbStorage) -> Iterator[object]:
    """Ask everything that there is to ask, by every way that there is."""
    yield list(storage.export())
    last = storage.last_seq
    ids = [Seq(number) for number in range(1, last + 2)]
    yield storage.get_entries(ids)
    yield storage.get_tasks(ids)
    yield storage.get_conversations(ids)
    yield storage.entry_kinds()
    for conversation in (ROOT, Seq(8), Seq(9), Seq(21)):
        try:
            yield storage.scan_entries(EntryQuery(conversation_id=conversation, limit=1_000))
        except UnknownConversationError:
            yield "unknown"
    for kind in ("note", "user"):
        yield storage.scan_entries(EntryQuery(conversation_id=ROOT, kind=kind, limit=1_000))
    yield storage.scan_entries(EntryQuery(conversation_id=ROOT, kind="user", key="k"))
    yield storage.scan_entries(EntryQuery(conversation_id=ROOT, before=last, limit=9))
    yield [storage.newest_head(ROOT, at) for at in ids[::9]]
    yield storage.scan_tasks(TaskQuery(limit=1_000))
    yield storage.scan_tasks(TaskQuery(conversation_ids=(ROOT,), limit=1_000))
    yield storage.scan_conversations(ConversationQuery(limit=1_000))
    yield storage.scan_conversations(ConversationQuery(parent=ROOT))
    yield storage.scan_batches(BatchQuery(limit=1_000))
    for address in (sticky(), rewindable(), scratch()):
        yield storage.scan_values(ValueQuery(scope=address, limit=1_000))
        yield storage.read_list(address, ListQuery(limit=1_000))
    yield storage.read_list(sticky("list"), ListQuery(limit=1_000))
    yield [storage.get_value(sticky(f"key {number}")) for number in range(_ROWS + 1)]


def _answers(path: str) -> list[str]:
    found = []
    with closing(LmdbStore(path)) as store:
        found.append(repr(store.sessions()))
        storage = store.open("a", read_only=True)
        found += [repr(answer) for answer in _questions(storage)]
        found.append(repr(list(store.open("b", read_only=True).export())))
    return found


def _apart(act: Callable[[], str]) -> str:
    """Let another process act; return what it says, or how it ended."""
    hear, tell = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(_SECONDS_MAX)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            said = act()
        except PicoError as error:
            said = f"refused: {error!r}"
        except BaseException as error:  # noqa: BLE001 - it is what is looked for
            said = f"raised {error!r}"
        os.write(tell, said.encode()[:4_000])
        os._exit(0)
    os.close(tell)
    with os.fdopen(hear, "rb") as stream:
        words = stream.read().decode()
    status = os.waitpid(child, 0)[1]
    number = os.WTERMSIG(status)
    # The map's pages cannot be read: nothing that a process could catch.
    return f"ended by signal {number}" if number in (signal.SIGSEGV, signal.SIGBUS) else words


class Target:
    """A whole store, and what it answers."""

    def __init__(self, folder: str, *, compress: bool) -> None:
        self._folder = folder
        self._whole = f"{folder}/whole"
        _make(self._whole, compress=compress)
        self.data = Path(self._whole, "data.mdb").read_bytes()
        self.keys = [found.start() for found in re.finditer(re.escape(_KEY), self.data)]
        self._expected = _answers(self._whole)

    def outcome(self, data: bytes) -> str:
        """Return what comes of reading another data file: same, found, ended, or a fault."""
        path = f"{self._folder}/damaged"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(self._whole, path)
        Path(path, "data.mdb").write_bytes(data)
        read = _apart(lambda: "same" if _answers(path) == self._expected else "WRONG")
        if read == "same":
            return "same"
        checked = _apart(lambda: f"{len(audit_folder(path).problems)} problems")
        if checked == "0 problems":
            return f"fault: verify finds nothing; reading: {read}"
        if read.startswith("refused"):
            return "found"
        return "ended" if read.startswith("ended") else f"fault: {read}"

    def flipped(self, chance: random.Random) -> tuple[tuple[int, int], bytes]:
        """Return the file with another bit somewhere, and where that is."""
        at, bit = chance.randrange(len(self.data)), chance.randrange(8)
        if chance.random() < 0.5:
            at = chance.choice(self.keys) + chance.randrange(12)
        data = bytearray(self.data)
        data[at] ^= 1 << bit
        return (at, bit), bytes(data)


@pytest.fixture(scope="module", params=["plain", "compressed"])
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Target:
    folder = str(tmp_path_factory.mktemp("whole"))
    return Target(folder, compress=request.param == "compressed")


def test_a_flipped_bit_is_found_or_harmless(target: Target) -> None:
    chance = random.Random(1)
    counts: Counter[str] = Counter()
    for _ in range(40):
        where, data = target.flipped(chance)
        counts[outcome := target.outcome(data)] += 1
        assert not outcome.startswith("fault"), where
    assert counts["found"] > 3
    assert counts["same"] > 3


@pytest.mark.parametrize("byte", [0, 3])
def test_a_key_that_leads_searches_astray_is_found(target: Target, byte: int) -> None:
    for at in target.keys[:: len(target.keys) // 20]:
        for bit in (0, 7):
            data = bytearray(target.data)
            data[at + byte] ^= 1 << bit
            assert not target.outcome(bytes(data)).startswith("fault"), (at, bit)


@pytest.mark.parametrize("header", [0, 1])
def test_no_old_state_comes_back(target: Target, header: int) -> None:
    # Of the header's transaction number, by which LMDB takes one of the two.
    at = header * 4_096 + 144
    # With the second bit they may still be of two transactions in a row: the one flip that brings
    # the state before the last commit back, and that nothing in the file contradicts.
    for bit in (0, 2, 3, 7, 8, 31, 63):
        data = bytearray(target.data)
        data[at + bit // 8] ^= 1 << bit % 8
        assert target.outcome(bytes(data)) == "found", bit


def test_an_early_end_is_found(target: Target) -> None:
    chance = random.Random(1)
    for _ in range(10):
        end = chance.randrange(len(target.data))
        assert target.outcome(target.data[:end]) == "found", end


def main(count: int, seed: int) -> None:
    """Flip many bits, and cut many files."""
    for compress in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            chance, target = random.Random(seed), Target(folder, compress=compress)
            counts: Counter[str] = Counter()
            for _ in range(count):
                where, data = target.flipped(chance)
                counts[outcome := target.outcome(data)] += 1
                if outcome.startswith("fault"):
                    print(compress, where, outcome)
            print(f"compressed={compress}: bits {dict(counts)}")
            counts.clear()
            for _ in range(count // 4):
                end = chance.randrange(len(target.data))
                counts[outcome := target.outcome(target.data[:end])] += 1
                if outcome != "found":
                    print(compress, end, outcome)
            print(f"compressed={compress}: ends {dict(counts)}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
