"""What every test of the LMDB backend needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pico_lmdb import LmdbStore
from pico_lmdb.storage import LmdbStorage
from tests.backends.lmdb.scene import ROOT_BATCH


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Where the store's folder is, or will be."""
    return str(tmp_path / "a")


@pytest.fixture
def store(path: str) -> Iterator[LmdbStore]:
    store = LmdbStore(path, durability="process")
    yield store
    store.close()


@pytest.fixture
def storage(store: LmdbStore) -> LmdbStorage:
    """A session that has its root and nothing else."""
    storage = store.create("a")
    storage.commit(ROOT_BATCH)
    return storage
