"""Task kinds that do what a scenario says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import ClassVar, TypeAlias, TypeVar, cast

import msgspec

from pico_harness import inbox
from pico_harness.call import Call, current_call
from pico_harness.errors import TaskParkedError, UnknownTaskError, WaitCycleError
from pico_harness.kinds import EntryKind, TaskOf, TaskState
from pico_harness.runtime import TaskRuntime
from pico_harness.state import scratch_value
from pico_harness.task_kind import TaskKind
from pico_harness.testing.ledger import Ledger
from pico_harness.testing.scenario import DURABLE, Scenario, Step
from pico_harness.tx import Tx
from pico_store.address import Seq
from pico_store.errors import RetryableError, UnknownConversationError
from pico_store.query import TaskQuery
from pico_store.records import JsonValue, TaskRole

T = TypeVar("T")

NOTE = EntryKind[JsonValue]("simulated.note")
SCRATCH = scratch_value("simulated")


class Planned(TaskState, frozen=True):
    """Not begun, or begun anew."""

    key: int
    at: int = 0
    """The step to go on with."""
    child: Seq | None = None
    """The conversation that the step drives."""
    input: Seq | None = None
    """The input that the task has to answer."""


class Working(TaskState, frozen=True):
    """Begun."""

    key: int
    at: int = 0
    child: Seq | None = None
    input: Seq | None = None


class Done(TaskState, frozen=True):
    """Every step was taken."""

    key: int


class Interrupted(TaskState, frozen=True):
    """Lost in flight, and not to be taken up again."""

    key: int


class Aborted(TaskState, frozen=True):
    """Ended by its abort."""

    key: int


State: TypeAlias = Planned | Working | Done | Interrupted | Aborted
Open: TypeAlias = Planned | Working


class ScriptedError(Exception):
    """What a script raises where it breaks its contract."""


class Stage:
    """What the kinds and hosts of one scenario share."""

    def __init__(self, scenario: Scenario, ledger: Ledger) -> None:
        self.scenario = scenario
        self.ledger = ledger
        self.mended = False
        """Whether scripts keep their contract now."""
        self.lost: set[Seq] = set()
        """Tasks that were in flight when some process opened the session."""
        self.excused: set[Seq] = set()
        """Tasks that a storage fault may have broken."""
        self.work = Work(self)
        self.extra = Extra(self)

    def opened(self) -> None:
        """Take note that another process opens the session."""
        self.lost |= {id for id, fact in self.ledger.live.items() if fact.role == "inflight"}

    def may_break(self, id: Seq) -> bool:
        """Tell whether a task's script breaks its contract."""
        plan = self.scenario.plans.get(cast(int, self.ledger.tasks[id].state["key"]))
        assert plan is not None
        return not self.mended and any(step.op in ("raise", "bare") for step in plan.steps)

    def id_of(self, key: int) -> Seq | None:
        """Return the task of a plan, if it was created."""
        for id, fact in self.ledger.tasks.items():
            if fact.state.get("key") == key:
                return id
        return None

    def create(self, tx: Tx, keys: tuple[int, ...], conversation: Seq) -> None:
        """Create the tasks of some plans."""
        made: dict[int, Seq] = {}
        for key in keys:
            plan = self.scenario.plans[key]
            found = [made.get(k) or self.id_of(k) for k in plan.after]
            made[key] = tx.task(
                self.extra if plan.extra else self.work,
                Planned(key),
                conversation=conversation,
                after=[id for id in found if id is not None],
                background=plan.background,
            )


