"""What every test of importing needs."""

from collections.abc import Iterator

import pytest

from pico_store.backends import open_store
from pico_store.storage import Store


@pytest.fixture
def store() -> Iterator[Store]:
    store = open_store("memory:")
    yield store
    store.close()
