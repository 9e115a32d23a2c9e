"""Faults that simulations found in the harness and that few seeds show."""

import pytest

from pico_harness import EntryKind
from pico_harness.testing.loop import DelayChoices
from pico_harness.testing.planting import Edit, Planted, planted
from pico_harness.testing.run import Report, run
from pico_harness.testing.scenario import Act, Life, Plan, Scenario, Step
from pico_store.backends import open_store

CREATE_AND_DRIVE = (Act("create", 0), Act("drive_root", 0))
DRIVE = (Act("drive_root", 0),)

# Lost in flight, recovered back to its start, lost there: what counts its losses is still stored
# when a process opens and closes that never met it in flight.
BACK_TO_START = Scenario(
    plans={1: Plan(1, (Step("sleep", 5), Step("requeue"), Step("sleep", 500)))},
    groups=((1,),),
    children=(),
    lives=(
        Life(CREATE_AND_DRIVE, {2: "crash_after"}),
        Life(DRIVE, {1: "crash_after"}),
        Life((), end_ms=1),
    ),
)


def simulated(scenario: Scenario) -> Report:
    in_order = DelayChoices(frozenset())
    return run(1, open_store("memory:"), scenario=scenario, choices=in_order, traced=True)


def test_a_clean_close_forgets_the_losses_of_a_task_that_went_back_to_its_start() -> None:
    report = simulated(BACK_TO_START)

    assert report.problems == ()
    assert "scratch of task 2" in "\n".join(report.trace)


def test_that_scenario_shows_the_fault_that_it_is_for() -> None:
    before = Edit(
        "lifecycle:Lifecycle._end_storage",
        "if holds_losses(driver.storage, live[id]):",
        "if live[id].counted:",
    )
    with planted(Planted("as it was", (before,))):
        report = simulated(BACK_TO_START)

    assert report.problems == ("task 2 keeps 1 losses after a clean close",)


@pytest.mark.parametrize("seed", [119_359, 120_857, 127_752, 1_036_005, 1_301_798])
def test_a_seed_that_failed_once_passes(seed: int) -> None:
    assert run(seed, open_store("memory:")).problems == ()


def test_an_entry_kind_can_be_made_with_its_type_named() -> None:
    assert EntryKind[int]("number", int).name == "number"
