"""Compression: smaller, read back alike, and never in the way of a store that has none."""

from __future__ import annotations

import os
from contextlib import closing
from functools import partial

import lmdb
import pytest

import pico_lmdb.rebuild
import pico_store.compression
from pico_lmdb import LmdbStore
from pico_lmdb.changes import Changes
from pico_lmdb.engine import Transaction
from pico_lmdb.layout import DICTIONARY, MAIN, dictionary_key
from pico_lmdb.rows import DictionaryRow, seal
from pico_lmdb.rows import pack as pack_row
from pico_lmdb.snapshot import Snapshot
from pico_lmdb.storage import LmdbStorage
from pico_store.backends import open_store
from pico_store.compression import (
    Compression,
    dictionary_of,
    is_compressed,
    train_dictionary,
)
from pico_store.digest import digest
from pico_store.errors import MissingDriverError, StoreDamagedError, StoreUrlError
from pico_store.query import EntryQuery
from pico_store.records import JsonValue
from pico_store.storage import Counters
from pico_store.strict_json import pack
from tests.backends.lmdb.processes import worker
from tests.backends.lmdb.scene import ROOT, ROOT_BATCH, fill, noting

TEXT = "the quick brown fox jumps over the lazy dog while it rains in the harbour"


def _message(number: int) -> JsonValue:
    """Return a payload that is like the others, and has something of its own."""
    words = TEXT.split()
    text = " ".join(words[(number * step) % len(words)] for step in range(1, 30))
    return {"role": "assistant", "content": [{"type": "text", "text": f"{number}: {text}"}]}


def _write(storage: LmdbStorage, count: int) -> None:
    for number in range(count):
        storage.commit(noting(storage, data=_message(number)))


def _dictionaries(store: LmdbStore) -> list[int]:
    with Snapshot(store._environment, Counters(), "") as snapshot:
        return [int.from_bytes(key[-4:], "big") for key, _ in snapshot.under(MAIN, DICTIONARY)]


def _size(path: str) -> int:
    return os.stat(f"{path}/data.mdb").st_size


# --- Payloads ---


def test_a_payload_is_compressed_where_that_pays() -> None:
    compression = Compression(3)
    for value, pays in (
        ("x" * 1_000, True),
        (os.urandom(500).hex(), True),
        ("x", False),
        ({}, False),
    ):
        payload = pack(value, "")
        stored = compression.compressed(payload)

        assert is_compressed(stored) is pays
        if pays:
            assert len(stored) < len(payload)
            assert dictionary_of(stored) == 0
            assert compression.plain(stored, lambda number: None) == payload
        else:
            assert stored == payload
    noise = pack("".join(map(chr, range(40, 100))), "")
    assert compression.compressed(noise) == noise


def test_a_payload_names_its_dictionary() -> None:
    samples = [pack(_message(number), "") for number in range(500)]
    dictionary = train_dictionary(samples)
    assert dictionary is not None
    for number in (1, 127, 128, 70_000):
        stored = Compression(3, number, dictionary).compressed(samples[0])

        assert dictionary_of(stored) == number
        assert len(stored) < len(Compression(3).compressed(samples[0])) - 20
        asked: list[int] = []

        def find(number: int, asked: list[int] = asked) -> bytes | None:
            asked.append(number)
            return dictionary

        assert Compression(3).plain(stored, find) == samples[0]
        assert asked == [number]
        with pytest.raises(StoreDamagedError, match=f"dictionary {number} is gone"):
            Compression(3).plain(stored, lambda number: None)


def test_a_damaged_frame_is_damage() -> None:
    stored = Compression(3).compressed(pack("x" * 1_000, ""))
    with pytest.raises(StoreDamagedError, match="cannot be read"):
        Compression(3).plain(stored[:-3] + b"???", lambda number: None)


@pytest.mark.parametrize("samples", [[], [b"x" * 100] * 3, [b"x" * 50] * 40])
def test_few_samples_make_no_dictionary(samples: list[bytes]) -> None:
    assert train_dictionary(samples) is None


# --- Stores ---


