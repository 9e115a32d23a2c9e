"""What was parked is resumed or given up from the command line (TASKS-5)."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from pico_harness import Tx
from tests.cli.running import Pico
from tests.cli.scripted_kinds import Planned, step
from tests.cli.working import (
    KINDS,
    MOVED_ON,
    STEP,
    drive_process,
    ids,
    new_work,
    other,
    plan,
    plan_steps,
)

MENDED = f"{KINDS}:Mended"


@pytest.fixture(params=["sqlite:{}/work.db", "jsonl:{}/work"])
def work(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store with the session ``s``, which has a root and nothing else."""
    return new_work(str(request.param).format(tmp_path))


@pytest.fixture
def parked(work: str) -> str:
    """A store whose task 2 was lost with its process five times; task 3 waits for it."""

    def build(tx: Tx) -> None:
        first = tx.task(step, Planned("die always"))
        tx.task(step, Planned(), after=[first])

    plan(work, build)
    for _ in range(5):
        process = drive_process(work)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    return work


def test_driving_says_how_a_parked_task_goes_on(pico: Pico, parked: str) -> None:
    ended = pico("drive", parked, "--kinds", STEP)

    assert ended.code == 1
    assert "session s is parked" in ended.out
    assert "--resume TASK" in ended.out
    assert "--abort TASK" in ended.out


def test_a_parked_task_is_resumed_and_recovered(pico: Pico, parked: str) -> None:
    found = pico.json("drive", parked, "--kinds", MENDED, "--resume", "2")

    assert (found["outcome"], found["resumed"], found["parked"]) == ("idle", [2], [])
    assert pico.json("inspect", parked)["parked"] == []


def test_a_task_that_is_resumed_in_vain_is_parked_after_as_many_losses(
    pico: Pico, parked: str
) -> None:
    process = drive_process(parked, "--resume", "2")
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert ids(pico.json("inspect", parked), "inflight") == [2]
    for _ in range(4):
        assert ids(pico.json("inspect", parked), "parked") == []
        drive_process(parked).communicate()

    assert ids(pico.json("inspect", parked), "parked") == [2]


def test_a_parked_task_is_aborted_and_what_waits_for_it_goes_on(pico: Pico, parked: str) -> None:
    found = pico.json("drive", parked, "--kinds", STEP, "--abort", "2")

    assert (found["outcome"], found["aborted"], found["parked"]) == ("idle", [2], [])
    shown = pico.json("inspect", parked)
    assert [shown[name] for name in ("start", "inflight", "parked")] == [[], [], []]


def test_an_abort_needs_no_kind_and_lasts(pico: Pico, parked: str) -> None:
    out = pico.done("drive", parked, "--abort", "2")

    assert "nothing was driven" in out
    assert ids(pico.json("inspect", parked), "inflight") == [2]
    assert "[abort]" in pico.done("inspect", parked)
    assert pico.json("drive", parked, "--kinds", STEP)["outcome"] == "idle"


def test_an_abort_in_the_background_lasts_without_its_kind_too(pico: Pico, work: str) -> None:
    def build(tx: Tx) -> None:
        first = tx.task(step, Planned("die always"), background=True)
        tx.task(step, Planned(), after=[first])

    plan(work, build)
    for _ in range(5):
        drive_process(work).communicate()
    assert ids(pico.json("inspect", work), "parked") == [2]

    found = pico.json("drive", work, "--abort", "2")

    assert (found["outcome"], found["aborted"]) == ("marked", [2])
    assert ids(pico.json("inspect", work), "inflight") == [2]
    pico.done("drive", work, "--kinds", STEP)
    assert pico.json("inspect", work)["inflight"] == []


def test_a_task_that_was_not_begun_is_aborted_too(pico: Pico, work: str) -> None:
    plan_steps(work, "die always", "settle")

    found = pico.json("drive", work, "--kinds", STEP, "--abort", "2")

    assert (found["outcome"], found["aborted"]) == ("idle", [2])


def test_a_mark_stops_no_driver_from_orphaning(pico: Pico, work: str) -> None:
    plan(work, lambda tx: tx.task(other, Planned()))
    pico.done("drive", work, "--abort", "2")

    refused = pico("drive", work, "--kinds", STEP)
    assert refused.code == 2
    assert "tasks 2 are of kinds that --kinds does not name: other" in refused.err

    found = pico.json("drive", work, "--kinds", STEP, "--orphan")
    assert (found["outcome"], found["orphaned"]) == ("idle", [2])


REFUSED: list[tuple[list[str], str]] = [
    (["--kinds", STEP, "--resume", "9"], "task 9 is not live"),
    (["--kinds", STEP, "--resume", "3"], "task 3 is not parked"),
    (["--kinds", STEP, "--abort", "1"], "task 1 is not live"),
    (["--kinds", STEP, "--abort", "3", "--resume", "9"], "task 9 is not live"),
    (["--kinds", STEP, "--abort", "2", "--resume", "2"], "task 2 is named by both"),
    (["--kinds", STEP, "--resume", "x"], "argument --resume: 'x'; allowed: 1 or more"),
    (["--kinds", STEP, "--abort", "0"], "argument --abort: '0'; allowed: 1 or more"),
    (["--kinds", f"{KINDS}:Other", "--orphan", "--resume", "2"], "which --kinds does not name"),
    (["--resume", "2"], "--kinds is needed"),
    (["--abort", "2", "--orphan"], "--kinds is needed"),
    (["--orphan"], "--kinds is needed"),
    ([], "--kinds is needed"),
]


def test_what_cannot_be_resumed_or_aborted_is_refused_before_anything(
    pico: Pico, parked: str
) -> None:
    before = pico.json("digest", parked)

    for options, problem in REFUSED:
        ended = pico("drive", parked, *options)

        assert (ended.code, ended.out) == (2, ""), options
        assert problem in ended.err
        assert ended.err.count("\n") == 1
        assert pico.json("digest", parked) == before, options


def test_one_that_stays_parked_all_the_same_stops_every_other_decision(
    pico: Pico, parked: str
) -> None:
    """The first would be resumed, and the second is not parked for its losses alone."""
    plan_steps(parked, "hang")
    seen = pico.json("inspect", parked, "--kinds", MOVED_ON)
    assert ids(seen, "parked") == [2, 9]
    before = pico.json("digest", parked)

    ended = pico("drive", parked, "--kinds", MOVED_ON, "--resume", "2", "--resume", "9")

    assert (ended.code, ended.out) == (2, "")
    assert "task 9 cannot be read by its kind" in ended.err
    assert "--abort" in ended.err
    assert pico.json("digest", parked) == before
