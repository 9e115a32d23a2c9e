"""`pico inspect` looks at a session's work, `pico drive` does it."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pico_store.address import Seq
from pico_store.backends import open_store
from tests.cli.running import Pico
from tests.cli.scripted_kinds import Planned, step
from tests.cli.working import (
    BOTH,
    KINDS,
    MOVED_ON,
    ROOT,
    STEP,
    drive_process,
    ids,
    new_work,
    other,
    plan,
    plan_steps,
)


@pytest.fixture(params=["sqlite:{}/work.db", "jsonl:{}/work"])
def work(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store with the session ``s``, which has a root and nothing else."""
    return new_work(str(request.param).format(tmp_path))


# --- inspect ---


def test_without_kinds_live_tasks_are_told_by_their_role(pico: Pico, work: str) -> None:
    plan_steps(work, "settle", "settle")
    plan(work, lambda tx: tx.task(step, Planned(), after=[Seq(2)], background=True))

    found = pico.json("inspect", work)

    assert ids(found, "start") == [2, 3, 4]
    assert (found["session"], found["lastSeq"], found["owner"]) == ("s", 4, None)
    assert [found[name] for name in ("inflight", "orphaned", "parked")] == [[], [], []]
    out = pico.done("inspect", work)
    assert "live tasks: 3" in out
    assert "after 2  [background]" in out


def test_with_kinds_what_could_not_run_is_told_apart(pico: Pico, work: str) -> None:
    plan_steps(work, "settle")
    plan(work, lambda tx: tx.task(other, Planned()))
    plan(work, lambda tx: tx.task(other, Planned(), background=True))

    found = pico.json("inspect", work, "--kinds", STEP)

    assert [ids(found, name) for name in ("start", "orphaned", "parked")] == [[2], [3], [4]]
    assert ids(pico.json("inspect", work, "--kinds", BOTH), "start") == [2, 3, 4]


def test_what_its_kind_cannot_read_is_shown_with_the_reason(pico: Pico, work: str) -> None:
    plan_steps(work, "raise")

    found = pico.json("inspect", work, "--kinds", MOVED_ON)
    driven = pico("drive", work, "--kinds", MOVED_ON)

    assert ids(found, "parked") == [2]
    problem = "task 2 (step, planned): Object contains unknown field `act`"
    assert found["unreadable"] == {"2": problem}
    assert driven.code == 1
    assert "session s is parked" in driven.out
    assert "cannot be read: task 2 (step, planned)" in driven.out
    assert "cannot be read: task 2" in pico.done("inspect", work, "--kinds", MOVED_ON)


def test_many_live_tasks_are_counted_and_not_all_listed(pico: Pico, work: str) -> None:
    plan_steps(work, *["settle"] * 30)

    out = pico.done("inspect", work)

    assert "live tasks: 30" in out
    assert "  and 10 more" in out


def test_looking_at_a_session_at_work_disturbs_nobody(pico: Pico, work: str) -> None:
    plan_steps(work, "hang")
    process = drive_process(work)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"hanging\n"

        found = pico.json("inspect", work, "--kinds", STEP)

        assert ids(found, "inflight") == [2]
        assert isinstance(found["owner"], dict)
        assert found["owner"]["pid"] == process.pid
        assert found["owner"]["ended"] is False
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    finally:
        process.kill()
        process.communicate()
    # It could close in peace: its ownership was not touched.
    assert (process.returncode, err) == (130, b"pico: interrupted\n")


def test_an_owner_that_was_killed_is_said_to_be_gone(pico: Pico, work: str) -> None:
    plan_steps(work, "die")
    process = drive_process(work)
    process.communicate()
    assert process.returncode == -signal.SIGKILL

    found = pico.json("inspect", work)

    assert isinstance(found["owner"], dict)
    assert (found["owner"]["pid"], found["owner"]["ended"]) == (process.pid, True)
    assert f"owner gone (process {process.pid} ended): " in pico.done("inspect", work)
    assert ", ended" in pico.done("sessions", work)


def test_an_owner_of_this_process_is_never_gone(pico: Pico, work: str) -> None:
    store = open_store(work)
    storage = store.open("s")

    out = pico.done("inspect", work)

    storage.close()
    store.close()
    assert f"owner on record: process {os.getpid()} on " in out


# --- drive ---


def test_driving_runs_everything_and_says_so(pico: Pico, work: str) -> None:
    plan_steps(work, "settle", "settle")

    out = pico.done("drive", work, "--kinds", STEP)

    assert out.startswith("session s is idle at number ")
    assert pico.json("inspect", work)["start"] == []
    assert pico.json("drive", work, "--kinds", STEP)["outcome"] == "idle"


def test_a_second_driver_is_told_who_drives_and_how_to_look(pico: Pico, work: str) -> None:
    store = open_store(work)
    storage = store.open("s")

    ended = pico("drive", work, "--kinds", STEP)

    storage.close()
    store.close()
    assert ended.code == 3
    assert f"process {os.getpid()} on " in ended.err
    assert f"pico inspect {work}" in ended.err
    assert ended.err.count("\n") == 1


def test_tasks_of_kinds_that_were_not_named_stop_it_before_it_begins(pico: Pico, work: str) -> None:
    plan_steps(work, "settle")
    plan(work, lambda tx: tx.task(other, Planned()))

    ended = pico("drive", work, "--kinds", STEP)

    assert ended.code == 2
    assert "tasks 3 are of kinds that --kinds does not name: other" in ended.err
    assert ids(pico.json("inspect", work), "start") == [2, 3]


