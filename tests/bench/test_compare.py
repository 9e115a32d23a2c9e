"""`pico compare` measures every installed backend, or the stores that it is given."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from pico_store import cli
from pico_store.backends import Backend, backends


def run(*arguments: str) -> int:
    return cli.main(["compare", *arguments, "--turns", "2", "--entries", "60"])


def test_every_backend_has_a_row_at_each_level(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "found.json"

    code = run("--json", "--output", str(file), "--dir", str(tmp_path))

    found = json.loads(file.read_text(encoding="utf-8"))
    expected = []
    for scheme, backend in backends().items():
        assert isinstance(backend, Backend)
        levels = backend.promises.durability
        expected += [f"{scheme}: {level}" for level in levels] or [f"{scheme}:"]
    assert code == 0
    assert [store["store"] for store in found["stores"]] == expected
    for store in found["stores"]:
        kept = store["store"] != "memory:"
        assert store.keys() - {"disk", "disk_ratio", "open_ms"} == {
            *("store", "cpu_us", "wall_us", "mib", "page_ms")
        }
        assert ("open_ms" in store) is ("disk_ratio" in store) is kept
        assert all(value > 0 for name, value in store.items() if name.endswith(("us", "ms")))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines[1 : len(expected) + 1]] == expected
    assert [path.name for path in tmp_path.iterdir()] == ["found.json"]


def test_named_stores_are_compared_with_their_options(capsys: pytest.CaptureFixture[str]) -> None:
    code = run("sqlite:unused.db?durability=process&compression=zstd", "memory:")

    lines = capsys.readouterr().out.splitlines()
    assert code == 0
    assert lines[1].startswith("sqlite:unused.db?durability=process&compression=zstd  ")
    assert lines[2].split()[0] == "memory:"
    assert not Path("unused.db").exists()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("nosuch:x",), "nosuch"),
        (("sqlite:x?speed=high",), "speed"),
        (("memory:", "--output", "x.json"), "--output needs --json"),
    ],
)
def test_what_cannot_be_compared_is_one_line(
    arguments: tuple[str, ...], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(*arguments)

    ended = capsys.readouterr()
    assert code != 0
    assert problem in ended.err
    assert ended.err.count("\n") == 1
    assert ended.out == ""


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("sqlite:x?durability=max",), "compare: sqlite:x?durability=max: durability='max'; "),
        (("lmdb:x?busy_ms=soon",), "compare: lmdb:x?busy_ms=soon: busy_ms='soon'; "),
        (("memory:", "--dir", "none"), "compare: --dir: none is no folder; make it first"),
        (("memory:", "--json", "--output", "none/x"), "compare: --output: none is no folder"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_any_work(
    arguments: tuple[str, ...],
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pico_bench.compare.run_case", pytest.fail)

    code = run(*arguments)

    assert code == 2
    assert capsys.readouterr().err.startswith(f"pico: {problem}")


def test_sigterm_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    met: list[int] = []

    def ended(*_: object) -> None:
        met.append(len(list(tmp_path.iterdir())))
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("pico_bench.compare.run_case", ended)

    with pytest.raises(SystemExit) as stop:
        run("memory:", "--dir", str(tmp_path))

    assert stop.value.code == 143
    assert met == [1]
    assert list(tmp_path.iterdir()) == []
