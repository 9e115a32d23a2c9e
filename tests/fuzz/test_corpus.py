"""What once led to a fault does not do so again."""

from pathlib import Path

import pytest

from fuzz.attack import Fault
from fuzz.attacks import ATTACKS
from fuzz.corpus import Case, cases, keep, replay

CASES = cases()


@pytest.mark.parametrize("name", CASES)
def test_a_case_finds_nothing_wrong(name: str) -> None:
    case = CASES[name]
    for attack in ATTACKS:
        if attack.name == case.attack and attack.missing(case.backend):
            pytest.skip(attack.missing(case.backend))

    assert replay(case) == []


def test_there_are_cases() -> None:
    assert len(CASES) > 10


def test_a_fault_that_is_kept_can_be_replayed(tmp_path: Path) -> None:
    fault = Fault("bytes", "wire", 4, "a fault", b"\xff{")

    text = keep(fault, tmp_path).read_text()

    assert '"attack": "bytes"' in text
    assert replay(Case("bytes", "wire", 4, "a fault", "/3s=")) == []
    assert '"data": "/3s="' in text
