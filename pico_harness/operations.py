"""What runs on the line: each operation checks and builds, and later takes over what it wrote."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from pico_harness.admission import Admission
from pico_harness.builder import build
from pico_harness.call import Call, Invocation
from pico_harness.registry import Kinds
from pico_harness.scheduler import Action, Broken, Scheduler
from pico_harness.telemetry import End
from pico_harness.tx import Tx
from pico_store.address import Seq
from pico_store.batch import Batch
from pico_store.records import BatchRange
from pico_store.storage import Storage

T = TypeVar("T")


class DriverParts(Protocol):
    """What operations need of the driver that they run for."""

    storage: Storage
    kinds: Kinds
    scheduler: Scheduler
    admission: Admission

    def take_over(self, batch: Batch, written: BatchRange) -> list[Action]:
        """Bring the indexes up to date after a commit, and decide what follows."""
        ...

    def dispatch(self, actions: list[Action]) -> None:
        """Carry out decisions, off the line."""
        ...


class Step(Generic[T]):
    """An operation made of what it does before and after its commit."""

    __slots__ = ("_after", "_batch", "_before", "_driver", "actions")

    def __init__(
        self,
        driver: DriverParts,
        before: Callable[[], Batch | None],
        after: Callable[[Step[T]], T],
    ) -> None:
        """Make an operation.

        Args:
            driver: Whose indexes take over the batch.
            before: Checks and builds; see `Operation.prepare`.
            after: Makes the result once the batch was taken over; may add to ``actions``.
        """
        self._driver = driver
        self._before = before
        self._after = after
        self._batch: Batch | None = None
        self.actions: list[Action] = []

    def prepare(self) -> Batch | None:
        self._batch = self._before()
        return self._batch

    def applied(self, written: BatchRange | None) -> T:
        if written is not None:
            assert self._batch is not None
            self.actions = self._driver.take_over(self._batch, written)
        return self._after(self)

    @property
    def wrote(self) -> bool:
        """Whether there was something to commit."""
        return self._batch is not None

    def left(self) -> None:
        if self.actions:
            self._driver.dispatch(self.actions)


# The next two are what a task consists of. They are classes of their own, not steps, because the
# closures that a step is made from would cost more than what is in them.


class Commit(Generic[T]):
    """A batch of a builder."""

    __slots__ = (
        "_actions",
        "_batch",
        "_bound",
        "_call",
        "_conversation",
        "_driver",
        "_plan",
        "_result",
    )

    def __init__(
        self,
        driver: DriverParts,
        plan: Callable[[Tx], T],
        call: Call,
        conversation: Seq | None,
        bound: Invocation | None,
    ) -> None:
        self._driver = driver
        self._plan = plan
        self._call = call
        self._conversation = conversation
        self._bound = bound
        self._batch: Batch | None = None
        self._result: T
        self._actions: list[Action] | None = None

    def prepare(self) -> Batch | None:
        driver = self._driver
        admission = driver.admission
        invocation = admission.admit(self._call, self._bound)
        if invocation is None:
            tx = Tx(driver.storage, driver.kinds, conversation=self._conversation)
        else:
            tx = Tx(
                driver.storage,
                driver.kinds,
                by=invocation.task_id,
                own=driver.scheduler.live[invocation.task_id].task,
                conversation=self._conversation,
                creates=invocation.method != "abort",
            )
        self._result = build(self._plan, tx)
        self._batch = batch = tx.batch()
        if batch is not None:
            admission.check(tx)
        return batch

    def applied(self, written: BatchRange | None) -> T:
        if written is not None:
            assert self._batch is not None
            self._actions = self._driver.take_over(self._batch, written)
        return self._result

    def left(self) -> None:
        if self._actions:
            self._driver.dispatch(self._actions)


class Returned:
    """The end of an invocation: its slot is given back."""

    __slots__ = ("_actions", "_driver", "_ended", "_invocation", "_raised")

    def __init__(
        self,
        driver: DriverParts,
        invocation: Invocation,
        raised: BaseException | None,
        ended: Callable[[list[Action]], None] | None,
    ) -> None:
        """Make the end of an invocation.

        Args:
            driver: Whose invocation it was.
            invocation: Which one.
            raised: What its method raised.
            ended: Told of what follows, off the line.
        """
        self._driver = driver
        self._invocation = invocation
        self._raised = raised
        self._ended = ended
        self._actions: list[Action] = []

    def prepare(self) -> Batch | None:
        return None

    def applied(self, written: BatchRange | None) -> None:
        self._actions = self._driver.scheduler.finished(self._invocation, self._raised)

    def left(self) -> None:
        if self._ended is not None:
            self._ended(self._actions)
        if self._actions:
            self._driver.dispatch(self._actions)


def ending(scheduler: Scheduler, invocation: Invocation, actions: list[Action]) -> End:
    """Return how an invocation ended, from what was decided at its end."""
    for action in actions:
        if isinstance(action, Broken):
            return End("fault", action.problem, action.error)
    if invocation.task_id not in scheduler.live:
        return End("settled")
    return End("cancelled" if invocation.cancellation.requested else "continues")