class Work(TaskKind[State]):
    """A kind that follows the plan which its state names."""

    name = "simulated.work"
    states: ClassVar[Mapping[type[TaskState], TaskRole]] = {
        Planned: "start",
        Working: "inflight",
        Done: "terminal",
        Interrupted: "terminal",
        Aborted: "terminal",
    }

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    # --- The three methods ---

    async def execute(self, task: TaskOf[State], runtime: TaskRuntime) -> None:
        state = task.state
        assert isinstance(state, Planned)
        begun = Working(state.key, state.at, state.child, state.input)
        await _commit(runtime, lambda tx: tx.patch(task.id, begun))
        await self._steps(task.id, begun, runtime)

    async def recover(self, task: TaskOf[State], runtime: TaskRuntime) -> None:
        state = task.state
        assert isinstance(state, Working)
        if self._stage.scenario.plans[state.key].replay:
            await self._steps(task.id, state, runtime)
            return

        def plan(tx: Tx) -> None:
            _answer(tx, runtime.conversation_id, state, "failed")
            tx.settle(task.id, Interrupted(state.key))

        await _commit(runtime, plan)

    async def abort(self, task: TaskOf[State], runtime: TaskRuntime) -> None:
        state = task.state
        assert isinstance(state, Planned | Working)
        abort_ms = self._stage.scenario.plans[state.key].abort_ms
        if abort_ms:
            cleaning = Working(state.key, state.at, state.child, state.input)
            await _commit(runtime, lambda tx: tx.patch(task.id, cleaning))
            await asyncio.sleep(abort_ms / 1000)

        def plan(tx: Tx) -> None:
            if state.child is not None and tx.get_conversation(state.child) is not None:
                query = TaskQuery(conversation_ids=(state.child,), live=True)
                for below in tx.tasks(query).items:
                    if not below.background:
                        tx.abort_task(below.id)
            _answer(tx, runtime.conversation_id, state, "cancelled")
            tx.settle(task.id, Aborted(state.key))

        await _commit(runtime, plan)

    # --- Steps ---

    async def _steps(self, id: Seq, state: Working, runtime: TaskRuntime) -> None:
        plan = self._stage.scenario.plans[state.key]
        at = state.at
        while at < len(plan.steps):
            step = plan.steps[at]
            at += 1
            if step.op in DURABLE:
                following = await self._durable(id, state, at, step, runtime)
                if following is None:
                    return
                state = following
            elif step.op == "bare" and not self._stage.mended:
                return
            else:
                await self._passing(id, state, step, runtime)

        def end(tx: Tx) -> None:
            _answer(tx, runtime.conversation_id, state, "done")
            self._stage.create(tx, plan.then, runtime.conversation_id)
            tx.settle(id, Done(state.key))

        await _commit(runtime, end)

    async def _durable(
        self, id: Seq, state: Working, at: int, step: Step, runtime: TaskRuntime
    ) -> Working | None:
        """Take a step that commits how far the task is; ``None``: the method is to return."""
        if step.op == "requeue":
            again = Planned(state.key, at, state.child, state.input)
            await _commit(runtime, lambda tx: tx.patch(id, again))
            return None
        following = msgspec.structs.replace(state, at=at)
        if step.op == "child":
            await self._child(id, state, step.number, runtime)
            following = Working(state.key, at, None, state.input)

        def plan(tx: Tx) -> Working:
            after = following
            if step.op == "take":
                after = _take(tx, runtime.conversation_id, following)
            tx.patch(id, after)
            if step.op == "note":
                data: JsonValue = [state.key, at - 1]
                tx.entry(NOTE, data)
            return after

        return await _commit(runtime, plan)

    async def _child(self, id: Seq, state: Working, group: int, runtime: TaskRuntime) -> None:
        child = state.child

        def plan(tx: Tx) -> Seq:
            made = tx.create_conversation(owner=id)
            self._stage.create(tx, self._stage.scenario.children[group], made)
            tx.patch(id, msgspec.structs.replace(state, child=made))
            return made

        if child is None:
            child = await _commit(runtime, plan)
        handle = await runtime.conversation(child)
        while handle is not None:
            try:
                await handle.drive()
            except RetryableError:
                continue
            except (TaskParkedError, WaitCycleError, UnknownConversationError):
                # It goes on without them: they stay where they are until their host looks, or they
                # wait for this very task, or they ended and were deleted.
                return
            return

    async def _passing(self, id: Seq, state: Working, step: Step, runtime: TaskRuntime) -> None:
        if step.op == "sleep":
            await runtime.sleep(runtime.now() + step.number)
        elif step.op == "scratch":
            await _scratch(runtime, step.number, None)
        elif step.op == "stubborn":
            await _ignore_cancellation(step.number / 1000)
            # Its own cancellation does not reach this call; only the mark stands against it.
            late = Call(invocation=current_call().invocation)
            if step.number % 2:
                await _commit(runtime, lambda tx: tx.patch(id, state), late)
            else:
                await _scratch(runtime, step.number, late)
        elif step.op == "wait":
            other = self._stage.id_of(step.number)
            if other is not None:
                try:
                    await runtime.wait_for_task(other, 15 if step.number % 2 else None)
                except (WaitCycleError, UnknownTaskError):
                    return
        elif step.op == "abort":
            victim = self._stage.id_of(step.number)
            if victim is not None:
                await _commit(runtime, lambda tx: tx.abort_task(victim))
        elif step.op == "raise" and not self._stage.mended:
            raise ScriptedError("as the scenario says")


class Extra(Work):
    """The same under another name, which some lives do not know."""

    name = "simulated.extra"


async def _commit(runtime: TaskRuntime, plan: Callable[[Tx], T], call: Call | None = None) -> T:
    while True:
        try:
            return await runtime.commit(plan, call=call)
        except RetryableError:
            continue


async def _scratch(runtime: TaskRuntime, value: int, call: Call | None) -> None:
    while True:
        try:
            await runtime.scratch(lambda tx: tx.value(SCRATCH).set(value), call=call)
        except RetryableError:
            continue
        return


async def _ignore_cancellation(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while (left := until - loop.time()) > 0:
        try:
            await asyncio.sleep(left)
        except asyncio.CancelledError:
            continue


def _take(tx: Tx, conversation: Seq, state: Working) -> Working:
    if state.input is not None:
        return state
    waiting = inbox.queued(tx, conversation)
    if not waiting:
        return state
    first = waiting[0]
    inbox.place(tx, conversation, first.id, first.value)
    return msgspec.structs.replace(state, input=first.id)


def _answer(tx: Tx, conversation: Seq, state: Open, status: inbox.InputStatus) -> None:
    if state.input is not None:
        inbox.resolve(tx, conversation, state.input, status)
