"""The harness: an open session with the kinds that work on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeVar

from pico_harness import inbox
from pico_harness.arguments import check_instance, check_iterable, check_mapping
from pico_harness.call import HOST, Call, calling
from pico_harness.conversation import ConversationHandle, Conversations
from pico_harness.driver import Driver
from pico_harness.errors import UnknownTaskError
from pico_harness.handles import ListHandle, ValueHandle
from pico_harness.inbox import Receipt
from pico_harness.inspection import Counts
from pico_harness.kinds import EntryKind
from pico_harness.lifecycle import Lifecycle
from pico_harness.opening import DEFAULTS, Options, check_opening, make_driver
from pico_harness.owned import own_task
from pico_harness.reads import SessionReads
from pico_harness.registry import Registry, check_entry_kind
from pico_harness.state import ListOf, Value
from pico_harness.task_kind import RunnableKind, check_runnable
from pico_harness.tx import Tx
from pico_store.address import Seq
from pico_store.names import check_name
from pico_store.records import Task
from pico_store.storage import Storage

T = TypeVar("T")

ROOT = Seq(1)


@dataclass(frozen=True, slots=True)
class Inspection:
    """The live tasks of a session, each in one list, by id; nothing runs because of looking."""

    start: tuple[Task, ...]
    inflight: tuple[Task, ...]
    orphaned: tuple[Task, ...]
    """Foreground tasks of kinds that are not registered; driving settles them so."""
    parked: tuple[Task, ...]
    """Left alone: of kinds that are not registered or cannot read them, or lost in flight too
    often."""
    unreadable: Mapping[Seq, str]
    """Why tasks cannot be read by their kinds; of those that are marked, too."""
    running: tuple[Seq, ...]
    """Tasks whose method runs now, terminal ones included that have not returned."""
    unknown_entry_kinds: tuple[str, ...]
    last_seq: Seq
    epoch: int


class Harness(SessionReads):
    """An open session with the kinds that work on it.

    Guarantees:
        Opening starts nothing. One commit at a time; what was acknowledged is stored. After a crash
        a new harness goes on from what is stored.

    Source: design §9.1, §6.4.
    """

    def __init__(
        self,
        driver: Driver,
        conversations: Conversations,
        lifecycle: Lifecycle,
        task_kinds: Registry[RunnableKind],
        entry_kinds: Registry[EntryKind[object]],
    ) -> None:
        """Put the parts together; `open` is what makes them."""
        super().__init__(driver)
        self._conversations = conversations
        self._lifecycle = lifecycle
        self.task_kinds = task_kinds
        self.entry_kinds = entry_kinds

    @classmethod
    async def open(
        cls,
        storage: Storage,
        *,
        tasks: Iterable[RunnableKind] = (),
        entries: Iterable[EntryKind[object]] = (),
        root_values: Mapping[Value[object], object] | None = None,
        options: Options = DEFAULTS,
    ) -> Harness:
        """Open a session that a storage holds; creates the root where it is empty.

        Args:
            storage: Open for writing; the harness closes it.
            tasks: The task kinds that can run here.
            entries: The entry kinds that are known here; others stay readable.
            root_values: State of the root, set if the session is new.
            options: See `Options`.

        Raises:
            ArgumentError: Something is of another type, options included; a store or a URL is no
                storage (ARG-1).
            KindError: A kind is not well formed, or two have one name.
            SessionOwnedError: Another harness works on this storage.
            StoreIOError: The storage was opened read-only.

        After a failure nothing was written, and the storage is still open, and its caller's.

        Cost: reads the live tasks and what owns them; nothing of the history.
        """
        check_opening(storage, options)
        check_iterable(tasks, "tasks", "an iterable of task kinds, such as [Kind()]")
        check_iterable(entries, "entries", "an iterable of EntryKind")
        if root_values is not None:
            _check_root_values(root_values)
        task_kinds = Registry[RunnableKind]("task", check_runnable)
        entry_kinds = Registry[EntryKind[object]]("entry", check_entry_kind)
        for kind in tasks:
            task_kinds.register(kind)
        for entry in entries:
            entry_kinds.register(entry)
        driver, conversations = make_driver(storage, task_kinds, options)
        task_kinds.check_caller = driver.line.check_outside
        task_kinds.in_use = driver.scheduler.live.has_kind
        task_kinds.check_replaced = driver.check_replaced
        task_kinds.on_register = driver.kind_registered
        lifecycle = Lifecycle(driver)
        harness = cls(driver, conversations, lifecycle, task_kinds, entry_kinds)
        if not storage.last_seq:
            try:
                await driver.commit(partial(_make_root, root_values or {}), HOST)
            except BaseException:
                # The storage stays the caller's, who may try again with it.
                driver.on_closed()
                raise
        return harness

    # --- Conversations ---

    async def root(self, *, call: Call | None = None) -> ConversationHandle:
        """Return a handle of the root conversation, whose id is 1."""
        await self._driver.reading(call)
        return self._conversations.handle(ROOT)

    async def conversation(self, id: Seq, *, call: Call | None = None) -> ConversationHandle | None:
        """Return a handle of a conversation, or ``None`` if it does not exist."""
        await self._driver.reading(call)
        return self._conversations.find(id)

    async def delete_conversation(self, id: Seq, *, call: Call | None = None) -> None:
        """Delete a conversation and all that its tasks own.

        Raises:
            RejectedError: Something in there is live, or has not returned yet.
        """
        await self.commit(lambda tx: tx.delete_conversation(id), call=call)

    # --- Work ---

    async def commit(self, plan: Callable[[Tx], T], *, call: Call | None = None) -> T:
        """Build and commit one batch; see `ConversationHandle.commit`.

        Names of conversation state and new records need ``conversation=`` here.
        """
        return await self._driver.commit(plan, calling(call))

    async def drive(self, *, call: Call | None = None) -> Literal["idle", "closed"]:
        """Run all work of the session until no foreground task is live anywhere.

        Returns and raises as `ConversationHandle.drive` does.
        """
        return await self._driver.drive(None, calling(call))

    async def abort_task(self, id: Seq, *, call: Call | None = None) -> None:
        """Mark a live task; its abort runs once its present invocation returned, where served.

        Raises:
            UnknownTaskError: It is terminal, or does not exist.
        """

        def plan(tx: Tx) -> None:
            if not tx.abort_task(id):
                found = tx.get_task(id)
                state = f"terminal ({found.status})" if found is not None else "unknown"
                raise UnknownTaskError("TASKS-6", f"task {id} is {state}; allowed: a live task")

        await self.commit(plan, call=call)

    async def wait_for_task(
        self, id: Seq, budget_ms: float | None = None, *, call: Call | None = None
    ) -> bool:
        """Wait until a task is terminal; False if the budget ran out before (TASKS-6).

        It does not drive: what is not served or parked does not run because of it.

        Args:
            id: A task, live or terminal.
            budget_ms: How long to wait; 0 only looks; for ever if not given.
            call: Whose call it is, if not the current one.

        Raises:
            UnknownTaskError: There is no such task.
            WaitCycleError: The caller is a task that it waits for.
            SessionClosedError: The session was closed before.
        """
        called = calling(call)
        return await self._driver.wait_for_task(id, budget_ms, called)

    async def resume_task(self, id: Seq, *, call: Call | None = None) -> None:
        """Let a task go on that was parked because it was lost in flight too often (TASKS-5).

        Raises:
            UnknownTaskError: It is not parked for that.
        """
        await self._driver.resume(id, calling(call))

    async def inspect(self, *, call: Call | None = None) -> Inspection:
        """Return the live tasks by what would become of them; starts nothing."""
        await self._driver.reading(call)
        scheduler = self._driver.scheduler
        lists: dict[str, list[Task]] = {"start": [], "inflight": [], "orphaned": [], "parked": []}
        for id in sorted(scheduler.live.ids()):
            live = scheduler.live[id]
            name: str = live.task.role
            if scheduler.orphaned(live):
                name = "orphaned"
            elif scheduler.parked(live):
                name = "parked"
            lists[name].append(own_task(live.task))
        storage = self._driver.storage
        unknown = [kind for kind in storage.entry_kinds() if kind not in self.entry_kinds]
        return Inspection(
            start=tuple(lists["start"]),
            inflight=tuple(lists["inflight"]),
            orphaned=tuple(lists["orphaned"]),
            parked=tuple(lists["parked"]),
            unreadable=dict(scheduler.unreadable),
            running=tuple(sorted(scheduler.running)),
            unknown_entry_kinds=tuple(sorted(unknown)),
            last_seq=storage.last_seq,
            epoch=storage.epoch,
        )

    def counts(self) -> Counts:
        """Return how much there is to do now; cheap enough to be asked all the time."""
        scheduler = self._driver.scheduler
        return Counts(len(scheduler.live), len(scheduler.running), self._driver.storage.last_seq)

    async def acceptance(self, request_id: str, *, call: Call | None = None) -> Receipt | None:
        """Return the receipt of a request, or ``None`` if it was never accepted (IN-2)."""
        await self._driver.reading(call)
        check_name(request_id, "request_id")
        return inbox.read_receipt(self._driver.storage, request_id)

    # --- State ---

    def value(self, name: Value[T]) -> ValueHandle[T]:
        """Return one value of the session."""
        return ValueHandle(self._driver, name, None)

    def list(self, name: ListOf[T]) -> ListHandle[T]:
        """Return one list of the session."""
        return ListHandle(self._driver, name, None)

    # --- The end ---

    async def shutdown(self, *, call: Call | None = None) -> None:
        """Mark every live task, run their aborts, then close; see `Lifecycle.shutdown`."""
        await self._lifecycle.shutdown(calling(call))

    async def close(self, *, call: Call | None = None) -> None:
        """Stop what runs, mark nothing, and close the storage; a second close waits for the first.

        Live tasks go on after the next open, through ``recover`` where they were in flight.
        """
        await self._lifecycle.close(calling(call))

    async def __aenter__(self) -> Harness:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _check_root_values(values: Mapping[Value[object], object]) -> None:
    check_mapping(values, "root_values", "a mapping of conversation values, or None")
    for name in values:
        check_instance(name, Value, "root_values", "names made by conversation_value")


def _make_root(values: Mapping[Value[object], object], tx: Tx) -> None:
    root = tx.create_conversation()
    for name, value in values.items():
        tx.value(name, conversation=root).set(value)
