"""Every package is under the import contracts, they hold, and a planted violation is found."""

import os
import shutil
from pathlib import Path

import pytest

from tests.packaging.repository import ROOT, packages, run_tool, tool_options

# Where the violation is planted, what it imports, and the edge that the report must name.
VIOLATIONS = [
    ("pico_store", "pico_memory"),
    ("pico_store", "pico_sqlite"),
    ("pico_store", "pico_conformance"),
    ("pico_store", "tests"),
    ("pico_store", "apsw"),
    ("pico_memory", "pico_sqlite"),
    ("pico_sqlite", "pico_memory"),
    ("pico_memory", "pico_jsonl"),
    ("pico_jsonl", "pico_sqlite"),
    ("pico_jsonl", "apsw"),
    ("pico_memory", "pico_conformance"),
    ("pico_harness", "pico_sqlite"),
    ("pico_harness", "opentelemetry"),
    ("pico_conformance", "pico_bench"),
    ("pico_bench", "examples"),
]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the sources, so that what is planted never touches the checkout."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for package in packages():
        shutil.copytree(
            ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    return tmp_path


def lint_imports(copy: Path) -> tuple[int, str]:
    # The copy's roots come before the editable install, which would find the checkout.
    roots = dict.fromkeys(str((copy / package).parent) for package in packages())
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(roots)}
    result = run_tool("lint-imports", "--no-cache", cwd=copy, env=environment)
    return result.returncode, result.stdout


def test_every_package_is_checked() -> None:
    names = {package.name for package in packages()}
    contracts = tool_options("importlinter")
    layers = {
        name.strip()
        for contract in contracts["contracts"]
        for line in contract.get("layers", [])
        for name in line.split("|")
    }

    assert set(contracts["root_packages"]) == names, "[tool.importlinter] root_packages"
    assert layers == names, "[tool.importlinter] layers"
    assert {str(package) for package in packages()} <= set(tool_options("mypy")["files"])


def test_the_contracts_hold(copy: Path) -> None:
    code, report = lint_imports(copy)

    assert code == 0, report


@pytest.mark.parametrize(("importer", "imported"), VIOLATIONS)
def test_a_planted_violation_is_found(copy: Path, importer: str, imported: str) -> None:
    (folder,) = (copy / package for package in packages() if package.name == importer)
    (folder / "planted.py").write_text(f'"""Break a contract."""\n\nimport {imported}\n')

    code, report = lint_imports(copy)

    assert code == 1, f"{importer} may import {imported}:\n{report}"
    assert f"{importer}.planted -> {imported}" in report, f"another contract broke:\n{report}"


@pytest.mark.parametrize(
    "statement",
    [
        "import backends.pico_memory",
        "from conformance import pico_conformance",
        "from asv_bench.pico_bench import command",
        "from typing import TYPE_CHECKING",
        "from . import batch",
    ],
)
def test_a_banned_import_is_found(statement: str) -> None:
    source = f'"""Import what is banned."""\n\n{statement}\n'

    check = run_tool(
        "ruff",
        "check",
        "--no-cache",
        "--select=TID",
        "--stdin-filename=pico_store/planted.py",
        "-",
        cwd=ROOT,
        stdin=source,
    )

    assert check.returncode == 1, f"ruff accepts {statement!r}:\n{check.stdout}"
    assert "TID25" in check.stdout, check.stdout
