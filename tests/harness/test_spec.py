"""The harness's SPEC.md, its tests and its errors speak of the same clauses."""

from __future__ import annotations

import re
from pathlib import Path

from tests.packaging.repository import ROOT

SPEC = ROOT / "pico_harness" / "SPEC.md"
HEADING = re.compile(r"^### ([A-Z]+)-(\d+)(?: to \1-(\d+))? ", re.MULTILINE)
CLAUSE = re.compile(r"\b[A-Z]{2,}-\d+\b")
TEST_FILE = re.compile(r"`(tests/[\w/]+\.py|test_\w+\.py)`")
FOLDERS = ("tests/harness", "tests/context", "tests/cli", "tests/simulation")
# Written like clauses, and none.
NAMES = {"UTF-8"}


def clauses(text: str) -> tuple[list[str], list[str]]:
    """Return the clauses that a specification has headings for, and those that it leaves for later.

    A heading of several says what is not built yet.
    """
    now: list[str] = []
    later: list[str] = []
    for group, first, last in HEADING.findall(text):
        if last:
            later += [f"{group}-{number}" for number in range(int(first), int(last) + 1)]
        else:
            now.append(f"{group}-{first}")
    return now, later


def unproven(wanted: list[str], sources: list[str]) -> list[str]:
    """Return the clauses that no test names."""
    named = {clause for source in sources for clause in CLAUSE.findall(source)}
    return [clause for clause in wanted if clause not in named]


def groundless(source: str, known: set[str]) -> list[str]:
    """Return what a text cites and no specification has."""
    return sorted(set(CLAUSE.findall(source)) - known - NAMES)


def known_clauses() -> set[str]:
    """Return the clauses of both contracts."""
    now, later = clauses(SPEC.read_text())
    below, _ = clauses((ROOT / "pico_store" / "SPEC.md").read_text())
    return {*now, *later, *below}


def files_of_tests() -> list[Path]:
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("test_*.py")]
    return [path for path in found if path.name != Path(__file__).name]


def test_every_clause_is_named_by_a_test() -> None:
    now, later = clauses(SPEC.read_text())

    assert len(now) > 20, "the clauses are not found in SPEC.md"
    assert later == ["IN-3", "IN-4", "IN-5"]
    assert unproven(now, [path.read_text() for path in files_of_tests()]) == []


def test_every_clause_that_the_code_cites_is_there() -> None:
    known = known_clauses()
    paths = [*(ROOT / "pico_harness").rglob("*.py"), SPEC]

    cited = {path.name: groundless(path.read_text(), known) for path in paths}

    assert {name: loose for name, loose in cited.items() if loose} == {}


def test_the_tests_that_the_specification_names_are_there() -> None:
    named = TEST_FILE.findall(SPEC.read_text())

    assert len(named) > 2
    there = [path.as_posix() for path in files_of_tests()]
    assert [name for name in named if not any(path.endswith(name) for path in there)] == []


# --- Each of these was seen to find what it looks for ---


def test_a_clause_without_a_test_is_found() -> None:
    now, later = clauses("### LINE-8 to be or not\n\n### IN-3 to IN-5 Later\n\n### LINE-9 Now\n")

    assert now == ["LINE-8", "LINE-9"]
    assert later == ["IN-3", "IN-4", "IN-5"]
    assert unproven(now, ['"""LINE-8, IN-3."""']) == ["LINE-9"]


def test_a_citation_of_no_clause_is_found() -> None:
    source = 'raise BuilderError("DEL-99", "in UTF-8")  # LIEN-1, not LINE-1'

    assert groundless(source, known_clauses()) == ["DEL-99", "LIEN-1"]
