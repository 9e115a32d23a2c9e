"""Finding the shortest history that still shows a difference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from msgspec import UNSET

from pico_conformance.operation import (
    ROOT,
    Append,
    Commit,
    Handle,
    History,
    NewConversation,
    NewEntry,
    NewTask,
    Operation,
    Patch,
    Set,
    Settle,
    Step,
)

Fails: TypeAlias = Callable[[History], bool]
"""Replays a history and tells whether a difference shows."""

_ROOT_ONLY: Final = Commit((NewConversation(ROOT),))


def shrink(history: History, fails: Fails, *, replays_max: int = 3_000) -> History:
    """Return a history that fails, from which nothing can be left out.

    Drops chunks of operations, then single ones, then steps of batches, then parts of steps, and
    begins again until nothing helps. Labels make every subset of a history a history.

    Args:
        history: One that fails.
        fails: Is asked about candidates only.
        replays_max: At most so many candidates are tried.
    """
    budget = _Budget(fails, replays_max)
    history = _drop_chunks(history, budget)
    while not budget.is_spent:
        before = history
        history = _drop_chunks(history, budget)
        history = _drop_steps(history, budget)
        history = _simplify(history, budget)
        if history == before:
            break
    return history


class _Budget:
    def __init__(self, fails: Fails, replays_max: int) -> None:
        self._fails = fails
        self._left = replays_max

    @property
    def is_spent(self) -> bool:
        return self._left <= 0

    def fails(self, history: History) -> bool:
        if self._left <= 0:
            return False
        self._left -= 1
        return self._fails(history)


def _drop_chunks(history: History, budget: _Budget) -> History:
    size = max(len(history) // 2, 1)
    while True:
        # From the end, since what comes first is needed by what follows.
        start = len(history) - size
        while start > -size:
            candidate = history[: max(start, 0)] + history[max(start, 0) + size :]
            if len(candidate) < len(history) and budget.fails(candidate):
                history = candidate
            start -= size
        if size == 1:
            return history
        size //= 2


def _drop_steps(history: History, budget: _Budget) -> History:
    for index in reversed(range(len(history))):
        operation = history[index]
        if not isinstance(operation, Commit):
            continue
        position = len(operation.steps)
        while position > 0 and isinstance(operation, Commit):
            position -= 1
            if position >= len(operation.steps):
                continue
            simpler = _without_step(operation, position)
            candidate = _replaced(history, index, simpler)
            if budget.fails(candidate):
                history, operation = candidate, simpler
    return history


def _without_step(commit: Commit, position: int) -> Commit:
    steps = commit.steps[:position] + commit.steps[position + 1 :]
    mistake = commit.mistake
    if mistake is not None and mistake.position > position:
        mistake = mistake._replace(position=mistake.position - 1)
    return commit._replace(steps=steps, mistake=mistake)


def _replaced(history: History, index: int, operation: Operation) -> History:
    return (*history[:index], operation, *history[index + 1 :])


def _simplify(history: History, budget: _Budget) -> History:
    for index in range(len(history)):
        found = True
        while found:
            found = False
            for simpler in _simpler_operations(history[index]):
                candidate = _replaced(history, index, simpler)
                if budget.fails(candidate):
                    history, found = candidate, True
                    break
    return history


def _simpler_operations(operation: Operation) -> Iterator[Operation]:
    if isinstance(operation, Handle):
        if operation.act not in ("reopen", "near the end"):
            yield operation._replace(act="reopen")
        if operation.probe:
            yield operation._replace(probe=0)
        return
    if operation.mistake is not None:
        yield operation._replace(mistake=None)
    if operation.expected:
        yield operation._replace(expected=False)
    if operation.probe:
        yield operation._replace(probe=0)
    for position, step in enumerate(operation.steps):
        for simpler in _simpler_steps(step):
            steps = (*operation.steps[:position], simpler, *operation.steps[position + 1 :])
            yield operation._replace(steps=steps)


def _simpler_steps(step: Step) -> Iterator[Step]:
    match step:
        case NewConversation():
            if step.owner is not None:
                yield step._replace(owner=None)
            if step.parent is not None:
                yield step._replace(parent=None, at=None)
        case NewEntry():
            plain = NewEntry(step.label, step.conversation)
            if step != plain:
                yield plain
                for name in ("kind", "key", "data", "model", "head", "edits", "by"):
                    if getattr(step, name) != getattr(plain, name):
                        yield step._replace(**{name: getattr(plain, name)})
                if step.data is not UNSET and step.data != 0:
                    yield step._replace(data=0)
        case NewTask():
            bare = NewTask(step.label, step.conversation)
            if step != bare:
                yield bare
                for name in ("kind", "role", "state", "after", "background", "turn"):
                    if getattr(step, name) != getattr(bare, name):
                        yield step._replace(**{name: getattr(bare, name)})
        case Patch():
            if step.state is not None and step.abort:
                yield step._replace(role=None, state=None)
                yield step._replace(abort=False)
        case Settle():
            if step.state != {"status": "done"}:
                yield step._replace(state={"status": "done"})
        case Set() | Append():
            if step.value != 0 or type(step.value) is not int:
                yield step._replace(value=0)
            yield from _simpler_values(step)
        case _:
            return


def _simpler_values(step: Set | Append) -> Iterator[Step]:
    value = step.value
    if isinstance(value, list):
        for part in value:
            yield step._replace(value=part)
    elif isinstance(value, dict):
        for part in value.values():
            yield step._replace(value=part)
