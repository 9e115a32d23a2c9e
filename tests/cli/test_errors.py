"""Whatever goes wrong is one line that says what to do, with an exit code that says what kind."""

import os
import signal
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from pico_store import cli
from pico_store.backends import open_store
from pico_store.command import Command, UsageError
from pico_store.errors import (
    InvalidQueryError,
    MissingDriverError,
    NewerFormatError,
    SessionOwnedError,
    StoreBusyError,
    StoreDamagedError,
    StoreUrlError,
)
from tests.cli.running import Pico, buffered, pico_process
from tests.packaging.repository import ROOT

EXAMPLE = str(ROOT / "examples" / "session.jsonl")


def fail_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Make `pico fail` a command that raises."""

    def run(args: Namespace) -> int:
        raise error

    def add_arguments(parser: ArgumentParser) -> None:
        parser.description = "fails"

    command = Command("fail", "fails", add_arguments, run)
    monkeypatch.setattr(cli, "_points", lambda: {"fail": EntryPoint("fail", "a:b", "c")})
    monkeypatch.setattr(cli, "_load", lambda point: command)


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (UsageError("say it differently"), 2, "say it differently"),
        (StoreUrlError("URL-1", "x", "no scheme"), 2, "x: no scheme (URL-1)"),
        (InvalidQueryError("PAGE-3", "limit", "0"), 2, "limit: 0 (PAGE-3)"),
        (MissingDriverError("URL-2", "", "install it"), 3, "install it (URL-2)"),
        (NewerFormatError("upgrade pico"), 3, "upgrade pico"),
        (StoreDamagedError("entry 3"), 3, "entry 3"),
        (SessionOwnedError("process 1 has it"), 3, "process 1 has it"),
        (StoreBusyError("try again"), 3, "try again"),
        (PermissionError(13, "Permission denied", "/x"), 3, "/x: Permission denied"),
        (OSError("odd"), 3, "odd"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (UsageError("two\nlines"), 2, "two lines"),
    ],
)
def test_each_kind_of_failure_has_its_code(
    pico: Pico, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, text: str
) -> None:
    fail_with(monkeypatch, error)

    ended = pico("fail")

    assert (ended.code, ended.out, ended.err) == (code, "", f"pico: {text}\n")


def test_a_fault_of_pico_is_one_line_too(pico: Pico, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cli.TRACEBACK_VARIABLE, raising=False)
    fail_with(monkeypatch, ZeroDivisionError("by zero"))

    ended = pico("fail")

    assert ended.code == 70
    assert ended.err == (
        "pico: a fault of pico itself: ZeroDivisionError: by zero; "
        "PICO_TRACEBACK=1 shows where, please report it\n"
    )


def test_a_fault_of_pico_shows_where_on_request(
    pico: Pico, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(cli.TRACEBACK_VARIABLE, "1")
    fail_with(monkeypatch, ZeroDivisionError("by zero"))

    ended = pico("fail")

    assert ended.err.startswith("Traceback (most recent call last)")
    assert ended.err.splitlines()[-1].startswith("pico: a fault of pico itself")


def test_a_reader_that_goes_away_ends_the_command_quietly(url: str) -> None:
    read, write = os.pipe()
    os.close(read)

    process = subprocess.run(
        [sys.executable, "-m", "pico_store.cli", "show", url],
        stdout=write,
        stderr=subprocess.PIPE,
        env=buffered(),
        check=False,
    )
    os.close(write)

    assert (process.returncode, process.stderr) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_output_that_cannot_be_written_is_said(url: str) -> None:
    with Path("/dev/full").open("wb") as full:
        process = subprocess.run(
            [sys.executable, "-m", "pico_store.cli", "show", url],
            stdout=full,
            stderr=subprocess.PIPE,
            env=buffered(),
            check=False,
        )

    assert process.returncode == 3
    assert process.stderr == b"pico: No space left on device\n"


def test_a_terminal_without_unicode_gets_escapes(pico: Pico, tmp_path: Path, url: str) -> None:
    process = pico_process("show", url, PYTHONIOENCODING="ascii")

    assert process.returncode == 0, process.stderr
    assert b"\\u2192 Bash" in process.stdout


@pytest.mark.parametrize(
    ("argument", "code", "problem"),
    [
        ("sessions.db", 2, "sessions.db: no scheme; allowed: SCHEME:PATH, such as sqlite:sess"),
        ("sqlite:\udcff", 2, "sqlite:\\udcff: not UTF-8; allowed: a path that is (URL-1)"),
        ("memory://", 2, "memory://: a host in the path; allowed: memory: alone"),
        ("nosql://host/x", 2, "no backend 'nosql'; installed: jsonl, lmdb, memory, sqlite (URL-2)"),
        ("sqlite:", 2, "sqlite: names no file; write it as sqlite:FILE"),
        ("lmdb:", 2, "lmdb: names no folder; write it as lmdb:FOLDER"),
        ("jsonl:", 2, "jsonl: names no folder; write it as jsonl:FOLDER"),
        ("sqlite:x?durability=max", 2, "durability='max'; allowed: "),
        ("sqlite:~/none.db", 3, "no store at ~/none.db; ~ is not expanded inside a URL"),
        ("nosql:x", 2, "no backend 'nosql'; installed: jsonl, lmdb, memory, sqlite (URL-2)"),
        ("sqlite:x?fast=1", 2, "sqlite:x?fast=1: unknown option 'fast'; allowed: "),
        ("memory:", 2, "memory: keeps nothing from one command to the next; name a store on"),
        (
            "sqlite:{tmp}/none.db",
            3,
            "no store at {tmp}/none.db; make one: pico import FILE sqlite:",
        ),
        ("sqlite:{tmp}", 3, "{tmp}: not a regular file"),
        ("sqlite:{tmp}/branched.jsonl", 3, "{tmp}/branched.jsonl: not a SQLite file"),
    ],
)
@pytest.mark.parametrize("command", ["sessions", "show", "context", "digest", "verify", "vacuum"])
def test_a_store_that_cannot_be_opened_is_explained(
    pico: Pico,
    transcript: str,
    tmp_path: Path,
    command: str,
    argument: str,
    code: int,
    problem: str,
) -> None:
    before = sorted(tmp_path.iterdir())

    ended = pico(command, argument.format(tmp=tmp_path))

    assert (ended.code, ended.out) == (code, "")
    assert ended.err.startswith("pico: " + problem.format(tmp=tmp_path))
    assert ended.err.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


def test_an_interrupt_ends_an_import_at_once_and_without_a_trace(tmp_path: Path) -> None:
    pipe = tmp_path / "endless.jsonl"
    os.mkfifo(pipe)
    process = subprocess.Popen(
        [sys.executable, "-m", "pico_store.cli", "import", str(pipe), f"sqlite:{tmp_path}/a.db"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    # Opens as soon as the other side reads; it then waits for a line that never comes.
    with pipe.open("wb"):
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)

    assert (process.returncode, out, err) == (130, b"", b"pico: interrupted\n")
    assert [path.name for path in tmp_path.iterdir()] == ["endless.jsonl"]


_INTERRUPTED_IMPORT = """
import sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "argparse":
            raise KeyboardInterrupt

