"""Scenarios: what tasks do, what hosts do, what fails; generated from a seed."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Literal, TypeAlias

from pico_harness.testing.storage import Fault

Op: TypeAlias = Literal[
    "note",
    "scratch",
    "sleep",
    "requeue",
    "child",
    "wait",
    "take",
    "abort",
    "stubborn",
    "raise",
    "bare",
]
"""What a scripted task does next: write an entry and its progress; write scratch; sleep; go back
to its first status and return; create and drive a conversation of its own; wait for another task;
place an input; mark another task; ignore cancellation for a while, then write; raise; return too
early."""

DURABLE: tuple[Op, ...] = ("note", "requeue", "child", "take")
"""Steps that commit how far the task is, so that they happen once."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a scripted task."""

    op: Op
    number: int = 0
    """Milliseconds, a key of a plan, or a position in `Scenario.children`."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What one task does."""

    key: int
    steps: tuple[Step, ...]
    after: tuple[int, ...] = ()
    """Keys of tasks created in the same commit or before."""
    background: bool = False
    extra: bool = False
    """Whether it is of the kind that some lives do not know."""
    replay: bool = True
    """Whether it goes on after a loss; if not, it ends interrupted."""
    then: tuple[int, ...] = ()
    """Its successors, created in its settlement."""
    abort_ms: int = 0
    """How long its abort takes."""


HostOp: TypeAlias = Literal[
    "create",
    "drive_root",
    "drive_all",
    "drive_some",
    "wait",
    "abort_task",
    "abort_root",
    "fork",
    "accept",
    "withdraw",
    "inspect",
    "resume",
    "delete",
    "close",
    "shutdown",
]


@dataclass(frozen=True, slots=True)
class Act:
    """One thing that a host does, in a task of its own."""

    op: HostOp
    at_ms: int
    pick: float = 0.0
    """Which of those that there are, as a part of 1."""
    cancel: Literal["never", "task", "call"] = "never"
    cancel_ms: int = 0
    budget_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Life:
    """One process that has the session open."""

    acts: tuple[Act, ...]
    faults: dict[int, Fault] = field(default_factory=dict)
    away: bool = False
    """Whether commits are carried elsewhere, or happen within the call."""
    knows_extra: bool = True
    end_ms: int = 100
    """When it is closed if nothing ended it before."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A whole run but for its last life, which has no faults and drives everything to its end."""

    plans: dict[int, Plan]
    groups: tuple[tuple[int, ...], ...]
    """What hosts create in the root, each in one commit."""
    children: tuple[tuple[int, ...], ...]
    """What is created in conversations of tasks."""
    lives: tuple[Life, ...]
    on_task_fault: Literal["session", "task"] = "task"
    crashes_max: int = 5


def generate(seed: int, *, tasks: int = 10) -> Scenario:
    """Return the scenario of a seed.

    Args:
        seed: The same seed gives the same scenario.
        tasks: About how many tasks there are.
    """
    return _Generator(Random(seed), tasks).scenario()


