"""The stored count of how often a task was lost in flight in a row (TASKS-5)."""

from __future__ import annotations

from pico_harness.live import LiveTask
from pico_store.address import ScratchAddress
from pico_store.batch import Batch, ScratchBatch, ValueDelete, ValueSet
from pico_store.storage import Storage

CRASHES = "pico.crashes"
"""The scratch value of a task that holds the count."""


def read_losses(storage: Storage, live: LiveTask) -> None:
    """Count how often a task was lost in flight in a row, this time included.

    Cost: one value for a task that was begun; none for any other.
    """
    task = live.task
    if task.role != "inflight" and not task.abort:
        return
    version = storage.get_value(ScratchAddress(task.id, CRASHES))
    live.counted = version is not None
    before = version.value if version is not None else 0
    live.crashes = before + 1 if isinstance(before, int) else 1


def holds_losses(storage: Storage, live: LiveTask) -> bool:
    """Tell whether a count is stored for a live task."""
    # One that went back to its start after a loss was not asked for its count at open.
    return live.counted or storage.get_value(ScratchAddress(live.task.id, CRASHES)) is not None


def store_losses(live: LiveTask) -> Batch:
    """Return what stores the count of a live task."""
    return ScratchBatch(
        live.task.id, (ValueSet(ScratchAddress(live.task.id, CRASHES), live.crashes),)
    )


def forget_losses(live: LiveTask) -> Batch:
    """Return what takes the count of a live task away."""
    live.counted = False
    return ScratchBatch(live.task.id, (ValueDelete(ScratchAddress(live.task.id, CRASHES)),))
