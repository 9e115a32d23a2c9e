"""Ctrl-C and SIGTERM end a command also when they arrive while a finaliser runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from pico_conformance.workers import open_workers

# A command that, where it is told to, meets a signal within a finaliser of Python's.
_COMMAND = """
import signal, sys, weakref
from contextlib import nullcontext
from pico_conformance.workers import unwound_by_sigterm
from pico_store import cli
from pico_store.command import Command

number, place, then, block = int(sys.argv[1]), *sys.argv[2:]

met = []

def meet(*_):
    if not met:
        met.append(number)
        signal.raise_signal(number)
    for _ in range(100):
        pass

class Finalised:
    if place == "__del__":
        __del__ = meet

def run(args):
    with nullcontext() if block == "plain" else unwound_by_sigterm():
        thing = Finalised()
        if place == "callback":
            kept = weakref.ref(thing, meet)
        elif place == "finalize":
            weakref.finalize(thing, meet)
        del thing
        while then == "goes on":
            pass
        if then == "closes on":
            for _ in range(10**9):
                Finalised()
    print("done")
    return 0

cli._points = lambda: {"it": "here"}
cli._load = lambda point: Command("it", "", lambda parser: None, run)
sys.exit(cli.main(["it"]))
"""


@pytest.mark.parametrize("then", ["goes on", "closes on", "ends"])
@pytest.mark.parametrize("place", ["__del__", "callback", "finalize"])
@pytest.mark.parametrize(
    ("number", "block", "code"),
    [
        (signal.SIGINT, "plain", 130),
        (signal.SIGINT, "unwound", 130),
        (signal.SIGTERM, "unwound", 143),
    ],
)
def test_a_signal_within_a_finaliser_ends_the_command(
    number: signal.Signals, block: str, code: int, place: str, then: str
) -> None:
    process = subprocess.run(
        [sys.executable, "-c", _COMMAND, str(int(number)), place, then, block],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert process.returncode == code
    # Whether it came to its end before the signal was noticed, the code says that it was asked.
    assert process.stdout in ("", "done", "done\n")[: 3 if then == "ends" else 1]
    assert "Exception ignored" not in process.stderr
    assert "Traceback" not in process.stderr


# The signal comes within the n-th finaliser of a payload file.
_CONFORMANCE = """
import signal, sys
from pico_jsonl import bodies
from pico_store.cli import main

number, left = map(int, sys.argv[1:])
real = bodies.LogBodies.__del__

def met(self):
    global left
    left -= 1
    if not left:
        signal.raise_signal(number)
    real(self)

bodies.LogBodies.__del__ = met
sys.exit(main(["conformance", "jsonl", "--no-rules", "--seconds", "600"]))
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("left", [1, 7, 40])
def test_conformance_ends_by_a_signal_within_a_finaliser(
    tmp_path: Path, number: signal.Signals, code: int, left: int
) -> None:
    process = subprocess.run(
        [sys.executable, "-c", _CONFORMANCE, str(int(number)), str(left)],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        timeout=300,
        check=False,
    )

    assert (process.returncode, process.stdout) == (code, "")
    assert "Exception ignored" not in process.stderr
    assert list(tmp_path.glob("pico-conformance-*")) == []


# Nothing but finalisers, so that most signals arrive within one.
_FINALISERS = """
import sys
from pico_store import cli
from pico_store.command import Command

class Finalised:
    def __del__(self):
        for _ in range(200):
            pass

def run(args):
    print("begun", flush=True)
    while True:
        Finalised()

cli._points = lambda: {"it": "here"}
cli._load = lambda point: Command("it", "", lambda parser: None, run)
sys.exit(cli.main(["it"]))
"""


def test_a_signal_at_any_instant_ends_a_command_of_finalisers() -> None:
    random = Random(7)
    for _ in range(8):
        process = subprocess.Popen(
            [sys.executable, "-c", _FINALISERS],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        process.stdout.readline()
        # Some work of this process's own, so that the instants differ.
        sum(range(random.randrange(10**6)))
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)

        assert (process.returncode, err) == (130, "pico: interrupted\n")


class _Finalised:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGTERM)


def _meet_and_go_on() -> None:
    _Finalised()
    while True:
        pass


def test_a_worker_ends_by_a_signal_within_a_finaliser() -> None:
    with pytest.raises(Exception, match="terminated abruptly"), open_workers(1) as workers:
        workers.submit(_meet_and_go_on).result(timeout=60)
