"""Who waits for what: temporary waiters, and the cycles that they must not close."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
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
        if waiter.by is None or not self._reaches(self._targets(waiter), {waiter.by}, {}, {}):
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
        new = {task.id: task for task in tasks}
        fresh: dict[Seq, list[Seq]] = {}
        for task in new.values():
            if not task.background:
                fresh.setdefault(task.conversation_id, []).append(task.id)
        for task in new.values():
            waiting = {w.by for w in self.of_conversation(task.conversation_id)} - {None}
            if task.background or not waiting or not task.after:
                continue
            if self._reaches(task.after, waiting, new, fresh):
                problem = f"new task {task.id} depends on a task that waits for conversation "
                problem += f"{task.conversation_id}, and so for it"
                raise WaitCycleError("TASKS-4", problem)

    def _targets(self, waiter: Waiter) -> list[Seq]:
        if waiter.task is not None:
            return [waiter.task]
        if waiter.conversation is not None:
            return self._live.foreground_ids(waiter.conversation)
        return [id for id in self._live.ids() if not self._live[id].task.background]

    def _reaches(
        self,
        start: Iterable[Seq],
        goals: set[Seq | None] | set[Seq],
        new: Mapping[Seq, Task],
        fresh: Mapping[Seq, list[Seq]],
    ) -> bool:
        """Tell whether one of the goals is among, or waited for by, the tasks to start with."""
        stack = list(start)
        met: set[Seq] = set()
        while stack:
            id = stack.pop()
            if id in goals:
                return True
            if id in met:
                continue
            met.add(id)
            if id in new:
                stack += new[id].after
            live = self._live.get(id)
            if live is not None:
                stack += live.waits_for
            for waiter in self._by.get(id, ()):
                stack += self._targets(waiter)
                if waiter.conversation is not None:
                    stack += fresh.get(waiter.conversation, ())
        return False


def _take(index: dict[Seq, dict[Waiter, None]], key: Seq, waiter: Waiter) -> bool:
    """Take a waiter out of an index; False if it was not there."""
    members = index.get(key)
    if members is None or waiter not in members:
        return False
    del members[waiter]
    if not members:
        del index[key]
    return True
