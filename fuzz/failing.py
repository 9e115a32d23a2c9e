"""What a session must be after a commit failed, whatever the disk did to it.

A certain failure leaves the state before and a handle that goes on. An uncertain one faults the
handle, and what is opened anew is the state before or after.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fuzz.recovery import check_prefix
from fuzz.script import Script
from pico_store.digest import digest
from pico_store.errors import (
    CommitUncertainError,
    PicoError,
    RetryableError,
    StorageFaultedError,
)
from pico_store.storage import Storage, Store


class Failed(NamedTuple):
    """How a commit failed."""

    batch: int
    """Its index."""
    error: Exception


def commit_until_failure(
    storage: Storage, script: Script, start: int, stop: int
) -> tuple[int, Failed | None]:
    """Commit batches; return how many are there, and the first one that failed, if one did."""
    for index in range(start, stop):
        try:
            storage.commit(script.batches[index])
        except Exception as error:  # noqa: BLE001 - any other error than ours is a finding
            return index, Failed(index, error)
    return stop, None


def check_failed(
    store: Store,
    storage: Storage,
    script: Script,
    failed: Failed,
    mend: Callable[[], None],
    reopen: Callable[[], Store],
) -> str:
    """Return what is wrong after a commit that failed.

    Args:
        store: The session's; is closed.
        storage: The handle that failed.
        script: What was committed.
        failed: How it failed.
        mend: Lets the disk work again.
        reopen: Opens the store anew.
    """
    index, error = failed
    name = f"{type(error).__name__}: {error}"
    try:
        if isinstance(error, RetryableError):
            wrong = _check_certain(storage, script, index, mend)
            at_least = at_most = index + (0 if wrong else 1)
        elif isinstance(error, CommitUncertainError):
            wrong = _check_faulted(storage, script, index)
            mend()
            at_least, at_most = index, index + 1
        else:
            mend()
            return f"commit raises {name}"
        storage.close()
    finally:
        mend()
        store.close()
    if wrong:
        return f"{wrong} (after {name})"
    again = reopen()
    try:
        wrong = check_prefix(again, script, at_least, at_most)[1]
    finally:
        again.close()
    return f"{wrong} (after {name})" if wrong else ""


def _check_certain(storage: Storage, script: Script, index: int, mend: Callable[[], None]) -> str:
    try:
        if storage.last_seq != (script.ranges[index - 1].last if index else 0):
            return "a certain failure is visible"
        mend()
        if digest(storage.export()) != script.digests[index]:
            return "a certain failure changed what is read"
        storage.commit(script.batches[index])
    except PicoError as error:
        return f"the handle does not go on: {type(error).__name__}: {error}"
    if digest(storage.export()) != script.digests[index + 1]:
        return "the same batch, committed again, gives another state"
    return ""


def _check_faulted(storage: Storage, script: Script, index: int) -> str:
    try:
        storage.commit(script.batches[index])
    except StorageFaultedError:
        return ""
    except PicoError as error:
        return f"after an uncertain failure, a commit raises {type(error).__name__}: {error}"
    return "after an uncertain failure, a commit is taken"
