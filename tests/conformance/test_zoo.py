"""The mutant zoo: what is planted, that it is caught, and that a survivor would be reported."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path

import pytest

from pico_conformance.campaign import Plan, run
from pico_conformance.target import resolve_target
from pico_conformance.zoo.command import zoo
from pico_conformance.zoo.hunt import Catch, Trail, hunt_by_replay, hunt_by_rules
from pico_conformance.zoo.mutant import controls, load_mutants
from pico_conformance.zoo.run import Hunt
from pico_store.command import UsageError
from tests.packaging.repository import ROOT

MUTANTS = load_mutants()
SEED = 1
CAUGHT = Trail("test_something", 3, 0.1, "AssertionError: no")
MISSED = Trail("", 4_000, 1.0)

# Of each part of the contract one that random histories must find by themselves, soon.
FOUND_BY_REPLAY = (
    "TombstoneShowsInherited",
    "RemovalLeaksToSource",
    "ScratchOutlivesTask",
    "CommitOfCutShown",
    "HeadAtCutMissed",
    "CursorSkips",
    "AbortClearedByPatch",
    "OwnsDeleted",
    "OwnedByOwnedStay",
    "InputKeptLive",
    "RefusalUsesNumber",
    "LoadLosesBoundaries",
)
# And some that no history shows: only a rule does.
FOUND_BY_RULES = (
    "FilteredAfterDecoding",
    "DeepForksRecursed",
    "GotNoMoreThanEngineTakes",
    "LimitNotClamped",
    "LoadLeavesHalf",
    "StoreLeavesHandles",
    "ChecksumNotCompared",
    "FileForAll",
    "LogForAll",
)


def pico_zoo(*arguments: str) -> int:
    parser = ArgumentParser()
    parser.add_argument("--json", action="store_true")
    zoo.add_arguments(parser)
    return zoo.run(parser.parse_intermixed_args(arguments))


def test_every_mutant_breaks_clauses_of_the_specification() -> None:
    spec = (ROOT / "pico_store" / "SPEC.md").read_text()
    clauses = set(re.findall(r"^### ([A-Z]+-\d+) ", spec, re.MULTILINE))

    unknown = {name: set(mutant.clauses) - clauses for name, mutant in MUTANTS.items()}

    assert len(MUTANTS) >= 60
    assert not {name: missing for name, missing in unknown.items() if missing}
    assert len({mutant.description for mutant in MUTANTS.values()}) == len(MUTANTS)


@pytest.mark.parametrize("name", FOUND_BY_REPLAY)
def test_random_histories_alone_catch(name: str) -> None:
    trail = hunt_by_replay(MUTANTS[name], SEED, 4_000)

    assert trail.caught_by, f"{name} got through {trail.writes} writes"
    assert "an unexpected error" not in trail.message, "the mutant broke down instead"


@pytest.mark.parametrize("name", FOUND_BY_RULES)
def test_a_rule_catches(name: str) -> None:
    trail = hunt_by_rules(MUTANTS[name])

    assert trail.caught_by, f"{name} got through every rule"
    assert set(trail.clauses) & set(MUTANTS[name].clauses), f"by chance: {trail}"


@pytest.mark.parametrize("name", list(MUTANTS))
def test_no_mutant_gets_through_the_rules(name: str) -> None:
    assert hunt_by_rules(MUTANTS[name]).caught_by, f"{name} got through every rule"


@pytest.mark.parametrize("name", list(controls()))
def test_a_wrapper_without_a_fault_is_not_caught(name: str) -> None:
    target = controls()[name].target()

    outcome = run(Plan(target, SEED, resolve_target("memory"), whole=4), writes=1_000)

    assert outcome.finding is None, outcome.finding.failure.message


def test_another_process_finds_a_mutant_by_its_name() -> None:
    name = MUTANTS["CursorSkips"].target().name
    code = f"from pico_conformance.target import resolve_target; resolve_target({name!r})"

    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)

    assert resolve_target(name).promises == resolve_target("memory").promises
    assert ended.returncode == 0, ended.stderr


def test_a_survivor_is_named_and_fails_the_hunt(capsys: pytest.CaptureFixture[str]) -> None:
    hunt = Hunt(SEED, MUTANTS)
    hunt.catches = [
        Catch("CursorSkips", MISSED, MISSED),
        Catch("CursorAlways", MISSED, CAUGHT),
        Catch("CutTooLate", CAUGHT, MISSED),
    ]

    hunt.print()

    text = capsys.readouterr().out
    assert hunt.survivors == ["CursorSkips"]
    assert not hunt.holds
    assert "3 mutants: 1 caught by rules, 1 by random histories alone, 1 by neither" in text
    assert f"SURVIVED: CursorSkips: {MUTANTS['CursorSkips'].description}" in text


def test_what_is_caught_without_a_fault_fails_the_hunt(capsys: pytest.CaptureFixture[str]) -> None:
    hunt = Hunt(SEED, controls())
    hunt.catches = [Catch("memory_as_it_is", CAUGHT, MISSED)]

    hunt.print()

    assert hunt.slandered == ["memory_as_it_is"]
    assert not hunt.holds
    assert "CAUGHT WITHOUT A FAULT: memory_as_it_is" in capsys.readouterr().out


def test_the_hunt_is_written_for_programs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "zoo.json"

    code = pico_zoo("--only", "LimitZeroTaken", "--jobs", "1", "--json", str(file))

    (mutant,) = json.loads(file.read_bytes())["mutants"]
    assert code == 0
    assert mutant["name"] == "LimitZeroTaken"
    assert mutant["rules"]["caughtBy"].startswith("test_")
    assert "PAGE-3" in mutant["rules"]["clauses"]
    assert mutant["replay"]["caughtBy"].startswith("history ")
    assert mutant["replay"]["writes"] > 0
    assert "LimitZeroTaken" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--only", "CursorSkip"), "no mutant 'CursorSkip'; did you mean 'CursorSkips'?"),
        (("--jobs", "0"), "--jobs 0; allowed: 1 or more"),
        (("file.json",), "one argument too many"),
    ],
)
def test_what_cannot_be_hunted_is_said(arguments: tuple[str, ...], problem: str) -> None:
    with pytest.raises(UsageError, match=re.escape(problem)):
        pico_zoo(*arguments)
