"""What every test of the command line needs."""

from pathlib import Path

import pytest

from tests.cli.running import Pico
from tests.importing.transcripts import assistant, jsonl, record, result, text, use, user

BRANCHED = [
    user("u1", None, "hello"),
    assistant("a1", "u1", "m1", text("hi"), use("c1")),
    user("r1", "a1", [result("c1", "seen")]),
    assistant("a2", "r1", "m2", text("left")),
    user("u2", "r1", "go right"),
    record("system", "y1", "u2", subtype="note"),
    assistant("a3", "y1", "m3", text("right")),
]
"""Numbers: 1 the root, 2 where it is from, entries 3 to 8, 9 a fork at 5, 10 its entry."""


@pytest.fixture
def pico(capsys: pytest.CaptureFixture[str]) -> Pico:
    return Pico(capsys)


@pytest.fixture
def transcript(tmp_path: Path) -> str:
    path = tmp_path / "branched.jsonl"
    path.write_bytes(jsonl(BRANCHED))
    return str(path)


@pytest.fixture
def url(pico: Pico, transcript: str, tmp_path: Path) -> str:
    """A SQLite store with one session, ``s``."""
    url = f"sqlite:{tmp_path / 'store.db'}"
    pico.done("import", transcript, url, "--session", "s")
    return url
