"""What the documentation shows is what the commands do."""

import doctest
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from shutil import copy

import pytest

from pico_store.command import ENTRY_POINT_GROUP
from tests.cli.running import Pico

ROOT = Path(__file__).resolve().parents[2]
OWN = sorted(
    point.name
    for point in entry_points(group=ENTRY_POINT_GROUP)
    if point.value.startswith(("pico_store.", "pico_harness."))
)
# A suite of minutes is not run here; its own tests run it.
NOT_RUN = ("pico conformance",)


def console_runs(page: Path) -> Iterator[tuple[str, str]]:
    """Yield what a page's console blocks run, each with the output shown."""
    for block in re.findall(r"^```console\n(.*?)^```$", page.read_text(), re.M | re.S):
        for run in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, _, output = run.partition("\n")
            if command.startswith(("pico ", "python ")) and not command.startswith(NOT_RUN):
                yield command, output


def test_the_readme_shows_what_happens(
    pico: Pico, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("session.jsonl", "pipeline.py"):
        copy(ROOT / "examples" / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    # Driving adds the current folder to it.
    monkeypatch.setattr(sys, "path", [*sys.path])
    runs = list(console_runs(ROOT / "README.md"))

    checker = doctest.OutputChecker()
    for command, shown in runs:
        tool, *arguments = command.split()
        if tool == "python":
            subprocess.run([sys.executable, *arguments], check=True)
            continue
        out = pico.done(*arguments)
        assert checker.check_output(shown, out, doctest.ELLIPSIS), f"{command}\n{out}"
    assert len(runs) >= 9


def test_the_way_from_store_to_store_can_be_gone(
    pico: Pico, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transcript: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for session in ("tea", "coffee"):
        pico.done("import", transcript, "sqlite:old.db", "--session", session)
    runs = list(console_runs(ROOT / "docs" / "how-to" / "move-between-backends.md"))

    for command, _ in runs:
        pico.done(*command.split()[1:])
    assert len(runs) == 2


@pytest.mark.parametrize("name", OWN)
def test_the_reference_has_every_command_and_option(pico: Pico, name: str) -> None:
    page = (ROOT / "docs" / "reference" / "command-line.md").read_text()
    (section,) = re.findall(rf"^## pico {name}$(.*?)(?=^## )", page, re.M | re.S)
    usage = pico.done(name, "--help").split("\n\n")[0]

    options = set(re.findall(r"--[a-z]+", usage)) - {"--json"}

    assert options == set(re.findall(r"--[a-z]+", section.split("\n\n")[1]))
    assert "JSON: " in section
