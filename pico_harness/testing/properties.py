"""What must hold in every run, of whatever kinds: checked at every commit and every decision."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pico_harness.call import HOST, Invocation
from pico_harness.driver import Driver
from pico_harness.errors import HarnessError, SessionFaultedError, TaskParkedError
from pico_harness.live import LiveIndex
from pico_harness.losses import CRASHES
from pico_harness.scheduler import Action, Broken, Drained, Resolve, Signal, Start
from pico_harness.testing.ledger import Fact, Ledger
from pico_harness.waits import Waiter
from pico_store.address import Seq
from pico_store.batch import Batch, MainBatch, PatchTask, ScratchBatch, SettleTask
from pico_store.errors import CommitUncertainError, RetryableError
from pico_store.query import TaskQuery
from pico_store.records import BatchRange, Conversation, Task

_LIVE = TaskQuery(live=True, limit=1_000)
HARNESS_ENDS = ("orphaned", "faulted")


@dataclass(eq=False, slots=True)
class Seen:
    """What is known of a task when a session was opened."""

    parked: bool
    losses: int
    """How often it was lost in flight, this time included; 0: it was not in flight."""


class Monitor:
    """Watches one open session, from its opening to its end.

    It looks at the decisions of the scheduler, the calls of kinds and the durable batches, and
    compares each with the others. What it finds it tells; it changes nothing.
    """

    def __init__(
        self, ledger: Ledger, tell: Callable[[str], None], *, crashes_max: int, every: int = 1
    ) -> None:
        """Make one.

        Args:
            ledger: The durable facts.
            tell: Told of each violation.
            crashes_max: As in the options of the session.
            every: After how many commits the indexes are compared with those built from storage.
        """
        self.ledger = ledger
        self.running: dict[Seq, Invocation] = {}
        """Methods that were entered and have not returned."""
        self.faulted = False
        self.closed = False
        self.dead = False
        """Whether the process died; what it still does is of no account."""
        self.driven = True
        """Whether somebody began to drive, as far as is known."""
        self.breaks_session = False
        """Whether a broken contract ends the session."""
        self.may_break: Callable[[Seq], bool] = lambda id: False
        """Tells whether a task may break its kind's contract."""
        self._tell = tell
        self._every = every
        self._uncounted = False
        self._broken: set[Seq] = set()
        self._resuming: set[Seq] = set()
        self._resolved: set[Waiter] = set()
        self._driver: Driver | None = None
        self._seen: dict[Seq, Seen] = {}
        for id, fact in ledger.live.items():
            lost = fact.role == "inflight" or fact.abort
            losses = (fact.losses or 0) + 1 if lost else 0
            self._seen[id] = Seen(losses >= crashes_max, losses)

    def watch(self, driver: Driver) -> None:
        """Begin to watch a session that was opened just now."""
        self._driver = driver
        if driver.scheduler.running or self.running:
            self.tell("opening started something")
        driver.listeners.append(self._applied)
        dispatch, run = driver.dispatch, driver._run

        def observed(actions: list[Action]) -> None:
            for action in actions:
                self._decided(action)
            dispatch(actions)

        def called(invocation: Invocation, task: Task) -> Coroutine[object, object, None]:
            return self._call(invocation, task, run(invocation, task))

        # The driver has no place to hang such a thing on, and needs none but for this.
        driver.dispatch = observed  # type: ignore[method-assign]
        driver._run = called

    def tell(self, problem: str) -> None:
        """Report a violation of the living session."""
        if not self.dead:
            self._tell(problem)

    # --- Calls of kinds ---

    async def _call(
        self, invocation: Invocation, task: Task, method: Coroutine[object, object, None]
    ) -> None:
        self._entered(invocation, task)
        try:
            await method
        finally:
            if not self.dead:
                del self.running[invocation.task_id]
                if invocation.cancellation._callbacks:
                    self.tell(f"{_name(invocation)} left listeners on its call")

    def _entered(self, invocation: Invocation, task: Task) -> None:
        id = invocation.task_id
        if id in self.running:
            self.tell(f"{_name(invocation)} while {_name(self.running[id])} runs")
        if self.closed:
            self.tell(f"{_name(invocation)} after the storage was closed")
        self.running[id] = invocation
        fact = self.ledger.live.get(id)
        if fact is None:
            self.tell(f"{_name(invocation)} of a task that is not live")
            return
        if task.id != id or (task.status, task.state) != (fact.status, fact.state):
            self.tell(f"{_name(invocation)} was given another state than is stored")
        seen = self._seen.pop(id, None)
        losses = seen.losses if seen is not None and invocation.method != "execute" else 0
        if losses and fact.losses != losses:
            problem = f"{_name(invocation)}: {fact.losses} losses are stored"
            self.tell(f"{problem}, {losses} happened")

    # --- Decisions ---

    def _decided(self, action: Action) -> None:
        if isinstance(action, Start):
            self._check_start(action.invocation)
        elif isinstance(action, Resolve):
            self._check_outcome(action.waiter, action.outcome)
        elif isinstance(action, Signal):
            if self._driver is not None and self._driver.scheduler.phase in ("open", "stopping"):
                self._check_signal(action.invocation)
        elif isinstance(action, Drained):
            if self.running:
                self.tell(f"drained while {_names(self.running.values())} run")
        elif isinstance(action, Broken):
            self._check_broken(action)

    def _check_start(self, invocation: Invocation) -> None:
        fact = self.ledger.live.get(invocation.task_id)
        if fact is None:
            self.tell(f"{_name(invocation)} is started for a task that is not live")
            return
        if invocation.task_id in self.running:
            self.tell(f"{_name(invocation)} is started while another invocation runs")
        expected = self._method(fact)
        if expected is None:
            self.tell(f"{_name(invocation)} is started, though nothing may be")
        elif expected != invocation.method:
            self.tell(f"{_name(invocation)} is started instead of {expected}")
        if not self._served(fact.conversation):
            self.tell(f"{_name(invocation)} is started, but nobody serves it")

    def _check_broken(self, broken: Broken) -> None:
        invocation = broken.invocation
        excused = isinstance(broken.error, RetryableError | CommitUncertainError)
        if not excused and not self.may_break(invocation.task_id):
            self.tell(f"{_name(invocation)} {broken.problem}")
        if self.breaks_session:
            self.faulted = True
        # Until the line gets to its settlement, nothing may run it.
        self._broken.add(invocation.task_id)

    def kept(self, fact: Fact) -> bool:
        """Tell whether a live task cannot be run here, so that every end leaves it as it is."""
        assert self._driver is not None
        seen = self._seen.get(fact.id)
        parked = seen is not None and seen.parked
        return parked or not self._driver.kinds.has_task_kind(fact.kind)

    def _check_signal(self, invocation: Invocation) -> None:
        fact = self.ledger.tasks[invocation.task_id]
        if not fact.abort or invocation.method == "abort":
            self.tell(f"{_name(invocation)} is told to stop without a reason")

    def _check_outcome(self, waiter: Waiter, outcome: object) -> None:
        what = _target(waiter)
        if waiter in self._resolved:
            self.tell(f"the waiter for {what} is resolved twice")
        self._resolved.add(waiter)
        if outcome == "idle":
            busy = self._busy(waiter.conversation)
            if busy:
                self.tell(f"{what} is called idle with {busy} live foreground tasks")
        elif outcome == "terminal":
            if waiter.task in self.ledger.live:
                self.tell(f"{what} is called terminal and is live")
        elif isinstance(outcome, TaskParkedError):
            self._check_parked(waiter, outcome)
        elif isinstance(outcome, SessionFaultedError):
            if not self.faulted:
                self.tell(
                    f"the waiter for {what} is told of a fault that did not happen: {outcome}"
                )
        elif isinstance(outcome, HarnessError):
            pass

    def _busy(self, conversation: Seq | None) -> int:
        if conversation is None:
            return self.ledger.foreground_total()
        return self.ledger.foreground.get(conversation, 0)

    def _check_parked(self, waiter: Waiter, error: TaskParkedError) -> None:
        expected = [
            id
            for id, fact in self.ledger.live.items()
            if not fact.background and waiter.conversation in (None, fact.conversation)
        ]
        if sorted(expected) != sorted(error.tasks):
            self.tell(f"{_target(waiter)} is called parked: {error.tasks}, live: {expected}")

    # --- Eligibility, worked out anew ---

    def _method(self, fact: Fact) -> str | None:
        assert self._driver is not None
        if fact.id in self._broken:
            return None
        seen = self._seen.get(fact.id)
        if not self._driver.kinds.has_task_kind(fact.kind) or (seen is not None and seen.parked):
            return None
        phase = self._driver.scheduler.phase
        if phase not in ("open", "stopping"):
            return None
        if fact.abort:
            return "abort"
        if phase == "stopping":
            return None
        if fact.role == "inflight":
            return "recover"
        return "execute" if self.ledger.ready(fact) else None

    def _served(self, conversation: Seq) -> bool:
        assert self._driver is not None
        ancestry = self._driver.scheduler.ancestry
        if ancestry._everything:
            return True
        at: Seq | None = conversation
        while at is not None:
            if at in ancestry._attached:
                return True
            at = self.ledger.above(at)
        return False

    @contextmanager
    def resuming(self, id: Seq) -> Iterator[None]:
        """Take note that the host lets a parked task go on, for as long as that is under way."""
        # From its commit to the decision that follows, within one operation, it may run and does
        # not; whoever looks in between must not take that for a fault.
        seen = self._seen.pop(id, None)
        self._resuming.add(id)
        try:
            yield
        except BaseException:
            if seen is not None:
                self._seen[id] = seen
            raise
        finally:
            self._resuming.discard(id)

    # --- Commits ---

    def uncounted(self, id: Seq) -> None:
        """Take note that the storage refused to count a loss, which then is not checked."""
        self._seen[id] = Seen(parked=False, losses=0)
        self._uncounted = True

    def committed(self, batch: Batch) -> None:
        """Check a batch that is durable, before the ledger takes it over."""
        if self.closed:
            self.tell("a commit after the storage was closed")
        if isinstance(batch, ScratchBatch):
            if getattr(batch.writes[0].address, "namespace", "") != CRASHES:
                self._check_author(batch.task, "scratch")
            return
        assert isinstance(batch, MainBatch)
        for write in batch.writes:
            if isinstance(write, SettleTask):
                if write.status not in HARNESS_ENDS:
                    self._check_author(write.id, write.status)
                elif write.status == "orphaned" and not self.driven:
                    self.tell(f"task {write.id} is ended as orphaned, and nobody drives")
            elif isinstance(write, PatchTask) and write.status is not None:
                self._check_author(write.id, write.status)

    def _check_author(self, id: Seq, what: str) -> None:
        fact = self.ledger.live.get(id)
        invocation = self.running.get(id)
        if invocation is None:
            self.tell(f"task {id} is written ({what}) while no method of it runs")
        elif fact is None:
            self.tell(f"task {id} is written ({what}) after it settled")
        elif fact.abort and invocation.method != "abort":
            self.tell(f"{_name(invocation)} writes ({what}) after the mark")

    def _applied(self, batch: Batch, written: BatchRange) -> None:
        """Compare the indexes after the session took a batch over."""
        if self.dead or self.faulted:
            return
        for write in batch.writes:
            # Whoever marks a parked task has said how it goes on.
            if isinstance(write, PatchTask) and write.abort and write.id in self._seen:
                self._seen[write.id] = Seen(parked=False, losses=self._seen[write.id].losses)
        self._check_reserved()
        # Scratch is nothing to the indexes, and patches nothing to what is counted and linked; what
        # they broke there none the less, the next commit that creates or settles shows.
        if isinstance(batch, MainBatch) and self.ledger.batches % self._every == 0:
            patched: list[Seq] = []
            for write in batch.writes:
                if isinstance(write, PatchTask):
                    patched.append(write.id)
                elif isinstance(write, Task | SettleTask | Conversation):
                    self.check_indexes()
                    return
            self._check_records(patched)

    def _check_records(self, ids: Sequence[Seq]) -> None:
        assert self._driver is not None
        if not ids:
            return
        for id, task in self._driver.storage.get_tasks(ids).items():
            known = self._driver.scheduler.live.get(id)
            if known is None or known.task != task:
                mine = None if known is None else known.task
                self.tell(f"the live index has {mine}; stored is {task}")

    def idle(self) -> None:
        """Check what must hold when nothing is ready to run."""
        driver = self._driver
        if driver is None or self.dead or self.closed or not driver.line.idle:
            return
        if self.faulted:
            if driver.scheduler.phase == "open":
                self.tell("a fault did not stop the session")
            return
        self._check_reserved()
        if driver.scheduler.running != self.running:
            slots = _names(driver.scheduler.running.values())
            self.tell(f"slots: {slots}; running: {_names(self.running.values())}")
        for waiter in driver.scheduler.waits.all():
            # Whoever awaits a future is among its callbacks.
            if waiter.result.done() or not waiter.result._callbacks:
                self.tell(f"the waiter for {_target(waiter)} is left by its caller")
        for id, invocation in self.running.items():
            marked = self.ledger.tasks[id].abort and invocation.method != "abort"
            if marked and not invocation.cancellation.requested:
                self.tell(f"{_name(invocation)} is not told of the mark")

    def _check_reserved(self) -> None:
        assert self._driver is not None
        running = self._driver.scheduler.running
        for id, fact in self.ledger.live.items():
            if id in running or id in self._resuming or not self._served(fact.conversation):
                continue
            method = self._method(fact)
            if method is not None:
                self.tell(f"{method} of task {id} could run, and nothing runs it")

    def check_indexes(self) -> None:
        """Compare the live index and the ancestry with those built from storage now."""
        assert self._driver is not None
        scheduler = self._driver.scheduler
        page = self._driver.storage.scan_tasks(_LIVE)
        problem = differing(scheduler.live, page.items)
        if problem is not None:
            self.tell(f"the live index differs from storage: {problem}")
        self._check_ancestry(page.items)

    def _check_ancestry(self, stored: Sequence[Task]) -> None:
        assert self._driver is not None
        scheduler = self._driver.scheduler
        users: dict[Seq, int] = {}
        stack = [task.conversation_id for task in stored]
        stack += [invocation.conversation_id for invocation in scheduler.running.values()]
        stack += scheduler.ancestry._attached
        links: dict[Seq, Seq | None] = {}
        while stack:
            conversation = stack.pop()
            users[conversation] = users.get(conversation, 0) + 1
            if conversation not in links:
                above = links[conversation] = self.ledger.above(conversation)
                if above is not None:
                    stack.append(above)
        nodes = scheduler.ancestry._nodes
        if {id: node.users for id, node in nodes.items()} != users:
            held = {id: node.users for id, node in nodes.items()}
            self.tell(f"ancestry holds {held}; needed are {users}")
        for id, node in nodes.items():
            if node.above != links.get(id):
                self.tell(f"ancestry has {node.above} above {id}; stored is {links.get(id)}")

    # --- The end ---

    def storage_closed(self) -> None:
        """Check what must hold when the session gives its storage back."""
        self.closed = True
        if self.running:
            self.tell(f"the storage is closed while {_names(self.running.values())} run")

    def ended(self) -> None:
        """Check what must hold once the session ended and everything returned."""
        if self._driver is None:
            return
        scheduler = self._driver.scheduler
        if len(scheduler.waits):
            self.tell(f"{len(scheduler.waits)} waiters are left")
        if scheduler.running:
            self.tell(f"slots are left: {_names(scheduler.running.values())}")
        if HOST.cancellation._callbacks:
            self.tell(f"{len(HOST.cancellation._callbacks)} listeners are left")
        if not self.faulted and not self._uncounted:
            self._check_losses()

    def _check_losses(self) -> None:
        for id, fact in self.ledger.live.items():
            if fact.losses is not None and not self.kept(fact):
                self.tell(f"task {id} keeps {fact.losses} losses after a clean close")


