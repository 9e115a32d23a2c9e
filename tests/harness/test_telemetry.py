"""Every invocation is one span, with what became of it, below the host's own."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import ClassVar

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from pico_harness import Harness, Options, TaskKind, TaskOf, TaskRuntime, TaskState
from pico_harness.call import Invocation
from pico_harness.errors import SessionFaultedError
from pico_harness.otel import OpenTelemetry
from pico_harness.telemetry import End, Span, Telemetry
from pico_store.backends import open_store
from pico_store.records import TaskRole


class Planned(TaskState, frozen=True):
    act: str


class Running(TaskState, frozen=True):
    act: str


class Done(TaskState, frozen=True):
    pass


States = Planned | Running | Done


class Scripted(TaskKind[States]):
    """Does what its task says."""

    name = "scripted"
    states: ClassVar[Mapping[type[TaskState], TaskRole]] = {
        Planned: "start",
        Running: "inflight",
        Done: "terminal",
    }

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer

    async def execute(self, task: TaskOf[States], runtime: TaskRuntime) -> None:
        assert isinstance(task.state, Planned)
        match task.state.act:
            case "raise":
                raise ValueError("planted")
            case "return":
                return
            case "hang":
                running = Running("hang")
                await runtime.commit(lambda tx: tx.patch(task.id, running))
                await asyncio.Event().wait()
            case "twice":
                await runtime.commit(lambda tx: tx.patch(task.id, Running("")))
                return
        with self._tracer.start_as_current_span("inner"):
            await asyncio.sleep(0)
        await self.recover(task, runtime)

    async def recover(self, task: TaskOf[States], runtime: TaskRuntime) -> None:
        await runtime.commit(lambda tx: tx.settle(task.id, Done()))

    async def abort(self, task: TaskOf[States], runtime: TaskRuntime) -> None:
        await self.recover(task, runtime)


class Traced:
    """An exporter that keeps what ended, and a tracer for it."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("test")

    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def named(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.spans() if span.name == name]
        return found


@pytest.fixture
def traced() -> Iterator[Traced]:
    traced = Traced()
    yield traced
    traced.provider.shutdown()


Script = Callable[[Harness, Scripted], Awaitable[None]]


def run(traced: Traced, script: Script, options: Options | None = None) -> None:
    """Run a script against a harness on memory, opened within a span of the host."""

    async def main() -> None:
        kind = Scripted(traced.tracer)
        storage = open_store("memory:").create("s")
        chosen = options or Options(telemetry=OpenTelemetry(traced.tracer))
        with traced.tracer.start_as_current_span("host"):
            harness = await Harness.open(storage, tasks=[kind], options=chosen)
        await script(harness, kind)
        await harness.close()

    asyncio.run(main())


def test_an_invocation_is_a_span_with_its_task(traced: Traced) -> None:
    async def script(harness: Harness, kind: Scripted) -> None:
        root = await harness.root()
        await root.commit(lambda tx: tx.task(kind, Planned("settle")))
        await root.drive()

    run(traced, script)

    span = traced.named("execute scripted")
    assert dict(span.attributes or {}) == {
        "pico.session.id": "s",
        "pico.conversation.id": 1,
        "pico.task.id": 2,
        "pico.task.kind": "scripted",
        "pico.task.method": "execute",
        "pico.task.outcome": "settled",
    }
    assert span.status.status_code is StatusCode.UNSET


def test_spans_stand_below_the_hosts_and_above_the_kinds_own(traced: Traced) -> None:
    async def script(harness: Harness, kind: Scripted) -> None:
        root = await harness.root()
        await root.commit(lambda tx: [tx.task(kind, Planned("settle")) for _ in range(2)])
        await root.drive()

    run(traced, script)

    host = traced.named("host").context
    outer = [span for span in traced.spans() if span.name == "execute scripted"]
    inner = [span for span in traced.spans() if span.name == "inner"]
    assert host is not None
    assert {span.parent.span_id for span in outer if span.parent} == {host.span_id}
    above = {span.parent.span_id for span in inner if span.parent}
    assert above == {span.context.span_id for span in outer if span.context}
    assert (len(outer), len(inner), len(above)) == (2, 2, 2)


