"""The part of the demo that kills a pipeline of tasks in its middle and goes on with it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pipeline
from pico_harness import inspect_storage
from pico_store.address import Seq
from pico_store.backends import open_store
from pico_store.query import TaskQuery
from pico_store.records import Task
from showing import DemoError, expect, heading, run

HERE = Path(__file__).resolve().parent
STUCK = "water"
KINDS = "pipeline:kinds"


def show_interrupted(folder: str) -> list[str]:
    """Plan, begin, kill, look, and drive to the end."""
    url = f"sqlite:{folder}/books.db"
    heading("Tasks that outlive their process: count the words of two books, chapter by chapter")
    asyncio.run(pipeline.main(url))
    run("inspect", url)
    heading("A process drives them; it is killed with SIGKILL in the middle of a chapter")
    kill_in_the_middle(url)
    done, live = tasks(url)
    run("inspect", url, "--kinds", KINDS)
    expect(
        [task.state["title"] for task in live if task.kind == "chapter"] == [STUCK],
        "one chapter was begun and is not done, and all others are",
    )
    heading("The session is opened again and driven to the end")
    run("drive", url, "--kinds", KINDS)
    check_end(url, done)
    run("show", url)
    return [
        "a pipeline of tasks was killed with SIGKILL, inspected, and driven to its end",
        "what was done before the kill was not done again",
    ]


def kill_in_the_middle(url: str) -> None:
    """Drive in a process of its own until one chapter alone is under way, and kill that process."""
    command = [sys.executable, "-m", "pico_store.cli", "drive", url, "--kinds", KINDS]
    print(f"\n$ pico drive {url} --kinds {KINDS} &")
    driver = subprocess.Popen(command, cwd=HERE, env={**os.environ, "PIPELINE_STUCK": STUCK})
    try:
        while not in_the_middle(url):
            if driver.poll() is not None:
                raise DemoError(f"the driver ended with {driver.returncode} before it was killed")
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    print(f"$ kill -9 {driver.pid}")


def in_the_middle(url: str) -> bool:
    """Tell whether everything is done that does not need the chapter that is stuck."""
    return [task.kind for task in tasks(url)[1]] == ["book", "sum", "chapter", "sum"]


def tasks(url: str) -> tuple[dict[Seq, Task], list[Task]]:
    """Return the tasks that are done, and those that are live, without disturbing anybody."""
    store = open_store(url, create=False)
    storage = store.open("books", read_only=True)
    found = inspect_storage(storage)
    every = storage.scan_tasks(TaskQuery(limit=1_000)).items
    store.close()
    live = sorted(found.start + found.inflight, key=lambda task: task.id)
    return {task.id: task for task in every if task.role == "terminal"}, live


def check_end(url: str, done: dict[Seq, Task]) -> None:
    """Compare the outcome with a count of the words, and what was done before with now."""
    after, live = tasks(url)
    words = sum(len(text.split()) for book in pipeline.SHELF.values() for text in book.values())
    expect(not live, "nothing is live at the end")
    expect(all(after[id] == task for id, task in done.items()), "what was done stayed as it was")
    sums = [task.state["words"] for task in after.values() if task.kind == "sum"]
    expect(sums[0] == words, f"the sum of all books is {words} words")
