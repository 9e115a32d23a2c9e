"""One case in a process of its own: `python -m pico_bench.case TARGET SETTING` prints numbers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name
from tempfile import TemporaryDirectory
from typing import TypeAlias

import msgspec
from msgspec import Struct

from pico_store.errors import PicoError


class CaseError(PicoError):
    """A case did not come to its end: its message says why; correct that and measure again."""


class Setting(Struct, frozen=True):
    """How much each case does, and where."""

    folder: str = ""
    """Empty, and gone after the case."""
    kept: str = ""
    """Where large sessions are kept from one run to the next."""
    turns: int = 2_000
    """Of the workload, timed."""
    commits: int = 500
    """A session and case of `power` durability."""
    entries: int = 1_000_000
    """Of the large session."""
    few_entries: int = 10_000
    """Of the session that it is compared with."""
    calls: int = 300
    """Of each kind to each of the two."""
    seconds: float = 10.0
    """Of replaying histories."""
    seed: int = 1
    tasks: int = 100_000
    """Before those that are compared with the first ones; finished child conversations."""
    blocking: int = 900
    """Commits of 100 KB while the event loop is watched."""
    url: str = ""
    """Of the store to be measured, with ``{path}`` where its path stands."""
    session: str = ""
    """The file of a recorded session; empty: the one beside the repository, if it is there."""


Numbers: TypeAlias = dict[str, float]
CaseFunction: TypeAlias = Callable[[Setting], Numbers]


def run_case(target: str, setting: Setting) -> Numbers:
    """Run a case, named as ``module:function``, in a fresh interpreter and folder.

    Raises:
        CaseError: It failed; the message has its last words.
    """
    Path(setting.kept).mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="case-", dir=setting.kept) as folder:
        there = msgspec.structs.replace(setting, folder=folder)
        text = msgspec.json.encode(there).decode()
        # -P: a module of the folder that this is called in is none of ours.
        command = [sys.executable, "-P", "-m", "pico_bench.case", target, text]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        words = done.stderr.strip().splitlines() or [f"ended with code {done.returncode}"]
        raise CaseError(f"{target}: {words[-1]}")
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Numbers)


def main(target: str, setting: str) -> None:
    """Run a case in this process and print its numbers."""
    function: CaseFunction = resolve_name(target)
    numbers = function(msgspec.json.decode(setting, type=Setting))
    print(msgspec.json.encode(numbers).decode())


if __name__ == "__main__":
    main(*sys.argv[1:])
