"""JSONL-1: the page about the format holds, for the backend and for who knows only the page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from pico_jsonl import JsonlStore
from pico_jsonl.names import folder_name
from pico_store.digest import digest
from pico_store.errors import StoreUnusableError
from tests.backends.jsonl.make_vectors import make
from tests.backends.jsonl.plain_reader import DamagedError, PlainReader
from tests.backends.jsonl.scene import copied
from tests.packaging.repository import ROOT as REPOSITORY

VECTORS = Path(__file__).parent / "vectors"
EXPECTED: dict[str, dict[str, Any]] = json.loads((VECTORS / "expected.json").read_text())
WHOLE = [name for name, found in EXPECTED.items() if "damaged" not in found]
PAGE = REPOSITORY / "docs" / "reference" / "format-jsonl.md"


@pytest.mark.parametrize("name", WHOLE)
def test_the_backend_reads_the_vectors(tmp_path: Path, name: str) -> None:
    expected = EXPECTED[name]
    store = JsonlStore(str(copied(VECTORS / name, tmp_path / "copy")))

    reader = store.open(expected["session"], read_only=True)
    assert digest(reader.export()) == expected["digest"]
    storage = store.open(expected["session"])
    assert storage.last_seq == expected["lastSeq"]
    assert digest(storage.export()) == expected["digest"]
    assert store.verify().problems == ()
    store.vacuum()
    assert digest(storage.export()) == expected["digest"]
    store.close()


@pytest.mark.parametrize("name", WHOLE)
def test_a_reader_that_knows_only_the_page_reads_the_vectors(name: str) -> None:
    expected = EXPECTED[name]

    reader = PlainReader(VECTORS / name, expected["session"])

    assert reader.last_seq == expected["lastSeq"]
    assert reader.digest() == expected["digest"]


@pytest.mark.parametrize("name", sorted(set(EXPECTED) - set(WHOLE)))
def test_both_refuse_the_damaged_vectors(tmp_path: Path, name: str) -> None:
    expected = EXPECTED[name]
    store = JsonlStore(str(copied(VECTORS / name, tmp_path / "copy")), durability="process")

    with pytest.raises(StoreUnusableError):
        store.open(expected["session"])
    with pytest.raises(DamagedError):
        PlainReader(VECTORS / name, expected["session"]).digest()

    store.close()


def test_what_is_written_today_reads_like_the_vectors(tmp_path: Path) -> None:
    (tmp_path / "today").mkdir()

    make(tmp_path / "today")

    assert json.loads((tmp_path / "today" / "expected.json").read_text()) == EXPECTED
    for name in WHOLE:
        session = EXPECTED[name]["session"]
        assert PlainReader(tmp_path / "today" / name, session).digest() == EXPECTED[name]["digest"]


def test_every_vector_has_its_expectation() -> None:
    folders = {path.name for path in VECTORS.iterdir() if path.is_dir()}

    assert folders == set(EXPECTED)
    assert len(WHOLE) >= 7


def test_the_examples_of_the_page_are_true() -> None:
    page = PAGE.read_text(encoding="utf-8")
    (block,) = re.findall(r"```json\n(\{\"format.*?)```", page, re.DOTALL)
    crc = 0
    for line in block.encode().splitlines():
        body, seal = line[:-20], line[-20:]
        crc = crc32(body, crc)
        assert seal == b',"crc32":"%08x"}' % crc
    id, name = re.findall(r"^(\S.*?)\s+→\s+(\S+)$", page, re.MULTILINE)[0]
    assert folder_name(id) == name