def test_each_invocation_of_a_task_is_a_span_of_its_own(traced: Traced) -> None:
    async def script(harness: Harness, kind: Scripted) -> None:
        root = await harness.root()
        await root.commit(lambda tx: tx.task(kind, Planned("twice")))
        await root.drive()

    run(traced, script)

    invocations = traced.spans()[1:]
    names = [(span.name, (span.attributes or {})["pico.task.outcome"]) for span in invocations]
    assert names == [("execute scripted", "continues"), ("recover scripted", "settled")]


def test_a_cancelled_invocation_is_no_error(traced: Traced) -> None:
    async def script(harness: Harness, kind: Scripted) -> None:
        root = await harness.root()
        task = await root.commit(lambda tx: tx.task(kind, Planned("hang")))
        drive = asyncio.ensure_future(root.drive())
        while not (await harness.inspect()).inflight:
            await asyncio.sleep(0)
        await harness.abort_task(task)
        await drive

    run(traced, script)

    span = traced.named("execute scripted")
    attributes = span.attributes or {}
    assert attributes["pico.task.outcome"] == "cancelled"
    assert attributes["pico.cancellation.reason"] == "the task was aborted"
    assert (span.status.status_code, span.events) == (StatusCode.UNSET, ())
    assert (traced.named("abort scripted").attributes or {})["pico.task.outcome"] == "settled"


def test_a_closing_session_ends_every_span(traced: Traced) -> None:
    async def script(harness: Harness, kind: Scripted) -> None:
        root = await harness.root()
        await root.commit(lambda tx: [tx.task(kind, Planned("hang")) for _ in range(3)])
        drive = asyncio.ensure_future(root.drive())
        while len((await harness.inspect()).inflight) < 3:
            await asyncio.sleep(0)
        await harness.close()
        assert await drive == "closed"

    run(traced, script)

    ends = [(span.attributes or {})["pico.task.outcome"] for span in traced.spans()[1:]]
    assert ends == ["cancelled"] * 3


@pytest.mark.parametrize(
    ("act", "problem", "events"),
    [
        ("raise", "raised ValueError: planted", ["exception"]),
        (
            "return",
            "returned without a transition from status 'planned' (was every commit awaited?)",
            [],
        ),
    ],
)
def test_a_fault_is_an_error_that_says_what_was_wrong(
    traced: Traced, act: str, problem: str, events: list[str]
) -> None:
    async def script(harness: Harness, kind: Scripted) -> None:
        root = await harness.root()
        await root.commit(lambda tx: tx.task(kind, Planned(act)))
        with pytest.raises(SessionFaultedError):
            await root.drive()

    run(traced, script)

    span = traced.named("execute scripted")
    assert (span.attributes or {})["pico.task.outcome"] == "fault"
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, problem)
    assert [event.name for event in span.events] == events


class Failing:
    """Telemetry that is broken."""

    def __init__(self, *, begins: bool) -> None:
        self._begins = begins

    def begin(self, invocation: Invocation, /, *, session_id: str) -> Span:
        if not self._begins:
            raise RuntimeError("planted")
        return self

    def end(self, end: End, /) -> None:
        raise RuntimeError("planted")


@pytest.mark.parametrize("begins", [True, False])
def test_broken_telemetry_breaks_no_task(
    traced: Traced, caplog: pytest.LogCaptureFixture, *, begins: bool
) -> None:
    telemetry: Telemetry = Failing(begins=begins)

    async def script(harness: Harness, kind: Scripted) -> None:
        root = await harness.root()
        task = await root.commit(lambda tx: tx.task(kind, Planned("settle")))
        assert await root.drive() == "idle"
        found = await harness.get_task(kind, task)
        assert found is not None
        assert found.state == Done()

    with caplog.at_level(logging.ERROR):
        run(traced, script, Options(telemetry=telemetry))

    assert "planted" in caplog.text


def test_without_telemetry_nothing_of_it_is_imported() -> None:
    code = "import sys, pico_harness; sys.exit('opentelemetry' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
