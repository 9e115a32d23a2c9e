"""The driver: carries out on one event loop what the scheduler decides."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
from functools import partial
from typing import Literal, TypeAlias, TypeVar

from pico_harness.admission import Admission
from pico_harness.arguments import check_milliseconds
from pico_harness.away import Away
from pico_harness.builder import build
from pico_harness.call import (
    HOST,
    AbandonedError,
    Call,
    Invocation,
    calling,
    enter_call,
)
from pico_harness.clock import Clock
from pico_harness.errors import (
    CallCancelledError,
    HarnessError,
    KindError,
    UnknownTaskError,
)
from pico_harness.faults import FaultReport, tell, words
from pico_harness.kinds import TaskDeclaration
from pico_harness.line import Line
from pico_harness.losses import forget_losses, store_losses
from pico_harness.operations import Commit, Returned, Step, ending
from pico_harness.registry import Kinds
from pico_harness.scheduler import (
    Action,
    Broken,
    Drained,
    GiveUp,
    Resolve,
    Scheduler,
    Signal,
    Start,
    Unreadable,
)
from pico_harness.telemetry import Span, Telemetry, begin_span
from pico_harness.tx import ScratchTx, Tx
from pico_harness.waits import Outcome, Waiter
from pico_store.address import Seq
from pico_store.batch import (
    Batch,
    MainBatch,
    MainWrite,
    SettleTask,
)
from pico_store.errors import RetryableError
from pico_store.limits import BATCH_WRITES_MAX
from pico_store.names import check_seq
from pico_store.records import BatchRange, Task
from pico_store.storage import Storage

T = TypeVar("T")

Run: TypeAlias = Callable[[Invocation, Task], Coroutine[object, object, None]]
"""Calls the method of a task's kind."""

_LOG = logging.getLogger("pico_harness")


