"""What every test of the memory backend needs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pico_memory import MemoryStore
from pico_memory.storage import MemoryStorage
from pico_store.address import Seq
from pico_store.batch import MainBatch
from pico_store.records import Conversation
from tests.backends.memory.scene import memory_store


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    store = memory_store()
    yield store
    store.close()


@pytest.fixture
def storage(store: MemoryStore) -> MemoryStorage:
    """A session that has its root and nothing else."""
    storage = store.create("a")
    storage.commit(MainBatch((Conversation(id=Seq(1)),)))
    return storage
