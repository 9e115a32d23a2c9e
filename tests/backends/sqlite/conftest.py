"""What every test of the SQLite backend needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pico_sqlite import SqliteStore
from pico_sqlite.storage import SqliteStorage
from tests.backends.sqlite.scene import ROOT_BATCH


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Where the store's file is, or will be."""
    return str(tmp_path / "a.db")


@pytest.fixture
def store(path: str) -> Iterator[SqliteStore]:
    store = SqliteStore(path)
    yield store
    store.close()


@pytest.fixture
def storage(store: SqliteStore) -> SqliteStorage:
    """A session that has its root and nothing else."""
    storage = store.create("a")
    storage.commit(ROOT_BATCH)
    return storage
