"""Faults in commits: numbers, atomicity, boundaries, and what a refusal leaves behind."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from pico_conformance.zoo.mutant import plant
from pico_conformance.zoo.wrapper import Faulty, Paged, Query, T, every, turned
from pico_store.address import Seq
from pico_store.batch import Batch, MainBatch, ScratchBatch
from pico_store.errors import InvalidBatchError, RefusedError, StorageFaultedError
from pico_store.query import BatchQuery
from pico_store.records import BatchRange, Page
from pico_store.storage import Storage


@plant("SEQ-5", "SEQ-1")
class RefusalUsesNumber(Faulty):
    """A refused batch consumes a number."""

    def commit(self, batch: Batch, *, expected_first: Seq | None = None) -> BatchRange:
        try:
            return self.storage.commit(batch, expected_first=expected_first)
        except RefusedError:
            self.state.last_seq = Seq(self.state.last_seq + 1)
            raise


@plant("SEQ-5")
class HalfOfBatchStays(Faulty):
    """The writes before the one that is refused are written."""

    def commit(self, batch: Batch, *, expected_first: Seq | None = None) -> BatchRange:
        try:
            return self.storage.commit(batch, expected_first=expected_first)
        except RefusedError as error:
            digits = error.path.partition("[")[2].partition("]")[0]
            if type(batch) is MainBatch and digits.isdigit() and int(digits) > 0:
                self.storage.commit(MainBatch(tuple(batch.writes[: int(digits)])))
            raise


@plant("SEQ-5")
class RefusalFaults(Faulty):
    """After a refused batch the handle refuses every other."""

    refused = False

    def commit(self, batch: Batch, *, expected_first: Seq | None = None) -> BatchRange:
        if self.refused:
            raise StorageFaultedError("faulted by an earlier commit; reopen the session")
        self.refused = True
        done = self.storage.commit(batch, expected_first=expected_first)
        self.refused = False
        return done


@plant("SEQ-4")
class EmptyBatchTaken(Faulty):
    """An empty batch is accepted and does nothing."""

    def commit(self, batch: Batch, *, expected_first: Seq | None = None) -> BatchRange:
        try:
            return self.storage.commit(batch, expected_first=expected_first)
        except InvalidBatchError as error:
            if error.clause != "SEQ-4" or type(batch) is not MainBatch or len(batch.writes):
                raise
            last = self.storage.last_seq
            return BatchRange(Seq(last + 1), last)


@plant("SEQ-8")
class StaleWriterMerged(Faulty):
    """The number that a batch was built for is ignored."""

    def commit(self, batch: Batch, *, expected_first: Seq | None = None) -> BatchRange:
        return self.storage.commit(batch)


@plant("SEQ-7")
class RewindableAfterEntry(Faulty):
    """A rewindable write after an entry of its batch is accepted."""

    def commit(self, batch: Batch, *, expected_first: Seq | None = None) -> BatchRange:
        try:
            return self.storage.commit(batch, expected_first=expected_first)
        except InvalidBatchError as error:
            if error.clause != "SEQ-7" or not error.path.endswith("address.rewind"):
                raise
            done = [self.storage.commit(MainBatch((write,))) for write in batch.writes]
            return BatchRange(done[0].first, done[-1].last)


@plant("SEQ-7")
class ScratchOfOthersTaken(Faulty):
    """A scratch batch may write the scratch of another task."""

    def commit(self, batch: Batch, *, expected_first: Seq | None = None) -> BatchRange:
        try:
            return self.storage.commit(batch, expected_first=expected_first)
        except InvalidBatchError as error:
            if error.clause != "SEQ-7" or not error.path.endswith("address.task"):
                raise
            assert type(batch) is ScratchBatch
            writes = (
                replace(write, address=replace(write.address, task=batch.task))
                for write in batch.writes
            )
            return self.storage.commit(ScratchBatch(batch.task, tuple(writes)))


@plant("PAGE-5", "SEQ-10")
class ReadAtOfMainBatch(Paged):
    """A page was read at the last main batch; commits of scratch do not count."""

    def page(self, scan: Callable[[Query], Page[T]], query: Query) -> Page[T]:
        page = scan(query)
        batches = self.state.batches
        return replace(page, read_at=batches[-1].last if batches else page.read_at)


@plant("PAGE-5", "SEQ-10")
class ReadAtOfOpening(Paged):
    """A page was read at what the session's last number was when it was opened."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage)
        self._opened = storage.last_seq

    def page(self, scan: Callable[[Query], Page[T]], query: Query) -> Page[T]:
        return replace(scan(query), read_at=self._opened)