class Driver:
    """One open session at work.

    Guarantees:
        Everything that writes goes through one line. A batch is taken over by every index before
        anything is decided from it, and decisions are carried out after the line is free again.

    Source: design §6.
    """

    def __init__(
        self,
        storage: Storage,
        kinds: Kinds,
        scheduler: Scheduler,
        admission: Admission,
        *,
        run: Run,
        away: Away | None,
        clock: Clock,
        telemetry: Telemetry | None,
        on_report: Callable[[FaultReport], None] | None,
        on_task_fault: Literal["session", "task"],
    ) -> None:
        """Make a driver that drives nothing yet; it belongs to the running event loop."""
        self.storage = storage
        self.kinds = kinds
        self.scheduler = scheduler
        self.admission = admission
        self.clock = clock
        self.away = away
        self.line = Line(storage.commit, self._carry if away is not None else None, self._lost)
        self.loop = asyncio.get_running_loop()
        self.on_drained: Callable[[], None] = lambda: None
        """Told when the session has ended and nothing runs any more."""
        self.on_fault: Callable[[], None] = lambda: None
        """Told when the session was faulted; what runs may not have returned yet."""
        self.on_closed: Callable[[], None] = lambda: None
        """Told when the storage is closed."""
        self.listeners: list[Callable[[Batch, BatchRange], None]] = []
        """Told of every batch on the line, after the indexes took it over; they must not raise."""
        self._run = run
        self._telemetry = telemetry
        self._on_report = on_report
        self._on_task_fault = on_task_fault
        self._context = copy_context()
        self._session_id = storage.session_id

    # --- Writing ---

    def commit(
        self,
        plan: Callable[[Tx], T],
        call: Call,
        *,
        conversation: Seq | None = None,
        bound: Invocation | None = None,
    ) -> Awaitable[T]:
        """Build a batch, commit it and return what the builder returned."""
        call = self.mine(call)
        self._check_authority(call, bound)
        return self.line.run(Commit(self, plan, call, conversation, bound), call)

    def scratch(
        self, plan: Callable[[ScratchTx], T], call: Call, *, bound: Invocation
    ) -> Awaitable[T]:
        """Build a batch of a task's scratch, commit it and return what the builder returned."""
        call = self.mine(call)

        def before() -> Batch | None:
            self.admission.admit(call, bound)
            tx = ScratchTx(self.storage, self.kinds, by=bound.task_id)
            built.append(build(plan, tx))
            return tx.batch()

        built: list[T] = []
        self._check_authority(call, bound)
        return self.line.run(Step(self, before, lambda _: built[0]), call)

    def mine(self, call: Call) -> Call:
        """Return a call as it counts here: an invocation of another session is the host."""
        invocation = call.invocation
        if invocation is None or invocation.home is self.scheduler:
            return call
        return Call(call.cancellation)

    def _check_authority(self, call: Call, bound: Invocation | None) -> None:
        """Say of a cancelled invocation why it may write no more: its mark, or the session's end.

        The line would say only that the call was cancelled.
        """
        if call.invocation is not None and call.invocation.cancellation.requested:
            self.line.check_outside()
            self.admission.admit(call, bound)

    def post(self, before: Callable[[], Batch | None], after: Callable[[Step[None]], None]) -> None:
        """Run an operation of the harness itself, for which nobody waits."""
        self.line.post(Step(self, before, after), self._post_failed)

    def take_over(self, batch: Batch, written: BatchRange) -> list[Action]:
        """Bring the indexes up to date after a commit, and decide what follows."""
        changes = self.scheduler.live.apply(batch, written.first)
        actions = self.scheduler.committed(changes)
        for listener in self.listeners:
            listener(batch, written)
        return actions

    def _carry(self, batch: Batch) -> asyncio.Future[BatchRange]:
        assert self.away is not None
        return self.away(partial(self.storage.commit, batch))

    async def reading(self, call: Call | None) -> None:
        """Refuse a read that may not be now; give the event loop a turn if one is due."""
        self._check_reading(call)
        if self.line.is_turn_due():
            await asyncio.sleep(0)
            self._check_reading(call)

    def _check_reading(self, call: Call | None) -> None:
        """Refuse a read by a cancelled call, within a builder, or once the session ends."""
        cancellation = calling(call).cancellation
        if cancellation.requested:
            raise CallCancelledError(f"cancelled before it began: {cancellation.reason}")
        self.line.check_outside()
        self.admission.check_phase()

    # --- Waiting ---

    async def drive(self, conversation: Seq | None, call: Call) -> Literal["idle", "closed"]:
        """Serve a conversation, or everything, until it is idle."""
        call = self.mine(call)
        while self._unregistered():
            # One batch settles so many; the last look finds none that is served here.
            step = Step(self, partial(self._orphans, conversation), _settled_any)
            if not await self.line.run(step, call):
                break
        waiter = self._waiter(call, conversation=conversation)
        outcome = await self._wait(waiter, call, self._attach)
        return "closed" if outcome == "closed" else "idle"

    def _attach(self, waiter: Waiter) -> list[Action]:
        # Attached first, so that what is found idle includes nothing that could have run.
        attached = self.scheduler.attached(waiter.conversation)
        return attached + self.scheduler.waiting(waiter)

    async def wait_for_task(self, task: Seq, budget_ms: float | None, call: Call) -> bool:
        """Wait until a task is terminal; False when the budget ran out before (TASKS-6)."""
        check_seq(task, "task")
        if budget_ms is not None:
            check_milliseconds(budget_ms, "budget_ms")
        call = self.mine(call)
        waiter = self._waiter(call, task=task)
        timer: asyncio.TimerHandle | None = None
        if budget_ms is not None:
            seconds = max(0.0, budget_ms) / 1000
            timer = self.loop.call_later(seconds, self._out_of_budget, waiter)
        try:
            return await self._wait(waiter, call, self.scheduler.waiting) == "terminal"
        finally:
            if timer is not None:
                timer.cancel()

    def _waiter(
        self, call: Call, *, conversation: Seq | None = None, task: Seq | None = None
    ) -> Waiter:
        by = call.invocation.task_id if call.invocation is not None else None
        return Waiter(self.loop.create_future(), by, conversation, task)

    async def _wait(
        self, waiter: Waiter, call: Call, register: Callable[[Waiter], list[Action]]
    ) -> Outcome:
        def before() -> Batch | None:
            self.admission.check_phase()
            self.admission.check_wait(waiter)
            self.scheduler.waits.check(waiter)
            return None

        def after(step: Step[None]) -> None:
            step.actions += register(waiter)

        remove: Callable[[], object] | None = None
        try:
            await self.line.run(Step(self, before, after), call)
            remove = call.cancellation.on_cancel(partial(self._give_up, waiter, call))
            return await waiter.result
        finally:
            # However the wait ended, waiter and listener are gone.
            self.scheduler.waits.remove(waiter)
            if waiter.result.done() and not waiter.result.cancelled():
                # Who is cancelled before it looks leaves an error that it will not ask for.
                waiter.result.exception()
            if remove is not None:
                remove()

    def _give_up(self, waiter: Waiter, call: Call) -> None:
        if self.scheduler.waits.remove(waiter) and not waiter.result.done():
            problem = f"the wait was given up: {call.cancellation.reason}"
            waiter.result.set_exception(CallCancelledError(problem))

    def _out_of_budget(self, waiter: Waiter) -> None:
        # It may not have reached the line yet; then it finds its result there already.
        self.scheduler.waits.remove(waiter)
        if not waiter.result.done():
            waiter.result.set_result("budget")

    # --- Tasks whose kind is not registered, or cannot read them ---

    def check_replaced(self, kind: TaskDeclaration) -> None:
        """Refuse a kind that cannot read a live task of its name (TASKS-1)."""
        for id in self.scheduler.live.of_kind(kind.name):
            problem = kind.read_problem(self.scheduler.live[id].task)
            if problem is not None:
                allowed = "a kind that reads every live task of its name, or when those are settled"
                raise KindError("TASKS-1", f"{problem}; allowed: {allowed}")

    def kind_registered(self, name: str) -> None:
        """Run the tasks that were parked because their kind was missing, or could not read them."""
        self.scheduler.expect(name)

        def after(step: Step[None]) -> None:
            step.actions += self.scheduler.registered(name)

        self.post(lambda: None, after)

    def _unregistered(self) -> bool:
        return any(not self.kinds.has_task_kind(name) for name in self.scheduler.live.kinds())

    def _orphans(self, conversation: Seq | None) -> Batch | None:
        """Return what settles the foreground tasks here that nobody can run (TASKS-2)."""
        self.admission.check_phase()
        if self.scheduler.phase != "open":
            # A shutdown leaves everything but aborts as it is.
            return None
        writes: list[MainWrite] = []
        for id in self.scheduler.live.ids():
            live = self.scheduler.live[id]
            if len(writes) == BATCH_WRITES_MAX or not self.scheduler.orphaned(live):
                continue
            lineage = self.scheduler.ancestry.lineage(live.task.conversation_id)
            if conversation is None or conversation in lineage:
                state = {**live.task.state, "status": "orphaned"}
                writes.append(SettleTask(id, "orphaned", state))
        return MainBatch(tuple(writes)) if writes else None

    # --- Carrying out ---

    def dispatch(self, actions: list[Action]) -> None:
        """Carry out decisions, in their order, off the line.

        Where one cannot be, the session is faulted: nobody waits for what will not come.
        """
        for number, action in enumerate(actions):
            try:
                self._carry_out(action)
            except BaseException as error:
                self._undone(actions[number + 1 :], error)
                if isinstance(error, (KeyboardInterrupt, SystemExit)):
                    raise
                return

    def _carry_out(self, action: Action) -> None:
        match action:
            case Start():
                self._start(action)
            case Signal(invocation, reason):
                invocation.cancellation.cancel(reason)
                if invocation.runner is not None:
                    invocation.runner.cancel(reason)
            case Resolve(waiter, outcome) if not waiter.result.done():
                if isinstance(outcome, HarnessError):
                    waiter.result.set_exception(outcome)
                else:
                    waiter.result.set_result(outcome)
            case Broken():
                self._broken(action)
            case Unreadable(task, problem):
                tell(FaultReport(task.id, task.kind, None, problem, None), self._on_report)
            case GiveUp(task, problem):
                self.post(partial(self._faulted_batch, task.id, problem), lambda _: None)
            case Drained():
                self.on_drained()

    def _undone(self, rest: list[Action], error: BaseException) -> None:
        """Fault the session because of a decision that was not carried out, and do the others."""
        _LOG.error("what was decided was not carried out", exc_info=error)
        self.fault(f"{type(error).__name__}{words(error)}", error)
        self.dispatch(rest)

    def _start(self, start: Start) -> None:
        invocation = start.invocation
        if self.scheduler.running.get(invocation.task_id) is not invocation:
            return  # The session was faulted before it began.
        context = self._context.copy()
        span = begin_span(self._telemetry, invocation, context, self._session_id)
        method = self._invoke(start)
        invocation.begun = True  # An eager factory runs it within the next call.
        try:
            runner = self.loop.create_task(method, context=context)
        except BaseException:
            invocation.begun = False
            method.close()
            raise
        invocation.runner = runner
        runner.add_done_callback(partial(self._returned, invocation, span))

    async def _invoke(self, start: Start) -> None:
        invocation = start.invocation
        # The context is this task's own: whoever started it does not become the caller.
        enter_call(Call(invocation.cancellation, invocation))
        if invocation.again:
            await self._count_crash(invocation)
        await self._run(invocation, start.task)

    def _returned(
        self, invocation: Invocation, span: Span | None, runner: asyncio.Task[None]
    ) -> None:
        raised: BaseException | None
        if not runner.cancelled():
            raised = runner.exception()
        elif runner.cancelling() and not invocation.cancellation.requested:
            raised = AbandonedError("its event loop ends, or somebody else cancelled it")
        else:
            raised = asyncio.CancelledError()
        invocation.runner = None
        ended = partial(self._end_span, span, invocation) if span is not None else None
        self.line.post(Returned(self, invocation, raised, ended), self._post_failed)

    def _end_span(self, span: Span, invocation: Invocation, actions: list[Action]) -> None:
        # Not on the line: whoever exports spans may take its time, and may raise.
        self.loop.call_soon(span.end, ending(self.scheduler, invocation, actions))

    # --- Losses in flight ---

    async def _count_crash(self, invocation: Invocation) -> None:
        """Make it durable that a task was lost in flight, before it can be lost once more."""

        def before() -> Batch | None:
            live = self.scheduler.live.get(invocation.task_id)
            if live is None or self.scheduler.phase not in ("open", "stopping"):
                return None
            return store_losses(live)

        def after(step: Step[None]) -> None:
            if step.wrote:
                live = self.scheduler.live[invocation.task_id]
                live.counted, live.seeded = True, False

        try:
            await self.line.run(Step(self, before, after), HOST)
        except RetryableError as error:
            # A loss that is not counted parks the task one loss later; its kind is not at fault.
            _LOG.warning("the loss of task %s is not counted: %s", invocation.task_id, error)

    async def resume(self, id: Seq, call: Call) -> None:
        """Let a task go on that was lost in flight too often."""
        check_seq(id, "task")
        call = self.mine(call)

        def before() -> Batch | None:
            self.admission.admit(call)
            live = self.scheduler.live.get(id)
            if live is None or not self.scheduler.crashed(id):
                problem = f"task {id} is not parked for having been lost in flight"
                raise UnknownTaskError("TASKS-5", f"{problem}; allowed: one that is")
            return forget_losses(live) if live.counted else None

        def after(step: Step[None]) -> None:
            step.actions += self.scheduler.resumed(id)

        await self.line.run(Step(self, before, after), call)

    # --- Faults ---

    def _broken(self, broken: Broken) -> None:
        by = broken.invocation
        abandoned = isinstance(broken.error, AbandonedError)
        report = FaultReport(by.task_id, by.kind, by.method, broken.problem, broken.error)
        try:
            # A script that ends without closing did nothing wrong.
            if not abandoned:
                tell(report, self._on_report)
        finally:
            self._end_broken(report, abandoned=abandoned)

    def _end_broken(self, report: FaultReport, *, abandoned: bool) -> None:
        if self._on_task_fault == "session" or abandoned:
            self.fault(str(report), report.error)
        elif report.task_id in self.scheduler.live:
            self.post(partial(self._faulted_batch, report.task_id, str(report)), lambda _: None)

    def _faulted_batch(self, id: Seq, problem: str) -> Batch | None:
        live = self.scheduler.live.get(id)
        if live is None or self.scheduler.phase not in ("open", "stopping"):
            return None
        problem = problem.encode("utf-8", "backslashreplace").decode()
        state = {**live.task.state, "status": "faulted", "error": problem}
        return MainBatch((SettleTask(id, "faulted", state),))

    def _lost(self, error: BaseException) -> None:
        self.fault(f"a commit ended with {type(error).__name__}: {error}", error)

    def _post_failed(self, error: BaseException) -> None:
        self.fault(f"{type(error).__name__}: {error}", error)

    def fault(self, problem: str, cause: BaseException | None) -> None:
        """Stop the session: refuse everything, reject who waits, signal what runs."""
        if self.scheduler.phase in ("faulted", "closed"):
            return
        self.admission.fault = (problem, cause)
        self.dispatch(self.scheduler.fault(self.admission.faulted))
        for invocation in list(self.scheduler.running.values()):
            if not invocation.begun:  # Its start was not carried out, and will not be.
                self.dispatch(self.scheduler.finished(invocation, None))
        self.on_fault()


def _settled_any(step: Step[bool]) -> bool:
    return step.wrote
