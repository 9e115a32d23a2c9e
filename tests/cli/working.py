"""Work for the commands that inspect and drive: stores, planned tasks, drivers as processes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from pico_harness import Harness, Tx
from pico_store.backends import open_store
from pico_store.records import JsonObject
from tests.cli.running import buffered
from tests.cli.scripted_kinds import Other, Planned, step

ROOT = Path(__file__).resolve().parents[2]
KINDS = "tests.cli.scripted_kinds"
STEP = f"{KINDS}:step"
BOTH = f"{KINDS}:both"
MOVED_ON = f"{KINDS}:moved_on"
other = Other()


def new_work(url: str) -> str:
    """Make a store with the session ``s``, which has a root and nothing else."""
    store = open_store(url)
    store.create("s").close()
    store.close()
    return url


def plan(url: str, build: Callable[[Tx], object]) -> None:
    """Commit something to the root of session ``s``."""

    async def main() -> None:
        store = open_store(url, create=False)
        async with await Harness.open(store.open("s"), tasks=[step, other]) as harness:
            await (await harness.root()).commit(build)
        store.close()

    asyncio.run(main())


def plan_steps(url: str, *acts: str) -> None:
    plan(url, lambda tx: [tx.task(step, Planned(act)) for act in acts])


def drive_process(url: str, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "pico_store.cli", "drive", url, "--kinds", STEP, *more]
    return subprocess.Popen(
        command, cwd=ROOT, env=buffered(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def ids(found: JsonObject, name: str) -> list[object]:
    tasks = found[name]
    assert isinstance(tasks, list)
    return [task["id"] for task in tasks if isinstance(task, dict)]
