"""A run that is stopped ends at once, with its workers, and leaves no folder behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ZOO = ("zoo", "--jobs", "2")
ALONE = ("conformance", "sqlite", "--no-rules", "--seconds", "600")


@pytest.mark.parametrize(
    ("command", "number", "code"),
    [
        (ZOO, signal.SIGINT, 130),
        (ZOO, signal.SIGTERM, 143),
        (ZOO, signal.SIGKILL, -9),
        (ALONE, signal.SIGINT, 130),
        (ALONE, signal.SIGTERM, 143),
    ],
)
def test_a_run_that_is_stopped_ends_whole(
    tmp_path: Path, command: tuple[str, ...], number: signal.Signals, code: int
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "pico_store.cli", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    while process.poll() is None and not list(tmp_path.glob("pico-conformance-*")):
        pass

    process.send_signal(number)
    # Ends when nobody can write there any more: no worker is left.
    out, _ = process.communicate(timeout=300)

    assert (process.returncode, out) == (code, b"")
    assert list(tmp_path.glob("pico-conformance-*")) == []
