"""Opening a session: what is read, and how the parts are put together."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Literal
from weakref import ref

from pico_harness.admission import Admission
from pico_harness.ancestry import Ancestry
from pico_harness.arguments import (
    check_callable,
    check_choice,
    check_count,
    check_instance,
    wrong,
)
from pico_harness.away import Away, CommitThread
from pico_harness.call import Invocation
from pico_harness.clock import Clock, SystemClock
from pico_harness.conversation import Conversations
from pico_harness.driver import Driver
from pico_harness.faults import FaultReport
from pico_harness.inbox import Intake
from pico_harness.inspection import CRASHES_MAX, read_live
from pico_harness.links import read_links
from pico_harness.live import LiveIndex
from pico_harness.owned import own_task
from pico_harness.registry import Registry
from pico_harness.runtime import TaskRuntime
from pico_harness.scheduler import Scheduler
from pico_harness.task_kind import RunnableKind
from pico_harness.telemetry import Telemetry
from pico_store.address import Seq
from pico_store.errors import SessionOwnedError, StoreIOError
from pico_store.records import Task
from pico_store.shown import shown
from pico_store.storage import Storage


@dataclass(frozen=True, slots=True)
class Options:
    """How a harness works, where its defaults do not fit."""

    on_task_fault: Literal["session", "task"] = "session"
    """What a broken task contract ends: the session, or that task alone (TASKS-3)."""
    crashes_max: int = CRASHES_MAX
    """How many losses in flight in a row park a task (TASKS-5)."""
    on_report: Callable[[FaultReport], None] | None = None
    """Told of every broken task contract, and of each task that its kind cannot read."""
    intake: Intake | None = None
    """Gives an accepted input a place in the commit that accepts it, where it can."""
    clock: Clock = field(default_factory=SystemClock)
    telemetry: Telemetry | None = None
    """Told of every invocation; `pico_harness.otel` has one for the OpenTelemetry API."""
    away: Away | None = None
    """Runs commits that wait; if not given, a thread of the session's own where there are any."""


DEFAULTS = Options()

_METHODS = ("commit", "scan_tasks", "export")
"""What tells a storage from anything else, a store above all; one may be wrapped in another."""


def check_opening(storage: Storage, options: Options) -> None:
    """Refuse what is no storage, and options that mean nothing.

    Raises:
        ArgumentError: Which argument, or which option.
    """
    if not all(callable(getattr(storage, name, None)) for name in _METHODS):
        raise wrong(storage, "storage", _allowed_storage(storage))
    check_instance(options, Options, "options", "Options(...)")
    check_choice(options.on_task_fault, ("session", "task"), "options.on_task_fault")
    check_count(options.crashes_max, "options.crashes_max")
    for name in ("on_report", "intake", "away"):
        if getattr(options, name) is not None:
            check_callable(getattr(options, name), f"options.{name}", "a function, or None")
    if not callable(getattr(options.clock, "now", None)):
        raise wrong(options.clock, "options.clock", "a Clock, which has a method now")
    if options.telemetry is not None and not callable(getattr(options.telemetry, "begin", None)):
        allowed = "a Telemetry, which has a method begin, or None"
        raise wrong(options.telemetry, "options.telemetry", allowed)


def _allowed_storage(found: object) -> str:
    """Say how to come to a storage from what was given instead of one."""
    store = "open_store('sqlite:work.db')"
    if isinstance(found, str) and ":" in found:
        store = f"open_store({shown(found)})"
    elif callable(getattr(found, "sessions", None)):
        store = "store"
    how = f"storage = {store}.create('name'), or .open('name') where the session is there"
    return f"an open session, {how}; open_store is in pico_store.backends"


# The storages that harnesses of this process work on: two on one would both run its tasks. Weak, so
# that one that was dropped without a close gives its session back.
_HELD: dict[int, ref[Storage]] = {}


def make_driver(
    storage: Storage, kinds: Registry[RunnableKind], options: Options
) -> tuple[Driver, Conversations]:
    """Read what is live in a session and return a driver that has started nothing.

    Cost: the live tasks, whose states are decoded where their kind is there, a value of each that
    was in flight, and the links above them, which are read together; see `read_links`.
    """
    _check_free(storage)
    known = _Kinds(kinds)
    live = read_live(storage)
    scheduler, admission = _make_scheduler(storage, live, known, options.crashes_max)

    def run(invocation: Invocation, task: Task) -> Coroutine[object, object, None]:
        runtime = TaskRuntime(driver, conversations, invocation)
        return kinds[task.kind].invoke(invocation.method, own_task(task), runtime)

    thread = CommitThread(f"pico-{storage.session_id:.20}")
    driver = Driver(
        storage,
        known,
        scheduler,
        admission,
        run=run,
        away=options.away or (thread if storage.commit_waits else None),
        clock=options.clock,
        telemetry=options.telemetry,
        on_report=options.on_report,
        on_task_fault=options.on_task_fault,
    )
    _hold(storage)

    def closed() -> None:
        _HELD.pop(id(storage), None)
        thread.end()

    driver.on_closed = closed
    conversations = Conversations(driver, options.intake)
    try:
        for name in live.kinds():
            # Nothing is served yet; this finds what cannot be read, and tells of it.
            driver.dispatch(scheduler.registered(name))
    except BaseException:
        # Whoever is told may end the program; the storage stays its caller's.
        closed()
        raise
    return driver, conversations


def _make_scheduler(
    storage: Storage, live: LiveIndex, known: _Kinds, crashes_max: int
) -> tuple[Scheduler, Admission]:
    links = read_links(storage, live)

    # The three need one another: links are found in the live index and in storage.
    def above(conversation: Seq) -> Seq | None:
        return links[conversation] if conversation in links else admission.above(conversation)

    ancestry = Ancestry(above)
    scheduler = Scheduler(
        live, ancestry, known.has_task_kind, known.read_problem, crashes_max=crashes_max
    )
    admission = Admission(scheduler, storage)
    for task_id in live.ids():
        ancestry.hold(live[task_id].task.conversation_id)
    # From here on the ancestry has what is needed; what is asked later may have changed.
    links.clear()
    return scheduler, admission


def _hold(storage: Storage) -> None:
    """Note that a harness writes to a storage."""
    try:
        _HELD[id(storage)] = ref(storage)
    except TypeError:
        # Some other party's storage cannot be referred to so; its owner sees to this.
        pass


def _check_free(storage: Storage) -> None:
    """Refuse a storage that cannot be written to, or that another harness writes to."""
    if storage.read_only:
        problem = "the storage was opened read-only"
        raise StoreIOError(f"{problem}; a harness needs it for writing")
    held = _HELD.get(id(storage))
    if held is not None and held() is storage:
        problem = f"session {storage.session_id!r:.80} has a harness on this storage already"
        raise SessionOwnedError(f"{problem}; use that one, or close it first")


class _Kinds:
    """What a transaction asks about kinds, from the registry."""

    def __init__(self, kinds: Registry[RunnableKind]) -> None:
        self._kinds = kinds

    def task_kind(self, name: str) -> RunnableKind:
        return self._kinds[name]

    def has_task_kind(self, name: str) -> bool:
        return name in self._kinds

    def read_problem(self, task: Task) -> str | None:
        return self._kinds[task.kind].read_problem(task)
