"""Spans for invocations through the OpenTelemetry API, where that is installed."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from pico_harness.call import Invocation


class Telemetry(Protocol):
    """Where spans go."""

    def span(self, invocation: Invocation, *, session_id: str) -> AbstractContextManager[object]:
        """Return what is entered before a method is called and left when it returned."""
        ...


class NoTelemetry:
    """Records nothing and costs nothing."""

    def span(self, invocation: Invocation, *, session_id: str) -> AbstractContextManager[object]:
        return _NOTHING


_NOTHING: AbstractContextManager[object] = nullcontext()
