"""The command `pico simulate`."""

import json

import pytest

from pico_harness.testing import show
from pico_harness.testing.campaign import Tally
from pico_harness.testing.run import Report
from pico_store.cli import main


def test_runs_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--seeds", "3..6", "--json"]) == 0

    told = json.loads(capsys.readouterr().out)
    assert told["runs"] == 3
    assert told["failures"] == []
    assert told["tasks"] > 10


def test_processes_share_the_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--seeds", "0..300", "--jobs", "2", "--json"]) == 0

    assert json.loads(capsys.readouterr().out)["runs"] == 300


def test_a_failing_seed_prints_its_trace_and_how_to_see_it_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    report = Report(7, ("it went wrong",), ("step one", "step two"), 1, 1)

    def campaign(seeds: range, **_: object) -> Tally:
        return Tally(len(seeds), 1, 1, (report,))

    monkeypatch.setattr(show, "campaign", campaign)

    assert main(["simulate", "--seeds", "7", "--backend", "sqlite:"]) == 1

    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == ["=== seed 7", "step one", "step two", "seed 7: it went wrong"]
    assert lines[4] == "again: pico simulate --seeds 7 --backend sqlite:"


def test_a_planted_fault_is_shown_with_its_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    only = ["--only", "a task starts before"]

    assert main(["simulate", "--planted", "--seeds", "0..100", *only]) == 0

    assert "a task starts before its dependencies ended" in capsys.readouterr().out


@pytest.mark.parametrize("seeds", ["", "x", "5..5", "9..3", "-3..4"])
def test_seeds_that_are_none_are_refused(seeds: str) -> None:
    assert main(["simulate", f"--seeds={seeds}"]) == 2


@pytest.mark.parametrize("backend", ["memory", "sqlite:file.db"])
def test_a_backend_with_a_place_is_refused(backend: str) -> None:
    assert main(["simulate", "--seeds", "1", "--backend", backend]) == 2
