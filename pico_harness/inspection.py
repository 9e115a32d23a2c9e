"""What is live in a session, by what would become of it; looking starts and writes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pico_harness.arguments import check_instance
from pico_harness.live import LiveIndex
from pico_harness.losses import read_losses
from pico_harness.registry import Registry
from pico_harness.task_kind import RunnableKind
from pico_store.address import Seq
from pico_store.query import TaskQuery
from pico_store.records import Task
from pico_store.storage import Storage

CRASHES_MAX = 5
"""How many losses in flight in a row park a task, if nothing else is chosen (TASKS-5)."""

_PAGE = 10_000


@dataclass(frozen=True, slots=True)
class LiveTasks:
    """Live tasks, each in one list, by id."""

    start: tuple[Task, ...]
    """Not begun: waiting for their turn, or for others."""
    inflight: tuple[Task, ...]
    """Begun; recovered by the next who drives."""
    orphaned: tuple[Task, ...]
    """Foreground tasks of kinds that are not there; driving settles them so."""
    parked: tuple[Task, ...]
    """Left alone: background tasks of kinds that are not there, tasks that their kind cannot read,
    or lost in flight too often."""
    unreadable: Mapping[Seq, str] = field(default_factory=dict)
    """Why tasks cannot be read by their kinds; of those that are marked, too."""

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.start) + len(self.inflight) + len(self.orphaned) + len(self.parked)


@dataclass(frozen=True, slots=True)
class Counts:
    """How much there is to do, without a look at what."""

    live: int
    """Tasks that are not terminal, in the background too."""
    running: int
    """Methods that have not returned."""
    last_seq: Seq


def read_live(storage: Storage) -> LiveIndex:
    """Read the live tasks of a session and how often each was lost in flight.

    Cost: the live tasks, and one value for each that was begun; nothing of the history.
    """
    live = LiveIndex(_live_tasks(storage))
    for id in live.ids():
        read_losses(storage, live[id])
    return live


def inspect_storage(storage: Storage, kinds: Registry[RunnableKind] | None = None) -> LiveTasks:
    """Return the live tasks of a session as the next open for work would find them.

    It needs no ownership: a storage that was opened read-only, beside a live owner too, will do.

    Args:
        storage: An open session.
        kinds: The task kinds that would be registered; ``None``: all that is needed, so that
            nothing is orphaned and everything can be read.

    Cost: that of `read_live`.
    """
    if kinds is not None:
        check_instance(kinds, Registry, "kinds", "a registry of task kinds, or None")
    lists: dict[str, list[Task]] = {"start": [], "inflight": [], "orphaned": [], "parked": []}
    unreadable: dict[Seq, str] = {}
    live = read_live(storage)
    for id in sorted(live.ids()):
        task = live[id].task
        name: str = task.role
        kind = kinds.get(task.kind) if kinds is not None else None
        problem = kind.read_problem(task) if kind is not None else None
        if problem is not None:
            unreadable[id] = problem
        if kinds is not None and kind is None:
            name = "parked" if task.background else "orphaned"
        elif live[id].crashes >= CRASHES_MAX or (problem is not None and not task.abort):
            name = "parked"
        lists[name].append(task)
    found = {name: tuple(tasks) for name, tasks in lists.items()}
    return LiveTasks(**found, unreadable=unreadable)


def _live_tasks(storage: Storage) -> list[Task]:
    found: list[Task] = []
    after: Seq | None = None
    while True:
        page = storage.scan_tasks(TaskQuery(live=True, after=after, limit=_PAGE))
        found += page.items
        if page.next is None:
            return found
        after = page.next
