"""The scheduler: what must happen next, decided from the indexes and one event at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias

from msgspec import Struct

from pico_harness.ancestry import Ancestry
from pico_harness.call import Invocation, Method
from pico_harness.errors import (
    CallCancelledError,
    HarnessError,
    SessionClosedError,
    SessionStoppingError,
    TaskCancelledError,
    TaskParkedError,
)
from pico_harness.faults import words
from pico_harness.live import Changes, LiveIndex, LiveTask
from pico_harness.waits import Outcome, Waiter, Waits
from pico_store.address import Seq
from pico_store.records import Task

Phase: TypeAlias = Literal["open", "stopping", "closing", "faulted", "closed"]


# Structs, because a frozen dataclass takes five times as long to make.


class Start(Struct, frozen=True, eq=False):
    """Call a method of a task's kind; the slot is taken already."""

    invocation: Invocation
    task: Task
    """As it was when the slot was taken."""


class Signal(Struct, frozen=True, eq=False):
    """Ask a running invocation to stop."""

    invocation: Invocation
    reason: str


class Resolve(Struct, frozen=True, eq=False):
    """Tell a waiter how it ended; it is registered no more."""

    waiter: Waiter
    outcome: Outcome | HarnessError


class Broken(Struct, frozen=True, eq=False):
    """A kind broke its contract."""

    invocation: Invocation
    problem: str
    error: BaseException | None


class Unreadable(Struct, frozen=True, eq=False):
    """Tell of a task that its kind cannot run."""

    task: Task
    problem: str


class GiveUp(Struct, frozen=True, eq=False):
    """Settle a marked task whose kind cannot run even its abort."""

    task: Task
    problem: str


class Drained(Struct, frozen=True, eq=False):
    """Nothing runs any more, and nothing will."""


Action: TypeAlias = Start | Signal | Resolve | Broken | Unreadable | GiveUp | Drained


