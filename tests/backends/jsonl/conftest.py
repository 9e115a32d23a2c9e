"""What every test of the JSONL backend needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pico_jsonl import JsonlStore
from pico_jsonl.storage import JsonlStorage
from tests.backends.jsonl.scene import ROOT_BATCH


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store is, or will be."""
    return tmp_path / "store"


@pytest.fixture
def store(path: Path) -> Iterator[JsonlStore]:
    store = JsonlStore(str(path))
    yield store
    store.close()


@pytest.fixture
def storage(store: JsonlStore) -> JsonlStorage:
    """A session that has its root and nothing else."""
    storage = store.create("a")
    storage.commit(ROOT_BATCH)
    return storage
