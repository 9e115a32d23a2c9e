"""The workload is what the figures say it is, and every store takes it."""

from pathlib import Path

import pytest

from pico_bench.raw import dictionary_loop, raw_commits, sqlite_loop
from pico_bench.turns import (
    COMMITS_A_TURN,
    INBOX,
    ROOT,
    TOTALS,
    USAGE,
    WRITES_A_TURN,
    Turns,
    Weight,
    opening,
)
from pico_store.backends import open_store
from pico_store.batch import Batch, ScratchBatch
from pico_store.digest import digest
from pico_store.query import EntryQuery, ListQuery, TaskQuery
from pico_store.storage import Storage

TURNS = 3


def replay(storage: Storage) -> None:
    """Commit the opening and some turns."""
    storage.commit(opening())
    load = Turns()
    for _ in range(TURNS):
        for batch in load.turn():
            storage.commit(batch)
        assert storage.last_seq == load.last


def test_a_turn_has_the_promised_number_of_commits_and_writes() -> None:
    load = Turns()

    for _ in range(TURNS):
        batches = load.turn()
        assert len(batches) == COMMITS_A_TURN
        assert sum(len(batch.writes) for batch in batches) == WRITES_A_TURN
        assert sum(isinstance(batch, ScratchBatch) for batch in batches) == 40


def test_half_of_about_8_kb_a_turn_must_survive() -> None:
    load, weight = Turns(), Weight()
    for _ in range(50):
        first = load.last + 1
        weight.add(first, load.turn())

    assert 7_500 < weight.written / 50 < 8_500
    assert 3_900 < weight.surviving / 50 < 4_300


def test_the_same_seed_makes_the_same_turns() -> None:
    assert Turns(7).turn() == Turns(7).turn()
    assert Turns(7).turn() != Turns(8).turn()


def test_the_surviving_bytes_are_those_that_a_store_holds_in_the_end() -> None:
    store = open_store("memory:")
    storage = store.create("turns")
    replay(storage)
    load, weight = Turns(), Weight()
    for _ in range(TURNS):
        first = load.last + 1
        weight.add(first, load.turn())
    held = Weight()
    entries = storage.scan_entries(EntryQuery(conversation_id=ROOT)).items
    tasks = storage.scan_tasks(TaskQuery()).items

    for entry in entries:
        held._add(entry.id, entry)
    surviving = held.surviving + sum(held._size(task.state) for task in tasks)
    usage = storage.read_list(USAGE, ListQuery()).items
    surviving += sum(held._size(element.value) for element in usage)
    totals = storage.get_value(TOTALS)
    assert totals is not None
    surviving += held._size(totals.value)
    surviving += sum(
        held._size(write.value)
        for batch in _last_commits(Turns())
        for write in batch.writes[-1:]
        if hasattr(write, "value")
    )
    store.close()

    assert surviving == weight.surviving
    assert len(tasks) == 4 * TURNS
    assert len(entries) == 4 * TURNS


def _last_commits(load: Turns) -> list[Batch]:
    """Return the last commit of each turn, which sets what the input came to."""
    return [load.turn()[-1] for _ in range(TURNS)]


def test_after_a_turn_nothing_is_live_and_the_inbox_is_empty(tmp_path: Path) -> None:
    store = open_store(f"sqlite:{tmp_path}/turns.db")
    storage = store.create("turns")
    replay(storage)

    assert not storage.scan_tasks(TaskQuery(live=True)).items
    assert not storage.read_list(INBOX, ListQuery()).items
    store.close()


def test_every_backend_ends_with_the_same_digest(tmp_path: Path) -> None:
    digests = set()
    for url in ("memory:", f"sqlite:{tmp_path}/turns.db"):
        store = open_store(url)
        storage = store.create("turns")
        replay(storage)
        digests.add(digest(storage.export()))
        store.close()

    assert len(digests) == 1


def test_the_raw_loop_keeps_a_row_a_record(tmp_path: Path) -> None:
    commit, close = sqlite_loop(tmp_path)
    load = Turns()
    for _ in range(TURNS):
        first = load.last + 1
        for one in raw_commits(first, load.turn()):
            commit(one)
    close()

    apsw = pytest.importorskip("apsw", reason="the extra 'sqlite' is not installed")
    db = apsw.Connection(str(tmp_path / "raw.db"))
    counts = {
        table: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        for table in ("entries", "tasks", "elements", "frames", "current")
    }
    assert counts == {
        "entries": 4 * TURNS,
        "tasks": 4 * TURNS,
        "elements": 2 * TURNS,
        "frames": 0,
        "current": TURNS + 1,
    }
    assert db.execute("SELECT last FROM position").fetchone()[0] == load.last
    assert db.pragma("journal_mode") == "wal"
    db.close()


def test_bare_dictionaries_take_the_workload() -> None:
    commit = dictionary_loop()
    load = Turns()

    for _ in range(TURNS):
        first = load.last + 1
        commits = raw_commits(first, load.turn())
        assert [commit(one) for one in commits] == [None] * COMMITS_A_TURN
        assert commits[-1][0] == load.last
