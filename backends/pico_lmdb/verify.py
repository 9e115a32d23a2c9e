"""Proving a folder whole, in a process of its own: a damaged map can end the one that reads it."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import msgspec
from msgspec import Struct

from pico_lmdb.audit import audit_folder
from pico_store.storage import Problem, VerifyReport

# -P: what lies in the folder that the process happens to be in is not imported.
_ARGUMENTS: Final = ("-P", "-m", "pico_lmdb.verify")


class _Report(Struct):
    records: int
    problems: list[tuple[str | None, str, str]]


def verify_folder(path: str) -> VerifyReport:
    """Read everything in one state of the environment; change nothing."""
    command = [sys.executable, *_ARGUMENTS, path]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode == 0:
        report = msgspec.json.decode(done.stdout, type=_Report)
        problems = tuple(Problem(*problem) for problem in report.problems)
        return VerifyReport(report.records, problems)
    words = done.stderr.decode(errors="replace").strip().splitlines()
    said = f": {words[-1]}" if words else ""
    what = (
        f"damaged so that reading it ended the check with signal {-done.returncode}"
        if done.returncode < 0
        else f"the check ended with code {done.returncode}"
    )
    return VerifyReport(0, (Problem(None, "file", what + said),))


def main(path: str) -> None:
    """Check a folder and print what was found as JSON."""
    report = audit_folder(path)
    problems = [(problem.session, problem.where, problem.what) for problem in report.problems]
    print(msgspec.json.encode(_Report(report.records, problems)).decode())


if __name__ == "__main__":
    main(sys.argv[1])
