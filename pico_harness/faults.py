"""Reports of task contracts that were broken, and of tasks that cannot run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from pico_harness.call import Method
from pico_store.address import Seq

_LOG = logging.getLogger("pico_harness")
_WORDS_MAX = 2_000
"""Characters of an exception's text that a report keeps."""
_PARTS_MAX = 3
"""Parts of a group of exceptions that it names."""


@dataclass(frozen=True, slots=True)
class FaultReport:
    """What went wrong with a task."""

    task_id: Seq
    kind: str
    method: Method | None
    """What was called; ``None``: nothing could be, and the task is parked."""
    problem: str
    error: BaseException | None

    def __str__(self) -> str:
        if self.method is None:
            return f"parked: {self.problem}"
        return f"{self.method} of task {self.task_id} ({self.kind}) {self.problem}"


def tell(report: FaultReport, listener: Callable[[FaultReport], None] | None) -> None:
    """Log a report and hand it to who listens."""
    _LOG.error("%s", report, exc_info=report.error)
    if listener is not None:
        try:
            listener(report)
        except (Exception, asyncio.CancelledError):  # noqa: BLE001 - logged whole
            # What follows must not depend on who listens.
            _LOG.exception("the listener of reports raised")


def words(error: BaseException) -> str:
    """Return what an exception says; even one that fails to say it is reported."""
    try:
        text = _text(error)
    except (Exception, asyncio.CancelledError):  # noqa: BLE001 - a kind's error may do anything
        return ", which cannot be shown"
    return f": {text[:_WORDS_MAX]}{' ...' if len(text) > _WORDS_MAX else ''}"


def _text(error: BaseException) -> str:
    """Return what an exception says, and of a group what its parts say, which is what matters."""
    text = str(error)
    if isinstance(error, BaseExceptionGroup):
        parts = [f"{type(part).__name__}: {_text(part)}" for part in error.exceptions[:_PARTS_MAX]]
        text = f"{text}: {', '.join(parts)}"
    return text
