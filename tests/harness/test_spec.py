"""The harness's SPEC.md, its tests and its errors speak of the same clauses."""

from __future__ import annotations

import re

from tests.packaging.repository import ROOT

HEADING = re.compile(r"^### ([A-Z]+-\d+) [^t]", re.MULTILINE)
CLAUSE = re.compile(r"\b(?:ARG|LINE|KIND|STATE|TASKS|IN|CTX|PROC)-\d+\b")
TESTS = ("tests/harness", "tests/context", "tests/cli", "tests/simulation")
# Clauses that the flows will keep; the specification says so under one heading.
LATER = {"IN-3", "IN-4", "IN-5", "CTX-3"}


def clauses() -> set[str]:
    """Return the clauses that the specification has headings for."""
    return set(HEADING.findall((ROOT / "pico_harness" / "SPEC.md").read_text()))


def test_every_clause_is_named_by_a_test() -> None:
    named: set[str] = set()
    for folder in TESTS:
        for path in (ROOT / folder).rglob("test_*.py"):
            if path.name != "test_spec.py":
                named |= set(CLAUSE.findall(path.read_text()))

    assert len(clauses()) > 20
    assert sorted(clauses() - named - LATER) == []


def test_every_clause_that_the_code_cites_is_there() -> None:
    cited: set[str] = set()
    for path in (ROOT / "pico_harness").rglob("*.py"):
        cited |= set(CLAUSE.findall(path.read_text()))

    assert sorted(cited - clauses() - LATER) == []
