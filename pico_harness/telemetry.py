"""What may be told of every invocation: that it began, and how it ended."""

from __future__ import annotations

import asyncio
import logging
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol, TypeAlias

from pico_harness.call import Invocation

_LOG = logging.getLogger("pico_harness")

Ending: TypeAlias = Literal["settled", "continues", "cancelled", "fault"]
"""How an invocation ended: its task is terminal; its task changed and is live; it was asked to
stop and its task is live; it broke its kind's contract."""


@dataclass(frozen=True, slots=True)
class End:
    """How an invocation ended."""

    ending: Ending
    problem: str | None = None
    """How it broke its contract; only of a fault."""
    error: BaseException | None = None
    """What it raised; only of a fault, and not of every one."""


class Span(Protocol):
    """One invocation, from its start on."""

    def end(self, end: End, /) -> None:
        """Take note of its end, in an own turn of the event loop, never within a commit."""
        ...


class Telemetry(Protocol):
    """Where spans go."""

    def begin(self, invocation: Invocation, /, *, session_id: str) -> Span:
        """Begin a span, in the context that the invocation's code will run in.

        What it sets in that context is seen by the invocation and by nobody else. A failure is
        logged and costs the span, never the task.
        """
        ...


def begin_span(
    telemetry: Telemetry | None, invocation: Invocation, context: Context, session_id: str
) -> Span | None:
    """Begin a span where there is telemetry; ``None``: there is none, or it failed."""
    if telemetry is None:
        return None
    try:
        return context.run(partial(telemetry.begin, invocation, session_id=session_id))
    except (Exception, asyncio.CancelledError):  # noqa: BLE001 - no task is to blame for it
        _LOG.exception("no span for %s of task %s", invocation.method, invocation.task_id)
        return None
