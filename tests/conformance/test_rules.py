"""Every rule of the published suite, on every backend that is tested here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pico_conformance.rule import Lab, Rule, load_rules, open_lab
from pico_conformance.target import resolve_target

TARGETS = ("memory", "sqlite", "lmdb", "jsonl")
RULES = load_rules()


def _name(rule: Rule) -> str:
    return f"{'+'.join(rule.clauses)}-{rule.name.removeprefix('test_')}"


@pytest.fixture
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    rule, name = request.param
    target = resolve_target(name)
    if missing := rule.missing(target):
        pytest.skip(f"{name} does not promise: {', '.join(missing)}")
    with open_lab(target) as lab:
        yield lab


@pytest.mark.parametrize(
    ("rule", "lab"),
    [
        pytest.param(rule, (rule, target), id=f"{target}-{_name(rule)}")
        for target in TARGETS
        for rule in RULES
    ],
    indirect=["lab"],
)
def test_rule(rule: Rule, lab: Lab) -> None:
    rule.test(lab)
