"""What needs real processes: SIGKILL at chosen points, owners and exits (PROC-1, PROC-2)."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pico_harness import EntryDraft, Harness, inbox
from pico_harness.errors import TaskParkedError
from pico_harness.harness import ROOT
from pico_store.address import Seq
from pico_store.backends import open_store
from pico_store.errors import SessionOwnedError
from pico_store.query import TaskQuery
from pico_store.storage import Store
from tests.harness.scripted import Script, Tool
from tests.harness.worlds import on_loop, outcome

URLS = ["sqlite:{}/a.db", "sqlite:{}/a.db?durability=power", "jsonl:{}/a", "lmdb:{}/a"]
HELLO = EntryDraft("user", data="hello")


@pytest.fixture(params=URLS, ids=["sqlite", "sqlite-power", "jsonl", "lmdb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the store of a test is."""
    return str(request.param.format(tmp_path))


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    store = open_store(url)
    yield store
    store.close()


def run(script: str, *args: str) -> subprocess.Popen[str]:
    """Start a part of `process_scripts` in a process of its own."""
    root = str(Path(__file__).parents[2])
    return subprocess.Popen(
        [sys.executable, "-m", "tests.harness.process_scripts", script, *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=root,
    )


def kill_at(script: str, url: str, *args: str) -> str:
    """Kill a process with SIGKILL when it says that it is where it should be; return its word."""
    process = run(script, url, *args)
    assert process.stdout is not None
    said = process.stdout.readline().strip()
    process.send_signal(signal.SIGKILL)
    _, errors = process.communicate()
    assert said, errors
    return said


@on_loop
async def test_an_acceptance_whose_reply_was_lost_is_found(url: str) -> None:
    said = kill_at("accept", url)
    assert said == "durable"
    store = open_store(url)
    harness = await Harness.open(store.open("a"))

    receipt = await harness.acceptance("lost")
    root = await harness.root()
    again = await root.accept(HELLO, request_id="lost", on_duplicate="return")

    assert receipt is not None
    assert receipt.conversation_id == ROOT
    assert again == receipt.input_id
    assert len(await root.commit(lambda tx: inbox.queued(tx, ROOT))) == 1
    await harness.close()
    store.close()


@on_loop
async def test_five_running_tasks_are_listed_and_then_end(url: str) -> None:
    """Field report 69."""
    assert kill_at("five", url) == "running"
    store = open_store(url)
    kind = Script()
    harness = await Harness.open(store.open("a"), tasks=[kind])

    seen = await harness.inspect()
    driven = await (await harness.root()).drive()

    assert len(seen.inflight) == 5
    assert seen.running == ()
    assert driven == "idle"
    assert sorted(kind.calls) == [("recover", task.id) for task in seen.inflight]
    tasks = (await harness.tasks(TaskQuery())).items
    assert {task.status for task in tasks} == {"done"}
    await harness.close()
    store.close()


@on_loop
async def test_a_shutdown_killed_before_its_clean_up_marks_tasks_only(url: str) -> None:
    assert kill_at("shutdown", url) == "cleaning"
    store = open_store(url)
    kind, tool = Script(), Tool()
    harness = await Harness.open(store.open("a"), tasks=[kind, tool])
    root = await harness.root()
    tasks = (await harness.tasks(TaskQuery(live=True))).items

    marked = [task.abort for task in tasks]
    queue = await root.commit(lambda tx: inbox.queued(tx, ROOT))
    assert await harness.drive() == "idle"

    assert marked == [True] * 2
    assert [item.value.mode for item in queue] == ["nextRun", "followUp"]
    assert [method for method, _ in kind.calls + tool.calls] == ["abort"] * 2
    assert await root.commit(lambda tx: inbox.queued(tx, ROOT)) == queue
    for item in queue:
        assert (await root.result(item.id)).status == "queued"  # type: ignore[union-attr]
    await harness.close()
    store.close()


@pytest.mark.parametrize(
    ("point", "calls"),
    [
        ("before-mark", ["recover"]),
        ("after-mark", ["abort"]),
        ("during-abort", ["abort"]),
        ("after-outcome", []),
    ],
)
@on_loop
async def test_a_crash_around_a_mark(tmp_path: Path, point: str, calls: list[str]) -> None:
    """Facts 100 and 101."""
    url = f"sqlite:{tmp_path}/a.db"
    assert kill_at("mark", url, point) == point
    store = open_store(url)
    kind = Script()
    harness = await Harness.open(store.open("a"), tasks=[kind])

    assert await (await harness.root()).drive() == "idle"

    assert [method for method, _ in kind.calls] == calls
    await harness.close()
    store.close()


@on_loop
async def test_a_task_that_crashed_the_process_five_times_is_parked(tmp_path: Path) -> None:
    """TASKS-5."""
    url = f"sqlite:{tmp_path}/a.db"
    for _ in range(5):
        assert kill_at("crash", url) == "in flight"
    store = open_store(url)
    kind = Script()
    harness = await Harness.open(store.open("a"), tasks=[kind])
    root = await harness.root()
    (parked,) = (await harness.inspect()).parked

    stuck = await outcome(root.drive())

    assert isinstance(stuck, TaskParkedError)
    assert stuck.tasks == (parked.id,)
    assert kind.calls == []
    await harness.resume_task(parked.id)
    assert await root.drive() == "idle"
    assert kind.calls == [("recover", parked.id)]
    await harness.close()
    store.close()


@on_loop
async def test_a_parked_task_that_is_marked_is_aborted(tmp_path: Path) -> None:
    """TASKS-5: whoever marks it has said how it goes on."""
    url = f"sqlite:{tmp_path}/a.db"
    for _ in range(5):
        assert kill_at("crash", url) == "in flight"
    store = open_store(url)
    kind = Script()
    harness = await Harness.open(store.open("a"), tasks=[kind])
    root = await harness.root()
    (parked,) = (await harness.inspect()).parked
    with pytest.raises(TaskParkedError):
        await root.drive()

    await harness.abort_task(parked.id)

    assert await root.drive() == "idle"
    assert kind.calls == [("abort", parked.id)]
    await harness.close()
    store.close()


@on_loop
async def test_a_task_that_crashed_four_times_is_recovered(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/a.db"
    for _ in range(4):
        assert kill_at("crash", url) == "in flight"
    store = open_store(url)
    kind = Script()
    harness = await Harness.open(store.open("a"), tasks=[kind])

    assert await (await harness.root()).drive() == "idle"
    assert [method for method, _ in kind.calls] == ["recover"]
    await harness.close()
    store.close()


@on_loop
async def test_a_second_owner_is_told_of_the_first_and_may_look(url: str) -> None:
    """PROC-2, field report 6."""
    process = run("hold", url)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "held"
    store = open_store(url)
    try:
        with pytest.raises(SessionOwnedError, match=str(process.pid)):
            store.open("a")
        with store_view(store) as last:
            assert last > 0
    finally:
        process.kill()
        process.communicate()

    harness = await Harness.open(store.open("a"), tasks=[Script()])
    await harness.close()
    store.close()


class store_view:  # noqa: N801 - used as a word
    """A look at session ``a`` beside its owner."""

    def __init__(self, store: Store) -> None:
        self._storage = store.open("a", read_only=True)

    def __enter__(self) -> Seq:
        return self._storage.last_seq

    def __exit__(self, *_: object) -> None:
        self._storage.close()


@pytest.mark.parametrize(
    "how", ["never-closes", "closes-twice", "closes-during-commit", "loop-closed", "interrupted"]
)
def test_a_script_exits_by_itself_and_says_nothing(url: str, how: str) -> None:
    """PROC-1, field report 49."""
    process = run("exit", url, how)

    # A hang would be a failure too; ten seconds are for a machine that is busy.
    said, errors = process.communicate(timeout=30)

    assert process.returncode == 0
    assert said == "done\n"
    assert errors == ""
    store = open_store(url)
    storage = store.open("a")
    assert storage.last_seq > 0
    store.close()
