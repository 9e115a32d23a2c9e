"""A check that does not hold ends with 1, and says what is wrong."""

import os
import signal
from pathlib import Path
from typing import NoReturn

import pytest

from pico_store.address import Seq
from pico_store.commands import copy as copy_command
from pico_store.commands import verify as verify_command
from pico_store.copying import CopyReport
from tests.cli.running import Pico
from tests.packaging.repository import ROOT


def test_a_copy_that_differs_ends_with_1(
    pico: Pico, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = CopyReport("s", Seq(10), 14, "aa", "bb")
    monkeypatch.setattr(copy_command, "copy_session", lambda *arguments: report)

    ended = pico("copy", url, "memory:")

    assert ended.code == 1
    assert ended.out.splitlines() == ["aa  s  as read", "bb  s  in memory:: NOT EQUAL"]


def test_damage_ends_with_1_and_is_named(pico: Pico, url: str) -> None:
    file = Path(url.removeprefix("sqlite:"))
    whole = file.read_bytes()
    assert whole.count(b"go right") == 1
    file.write_bytes(whole.replace(b"go right", b"go wrong"))

    ended = pico("verify", url)

    assert ended.code == 1
    assert ended.out.splitlines()[-1].endswith(" 1 problem")
    found = pico("verify", url, "--json").json()
    assert isinstance(found["problems"], list)
    assert len(found["problems"]) == 1


def test_a_store_that_is_cut_off_is_a_problem_that_verify_names(pico: Pico, url: str) -> None:
    file = Path(url.removeprefix("sqlite:"))
    file.write_bytes(file.read_bytes()[:20_000])

    ended = pico("verify", url)

    assert (ended.code, ended.err) == (1, "")
    problem, total = ended.out.splitlines()
    assert problem.startswith("store: ")
    assert problem.endswith("; restore a backup")
    assert "run pico verify" not in problem
    assert total == "0 records read, 1 problem"


def test_a_store_that_ends_who_opens_it_is_a_problem(
    pico: Pico, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ending(url: str) -> NoReturn:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    monkeypatch.setattr(verify_command, "existing_store", ending)

    ended = pico("verify", url)

    assert ended.code == 1
    assert f"signal {int(signal.SIGKILL)}" in ended.out


def test_a_damaged_source_makes_no_store(pico: Pico, url: str, tmp_path: Path) -> None:
    file = Path(url.removeprefix("sqlite:"))
    file.write_bytes(file.read_bytes().replace(b"go right", b"go wrong"))

    ended = pico("copy", url, f"sqlite:{tmp_path / 'other.db'}")

    assert ended.code == 3
    assert not (tmp_path / "other.db").exists()


@pytest.mark.parametrize(
    ("scheme", "file", "offset", "text"),
    [
        ("jsonl", "store.json", 0, b"not json at all"),
        ("sqlite", "", 0, b"garbage"),
        ("sqlite", "", 0, bytes(100)),
        ("sqlite", "", 68, bytes(4)),
        ("sqlite", "", 16, b"\xff" * 8),
        ("lmdb", "format", 0, b"garbage"),
        ("lmdb", "data.mdb", 0, bytes(64)),
        ("lmdb", "data.mdb", 0, b"\xff" * 4096),
    ],
)
def test_a_store_too_damaged_to_be_opened_does_not_hold(
    pico: Pico, tmp_path: Path, scheme: str, file: str, offset: int, text: bytes
) -> None:
    url = f"{scheme}:{tmp_path}/store"
    pico.done("import", str(ROOT / "examples" / "session.jsonl"), url)
    path = tmp_path / "store" / file if file else tmp_path / "store"
    whole = path.read_bytes()
    path.write_bytes(whole[:offset] + text + whole[offset + len(text) :])

    ended = pico("verify", url)

    assert (ended.code, ended.err) == (1, "")
    assert "JSON is malformed" not in ended.out
    assert ended.out.endswith("\n0 records read, 1 problem\n")
