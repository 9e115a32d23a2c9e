"""Who waits for what: temporary waiters, and the cycles that they must not close."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pico_harness.errors import WaitCycleError
from pico_harness.live import LiveIndex
from pico_store.address import Seq
from pico_store.records import Task

Outcome: TypeAlias = Literal["idle", "closed", "terminal", "budget"]


@dataclass(eq=False, slots=True)
class Waiter:
    """One waiting call, for a conversation or for a task; for neither: for the whole session."""

    result: asyncio.Future[Outcome]
    by: Seq | None
    """The task whose invocation waits; ``None`` for the host."""
    conversation: Seq | None = None
    """Waits until this has no live foreground task."""
    task: Seq | None = None
    """Waits until this is terminal."""


class Waits:
    """The waiters of a session, by what they wait for.

    Source: design §6.2; TASKS-4.
    """

    def __init__(self, live: LiveIndex) -> None:
        self._live = live
        # Dictionaries used as sets, so that resolving follows the order of registration.
        self.session: dict[Waiter, None] = {}
        self._conversations: dict[Seq, dict[Waiter, None]] = {}
        self._tasks: dict[Seq, dict[Waiter, None]] = {}
        self._by: dict[Seq, dict[Waiter, None]] = {}

    def __len__(self) -> int:
        return len(self.all())

    def all(self) -> list[Waiter]:
        """Return every waiter."""
        indexes = (*self._conversations.values(), *self._tasks.values())
        return [*self.session, *(waiter for index in indexes for waiter in index)]

    def of_conversation(self, conversation: Seq) -> list[Waiter]:
        """Return who waits for a conversation."""
        return list(self._conversations.get(conversation, ()))

    def conversations(self) -> list[Seq]:
        """Return the conversations that somebody waits for."""
        return list(self._conversations)

    def of_task(self, task: Seq) -> list[Waiter]:
        """Return who waits for a task."""
        return list(self._tasks.get(task, ()))

    def check(self, waiter: Waiter) -> None:
        """Refuse a wait for itself.

        Raises:
            WaitCycleError: What it waits for waits for the task that asks.
        """
        if waiter.by is None or not self._reaches(self._targets(waiter), (waiter.by,), _New()):
            return
        what = "the session"
        if waiter.task is not None:
            what = f"task {waiter.task}"
        elif waiter.conversation is not None:
            what = f"conversation {waiter.conversation}"
        problem = f"task {waiter.by} waits for {what}, which waits for task {waiter.by}"
        raise WaitCycleError("TASKS-4", f"{problem}; allowed: what ends without it")

    def add(self, waiter: Waiter) -> None:
        """Register a waiter that `check` let pass."""
        if waiter.conversation is not None:
            self._conversations.setdefault(waiter.conversation, {})[waiter] = None
        elif waiter.task is not None:
            self._tasks.setdefault(waiter.task, {})[waiter] = None
        else:
            self.session[waiter] = None
        if waiter.by is not None:
            self._by.setdefault(waiter.by, {})[waiter] = None

    def remove(self, waiter: Waiter) -> bool:
        """Take a waiter away; False if it was gone."""
        if waiter.conversation is not None:
            found = _take(self._conversations, waiter.conversation, waiter)
        elif waiter.task is not None:
            found = _take(self._tasks, waiter.task, waiter)
        else:
            found = self.session.pop(waiter, waiter) is None
        if waiter.by is not None:
            _take(self._by, waiter.by, waiter)
        return found

    # --- Cycles ---

    def check_new(self, tasks: Iterable[Task]) -> None:
        """Refuse tasks that a task's wait would reach and that wait for that task.

        Args:
            tasks: About to be created, in one commit.

        Raises:
            WaitCycleError: A task drives a conversation whose new work depends on that task.
        """
        if not self._by:
            return
        new = _New(tasks)
        for task in new.tasks.values():
            if task.background or not task.after:
                continue
            waiting = self._waiting_for(task.conversation_id)
            if waiting and self._reaches(task.after, waiting, new):
                problem = f"new task {task.id} depends on a task that waits for conversation "
                problem += f"{task.conversation_id}, and so for it"
                raise WaitCycleError("TASKS-4", problem)

    def _waiting_for(self, conversation: Seq) -> list[Seq]:
        """Return the tasks that wait for a conversation."""
        return [w.by for w in self._conversations.get(conversation, ()) if w.by is not None]

    def _targets(self, waiter: Waiter) -> list[Seq]:
        if waiter.task is not None:
            return [waiter.task]
        if waiter.conversation is not None:
            return self._live.foreground_ids(waiter.conversation)
        return [id for id in self._live.ids() if not self._live[id].task.background]

    def _reaches(self, start: Collection[Seq], goals: Collection[Seq], new: _New) -> bool:
        """Tell whether one of the goals is among, or waited for by, the tasks to start with.

        Cost: twice the smaller of what these wait for and what waits for the goals, for it looks
        from both ends by turns, and knows the answer when either has no further to go.
        """
        starts = frozenset(start)
        up = _walk(start, lambda id: self._above(id, new))
        down = _walk(goals, lambda id: self._below(id, new))
        return any(high in goals or low in starts for high, low in zip(up, down, strict=False))

    def _above(self, id: Seq, new: _New) -> Iterator[Seq]:
        """Yield what a task waits for."""
        if id in new.tasks:
            yield from new.tasks[id].after
        live = self._live.get(id)
        if live is not None:
            yield from live.waits_for
        for waiter in self._by.get(id, ()):
            yield from self._targets(waiter)
            if waiter.conversation is not None:
                yield from new.foreground.get(waiter.conversation, ())

    def _below(self, id: Seq, new: _New) -> Iterator[Seq]:
        """Yield the tasks that wait for a task."""
        yield from new.dependents.get(id, ())
        live = self._live.get(id)
        if live is not None:
            yield from live.dependents
        yield from (w.by for w in self._tasks.get(id, ()) if w.by is not None)
        task = live.task if live is not None else new.tasks.get(id)
        if task is not None and not task.background:
            yield from self._waiting_for(task.conversation_id)


class _New:
    """Tasks about to be created, by what has to do with them."""

    def __init__(self, tasks: Iterable[Task] = ()) -> None:
        self.tasks = {task.id: task for task in tasks}
        self.foreground: dict[Seq, list[Seq]] = {}
        """The foreground ones of each conversation."""
        self.dependents: dict[Seq, list[Seq]] = {}
        """Those that are after each task."""
        for task in self.tasks.values():
            if not task.background:
                self.foreground.setdefault(task.conversation_id, []).append(task.id)
            for id in task.after:
                self.dependents.setdefault(id, []).append(task.id)


def _walk(start: Iterable[Seq], following: Callable[[Seq], Iterable[Seq]]) -> Iterator[Seq]:
    """Yield tasks and all that follows from them, each once."""
    stack = list(start)
    met: set[Seq] = set()
    while stack:
        id = stack.pop()
        if id not in met:
            met.add(id)
            yield id
            stack += following(id)


def _take(index: dict[Seq, dict[Waiter, None]], key: Seq, waiter: Waiter) -> bool:
    """Take a waiter out of an index; False if it was not there."""
    members = index.get(key)
    if members is None or waiter not in members:
        return False
    del members[waiter]
    if not members:
        del index[key]
    return True