def test_a_compressed_store_reads_like_any_other(path: str) -> None:
    marks = []
    for compress in (False, True):
        place = f"{path}-{compress}"
        with closing(LmdbStore(place, durability="process", compress=compress)) as store:
            storage = store.create("a")
            fill(storage)
            _write(storage, 300)
            marks.append(digest(storage.export()))
            store.vacuum()
            marks.append(digest(storage.export()))
            _write(storage, 50)
            marks.append(digest(storage.export()))
            assert store.verify().problems == ()
        # The option is about what is written; whoever opens the store reads it.
        with closing(LmdbStore(place)) as store:
            marks.append(digest(store.open("a").export()))

    assert marks[:4] == marks[4:]
    assert 4 * _size(f"{path}-True") < 3 * _size(f"{path}-False")


def test_another_dictionary_comes_when_the_store_has_grown(path: str) -> None:
    with closing(LmdbStore(path, durability="process", compress=True)) as store:
        storage = store.create("a")
        storage.commit(ROOT_BATCH)
        store.vacuum()
        assert _dictionaries(store) == [], "of so little none can be trained"
        _write(storage, 300)
        plain = _size(path)
        store.vacuum()
        assert _size(path) < plain
        store.vacuum()
        assert _dictionaries(store) == [1]
        _write(storage, 900)
        before = list(storage.export())

        store.vacuum()

        assert _dictionaries(store) == [1, 2]
        assert list(storage.export()) == before
        assert store.verify().problems == ()
        store.backup(f"{path}-copy")
    with closing(LmdbStore(f"{path}-copy")) as copy:
        assert list(copy.open("a").export()) == before


