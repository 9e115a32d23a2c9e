"""Histories on the backends that are tested here, and proof that a fault would be seen."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pico_conformance.campaign import Outcome, Plan, run
from pico_conformance.coverage import missed
from pico_conformance.replay import Care
from pico_conformance.reproduce import shortest, source_text
from pico_conformance.tally import Tally
from pico_conformance.target import resolve_target
from tests.conformance.fault import (
    CheckedByReads,
    ClearLeaks,
    CutTooEarly,
    FirstEntryVanishes,
    Wrapped,
    faulty,
)

SEED = 1


def _message(outcome: Outcome) -> str:
    finding = outcome.finding
    return "" if finding is None else f"history {finding.number}: {finding.failure.message}"


@pytest.mark.parametrize("name", ["memory", "sqlite", "lmdb:x?durability=process", "jsonl"])
def test_small_histories_agree_with_the_model(name: str) -> None:
    other = None if name == "memory" else resolve_target("memory")
    plan = Plan(resolve_target(name), SEED, other, ("tiny",), whole=4)

    outcome = run(plan, histories=2_000)

    assert not _message(outcome)
    assert outcome.tally.histories == 2_000


@pytest.mark.parametrize("name", ["memory", "sqlite", "lmdb:x?durability=process", "jsonl"])
def test_histories_of_every_profile_agree_with_the_model(name: str) -> None:
    plan = Plan(resolve_target(name), SEED, resolve_target("memory"), whole=4)

    outcome = run(plan, histories=160)

    assert not _message(outcome)


def test_the_rules_judge_alike_through_the_reads_of_the_interface() -> None:
    plan = Plan(faulty(CheckedByReads), SEED, care=Care(reads=0, at_the_end=False))

    outcome = run(plan, histories=200)

    assert not _message(outcome)


def test_histories_meet_every_rare_situation_and_every_refusal() -> None:
    tally = Tally()
    plan = Plan(resolve_target("memory"), SEED, care=Care(reads=2, at_the_end=False))

    tally.add(run(plan, histories=500).tally)

    assert missed(tally) == []


def test_a_generator_that_meets_nothing_is_reported() -> None:
    tally = Tally(histories=500)

    assert "situation: a head on a head" in missed(tally)
    assert "mistake: SEQ-8 stale writer" in missed(tally)
    assert "read: scan_tasks" in missed(tally)


def test_a_seed_and_a_number_name_one_history() -> None:
    plan = Plan(faulty(CutTooEarly), SEED)
    first, second = (run(plan, histories=200) for _ in range(2))

    assert first.finding is not None
    assert second.finding is not None
    assert first.finding.history == second.finding.history


def test_several_processes_find_what_one_finds() -> None:
    plan = Plan(resolve_target(f"{__name__}:leaking"), SEED, profiles=("list-heavy",))
    alone = run(plan, histories=200)
    together = run(plan, histories=200, jobs=2)

    assert alone.finding is not None
    assert together.finding is not None
    assert together.finding.history == alone.finding.history


@pytest.mark.parametrize("fault", [CutTooEarly, ClearLeaks, FirstEntryVanishes])
def test_a_planted_fault_is_found_and_shrunk(fault: type[Wrapped]) -> None:
    target = faulty(fault)

    finding = run(Plan(target, SEED), histories=400).finding

    assert finding is not None, "the fault was not found"
    history, failure, _ = shortest(target, None, finding.history)
    assert failure is not None
    assert len(history) <= 8
    assert len(history) <= len(finding.history)


def test_the_shortest_history_is_a_file_that_shows_the_difference(tmp_path: Path) -> None:
    name = f"{__name__}:leaking"
    target = resolve_target(name)
    finding = run(Plan(target, SEED), histories=400).finding
    assert finding is not None
    history, failure, care = shortest(target, None, finding.history)
    file = tmp_path / "failure.py"
    file.write_text(source_text(name, None, history, failure, care), encoding="utf-8")

    ended = subprocess.run([sys.executable, file], capture_output=True, text=True, check=False)

    assert ended.returncode == 1, ended.stderr
    assert failure is not None
    assert failure.message in ended.stdout


def test_a_history_goes_on_after_operations_are_left_out() -> None:
    plan = Plan(faulty(CutTooEarly), SEED)
    finding = run(plan, histories=200).finding
    assert finding is not None

    for left_out in range(1, len(finding.history)):
        rest = finding.history[:left_out] + finding.history[left_out + 1 :]
        outcome = shortest(resolve_target("memory"), None, rest)
        assert outcome[1] is None


def leaking(path: str) -> object:
    """A target that other processes find by name."""
    return faulty(ClearLeaks).open_store(path)


leaking.promises = resolve_target("memory").promises  # type: ignore[attr-defined]