@plant("SEQ-1", "SEQ-10")
class LastNumberOfMain(Faulty):
    """The last number is that of the last main batch."""

    @property
    def last_seq(self) -> Seq:
        last = self.storage.last_seq
        batches = self.state.batches
        return batches[-1].last if batches else last


@plant("SEQ-9")
class BoundaryMerged(Faulty):
    """Two batches of one write each are listed as one."""

    def scan_batches(self, query: BatchQuery) -> Page[BatchRange]:
        right = self.storage.scan_batches(query)
        items: list[BatchRange] = []
        for item in every(self.storage.scan_batches, query):
            before = items[-1] if items else None
            single = before is not None and before.first == before.last == item.first - 1
            if before is not None and single and item.first == item.last:
                items[-1] = replace(before, last=item.last)
            else:
                items.append(item)
        return turned(items, query, right.read_at)


@plant("SEQ-9")
class ScratchBatchesHidden(Faulty):
    """Batches of scratch are not listed."""

    def scan_batches(self, query: BatchQuery) -> Page[BatchRange]:
        right = self.storage.scan_batches(query)
        items = every(self.storage.scan_batches, query)
        return turned([item for item in items if item.task is None], query, right.read_at)


@plant("SEQ-9", "TASK-4")
class RetiredBatchesListed(Faulty):
    """Batches of scratch are listed after their task was settled."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage)
        self._scratch: set[BatchRange] = set()

    def commit(self, batch: Batch, *, expected_first: Seq | None = None) -> BatchRange:
        done = self.storage.commit(batch, expected_first=expected_first)
        if done.task is not None:
            self._scratch.add(done)
        return done

    def scan_batches(self, query: BatchQuery) -> Page[BatchRange]:
        right = self.storage.scan_batches(query)
        items = {*every(self.storage.scan_batches, query), *self._scratch}
        return turned(sorted(items, key=lambda item: item.first), query, right.read_at)


@plant("SEQ-9")
class BatchWithoutTask(Faulty):
    """The boundary of a scratch batch does not say whose it is."""

    def scan_batches(self, query: BatchQuery) -> Page[BatchRange]:
        page = self.storage.scan_batches(query)
        return replace(page, items=[replace(item, task=None) for item in page.items])


@plant("TASK-4", "SEQ-1")
class ScratchNumbersReused(Faulty):
    """After reopening, the numbers of scratch behind the last main batch are given out again."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage)
        batches = self.state.batches
        if not storage.read_only and batches:
            self.state.last_seq = batches[-1].last


@plant("SEQ-1", "SEQ-9")
class RangeOfFirstWrite(Faulty):
    """A commit returns its first number as its last, too."""

    def commit(self, batch: Batch, *, expected_first: Seq | None = None) -> BatchRange:
        done = self.storage.commit(batch, expected_first=expected_first)
        return replace(done, last=done.first)


@plant("PAGE-12")
class RefusalsCounted(Faulty):
    """Refused commits are counted like those that succeeded."""

    def commit(self, batch: Batch, *, expected_first: Seq | None = None) -> BatchRange:
        try:
            return self.storage.commit(batch, expected_first=expected_first)
        except RefusedError:
            self.storage.counters.commits += 1
            raise