def test_a_commit_that_a_vacuum_overtakes_can_be_read(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(LmdbStore(path, durability="process", compress=True)) as store:
        storage = store.create("a")
        storage.commit(ROOT_BATCH)
        _write(storage, 300)
        store.vacuum()
        _write(storage, 900)
        write = storage._writer.write

        def late(changes: Changes) -> None:
            # As if another thread were quicker, now that the payloads are compressed.
            store.vacuum()
            write(changes)

        with monkeypatch.context() as patch:
            patch.setattr(storage._writer, "write", late)
            _write(storage, 1)

        assert _dictionaries(store) == [1, 2]
        last = storage.last_seq
        assert storage.get_entries([last])[last].data == _message(0)
        assert store.verify().problems == ()


def test_beside_another_process_the_file_stays(path: str) -> None:
    with (
        closing(LmdbStore(path, durability="process", compress=True)) as store,
        worker(path) as other,
    ):
        storage = store.create("a")
        storage.commit(ROOT_BATCH)
        _write(storage, 300)
        assert other.ask("open a") == "301"
        store.vacuum()
        store.vacuum()

        assert _dictionaries(store) == [1]
        _write(storage, 20)
        assert other.ask("count") == "320"


def test_of_two_that_train_at_once_one_dictionary_stays(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(LmdbStore(path, durability="process", compress=True)) as store:
        storage = store.create("a")
        storage.commit(ROOT_BATCH)
        _write(storage, 300)
        train = train_dictionary

        def late(samples: list[bytes]) -> bytes | None:
            # As if another process were quicker, and committed with what it had trained.
            store._writer.update("vacuum", partial(put, train(samples) or b""), sync=False)
            store._environment.forget_dictionary()
            _write(storage, 20)
            return train(samples[50:])

        def put(dictionary: bytes, transaction: Transaction) -> None:
            key = dictionary_key(1)
            row = pack_row(DictionaryRow(300, dictionary))
            transaction.put(key, seal(MAIN, key, row))

        monkeypatch.setattr(pico_lmdb.rebuild, "train_dictionary", late)
        store.vacuum()

        assert _dictionaries(store) == [1]
        assert store.verify().problems == ()
        last = storage.last_seq
        assert storage.get_entries([last])[last].data == _message(19)


def test_damage_of_a_dictionary_is_found(path: str) -> None:
    with closing(LmdbStore(path, durability="process", compress=True)) as store:
        storage = store.create("a")
        storage.commit(ROOT_BATCH)
        _write(storage, 300)
        store.vacuum()
    for change in (b"", b"?"):
        with lmdb.open(path, max_dbs=16) as engine, engine.begin(write=True) as transaction:
            key = DICTIONARY + bytes([0, 0, 0, 1])
            row = bytes(transaction.get(key) or b"")
            if change:
                transaction.put(key, row[:500] + change + row[501:])
            else:
                transaction.delete(key)
                transaction.put(DICTIONARY + bytes([0, 0, 0, 2]), row)
        with closing(LmdbStore(path)) as store:
            with pytest.raises(StoreDamagedError, match="dictionary"):
                list(store.open("a", read_only=True).export())
            assert "dictionary" in store.verify().problems[0].where
        with lmdb.open(path, max_dbs=16) as engine, engine.begin(write=True) as transaction:
            transaction.put(key, row)
            transaction.delete(DICTIONARY + bytes([0, 0, 0, 2]))


def test_a_vacuum_without_the_option_leaves_what_is_compressed(path: str) -> None:
    with closing(LmdbStore(path, durability="process", compress=True)) as store:
        storage = store.create("a")
        storage.commit(ROOT_BATCH)
        _write(storage, 300)
        store.vacuum()
    with closing(LmdbStore(path)) as store:
        before = list(store.open("a", read_only=True).export())
        size = _size(path)
        store.vacuum()

        assert _size(path) <= size
        assert _dictionaries(store) == [1]
        assert list(store.open("a").export()) == before


def test_a_page_decodes_no_more_with_compression(path: str) -> None:
    with closing(LmdbStore(path, durability="process", compress=True)) as store:
        storage = store.create("a")
        storage.commit(ROOT_BATCH)
        _write(storage, 100)
        rows = storage.counters.rows_decoded

        storage.scan_entries(EntryQuery(conversation_id=ROOT, limit=5))

        assert storage.counters.rows_decoded - rows <= 6


def test_vacuum_seals_nothing_that_is_damaged(path: str) -> None:
    with closing(LmdbStore(path, durability="process", compress=True)) as store:
        storage = store.create("a")
        storage.commit(ROOT_BATCH)
        _write(storage, 3)
        shared = store._environment
        with shared.engine.begin(write=True, db=shared.trees[1]) as transaction:
            key, row = next(iter(transaction.cursor()))
            transaction.put(key, bytes(row[:-9]) + b"?" + bytes(row[-8:]))

        with pytest.raises(StoreDamagedError, match="row"):
            store.vacuum()

        assert sorted(os.listdir(path)) == ["data.mdb", "format", "lock.mdb"]
        with pytest.raises(StoreDamagedError, match="2 is damaged"):
            list(storage.export())


def test_without_the_library_only_compressed_stores_are_refused(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(LmdbStore(path, durability="process", compress=True)) as store:
        storage = store.create("a")
        storage.commit(ROOT_BATCH)
        _write(storage, 1)
    monkeypatch.setattr(pico_store.compression, "zstandard", None)

    with pytest.raises(MissingDriverError, match=r"pico-store\[zstd\]"):
        LmdbStore(path, compress=True)
    with closing(LmdbStore(path)) as store:
        reader = store.open("a", read_only=True)
        assert len(reader.get_conversations([ROOT])) == 1
        with pytest.raises(MissingDriverError, match="zstandard"):
            reader.scan_entries(EntryQuery(conversation_id=ROOT))
    with closing(LmdbStore(f"{path}-plain")) as store:
        store.create("a").commit(ROOT_BATCH)


def test_the_url_says_what_is_compressed(path: str) -> None:
    url = f"lmdb:{path}?durability=process&compression=zstd"
    with closing(open_store(url)) as store:
        assert store.url == url
    with pytest.raises(StoreUrlError, match="allowed: none, zstd"):
        open_store(f"lmdb:{path}?compression=gzip")
    with closing(open_store(f"lmdb:{path}?compression=none")) as store:
        assert store.url == f"lmdb:{path}"
