"""Trying kinds of one's own."""

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from pico_harness import ArgumentError, Harness, TaskKind, TaskOf, TaskRuntime, TaskState
from pico_harness.testing import TrialFailedError, simulate
from pico_store.errors import PicoError
from pico_store.records import TaskRole


class Asked(TaskState, frozen=True):
    pass


class Doing(TaskState, frozen=True):
    pass


class Ended(TaskState, frozen=True):
    pass


class Quick(TaskKind[Asked | Doing | Ended]):
    name = "quick"
    states: ClassVar[Mapping[type[TaskState], TaskRole]] = {
        Asked: "start",
        Doing: "inflight",
        Ended: "terminal",
    }

    async def execute(self, task: TaskOf[Asked | Doing | Ended], runtime: TaskRuntime) -> None:
        await runtime.commit(lambda tx: tx.patch(task.id, Doing()))
        await self.recover(task, runtime)

    async def recover(self, task: TaskOf[Asked | Doing | Ended], runtime: TaskRuntime) -> None:
        await runtime.sleep(runtime.now() + 10)
        await runtime.commit(lambda tx: tx.settle(task.id, Ended()))

    async def abort(self, task: TaskOf[Asked | Doing | Ended], runtime: TaskRuntime) -> None:
        await runtime.commit(lambda tx: tx.settle(task.id, Ended()))


class Returning(Quick):
    """Does nothing when it is recovered."""

    async def recover(self, task: TaskOf[Asked | Doing | Ended], runtime: TaskRuntime) -> None:
        return


class Hanging(Quick):
    """Waits for what will not come."""

    async def recover(self, task: TaskOf[Asked | Doing | Ended], runtime: TaskRuntime) -> None:
        await runtime.wait_for_task(task.id)


async def begin(harness: Harness) -> None:
    root = await harness.root()
    await root.commit(lambda tx: [tx.task(Quick(), Asked()) for _ in range(3)])


async def check(harness: Harness) -> None:
    tasks = await harness.get_tasks([2, 3, 4])  # type: ignore[list-item]
    assert [task.status for task in tasks.values()] == ["ended"] * 3


@pytest.mark.parametrize("aborts", [False, True])
def test_a_right_kind_passes(aborts: bool) -> None:  # noqa: FBT001 - pytest passes by name
    assert simulate(lambda: [Quick()], begin, check, seeds=range(60), aborts=aborts) == 60


def test_a_right_kind_passes_on_disk() -> None:
    assert simulate(lambda: [Quick()], begin, check, seeds=range(10), store="sqlite:") == 10


def failure(kind: type[Quick]) -> TrialFailedError:
    with pytest.raises(TrialFailedError) as failed:
        simulate(lambda: [kind()], begin, check, seeds=range(60))
    return failed.value


def test_a_kind_that_breaks_its_contract_is_named() -> None:
    assert "recover of task" in failure(Returning).problems[0]
    assert "without a transition" in failure(Returning).problems[0]


def test_a_kind_that_waits_for_itself_is_named() -> None:
    assert "WaitCycleError" in failure(Hanging).problems[0]


def test_a_failing_seed_fails_again_in_the_same_way() -> None:
    first = failure(Returning)

    with pytest.raises(TrialFailedError) as again:
        simulate(lambda: [Returning()], begin, check, seeds=[first.seed])

    assert again.value.trace == first.trace
    assert f"seeds=[{first.seed}]" in str(first)


def test_what_the_check_raises_fails_the_seed() -> None:
    async def refuse(harness: Harness) -> None:
        raise AssertionError("not as expected")

    with pytest.raises(TrialFailedError, match="not as expected"):
        simulate(lambda: [Quick()], begin, refuse, seeds=[1])


WRONG: dict[str, list[Any]] = {
    "seeds": [[], range(0), iter(()), None, 5, "", "12", [True], [-1], ["1"], [1.0], [None]],
    "tasks": [None, [Quick()], ()],
    "begin": [None, "begin"],
    "check": [None, 0],
    "store": [None, 5, b"memory:"],
    "aborts": [None, 1, "no"],
}


@pytest.mark.parametrize(
    ("name", "wrong"), [(name, wrong) for name, values in WRONG.items() for wrong in values]
)
def test_a_trial_that_would_try_nothing_is_refused(name: str, wrong: Any) -> None:
    given: dict[str, Any] = {"tasks": lambda: [Quick()], "begin": begin, "check": check}

    with pytest.raises(ArgumentError, match=f"^{name}: .*allowed: "):
        simulate(**{"seeds": range(1), **given, name: wrong})


@pytest.mark.parametrize("store", ["memory", "sqlite:file.db"])
def test_a_trial_on_a_store_with_a_place_is_refused(store: str) -> None:
    with pytest.raises(PicoError, match="allowed: "):
        simulate(lambda: [Quick()], begin, check, seeds=[1], store=store)
