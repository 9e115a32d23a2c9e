"""`pico --help` teaches the commands, and nothing is imported that does not run."""

import subprocess
import sys
from importlib.metadata import EntryPoint, entry_points

import pytest

from pico_store import cli
from pico_store.cli import DONE, UNUSABLE, USAGE
from pico_store.command import ENTRY_POINT_GROUP
from tests.cli.running import Pico

HEAVY = {
    "apsw",
    "hypothesis",
    "pytest",
    "sortedcontainers",
    "pico_memory.store",
    "pico_sqlite.store",
    "pico_conformance.model",
}


def imported_by(*arguments: str) -> set[str]:
    """Return the modules that a run of `pico` has imported at its end."""
    code = (
        "import sys; from pico_store.cli import main; main(sys.argv[1:]); "
        "print('\\n'.join(sys.modules), file=sys.stderr)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    return set(run.stderr.split())


def plant(monkeypatch: pytest.MonkeyPatch, **targets: str) -> None:
    """Make entry points the only commands there are."""
    points = [EntryPoint(name, target, ENTRY_POINT_GROUP) for name, target in targets.items()]
    monkeypatch.setattr(cli, "entry_points", lambda group: points)


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["help"]])
def test_help_lists_every_command_with_one_line(pico: Pico, arguments: list[str]) -> None:
    lines = pico.done(*arguments).splitlines()

    for point in entry_points(group=ENTRY_POINT_GROUP):
        (line,) = (line for line in lines if line.split()[:1] == [point.name])
        assert len(line.split()) > 2


def test_without_arguments_the_help_goes_to_the_errors(pico: Pico) -> None:
    ended = pico()

    assert (ended.code, ended.out) == (USAGE, "")
    assert "commands:" in ended.err


@pytest.mark.parametrize("arguments", [["show", "--help"], ["help", "show"]])
def test_each_command_has_its_own_help(pico: Pico, arguments: list[str]) -> None:
    out = pico.done(*arguments)

    assert out.startswith("usage: pico show")
    assert "--json" in out


def test_the_version_is_told(pico: Pico) -> None:
    assert pico.done("--version").startswith("pico 0.")


def test_help_imports_no_engine_and_no_suite() -> None:
    assert imported_by("--help") & HEAVY == set()


def test_a_command_imports_itself_and_the_engine_it_needs_only() -> None:
    modules = imported_by("sessions", "sqlite:/no/such/store.db")

    commands = {name for name in modules if name.startswith("pico_store.commands.")}
    assert "pico_store.commands.sessions" in commands
    assert not commands & {"pico_store.commands.show", "pico_store.commands.import_"}
    assert "pico_memory.store" not in modules


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["sho"], "no command 'sho'; did you mean 'show'? pico --help lists them"),
        (["xyzzy"], "no command 'xyzzy'; pico --help lists them"),
        (["show"], "show: the following arguments are required: STORE; see pico show --help"),
        (["show", "m:", "--nope"], "show: unrecognized arguments: --nope; see pico show --help"),
        (
            ["show", "m:", "--limit", "x"],
            "show: argument --limit: 'x'; allowed: 1 or more",
        ),
        (
            ["show", "m:", "--limit", "0"],
            "show: argument --limit: '0'; allowed: 1 or more",
        ),
        (["fork", "m:"], "fork: the following arguments are required: --at; see pico fork --help"),
        (
            ["fork", "m:", "--at", "-1"],
            "fork: argument --at: '-1'; allowed: an entry's number from 1, or start",
        ),
    ],
)
def test_wrong_usage_is_one_line_that_helps(pico: Pico, arguments: list[str], problem: str) -> None:
    ended = pico(*arguments)

    assert (ended.code, ended.out) == (USAGE, "")
    assert ended.err.startswith(f"pico: {problem}")
    assert ended.err.count("\n") == 1


def test_a_command_whose_package_is_missing_says_what_to_install(
    pico: Pico, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, absent="no_such_package.command:command")

    assert "needs the Python module 'no_such_package', which is not" in pico.done("--help")
    ended = pico("absent")
    assert ended.code == USAGE
    assert ended.err.startswith("pico: absent: needs the Python module 'no_such_package'")


@pytest.mark.parametrize(
    "target", ["pico_store.command:no_such_name", "pico_store.command:ENTRY_POINT_GROUP"]
)
def test_a_broken_command_does_not_hide_the_others(
    pico: Pico, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    plant(monkeypatch, broken=target, show="pico_store.commands.show:command")

    out = pico.done("--help")
    assert "install its package again" in out
    assert "show conversations" in out
    assert pico("broken").code == USAGE


def test_a_missing_driver_names_what_to_install(
    pico: Pico, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "apsw", None)
    for name in [name for name in sys.modules if name.split(".")[0] == "pico_sqlite"]:
        monkeypatch.delitem(sys.modules, name)

    ended = pico("sessions", "sqlite:x.db")

    assert ended.code == UNUSABLE
    assert "install it with: pip install 'pico-store[sqlite]'" in ended.err
    assert pico("--help").code == DONE