def test_they_are_given_up_where_that_is_asked_for(pico: Pico, work: str) -> None:
    plan(work, lambda tx: tx.task(other, Planned()))
    plan(work, lambda tx: tx.task(other, Planned(), background=True))

    found = pico.json("drive", work, "--kinds", STEP, "--orphan")

    assert (found["outcome"], found["orphaned"], found["parked"]) == ("idle", [2], [3])


@pytest.mark.parametrize("traceback", [False, True])
def test_a_broken_kind_is_named_with_task_and_method(
    pico: Pico, work: str, monkeypatch: pytest.MonkeyPatch, *, traceback: bool
) -> None:
    if traceback:
        monkeypatch.setenv("PICO_TRACEBACK", "1")
    plan_steps(work, "raise")

    ended = pico("drive", work, "--kinds", STEP)

    last = ended.err.splitlines()[-1]
    assert ended.code == 1
    assert last == "pico: execute of task 2 (step) raised ValueError: planted on two lines"
    assert (ended.err.count("\n") > 1) is traceback
    fault = pico("drive", work, "--kinds", STEP, "--json").json()["fault"]
    assert fault == {
        "task": 2,
        "kind": "step",
        "method": "execute",
        "problem": "raised ValueError: planted\non two lines",
    }


def test_a_task_that_was_lost_in_flight_is_recovered(pico: Pico, work: str) -> None:
    plan_steps(work, "die")
    process = drive_process(work)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert ids(pico.json("inspect", work), "inflight") == [2]

    assert pico.json("drive", work, "--kinds", STEP)["outcome"] == "idle"


def test_a_task_that_kills_its_process_again_and_again_is_parked(pico: Pico, work: str) -> None:
    plan_steps(work, "die always")
    ends = []
    for _ in range(5):
        process = drive_process(work)
        process.communicate()
        ends.append(process.returncode)
    assert ends == [-signal.SIGKILL] * 5
    assert ids(pico.json("inspect", work), "parked") == [2]

    ended = pico("drive", work, "--kinds", STEP)

    assert ended.code == 1
    assert "session s is parked" in ended.out
    assert "parked: 1 task" in ended.out


def test_ctrl_c_closes_and_leaves_the_task_to_the_next(pico: Pico, work: str) -> None:
    plan_steps(work, "hang")
    process = drive_process(work)
    assert process.stdout is not None
    assert process.stdout.readline() == b"hanging\n"

    process.send_signal(signal.SIGINT)
    _, err = process.communicate()

    assert (process.returncode, err) == (130, b"pico: interrupted\n")
    found = pico.json("inspect", work)
    # Nobody owns it any more: it was closed, not lost.
    assert (found["owner"], ids(found, "inflight")) == (None, [2])
    assert pico.json("drive", work, "--kinds", STEP)["outcome"] == "idle"


def test_ctrl_c_is_no_loss_however_often(pico: Pico, work: str) -> None:
    plan_steps(work, "hang always")
    for _ in range(6):
        process = drive_process(work)
        assert process.stdout is not None
        assert process.stdout.readline() == b"hanging\n"
        process.send_signal(signal.SIGINT)
        process.communicate()
        assert process.returncode == 130

    found = pico.json("inspect", work)

    assert (ids(found, "inflight"), found["parked"]) == ([2], [])


def test_a_broken_kind_is_one_line_for_a_process_too(work: str) -> None:
    plan_steps(work, "raise")
    process = drive_process(work)

    out, err = process.communicate()

    assert (process.returncode, out) == (1, b"")
    assert err == b"pico: execute of task 2 (step) raised ValueError: planted on two lines\n"


def test_progress_is_shown_on_a_terminal(work: str) -> None:
    plan_steps(work, "settle")
    parent, child = pty.openpty()
    command = [sys.executable, "-m", "pico_store.cli", "drive", work, "--kinds", STEP]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=child)
    process.communicate()
    os.close(child)

    shown = os.read(parent, 10_000)

    os.close(parent)
    assert process.returncode == 0
    assert b"1 live task, " in shown
    assert shown.endswith(b"\x1b[K")


# --- Naming kinds ---


@pytest.mark.parametrize(
    ("kinds", "problem"),
    [
        ("", "names no kind; allowed: module:attribute"),
        ("jobs", "names no kind; allowed: module:attribute"),
        ("no_such_module_here:step", "no module 'no_such_module_here'"),
        ("tests.cli.no_such:step", "no module 'tests.cli.no_such'"),
        (f"{KINDS}:stop", f"has no 'stop'; its kinds: {KINDS}:step"),
        (f"{KINDS}:nothing", "is int, which is no task kind"),
        (f"{KINDS}:Demanding", "cannot be made without arguments"),
        (f"{KINDS}:twice", "task kind 'step' is registered"),
        (f"{STEP},{STEP}", "task kind 'step' is registered"),
        ("broken_kinds:step", "importing broken_kinds raised RuntimeError: planted"),
        ("needy_kinds:step", "module needy_kinds needs 'no_such_thing', which is not installed"),
    ],
)
@pytest.mark.parametrize("command", ["drive", "inspect"])
def test_a_name_that_stands_for_no_kind_is_explained(
    pico: Pico,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    kinds: str,
    problem: str,
) -> None:
    (tmp_path / "broken_kinds.py").write_text("raise RuntimeError('planted')\n")
    (tmp_path / "needy_kinds.py").write_text("import no_such_thing\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    ended = pico(command, "sqlite:not-looked-at.db", "--kinds", kinds)

    assert ended.code == 2
    assert problem in ended.err
    assert ended.err.count("\n") == 1


def test_kinds_are_needed_to_drive(pico: Pico) -> None:
    assert pico("drive", "sqlite:x.db").code == 2
