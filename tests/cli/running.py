"""Running `pico`, in this process or as its own."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass

import pytest

from pico_store.cli import main
from pico_store.records import JsonObject


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run of `pico` ended."""

    code: int
    out: str
    err: str

    def json(self) -> JsonObject:
        (line,) = self.out.splitlines()
        value = json.loads(line)
        assert isinstance(value, dict)
        return value


class Pico:
    """Runs `pico` in this process and captures what it prints."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Ended:
        self._capsys.readouterr()
        code = main(arguments)
        captured = self._capsys.readouterr()
        return Ended(code, captured.out, captured.err)

    def done(self, *arguments: str) -> str:
        """Run what must succeed and return what it printed."""
        ended = self(*arguments)
        assert ended.code == 0, ended.err
        return ended.out

    def json(self, *arguments: str) -> JsonObject:
        """Run what must succeed with ``--json`` and return the object."""
        ended = self(*arguments, "--json")
        assert ended.code == 0, ended.err
        return ended.json()


def buffered(**more: str) -> dict[str, str]:
    """Return an environment in which output waits in a buffer, as it does for users."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return {**kept, **more}


def pico_process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run `pico` as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "pico_store.cli", *arguments],
        capture_output=True,
        env=buffered(**environment),
        check=False,
    )
