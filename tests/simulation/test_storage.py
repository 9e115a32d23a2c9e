"""The storage that fails on purpose."""

import asyncio
from functools import partial
from random import Random
from typing import cast

import pytest

from pico_harness.testing.loop import RandomChoices, SimulatedLoop
from pico_harness.testing.storage import CrashError, Fault, SimulatedAway, SimulatedStorage
from pico_store.address import Seq
from pico_store.backends import open_store
from pico_store.batch import Batch, MainBatch
from pico_store.errors import CommitUncertainError, RetryableError, StorageFaultedError
from pico_store.records import BatchRange, Conversation
from pico_store.storage import Storage


class Case:
    """A storage with one fault at its second commit, and what was told of it."""

    def __init__(self, fault: Fault | None) -> None:
        self.commits: list[Batch] = []
        self.faults: list[str] = []
        self.closed = False
        self.inner = open_store("memory:").create("s")
        storage = SimulatedStorage(
            self.inner,
            faults={} if fault is None else {1: fault},
            on_commit=self._committed,
            on_fault=lambda kind, _: self.faults.append(kind),
            on_close=self._closed,
        )
        self.storage = cast(Storage, storage)
        self.commit()

    def _committed(self, batch: Batch, written: BatchRange) -> None:
        self.commits.append(batch)

    def _closed(self) -> None:
        self.closed = True

    def commit(self) -> None:
        self.storage.commit(MainBatch((Conversation(Seq(self.inner.last_seq + 1)),)))


def test_a_storage_without_faults_does_what_the_other_does() -> None:
    case = Case(None)
    case.commit()
    case.storage.close()

    assert len(case.commits) == 2
    assert case.closed


def test_a_refused_commit_can_be_tried_again() -> None:
    case = Case("retry")

    with pytest.raises(RetryableError):
        case.commit()

    assert case.inner.last_seq == 1
    case.commit()
    assert case.inner.last_seq == 2


@pytest.mark.parametrize(("fault", "last"), [("uncertain_before", 1), ("uncertain_after", 2)])
def test_an_uncertain_commit_faults_the_handle(fault: Fault, last: int) -> None:
    case = Case(fault)

    with pytest.raises(CommitUncertainError):
        case.commit()

    assert case.inner.last_seq == last
    assert len(case.commits) == last
    with pytest.raises(StorageFaultedError):
        case.commit()
    with pytest.raises(StorageFaultedError):
        case.storage.get_tasks(())


@pytest.mark.parametrize(("fault", "last"), [("crash_before", 1), ("crash_after", 2)])
def test_a_dead_process_writes_nothing_more(fault: Fault, last: int) -> None:
    case = Case(fault)

    with pytest.raises(CrashError):
        case.commit()
    with pytest.raises(CrashError):
        case.commit()
    case.storage.close()

    assert case.inner.last_seq == last
    assert case.faults == [fault]
    assert not case.closed


def test_carried_calls_run_one_after_the_other_in_their_order() -> None:
    done: list[int] = []

    def work(number: int) -> int:
        done.append(number)
        return number

    async def main() -> list[int]:
        away = SimulatedAway(Random(1))
        futures = [away(partial(work, number)) for number in range(20)]
        return [await future for future in futures]

    loop = SimulatedLoop(RandomChoices(1))  # type: ignore[abstract]

    assert loop.run(main()) == list(range(20))
    assert done == list(range(20))
    assert loop.time() > 0
    loop.close()


def test_what_a_carried_call_raises_reaches_its_caller() -> None:
    def fail() -> None:
        raise ValueError("no")

    async def main() -> None:
        await SimulatedAway(Random(1))(fail)

    loop = SimulatedLoop(RandomChoices(1))  # type: ignore[abstract]
    with pytest.raises(ValueError, match="no"):
        loop.run(main())
    loop.close()
    assert asyncio._get_running_loop() is None
