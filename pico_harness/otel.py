"""Spans of invocations through the OpenTelemetry API; importing this needs the extra ``otel``."""

from __future__ import annotations

from opentelemetry import context, trace
from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer

from pico_harness.call import Invocation
from pico_harness.telemetry import End


class OpenTelemetry:
    """Makes a span of every invocation, as ``Options(telemetry=OpenTelemetry())``.

    A span is called by method and kind, such as ``execute fetch``. Its parent is the span that was
    current where the session was opened; spans that the kind's code makes are its children. A fault
    sets the status to error; a cancellation is no error.

    Source: docs/adr/0012-telemetry.md has the attributes.
    """

    def __init__(self, tracer: Tracer | None = None) -> None:
        """Make it.

        Args:
            tracer: Makes the spans; that of the process's provider if not given.
        """
        self._tracer = tracer if tracer is not None else trace.get_tracer("pico_harness")

    def begin(self, invocation: Invocation, /, *, session_id: str) -> _InvocationSpan:
        span = self._tracer.start_span(
            f"{invocation.method} {invocation.kind}",
            kind=SpanKind.INTERNAL,
            attributes={
                "pico.session.id": session_id,
                "pico.conversation.id": invocation.conversation_id,
                "pico.task.id": invocation.task_id,
                "pico.task.kind": invocation.kind,
                "pico.task.method": invocation.method,
            },
        )
        # Never detached: the context is the invocation's own and ends with it.
        context.attach(trace.set_span_in_context(span))
        return _InvocationSpan(span, invocation)


class _InvocationSpan:
    """A span that is open."""

    __slots__ = ("_invocation", "_span")

    def __init__(self, span: trace.Span, invocation: Invocation) -> None:
        self._span = span
        self._invocation = invocation

    def end(self, end: End, /) -> None:
        span = self._span
        span.set_attribute("pico.task.outcome", end.ending)
        if end.ending == "cancelled" and self._invocation.cancellation.reason is not None:
            span.set_attribute("pico.cancellation.reason", self._invocation.cancellation.reason)
        if end.ending == "fault":
            if end.error is not None:
                span.record_exception(end.error)
            span.set_status(Status(StatusCode.ERROR, end.problem))
        span.end()