class _Generator:
    def __init__(self, random: Random, tasks: int) -> None:
        self._random = random
        self._left = tasks
        self._plans: dict[int, Plan] = {}
        self._children: list[tuple[int, ...]] = []
        self._breaks = random.random() < 0.2
        self._ghosts = random.random() < 0.15
        self._calm = random.random() < 0.15

    def _chance(self, part: float) -> bool:
        return self._random.random() < part

    def _below(self, stop: int) -> int:
        return int(self._random.random() * stop)

    # --- Tasks ---

    def scenario(self) -> Scenario:
        groups: list[tuple[int, ...]] = []
        while self._left > 0:
            known = [key for group in groups for key in group]
            groups.append(self._group(1 + self._below(4), known, known, depth=0))
        lives = self._lives(len(groups))
        return Scenario(
            self._plans,
            tuple(groups),
            tuple(self._children),
            lives,
            "task" if self._chance(0.7) else "session",
            2 + self._below(4),
        )

    def _group(self, size: int, known: list[int], others: list[int], depth: int) -> tuple[int, ...]:
        """Make tasks that are created in one commit.

        Args:
            size: How many.
            known: What they may be after, besides one another.
            others: What their steps may name.
            depth: How many tasks are above them.
        """
        keys: list[int] = []
        for _ in range(size):
            keys.append(self._plan([*known, *keys], [*others, *keys], depth))
        return tuple(keys)

    def _plan(self, known: list[int], others: list[int], depth: int) -> int:
        self._left -= 1
        key = len(self._plans) + 1
        self._plans[key] = Plan(key, ())
        steps = [self._step([*others, key], depth) for _ in range(self._length())]
        then: tuple[int, ...] = ()
        if self._left > 0 and self._chance(0.25):
            then = self._group(1 + self._below(2), [], [*others, key], depth + 1)
        self._plans[key] = Plan(
            key,
            tuple(steps),
            tuple(sorted({k for k in known[-4:] if self._chance(0.25)})),
            background=self._chance(0.15),
            extra=self._ghosts and depth == 0 and self._chance(0.3),
            replay=self._chance(0.8),
            then=then,
            abort_ms=self._below(3) * 4,
        )
        return key

    def _length(self) -> int:
        """Return how many steps a task has: mostly few, for that is where races are."""
        return self._below(3) if self._chance(0.95) else 4

    def _step(self, others: list[int], depth: int) -> Step:
        if self._breaks and self._chance(0.15):
            return Step("raise" if self._chance(0.6) else "bare")
        chance = self._random.random()
        if chance < 0.3:
            return Step("note")
        if chance < 0.42:
            return Step("scratch")
        if chance < 0.58:
            return Step("sleep", 1 + self._below(30))
        if chance < 0.66:
            return Step("requeue")
        if chance < 0.76 and self._left > 0 and depth < 3:
            keys = self._group(1 + self._below(2), [], others, depth + 1)
            self._children.append(keys)
            return Step("child", len(self._children) - 1)
        if chance < 0.82:
            return Step("take")
        if chance < 0.88:
            return Step("wait", others[self._below(len(others))])
        if chance < 0.9 and not self._calm:
            return Step("abort", others[self._below(len(others))])
        if chance < 0.96:
            return Step("stubborn", 1 + self._below(20))
        return Step("note")

    # --- Hosts ---

    def _lives(self, groups: int) -> tuple[Life, ...]:
        lives: list[Life] = []
        for number in range(1 + self._chance(0.6) + self._chance(0.4)):
            acts = self._acts(groups if not number else 0)
            away = self._chance(0.4)
            knows = not (self._ghosts and number and self._chance(0.6))
            end = 5 + self._below(120)
            lives.append(Life(acts, self._faults(), away, knows, end))
        if self._chance(0.04):
            lives += [self._loop_of_crashes() for _ in range(5)]
            lives.append(Life((Act("shutdown", self._below(20)),), {}))
        return tuple(lives)

    def _loop_of_crashes(self) -> Life:
        """A life that dies soon after it recovers something."""
        drive = Act("drive_all", 0)
        return Life((drive,), {2 + self._below(3): "crash_after"}, end_ms=400)

    def _faults(self) -> dict[int, Fault]:
        chance = self._random.random()
        at = self._below(40 if self._chance(0.7) else 8)
        if self._calm or chance < 0.3:
            return {}
        if chance < 0.45:
            return {at: "crash_before"}
        if chance < 0.65:
            return {at: "crash_after"}
        if chance < 0.75:
            return {at: "uncertain_before" if self._chance(0.5) else "uncertain_after"}
        return dict.fromkeys(range(at, at + 1 + self._below(2)), "retry")

    def _acts(self, groups: int) -> tuple[Act, ...]:
        acts = [Act("create", self._below(3) * 5 * n) for n in range(groups)]
        for _ in range(1 + self._below(3)):
            op: HostOp = "drive_root"
            chance = self._random.random()
            if chance < 0.25:
                op = "drive_all"
            elif chance < 0.45:
                op = "drive_some"
            acts.append(self._act(op))
        for op, part in _OPTIONAL:
            if not self._calm and self._chance(part):
                acts.append(self._act(op))
        return tuple(acts)

    def _act(self, op: HostOp) -> Act:
        cancel: Literal["never", "task", "call"] = "never"
        if op.startswith(("drive", "wait")) and self._chance(0.3):
            cancel = "task" if self._chance(0.5) else "call"
        return Act(
            op,
            self._below(60) if self._chance(0.7) else 0,
            self._random.random(),
            cancel,
            self._below(40) if self._chance(0.6) else 0,
            self._below(60) if self._chance(0.5) else None,
        )


_OPTIONAL: tuple[tuple[HostOp, float], ...] = (
    ("wait", 0.4),
    ("wait", 0.2),
    ("abort_task", 0.3),
    ("abort_task", 0.2),
    ("abort_root", 0.15),
    ("fork", 0.1),
    ("accept", 0.5),
    ("accept", 0.4),
    ("withdraw", 0.3),
    ("withdraw", 0.2),
    ("inspect", 0.2),
    ("resume", 0.1),
    ("delete", 0.2),
    ("close", 0.12),
    ("shutdown", 0.15),
)