def differing(found: LiveIndex, stored: Sequence[Task]) -> str | None:
    """Return how a live index differs from one made of the stored live tasks; ``None``: nowhere."""
    mine = found._tasks
    if mine.keys() != {task.id for task in stored}:
        return f"live {sorted(mine)}, stored {[task.id for task in stored]}"
    members: dict[Seq, dict[Seq, None]] = {}
    foreground: dict[Seq, int] = {}
    kinds: dict[str, int] = {}
    frees: dict[Seq, list[Seq]] = {}
    for task in stored:
        known = mine[task.id]
        if known.task != task:
            return f"task {task.id}: {known.task}, stored {task}"
        members.setdefault(task.conversation_id, {})[task.id] = None
        kinds[task.kind] = kinds.get(task.kind, 0) + 1
        if not task.background:
            foreground[task.conversation_id] = foreground.get(task.conversation_id, 0) + 1
        if task.after or known.waits_for:
            waits = {id for id in task.after if id in mine}
            if known.waits_for != waits:
                return f"task {task.id} waits for {known.waits_for}, stored {waits}"
            for id in waits:
                frees.setdefault(id, []).append(task.id)
    for id, known in mine.items():
        if known.dependents or id in frees:
            # The index has them in the order in which it learned of them.
            dependents, expected = sorted(known.dependents), sorted(frees.get(id, ()))
            if dependents != expected:
                return f"task {id} frees {dependents}, stored {expected}"
    alike = {name: len(found.of_kind(name)) for name in found.kinds()}
    if (found._conversations, alike) != (members, kinds):
        return f"members {found._conversations}, {alike}; stored {members}, {kinds}"
    counts = (found._foreground, found.foreground_total)
    if counts != (foreground, sum(foreground.values())):
        return f"foreground {counts}, stored {foreground}"
    return None


def _name(invocation: Invocation) -> str:
    return f"{invocation.method} of task {invocation.task_id}"


def _names(invocations: object) -> str:
    assert hasattr(invocations, "__iter__")
    return ", ".join(_name(invocation) for invocation in invocations) or "nothing"


def _target(waiter: Waiter) -> str:
    if waiter.task is not None:
        return f"task {waiter.task}"
    if waiter.conversation is not None:
        return f"conversation {waiter.conversation}"
    return "the session"