from pico_store.entry import main
sys.meta_path.insert(0, Finder())
sys.exit(main())
"""


def test_an_interrupt_while_the_command_is_imported_ends_it_without_a_trace() -> None:
    process = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED_IMPORT], capture_output=True, check=False
    )

    assert (process.returncode, process.stdout) == (130, b"")
    assert process.stderr == b"pico: interrupted\n"


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["sessions", "sqlite:x"], []])
def test_an_output_that_is_closed_is_said(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "pico_store.cli", *arguments]
    line = ["sh", "-c", '"$@" >&-', "sh", *command]

    process = subprocess.run(line, stderr=subprocess.PIPE, check=False)

    assert process.returncode == 3
    assert process.stderr == b"pico: there is no output to write to: it was closed\n"


def test_a_session_that_is_not_there_says_where_they_are_listed(pico: Pico, url: str) -> None:
    ended = pico("show", url, "nobody")

    assert ended.code == 2
    assert ended.err == f"pico: no session 'nobody' in {url}; pico sessions {url} lists them\n"


def test_a_backup_to_a_url_is_refused(pico: Pico, url: str, tmp_path: Path) -> None:
    before = sorted(Path.cwd().glob("sqlite:*"))

    ended = pico("backup", url, "sqlite:backup.db")

    assert ended.code == 2
    assert ended.err.startswith("pico: sqlite:backup.db is a URL; a backup is written to a file")
    assert sorted(Path.cwd().glob("sqlite:*")) == before


def test_no_folder_is_made_for_a_store(pico: Pico, transcript: str, tmp_path: Path) -> None:
    ended = pico("import", transcript, f"sqlite:{tmp_path}/no/a.db")

    assert ended.code == 3
    assert ended.err.endswith("; make the folder first\n")


@pytest.mark.parametrize("scheme", ["jsonl", "lmdb"])
def test_a_backup_into_the_store_itself_is_refused(
    pico: Pico, transcript: str, tmp_path: Path, scheme: str
) -> None:
    folder = tmp_path / "store"
    pico.done("import", transcript, f"{scheme}:{folder}")
    before = sorted(folder.iterdir())

    ended = pico("backup", f"{scheme}:{folder}", f"{folder}/backup")

    assert ended.code == 2
    assert f"{folder}/backup is within the store {folder}" in ended.err
    assert sorted(folder.iterdir()) == before


def test_a_backup_that_fails_names_what_was_asked_for(
    pico: Pico, transcript: str, tmp_path: Path
) -> None:
    pico.done("import", transcript, f"jsonl:{tmp_path}/store")

    ended = pico("backup", f"jsonl:{tmp_path}/store", f"{tmp_path}/none/backup")

    assert ended.code == 3
    assert ended.err.startswith(f"pico: {tmp_path}/none/backup: backup: No such file")


def test_a_folder_that_is_there_need_not_be_made(
    pico: Pico, transcript: str, tmp_path: Path
) -> None:
    (tmp_path / "dangling").symlink_to(tmp_path / "none" / "far")

    ended = pico("import", transcript, f"jsonl:{tmp_path}/dangling")

    assert ended.code == 3
    assert "make the folder first" not in ended.err


def test_what_pico_did_not_make_is_no_damage(pico: Pico, transcript: str, tmp_path: Path) -> None:
    url = f"jsonl:{tmp_path}/store"
    pico.done("import", transcript, url, "--session", "s")
    pico.done("backup", url, f"{tmp_path}/backup")
    (tmp_path / "backup").rename(tmp_path / "store" / "backup")
    (tmp_path / "store" / "notes").mkdir()
    (tmp_path / "store" / "notes" / "todo.txt").write_text("mine")

    assert pico.json("verify", url)["problems"] == []

    (tmp_path / "store" / "s" / "main.jsonl").unlink()
    ended = pico("verify", url)
    assert ended.code == 1
    assert "session s, " in ended.out
    assert "its main log is not there" in ended.out


def test_conformance_asks_for_the_folder_of_failures_first(pico: Pico) -> None:
    ended = pico("conformance", "memory", "--failure", "none/failure.py")

    assert ended.code == 2
    assert ended.err == "pico: conformance: --failure: none is no folder; make it first\n"


def test_an_owned_session_says_what_to_do_here(pico: Pico, url: str) -> None:
    store = open_store(url)
    writer = store.open("s")

    ended = pico("fork", url, "--at", "4")

    writer.close()
    store.close()
    assert ended.code == 3
    assert ended.err.endswith("; wait until it closes the session, or end that process\n")


@pytest.mark.parametrize("scheme", ["sqlite", "lmdb", "jsonl"])
def test_a_link_is_the_store_that_it_leads_to(pico: Pico, tmp_path: Path, scheme: str) -> None:
    (tmp_path / "link").symlink_to("store")
    nowhere = f"{scheme}:{tmp_path}/link"
    for arguments in (("digest", nowhere), ("import", EXAMPLE, nowhere)):
        ended = pico(*arguments)
        assert (ended.code, ended.out) == (3, "")
        assert "it is a link to store, which is not there" in ended.err
    assert not (tmp_path / "store").exists()
    pico.done("import", EXAMPLE, f"{scheme}:{tmp_path}/store")

    through = [pico.done(command, nowhere) for command in ("digest", "verify", "show")]

    assert through == [
        pico.done(command, f"{scheme}:{tmp_path}/store") for command in ("digest", "verify", "show")
    ]


@pytest.mark.parametrize("kib", [8, 48, 64])
@pytest.mark.parametrize("scheme", ["sqlite", "lmdb", "jsonl"])
def test_a_limit_of_file_sizes_is_said(tmp_path: Path, scheme: str, kib: int) -> None:
    command = f'ulimit -f {kib}; exec "$0" -m pico_store.cli import "$1" {scheme}:"$2"/store'
    arguments = ["bash", "-c", command, sys.executable, EXAMPLE, str(tmp_path)]

    ended = subprocess.run(arguments, capture_output=True, text=True, check=False)

    if scheme == "jsonl" and not ended.returncode:
        # It needs less.
        assert kib > 8
        return
    assert ended.returncode == 3
    assert "this process's limit" in ended.stderr or "no room" in ended.stderr
