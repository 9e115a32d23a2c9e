"""`pico compare` measures every installed backend, or the stores that it is given."""

from __future__ import annotations

import json
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
