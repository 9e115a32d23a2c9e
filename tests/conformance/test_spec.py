"""SPEC.md, the rule tests and the errors speak of the same clauses."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pico_conformance.rule import Rule, load_rules
from pico_store.codec import decode_batch, decode_item
from tests.packaging.repository import ROOT, packages

SPEC = ROOT / "pico_store" / "SPEC.md"
HEADING = re.compile(r"^### ([A-Z]+-\d+) (.+)$", re.MULTILINE)
CLAUSE = re.compile(r"\b(?:SEQ|OWN|PAGE|ENT|FORK|VAL|TASK|DEL|JSON|DUR|SQL|LMDB|JSONL|URL)-\d+\b")
# A clause of one engine is proven beside it, in a test that names the clause.
ENGINE_TESTS = {
    "SQL": ROOT / "tests" / "backends" / "sqlite",
    "LMDB": ROOT / "tests" / "backends" / "lmdb",
    "JSONL": ROOT / "tests" / "backends" / "jsonl",
}


def spec_clauses(text: str) -> list[str]:
    """Return the clauses that a specification has headings for."""
    return [clause for clause, _ in HEADING.findall(text)]


def unproven(clauses: list[str], rules: list[Rule]) -> list[str]:
    """Return the clauses that no rule names, and no test of the engine that they are about."""
    proven = {clause for rule in rules for clause in rule.clauses}
    for folder in ENGINE_TESTS.values():
        for path in folder.rglob("test_*.py"):
            proven |= set(CLAUSE.findall(path.read_text()))
    return [clause for clause in clauses if clause not in proven]


def groundless(clauses: list[str], rules: list[Rule]) -> list[str]:
    """Return the clauses that rules name and the specification lacks."""
    return [
        f"{rule.test.__module__}.{rule.name}: {clause}"
        for rule in rules
        for clause in rule.clauses
        if clause not in clauses
    ]


def cited(source: str) -> Iterator[str]:
    """Yield the clauses among a module's string constants, such as an error's first argument."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Constant(value=str() as text) if CLAUSE.fullmatch(text):
                yield text


def mentioned(source: str) -> set[str]:
    """Return the clauses that a module mentions anywhere, comments and docstrings included."""
    return set(CLAUSE.findall(source))


def modules() -> list[Path]:
    return [path for package in packages() for path in sorted((ROOT / package).rglob("*.py"))]


@pytest.fixture(scope="module")
def clauses() -> list[str]:
    return spec_clauses(SPEC.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def rules() -> list[Rule]:
    return load_rules()


def test_every_clause_has_a_rule(clauses: list[str], rules: list[Rule]) -> None:
    assert len(clauses) > 80, "the clauses are not found in SPEC.md"
    assert unproven(clauses, rules) == [], "clauses without a test"


def test_every_rule_names_a_clause(clauses: list[str], rules: list[Rule]) -> None:
    assert len(rules) > 100, "the rules are not found"
    assert groundless(clauses, rules) == [], "rules of no clause"


def test_every_error_cites_a_clause(clauses: list[str]) -> None:
    citations = {
        f"{path.relative_to(ROOT)}: {clause}"
        for path in modules()
        for clause in cited(path.read_text(encoding="utf-8"))
        if clause not in clauses
    }

    assert not citations, "errors that cite what SPEC.md lacks"


def test_every_clause_that_code_or_spec_mentions_is_there(clauses: list[str]) -> None:
    loose = {
        f"{path.relative_to(ROOT)}: {clause}"
        for path in [*modules(), SPEC]
        for clause in mentioned(path.read_text(encoding="utf-8"))
        if clause not in clauses
    }

    assert not loose, "mentions of clauses that SPEC.md lacks"


def test_clauses_are_numbered_without_gap_or_repeat(clauses: list[str]) -> None:
    numbers: dict[str, list[int]] = {}
    for clause in clauses:
        group, _, number = clause.partition("-")
        numbers.setdefault(group, []).append(int(number))

    for group, found in numbers.items():
        assert found == list(range(1, len(found) + 1)), f"{group}: {found}"


def test_no_two_rules_have_one_name(rules: list[Rule]) -> None:
    repeated = [name for name, count in Counter(rule.name for rule in rules).items() if count > 1]

    assert not repeated, "a report could not tell them apart"


def test_the_json_examples_are_what_the_codec_reads() -> None:
    blocks = re.findall(r"```json\n(.*?)```", SPEC.read_text(encoding="utf-8"), re.DOTALL)
    batches, items = (block.splitlines() for block in blocks)

    for line in batches:
        decode_batch(line.encode())
    for line in items:
        decode_item(line.encode())
    writes = set(re.findall(r'{"type":"([a-zA-Z.]+)"', "\n".join(batches)))
    assert len(writes) == 11, f"examples of the writes: {sorted(writes)}"


# --- Each of these was seen to find what it looks for ---


def test_a_clause_without_a_rule_is_found(clauses: list[str], rules: list[Rule]) -> None:
    added = spec_clauses("### SEQ-99 Something new\n\nIt is refused.\n")

    without_one = [rule for rule in rules if "FORK-6" not in rule.clauses]

    assert "SEQ-99" in unproven([*clauses, *added], rules)
    assert "FORK-6" in unproven(clauses, without_one)


def test_a_rule_of_no_clause_is_found(clauses: list[str], rules: list[Rule]) -> None:
    def test_nothing(lab: object) -> None: ...

    stray = Rule("test_nothing", ("SEQ-99",), test_nothing)

    (found,) = groundless(clauses, [*rules, stray])
    assert found.endswith("test_nothing: SEQ-99")


def test_an_error_of_no_clause_is_found() -> None:
    source = (
        'def f():\n    raise InvalidBatchError("SEQ-99", "writes", "SEQ-1 is not cited here")\n'
    )

    assert list(cited(source)) == ["SEQ-99"]
