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


NO_SEEDS = ["", "x", "..", "5..", "..5", "a..b", "5..5", "9..3", "-3..4", "0.5..3", "1..2..3"]
ODD_SEEDS = ["1_0..20", " 1..2", "٣", "1" * 5_000, "0..99999999999999999999", "0..100000000"]


@pytest.mark.parametrize("seeds", [*NO_SEEDS, *ODD_SEEDS], ids=lambda seeds: seeds[:20])
@pytest.mark.parametrize("more", [[], ["--planted"]], ids=["", "planted"])
def test_seeds_that_are_none_are_refused(
    capsys: pytest.CaptureFixture[str], seeds: str, more: list[str]
) -> None:
    assert main(["simulate", f"--seeds={seeds}", *more]) == 2

    assert "allowed: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [["--only", "slot"], ["--planted", "--only", "no such"], ["--jobs", "0"], ["--jobs", "x"]],
)
def test_what_would_try_nothing_is_refused(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert main(["simulate", "--seeds", "1", *arguments]) == 2

    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("backend", ["memory", "sqlite:file.db"])
def test_a_backend_with_a_place_is_refused(backend: str) -> None:
    assert main(["simulate", "--seeds", "1", "--backend", backend]) == 2
