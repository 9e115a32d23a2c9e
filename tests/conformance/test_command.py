"""`pico conformance`: what it prints, writes and returns."""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path

import pytest

from pico_conformance import run as conformance_run
from pico_conformance.command import conformance
from pico_conformance.target import resolve_target
from pico_store.backends import backends, find_backend
from pico_store.command import UsageError
from pico_store.errors import StoreUrlError
from pico_store.storage import Store
from tests.conformance.fault import ClearLeaks, CutTooEarly, faulty


def run(*arguments: str) -> int:
    parser = ArgumentParser()
    parser.add_argument("--json", action="store_true")
    conformance.add_arguments(parser)
    return conformance.run(parser.parse_intermixed_args(arguments))


def leaking(path: str) -> Store:
    """A target with a fault that `pico conformance` finds by name."""
    return faulty(ClearLeaks).open_store(path)


def early(path: str) -> Store:
    """Another one."""
    return faulty(CutTooEarly).open_store(path)


leaking.promises = resolve_target("memory").promises  # type: ignore[attr-defined]
early.promises = resolve_target("memory").promises  # type: ignore[attr-defined]


def test_a_backend_that_conforms_ends_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    code = run("memory", "--writes", "300", "--seed", "5")

    text = capsys.readouterr().out
    assert code == 0
    assert text.splitlines()[0].split() == [
        *("clause", "rules", "histories", "writes", "refusals", "acts", "reads", "verdict")
    ]
    assert "seed 5, histories 0 to " in text
    assert text.endswith("conforms\n")


def test_a_difference_ends_with_1_and_a_file_that_shows_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "failure.py"

    code = run(f"{__name__}:leaking", "--no-rules", "--failure", str(file))

    text = capsys.readouterr().out
    assert code == 1
    assert "DIFFERENCE in history " in text
    assert "DOES NOT CONFORM" in text
    again = subprocess.run([sys.executable, file], capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert "expected:" in again.stdout


def test_a_broken_rule_ends_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "failure.py")

    code = run(f"{__name__}:early", "--writes", "1", "--failure", file)

    assert code == 1
    assert "RULE BROKEN" in capsys.readouterr().out


def test_json_goes_to_a_file_beside_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "report.json"

    code = run("memory", "--writes", "300", "--no-rules", "--json", str(file))

    report = json.loads(file.read_text(encoding="utf-8"))
    assert code == 0
    assert report["conforms"] is True
    assert report["tally"]["writes"] >= 300
    assert {row["clause"] for row in report["clauses"]} >= {"SEQ-1", "DEL-4", "JSON-7"}
    assert capsys.readouterr().out.endswith("conforms\n")


def test_json_alone_is_all_that_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    run("memory", "--json", "--seconds", "0", "--no-rules")

    assert json.loads(capsys.readouterr().out)["target"] == "memory"


def test_a_run_that_compares_nothing_does_not_say_that_it_conforms(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = run("memory", "--seconds", "0", "--no-rules")

    text = capsys.readouterr().out
    assert code == 1
    assert "NOTHING WAS COMPARED" in text
    assert text.endswith("DOES NOT CONFORM\n")


def test_all_backends_are_shown_side_by_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "report.json"

    code = run("--all", "--writes", "300", "--no-rules", "--json", str(file))

    lines = capsys.readouterr().out.splitlines()
    assert code == 0
    names = list(backends())
    assert names == ["jsonl", "lmdb", "memory", "sqlite"]
    assert lines[0].split() == ["clause", *names]
    assert ["SEQ-1", "ok", "ok", "ok", "ok"] in [line.split() for line in lines]
    assert lines[-4:] == [f"{name}: conforms" for name in names]
    found = json.loads(file.read_text(encoding="utf-8"))["backends"]
    assert [report["target"] for report in found] == names
    assert all(report["tally"]["writes"] >= 300 for report in found)


def test_one_backend_that_does_not_conform_is_told_apart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = {"memory": find_backend("memory"), f"{__name__}:leaking": find_backend("memory")}
    monkeypatch.setattr(conformance_run, "backends", lambda: chosen)

    code = run("--all", "--no-rules", "--failure", str(tmp_path / "failure.py"))

    text = capsys.readouterr().out
    assert code == 1
    assert "memory: conforms" in text
    assert text.endswith(f"{__name__}:leaking: DOES NOT CONFORM\n")
    assert text.count("DIFFERENCE in history ") == 1
    assert [path.name for path in tmp_path.iterdir()] == [f"failure_{__name__}:leaking.py"]


@pytest.mark.parametrize("arguments", [(), ("--all", "memory"), ("--all", "--json", "a", "b")])
def test_it_takes_one_backend_or_all(arguments: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="--all"):
        run(*arguments)


class NoStore:
    """A callable that takes no path."""


def thing(path: str) -> object:
    """A callable that opens something else."""
    return object()


@pytest.mark.parametrize(
    ("name", "problem"), [("NoStore", "raises TypeError"), ("thing", "gives object, which is not")]
)
def test_what_opens_no_store_is_refused_once(
    name: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(StoreUrlError, match=problem):
        run(f"{__name__}:{name}", "--seconds", "0")

    assert capsys.readouterr().out == ""


def test_a_module_without_its_attribute_is_hinted_at() -> None:
    with pytest.raises(StoreUrlError, match="module:attribute, such as tally_backend:backend"):
        run("tally_backend")


def test_clauses_that_are_not_promised_are_counted_apart(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run("memory", "--seconds", "0")

    text = capsys.readouterr().out
    assert " not promised), " in text
    assert "beside the backend (tests/backends/sqlite): SQL-2" in text


def test_the_first_history_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    run("memory", "--no-rules", "--writes", "1", "--first", "120")

    assert "histories 120 to 120" in capsys.readouterr().out


def test_an_argument_too_many_is_refused() -> None:
    with pytest.raises(UsageError, match="one argument too many"):
        run("memory", "sqlite")


@pytest.mark.parametrize("text", ["-1", "nan", "x"])
def test_seconds_are_a_number_from_0(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run("memory", f"--seconds={text}")

    assert "allowed" in capsys.readouterr().err
