"""What docs/how-to/write-a-backend.md says works, done in a fresh environment."""

import os
import re
import shutil
import subprocess
import venv
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.packaging.repository import ROOT, run_tool

EXAMPLE = ROOT / "examples" / "tally_backend"
HOW_TO = ROOT / "docs" / "how-to" / "write-a-backend.md"
# What the wheel needs to be imported. It is copied from here, so that no index is asked.
NEEDED = ("msgspec", "sortedcontainers")


class Environment(NamedTuple):
    """A fresh environment and a folder to work in."""

    bin: Path
    folder: Path

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        """Run a command line of the how-to in the folder; both outputs are in ``stdout``."""
        tool, *arguments = line.split()
        return subprocess.run(
            [str(self.bin / tool), *arguments],
            cwd=self.folder,
            env={"PATH": os.environ["PATH"]},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )


def _blocks(kind: str) -> list[str]:
    found = re.findall(rf"^```{kind}\n(.*?)^```", HOW_TO.read_text(), re.MULTILINE | re.DOTALL)
    assert found, f"the how-to has no {kind} block"
    return found


def _commands() -> list[str]:
    return [line.removeprefix("$ ").strip() for line in _blocks("console")]


def _build(project: Path, into: Path) -> Path:
    build = run_tool(
        "python", "-m", "build", "--wheel", "--no-isolation", "--outdir", str(into), cwd=project
    )
    assert build.returncode == 0, f"the wheel does not build:\n{build.stdout}"
    (made,) = into.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    folder = tmp_path_factory.mktemp("own-backend")
    venv.create(folder / "venv", with_pip=True)
    made = Environment(folder / "venv" / "bin", folder / "work")
    made.folder.mkdir()
    _install(made, _build(ROOT, folder / "wheel"))
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    for name in NEEDED:
        _copy_distribution(name, packages)
    yield made
    shutil.rmtree(folder)


def _install(environment: Environment, wheel: Path) -> None:
    install = environment.run(f"pip install --quiet --no-index --no-deps {wheel}")
    assert install.returncode == 0, f"the wheel does not install:\n{install.stdout}"


def _copy_distribution(name: str, packages: Path) -> None:
    found = distribution(name)
    for file in found.files or ():
        if ".." not in file.parts and "__pycache__" not in file.parts:
            target = packages / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(str(found.locate_file(file)), target)


@pytest.fixture
def example(environment: Environment) -> Iterator[Path]:
    copy = environment.folder / EXAMPLE.name
    shutil.copytree(EXAMPLE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    yield copy
    shutil.rmtree(copy)


def test_the_excerpts_are_the_examples_own() -> None:
    sources = [path.read_text() for path in sorted(EXAMPLE.glob("*.py"))]

    for excerpt in _blocks("python"):
        assert any(excerpt in source for source in sources), f"in no file:\n{excerpt}"


@pytest.mark.usefixtures("example")
def test_the_example_conforms(environment: Environment) -> None:
    prove, _, _ = _commands()

    done = environment.run(prove)

    assert done.returncode == 0, done.stdout
    assert "\nconforms\n" in done.stdout
    assert "not promised" in done.stdout, "what was left out is not listed"


def test_the_planted_fault_is_found_and_can_be_run(environment: Environment, example: Path) -> None:
    prove, show, _ = _commands()
    ledger = example / "ledger.py"
    (wrong,) = _blocks("python faulty")
    right = next(block for block in _blocks("python") if block.count("\n") == 1)
    ledger.write_text(ledger.read_text().replace(right, wrong))
    assert wrong in ledger.read_text(), "the fault was not planted"

    done = environment.run(prove)

    assert done.returncode == 1, done.stdout
    assert "RULE BROKEN TASK-3" in done.stdout, done.stdout
    shown = environment.run(show)
    assert shown.returncode == 1, f"the history does not show the difference:\n{shown.stdout}"
    assert "expected" in shown.stdout, shown.stdout
    ledger.write_text(ledger.read_text().replace(wrong, right))
    mended = environment.run(show)
    assert mended.returncode == 0, f"the history differs without the fault:\n{mended.stdout}"


def test_an_entry_point_makes_it_a_scheme(environment: Environment, example: Path) -> None:
    *_, named = _commands()
    project = environment.folder.parent / "project"
    shutil.copytree(example, project / EXAMPLE.name)
    (project / "pyproject.toml").write_text(_blocks("toml")[0])
    _install(environment, _build(project, environment.folder.parent / "own-wheel"))
    shutil.rmtree(example)
    try:
        done = environment.run(named)
    finally:
        example.mkdir()

    assert done.returncode == 0, done.stdout
    script = 'from pico_store.backends import open_store\nprint(open_store("tally:").url)\n'
    (environment.folder / "named.py").write_text(script)
    opened = environment.run("python named.py")
    assert opened.stdout == "tally:\n", opened.stdout
