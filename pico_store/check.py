"""The rules of the contract about batches, shared by all backends.

`check_batch` decides whether a batch may be written and packs its payloads. It asks a
`CommittedView` about committed state, so that a backend's author writes no rule of it.
"""

from __future__ import annotations

from msgspec import Struct

from pico_store.address import (
    ScratchAddress,
    Seq,
)
from pico_store.batch import (
    Batch,
    ListAppend,
    MainBatch,
    MainWrite,
    ScratchBatch,
)
from pico_store.errors import InvalidBatchError, LimitExceededError, StaleWriterError
from pico_store.limits import BATCH_BYTES_MAX, BATCH_WRITES_MAX, NAME_BYTES_MAX, SEQ_MAX
from pico_store.rules import Rules
from pico_store.shown import shown
from pico_store.strict_json import json_size, pack, unpack
from pico_store.view import CommittedView, TaskFacts

_BATCH_PACKED_SAFE = BATCH_BYTES_MAX // 6


class CheckedBatch(Struct):
    """A batch that may be written, with its payloads in stored form."""

    first: Seq
    last: Seq
    task: Seq | None
    """The task of a scratch batch."""
    writes: tuple[MainWrite, ...]
    bodies: list[bytes | None]
    """The packed payload of each write: a value, a state, or an entry's body."""
    deletions: dict[int, list[Seq]] = {}
    """By index of a `DeleteConversation`: every conversation that it takes."""
    passing: set[Seq] = set()
    """Elements that the batch appends and removes again."""


def check_batch(
    batch: Batch, view: CommittedView, expected_first: Seq | None = None
) -> CheckedBatch:
    """Return the batch ready to be written, or refuse it.

    Writes are checked in order, each against committed state plus the earlier writes.

    Raises:
        RefusedError: A clause is broken; ``path`` names the write and the part.
        StaleWriterError: ``expected_first`` is not ``view.last_seq + 1``.

    Source: SPEC.md, SEQ-1 to SEQ-8 and the clauses that each rule names.
    """
    # The arithmetic stays bare in here: calling Seq takes as long as a whole step of the checks.
    first: Seq = view.last_seq + 1  # type: ignore[assignment]
    if expected_first is not None and (expected_first != first or type(expected_first) is not int):
        problem = f"built for number {shown(expected_first)}; the next one is {first}"
        raise StaleWriterError("SEQ-8", "expectedFirst", problem)
    if type(batch) is ScratchBatch:
        task: Seq | None = batch.task
        if task is None:
            # To the rules, no task means a main batch.
            raise InvalidBatchError("SEQ-2", "task", "None; allowed: a live task's id")
        known = view.task(batch.task) if type(batch.task) is int else None
        body = None if known is None or first > SEQ_MAX else lone_append(batch, known)
        if body is not None:
            return CheckedBatch(first, first, task, batch.writes, [body])
    elif type(batch) is MainBatch:
        task = None
    else:
        problem = f"{type(batch).__name__}; allowed: MainBatch or ScratchBatch"
        raise InvalidBatchError("SEQ-7", "batch", problem)
    writes = batch.writes
    if type(writes) not in (tuple, list):
        raise InvalidBatchError("SEQ-4", "writes", f"{type(writes).__name__}; allowed: a tuple")
    count = len(writes)
    if not 0 < count <= BATCH_WRITES_MAX:
        if count:
            problem = f"{count:,} writes; allowed: 1 to {BATCH_WRITES_MAX:,}"
            raise LimitExceededError("JSON-5", "writes", problem)
        raise InvalidBatchError("SEQ-4", "writes", "empty; allowed: at least one write")
    last: Seq = first + count - 1  # type: ignore[assignment]
    if last > SEQ_MAX:
        problem = f"{count:,} writes from number {first} pass the end, 2^53-1"
        raise InvalidBatchError("SEQ-2", "writes", problem)
    rules = Rules(view, first, task)
    if task is not None:
        rules.check_scratch_task()
    bodies = rules.check(writes)
    size = 0
    for body in bodies:
        if body is not None:
            size += len(body)
    if size > _BATCH_PACKED_SAFE:
        _check_size(bodies)
    if rules.deletions is None and rules.passing is None:
        return CheckedBatch(first, last, task, tuple(writes), bodies)
    deletions, passing = rules.deletions or {}, rules.passing or set()
    return CheckedBatch(first, last, task, tuple(writes), bodies, deletions, passing)


def lone_append(batch: ScratchBatch, task: TaskFacts) -> bytes | None:
    """Return the payload of a scratch batch that is one append and evidently breaks no rule.

    A task that streams commits little else, and the rules would take three times as long.
    ``None`` decides nothing: `check_batch` does, and says what is wrong.

    Args:
        batch: To be written at a number that is not past the last one.
        task: What is known of the task that the batch names, by an ``int``.

    Raises:
        RefusedError: The value is not strict JSON.
    """
    writes = batch.writes
    if not task.live or type(writes) is not tuple or len(writes) != 1:
        return None
    write = writes[0]
    if type(write) is not ListAppend:
        return None
    address = write.address
    if type(address) is not ScratchAddress or address.key is not None:
        return None
    if address.task != batch.task or type(address.task) is not int:
        return None
    name = address.namespace
    if type(name) is not str or not name.isascii() or not 0 < len(name) <= NAME_BYTES_MAX:
        return None
    return pack(write.value, "writes[0].value")


def _check_size(bodies: list[bytes | None]) -> None:
    size = sum(json_size(unpack(body)) for body in bodies if body is not None)
    if size > BATCH_BYTES_MAX:
        problem = f"payloads of {size:,} bytes as JSON; allowed: {BATCH_BYTES_MAX:,}"
        raise LimitExceededError("JSON-5", "writes", problem)
