"""A session in every engine that is installed with pico."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pico_store.backends import open_store
from pico_store.storage import Storage


@pytest.fixture(params=["memory:", "sqlite:{folder}/context.db"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    store = open_store(str(request.param).format(folder=tmp_path))
    yield store.create("s")
    store.close()