class Scheduler:
    """Decides which invocations run.

    It reads and changes its own indexes and returns actions; it calls no kind and no event loop,
    and reads storage only for an ownership link that `Ancestry` does not keep yet.

    A task runs when it is served, live and has no invocation yet: its abort method if it carries
    the mark, ``execute`` in role start once every dependency is terminal, ``recover`` in role
    inflight. An invocation keeps its slot until its method returned, whatever became of the task.

    Guarantees:
        One invocation a task. A commit and an end of a method look only at what they name and at
        what depends on that.

    Source: design §6.1 to §6.4.
    """

    def __init__(
        self,
        live: LiveIndex,
        ancestry: Ancestry,
        can_run: Callable[[str], bool],
        problem: Callable[[Task], str | None],
        *,
        crashes_max: int,
    ) -> None:
        """Make a scheduler that serves nothing yet.

        Args:
            live: The live tasks.
            ancestry: Where they are; holds a link for each of them already.
            can_run: Tells whether a task kind of that name can run here.
            problem: Tells why the kind of a task, which can run here, cannot read it.
            crashes_max: How many losses in flight park a task (TASKS-5).
        """
        self.live = live
        self.ancestry = ancestry
        self.waits = Waits(live)
        self.running: dict[Seq, Invocation] = {}
        self.phase: Phase = "open"
        self._can_run = can_run
        self._read_problem = problem
        # Those that may not be recovered again.
        self._crashed = {id for id in live.ids() if live[id].crashes >= crashes_max}
        self.unreadable: dict[Seq, str] = {}
        """Live tasks that their kind cannot read, and why."""
        # Kinds that came, and whose tasks were not looked at yet; none of these starts before.
        self._unseen: set[str] = set()
        # Those that broke their contract; whether or not a settlement of the harness is on its way,
        # nothing runs them any more.
        self._broken: set[Seq] = set()
        self._drained = False

    # --- Questions ---

    def busy(self, conversation: Seq) -> bool:
        """Tell whether a conversation has live foreground tasks."""
        return self.live.foreground(conversation) > 0

    def parked(self, live: LiveTask) -> bool:
        """Tell whether a live task is left alone until the host says otherwise."""
        if not self._can_run(live.task.kind):
            return live.task.background
        task = live.task
        # Whoever marks what cannot be read has said that it ends.
        return task.id in self._crashed or (task.id in self.unreadable and not task.abort)

    def crashed(self, id: Seq) -> bool:
        """Tell whether a live task was lost in flight too often."""
        return id in self._crashed

    def orphaned(self, live: LiveTask) -> bool:
        """Tell whether a live task would keep its conversation busy without being able to run."""
        return not live.task.background and not self._can_run(live.task.kind)

    def foreground_closure(self, conversations: Iterable[Seq]) -> list[Seq]:
        """Return the live foreground tasks of conversations and of what those tasks own.

        Source: design §5.6; goes through live foreground owners only.
        """
        found: dict[Seq, None] = {}
        stack = list(conversations)
        met: set[Seq] = set()
        while stack:
            conversation = stack.pop()
            if conversation in met:
                continue
            met.add(conversation)
            for id in self.live.foreground_ids(conversation):
                found[id] = None
                stack += self.live[id].task.owns
        return sorted(found)

    # --- Events ---

    def committed(self, changes: Changes) -> list[Action]:
        """Decide what follows from a batch that the live index took over just now."""
        actions: list[Action] = []
        for id in changes.created:
            live = self.live.get(id)
            if live is not None:
                self.ancestry.hold(live.task.conversation_id)
        created = set(changes.created) if changes.settled else ()
        for task in changes.settled:
            # One that was created and settled in the same batch was never held.
            if task.id not in created:
                self.ancestry.release(task.conversation_id)
            self._crashed.discard(task.id)
            self._broken.discard(task.id)
            self.unreadable.pop(task.id, None)
        for conversation in changes.deleted:
            self.ancestry.detach_deleted(conversation)
        for id in changes.marked:
            # Whoever marks a parked task has said how it goes on: its abort runs (TASKS-5).
            self._crashed.discard(id)
            invocation = self.running.get(id)
            if invocation is not None and invocation.method != "abort":
                actions.append(Signal(invocation, "the task was aborted"))
        for ids in (changes.created, changes.changed, changes.marked, changes.freed):
            if ids:
                self._reserve(ids, actions)
        if changes.settled:
            self._settled(changes.settled, actions)
        return actions

    def _settled(self, tasks: list[Task], actions: list[Action]) -> None:
        for task in tasks:
            for waiter in self.waits.of_task(task.id):
                self._resolve(waiter, "terminal", actions)
            if not task.background:
                self._test_conversation(task.conversation_id, actions)
        self._test_session(actions)
        self._test_drained(actions)

    def attached(self, conversation: Seq | None) -> list[Action]:
        """Serve a conversation, or everything, and take the slots that this makes free to take."""
        actions: list[Action] = []
        served = self.ancestry.attach(conversation)
        if served:
            self._reserve(
                sorted(id for one in served for id in self.live.of_conversation(one)), actions
            )
        return actions

    def waiting(self, waiter: Waiter) -> list[Action]:
        """Register a waiter, or resolve it at once."""
        actions: list[Action] = []
        self.waits.add(waiter)
        if waiter.task is not None:
            if waiter.task not in self.live:
                self._resolve(waiter, "terminal", actions)
        elif waiter.conversation is not None:
            self._test_conversation(waiter.conversation, actions)
        else:
            self._test_session(actions)
        return actions

    def finished(self, invocation: Invocation, raised: BaseException | None) -> list[Action]:
        """Give a slot back and decide what follows.

        Args:
            invocation: Whose method returned or raised.
            raised: What it raised.
        """
        actions: list[Action] = []
        id = invocation.task_id
        assert self.running.get(id) is invocation, f"task {id}: a foreign invocation finished"
        del self.running[id]
        self.ancestry.release(invocation.conversation_id)
        live = self.live.get(id)
        problem = self._problem(invocation, live, raised)
        if problem is not None:
            self._broken.add(id)
            actions.append(Broken(invocation, problem, raised))
        elif live is not None:
            self._reserve((id,), actions)
        self._test_drained(actions)
        return actions

    def resumed(self, id: Seq) -> list[Action]:
        """Let a parked task go on."""
        self.live[id].crashes = 0
        self._crashed.discard(id)
        actions: list[Action] = []
        self._reserve((id,), actions)
        return actions

    def expect(self, kind: str) -> None:
        """Hold the tasks of a kind that came until `registered` has looked at them."""
        self._unseen.add(kind)

    def registered(self, kind: str) -> list[Action]:
        """Take the slots of tasks that waited for their kind, and park those it cannot read."""
        self._unseen.discard(kind)
        if not self._can_run(kind):
            return []
        actions: list[Action] = []
        ids = self.live.of_kind(kind)
        for id in ids:
            known = self.unreadable.pop(id, None)
            task = self.live[id].task
            problem = self._read_problem(task)
            if problem is not None:
                self.unreadable[id] = problem
                if problem != known:
                    actions.append(Unreadable(task, problem))
        self._reserve(ids, actions)
        if self.unreadable:
            for conversation in self.waits.conversations():
                self._test_conversation(conversation, actions)
            self._test_session(actions)
            self._test_drained(actions)
        return actions

    # --- The end ---

    def stop(self) -> list[Action]:
        """Serve everything from now on, but start nothing but aborts."""
        self.phase = "stopping"
        self.ancestry.attach(None)
        actions: list[Action] = []
        self._reserve(self.live.ids(), actions)
        self._test_drained(actions)
        return actions

    def close(self) -> list[Action]:
        """Start nothing more and ask everything that runs to stop."""
        self.phase = "closing"
        return self._end("the session closes", None)

    def fault(self, error: Callable[[], HarnessError]) -> list[Action]:
        """Start nothing more, reject every waiter and ask everything that runs to stop.

        Args:
            error: Makes the error for each waiter.
        """
        self.phase = "faulted"
        return self._end("the session is faulted", error)

    def _end(self, reason: str, error: Callable[[], HarnessError] | None) -> list[Action]:
        actions: list[Action] = []
        for waiter in self.waits.all():
            if error is not None:
                self._resolve(waiter, error(), actions)
            elif waiter.task is not None:
                closed = SessionClosedError(f"closed while waiting for task {waiter.task}")
                self._resolve(waiter, closed, actions)
            else:
                self._resolve(waiter, "closed", actions)
        actions += [Signal(invocation, reason) for invocation in self.running.values()]
        self._drained = False
        self._test_drained(actions)
        return actions

    # --- Decisions ---

    def _reserve(self, ids: Iterable[Seq], actions: list[Action]) -> None:
        if self.phase not in ("open", "stopping"):
            return
        for id in ids:
            live = self.live.get(id)
            if live is None or id in self.running:
                continue
            if id in self.unreadable:
                self._give_up(live, actions)
                continue
            method = self._method(live)
            if method is not None and self.ancestry.serves(live.task.conversation_id):
                task = live.task
                if method == "execute":
                    live.seeded = False
                again = live.seeded
                invocation = Invocation(
                    id, task.conversation_id, task.kind, method, live.epoch, self, again
                )
                self.running[id] = invocation
                self.ancestry.hold(task.conversation_id)
                actions.append(Start(invocation, task))

    def _give_up(self, live: LiveTask, actions: list[Action]) -> None:
        """Have a marked task settled by the harness, once and where its abort would run."""
        task = live.task
        if not task.abort or task.id in self._broken or self.parked(live):
            return
        if self.ancestry.serves(task.conversation_id):
            self._broken.add(task.id)
            actions.append(GiveUp(task, self.unreadable[task.id]))

    def _method(self, live: LiveTask) -> Method | None:
        kind = live.task.kind
        if not self._can_run(kind) or kind in self._unseen or self.parked(live):
            return None
        if live.task.id in self._broken:
            return None
        if live.task.abort:
            return "abort"
        if self.phase != "open":
            return None
        if live.task.role == "inflight":
            return "recover"
        return None if live.waits_for else "execute"

    def _problem(
        self, invocation: Invocation, live: LiveTask | None, raised: BaseException | None
    ) -> str | None:
        """Return how an invocation broke its kind's contract; ``None``: it kept it."""
        if raised is not None:
            if self.phase == "faulted" or self._expected(invocation, live, raised):
                return None
            return f"raised {type(raised).__name__}{words(raised)}"
        if live is None or invocation.cancellation.requested:
            return None
        if invocation.method == "abort":
            return f"returned without settling the task ({_doubt(invocation)})"
        if live.task.abort or live.epoch != invocation.first_epoch:
            return None
        problem = f"returned without a transition from status {live.task.status!r}"
        return f"{problem} ({_doubt(invocation)})"

    def _expected(
        self, invocation: Invocation, live: LiveTask | None, raised: BaseException
    ) -> bool:
        """Tell whether an exception is how an invocation that was asked to stop unwinds."""
        if isinstance(raised, BaseExceptionGroup):
            return all(self._expected(invocation, live, part) for part in raised.exceptions)
        if isinstance(raised, (asyncio.CancelledError, CallCancelledError)):
            return invocation.cancellation.requested
        if isinstance(raised, TaskCancelledError):
            return live is None or live.task.abort
        if isinstance(raised, (SessionClosedError, SessionStoppingError)):
            return self.phase in ("stopping", "closing", "closed")
        return False

    # --- Waiters ---

    def _resolve(
        self, waiter: Waiter, outcome: Outcome | HarnessError, actions: list[Action]
    ) -> None:
        if self.waits.remove(waiter):
            actions.append(Resolve(waiter, outcome))

    def _test_conversation(self, conversation: Seq, actions: list[Action]) -> None:
        waiters = self.waits.of_conversation(conversation)
        if not waiters:
            return
        if not self.busy(conversation):
            for waiter in waiters:
                self._resolve(waiter, "idle", actions)
            return
        if not self._any_parked():
            return
        stuck = [
            live.task.id for live in self._stuck() if live.task.conversation_id == conversation
        ]
        if len(stuck) == self.live.foreground(conversation):
            for waiter in waiters:
                self._resolve(waiter, TaskParkedError(stuck), actions)

    def _test_session(self, actions: list[Action]) -> None:
        if not self.waits.session:
            return
        if not self.live.foreground_total:
            for waiter in list(self.waits.session):
                self._resolve(waiter, "idle", actions)
            return
        if not self._any_parked():
            return
        stuck = [live.task.id for live in self._stuck()]
        if len(stuck) == self.live.foreground_total:
            for waiter in list(self.waits.session):
                self._resolve(waiter, TaskParkedError(stuck), actions)

    def _any_parked(self) -> bool:
        return bool(self._crashed or self.unreadable) or not all(
            map(self._can_run, self.live.kinds())
        )

    def _stuck(self) -> list[LiveTask]:
        """Return the foreground tasks that are parked, or wait for one that is."""
        # From the parked ones to what waits for them: the rest of the work is not looked at.
        unknown = [kind for kind in self.live.kinds() if not self._can_run(kind)]
        stack = [id for kind in unknown for id in self.live.of_kind(kind)]
        stack = [
            id for id in (*stack, *self._crashed, *self.unreadable) if self.parked(self.live[id])
        ]
        met = set(stack)
        while stack:
            below = [id for id in self.live[stack.pop()].dependents if id not in met]
            met.update(below)
            stack += below
        stuck = [self.live[id] for id in sorted(met)]
        return [live for live in stuck if not live.task.background]

    def _test_drained(self, actions: list[Action]) -> None:
        if self._drained or self.running or self.phase == "open":
            return
        if self.phase == "stopping" and any(
            not self.parked(self.live[id]) and not self.orphaned(self.live[id])
            for id in self.live.ids()
        ):
            return
        self._drained = True
        actions.append(Drained())


def _doubt(invocation: Invocation) -> str:
    """Return what an author who sees no transition in a method that has one should look at."""
    if invocation.unawaited:
        return f"commits that were asked for and never awaited: {invocation.unawaited}"
    return "was every commit awaited?"
