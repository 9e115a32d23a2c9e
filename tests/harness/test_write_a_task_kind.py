"""What docs/how-to/write-a-task-kind.md shows is the example, and the example does what it says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pico_harness import inspect_storage
from pico_store.backends import open_store
from pico_store.query import TaskQuery

ROOT = Path(__file__).resolve().parents[2]
HOW_TO = ROOT / "docs" / "how-to" / "write-a-task-kind.md"
EXAMPLE = ROOT / "examples" / "pipeline.py"


def blocks(kind: str) -> list[str]:
    found = re.findall(rf"^```{kind}\n(.*?)^```", HOW_TO.read_text(), re.MULTILINE | re.DOTALL)
    assert found, f"the how-to has no {kind} block"
    return found


def start(line: str, folder: Path, **more: str) -> subprocess.Popen[str]:
    """Start a command of the how-to in a folder with the example."""
    tool, *arguments = line.split()
    command = {"python": [sys.executable], "pico": [sys.executable, "-m", "pico_store.cli"]}[tool]
    return subprocess.Popen(
        [*command, *arguments],
        cwd=folder,
        env={**os.environ, **more},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def run(line: str, folder: Path) -> str:
    process = start(line, folder)
    out, err = process.communicate()
    assert process.returncode == 0, f"{line}\n{err}"
    return out


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / EXAMPLE.name).write_text(EXAMPLE.read_text())
    return tmp_path


def commands(number: int) -> list[str]:
    """Return the commands of the first console block, or of the second, in which one is killed."""
    block = blocks("console")[number]
    return [line.removeprefix("$ ") for line in block.splitlines()]


@pytest.mark.parametrize("block", blocks("python"), ids=lambda block: block.split("\n")[0].strip())
def test_every_block_of_the_how_to_is_in_the_example(block: str) -> None:
    assert block in EXAMPLE.read_text()


def test_the_commands_of_the_how_to_do_the_work(folder: Path) -> None:
    outputs = [run(line, folder) for line in commands(0)]

    assert len(outputs) == 4
    assert "live tasks: 3" in outputs[1]
    assert outputs[2].startswith("session books is idle at number ")
    assert "all books: 18 words" in outputs[3]


def test_a_plan_that_is_there_is_not_made_again(folder: Path) -> None:
    plan = commands(0)[0]
    run(plan, folder)

    again = start(plan, folder)
    _, err = again.communicate()

    assert again.returncode == 1
    assert err.startswith("sqlite:books.db has such a plan already: ")
    assert "Traceback" not in err


def test_a_kill_in_the_middle_costs_only_what_was_under_way(folder: Path) -> None:
    plan, stuck, kill, inspect, drive, show = commands(1)
    run(plan, folder)
    assert stuck == f"PIPELINE_STUCK=water {drive} &"
    driver = start(drive, folder, PIPELINE_STUCK="water")
    store = open_store(f"sqlite:{folder}/crash.db", create=False)
    try:
        storage = store.open("books", read_only=True)
        while [task.kind for task in inspect_storage(storage).inflight] != ["book", "chapter"]:
            assert driver.poll() is None, driver.communicate()
        while len(inspect_storage(storage).start) > 2:
            assert driver.poll() is None, driver.communicate()
        done = [t for t in storage.scan_tasks(TaskQuery(limit=100)).items if t.role == "terminal"]
    finally:
        assert kill.endswith("kill -9 $!")
        driver.send_signal(signal.SIGKILL)
        driver.communicate()

    assert re.search(r"in flight: .*\n +2 +book .*\n +7 +chapter ", run(inspect, folder))
    run(drive, folder)

    assert done
    assert list(storage.get_tasks(task.id for task in done).values()) == done
    assert inspect_storage(storage).count == 0
    store.close()
    assert "all books: 18 words" in run(show, folder)
