"""The simulation finds every fault that is put into the harness, and none where there is none."""

import pytest

from pico_harness.testing.campaign import hunt
from pico_harness.testing.planted import CONTROLS, FAULTS
from pico_harness.testing.planting import Edit, MisfitError, Planted, planted

SEEDS_MAX = 2_000


@pytest.mark.parametrize("name", [fault.name for fault in FAULTS])
def test_a_planted_fault_is_found(name: str) -> None:
    (found,) = hunt(SEEDS_MAX, [name])

    assert found.seeds is not None, f"{name}: not found within {SEEDS_MAX} seeds"


@pytest.mark.parametrize("name", [control.name for control in CONTROLS])
def test_a_harmless_change_is_not_flagged(name: str) -> None:
    (found,) = hunt(250, [name])

    assert found.seeds is None, f"{name}: {found.problem}"


def test_there_are_enough_faults_and_names_are_unique() -> None:
    names = [fault.name for fault in (*FAULTS, *CONTROLS)]

    assert len(FAULTS) >= 25
    assert len(CONTROLS) >= 3
    assert not [name for name in names if sum(name in other for other in names) > 1]


def test_a_fault_that_no_longer_fits_says_so() -> None:
    fault = Planted("stale", (Edit("line:Line._advance", "what is not there", "pass"),))

    with pytest.raises(MisfitError, match="what is not there"), planted(fault):
        pass
