"""A handle of one conversation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Literal, TypeVar, get_args

from pico_harness import inbox
from pico_harness.arguments import check_choice, check_flag, check_id, check_mapping
from pico_harness.call import Call, Invocation, calling
from pico_harness.context import ContextCaches
from pico_harness.driver import Driver
from pico_harness.errors import KindError, RequestAlreadyAcceptedError
from pico_harness.handles import ListHandle, ValueHandle
from pico_harness.inbox import EntryDraft, InputMode, InputResult, Intake
from pico_harness.kinds import TaskState, TaskType, check_task_kind
from pico_harness.scheduler import Scheduler
from pico_harness.state import ListOf, Value
from pico_harness.tx import Tx
from pico_store.address import Seq
from pico_store.context import Context
from pico_store.errors import LimitExceededError, UnknownConversationError
from pico_store.limits import BATCH_WRITES_MAX
from pico_store.names import check_name
from pico_store.records import At, Conversation, ForkPoint
from pico_store.shown import shown

T = TypeVar("T")
S = TypeVar("S", bound=TaskState)


MODES = get_args(InputMode)
_VALUES = "a mapping of conversation values, such as {conversation_value(...): 1}, or None"


class ConversationHandle:
    """One conversation of an open session.

    Any number of handles of one conversation may exist; they hold nothing that counts.

    Source: design §9.1.
    """

    def __init__(
        self,
        driver: Driver,
        id: Seq,
        *,
        caches: ContextCaches,
        bound: Invocation | None = None,
        intake: Intake | None = None,
    ) -> None:
        """Bind a conversation.

        Args:
            driver: Of the session.
            id: A live conversation.
            caches: The warm contexts of the session.
            bound: The invocation whose runtime gave the handle out.
            intake: Gives accepted inputs a place at once, where it can.
        """
        self.id = id
        self._intake = intake
        self._driver = driver
        self._bound = bound
        self._caches = caches
        self._cache = caches.of(id)

    def _commit(self, plan: Callable[[Tx], T], call: Call | None) -> Awaitable[T]:
        called = calling(call)
        return self._driver.commit(plan, called, conversation=self.id, bound=self._bound)

    async def snapshot(self, *, call: Call | None = None) -> Conversation:
        """Return its record.

        Raises:
            UnknownConversationError: It was deleted.
        """
        await self._driver.reading(call)
        found = self._driver.storage.get_conversations((self.id,)).get(self.id)
        if found is None:
            raise UnknownConversationError("PAGE-6", "", f"no conversation {self.id}")
        return found

    async def commit(self, plan: Callable[[Tx], T], *, call: Call | None = None) -> T:
        """Build and commit one batch; names of state and new records default to here.

        Args:
            plan: A plain function. It may read, write and compute; it may not await.
            call: Whose call it is, if not the current one.

        Raises:
            CallCancelledError: The call was cancelled before its turn; nothing was written.
            SessionClosedError, SessionStoppingError, SessionFaultedError: The session takes no more
                commits.
            RejectedError: A rule of the harness; nothing was written.
            RefusedError: A rule of the storage; nothing was written.
            RetryableError: The storage could not, and nothing was written.
            CommitUncertainError: It may or may not be durable; the session is faulted.
        """
        return await self._commit(plan, call)

    async def drive(self, *, call: Call | None = None) -> Literal["idle", "closed"]:
        """Run the work of this conversation and of all it owns, until it is idle here.

        Idle: it has no live foreground task. What was attached stays served afterwards. Cancelling
        gives up this wait and nothing else. Returns ``"closed"`` if the session was closed before.

        Raises:
            SessionFaultedError: A commit ended uncertain, or a task broke its contract.
            TaskParkedError: Only parked tasks are left, and what waits for them.
            WaitCycleError: The caller is a task of this work.
        """
        return await self._driver.drive(self.id, calling(call))

    async def abort(self, *, call: Call | None = None) -> int:
        """Mark the live foreground tasks here and below, and cancel queued steering and follow-ups.

        Returns how many tasks were marked. Background tasks and queued writes stay. One commit, but
        for more marks and items than a batch holds.

        Source: design §6.3.
        """
        abort = _Abort(self._driver.scheduler, self.id)
        marked = await self._commit(abort.write, call)
        while abort.unfinished:
            marked += await self._commit(abort.write, call)
        return marked

    async def fork(
        self,
        at: At,
        *,
        abort: bool = False,
        values: Mapping[Value[object], object] | None = None,
        call: Call | None = None,
    ) -> ConversationHandle:
        """Make a conversation that continues this one from an entry, or from before the first.

        Args:
            at: An entry that this conversation shows, or ``"start"``.
            abort: Mark the foreground tasks here and below in the same commit.
            values: State that the new conversation begins with.
            call: Whose call it is, if not the current one.

        Raises:
            LimitExceededError: There are more tasks to mark than one batch holds beside the rest,
                10,000 writes in all. `abort` first, which may take several commits (LINE-7).
        """
        check_flag(abort, "abort")
        if values is not None:
            check_mapping(values, "values", _VALUES)

        def plan(tx: Tx) -> Seq:
            point = None if at == "start" else ForkPoint(self.id, at)
            id = tx.create_conversation(fork=point)
            for name, value in (values or {}).items():
                tx.value(name, conversation=id).set(value)
            if abort:
                self._mark_all(tx)
            return id

        id = await self._commit(plan, call)
        return ConversationHandle(
            self._driver, id, caches=self._caches, bound=self._bound, intake=self._intake
        )

    def _mark_all(self, tx: Tx) -> None:
        """Mark the foreground tasks here and below, if the batch has room for all of them."""
        scheduler = self._driver.scheduler
        closure = scheduler.foreground_closure((self.id,))
        marks = [id for id in closure if not scheduler.live[id].task.abort]
        if len(tx.writes) + len(marks) > BATCH_WRITES_MAX:
            problem = f"a fork that marks {len(marks):,} tasks in one commit, which holds "
            problem += f"{BATCH_WRITES_MAX:,} writes; allowed: await abort() first, then fork"
            raise LimitExceededError("JSON-5", "abort", problem)
        for id in marks:
            tx.abort_task(id)

    # --- Input ---

    async def accept(
        self,
        draft: EntryDraft,
        *,
        mode: InputMode = "followUp",
        request_id: str | None = None,
        on_duplicate: Literal["raise", "return"] = "raise",
        call: Call | None = None,
    ) -> Seq:
        """Queue an input durably and return its id; whoever drives gives it a place.

        Args:
            draft: What it becomes when it is placed.
            mode: Where it may be placed; see `InputMode`.
            request_id: The caller's name for it, good for the whole session.
            on_duplicate: What to do where the name was used: raise, or return the first input.
            call: Whose call it is, if not the current one.

        Raises:
            RequestAlreadyAcceptedError: The name was used; the error carries the receipt (IN-2).
        """
        check_choice(mode, MODES, "mode")
        check_choice(on_duplicate, ("raise", "return"), "on_duplicate")
        inbox.check_draft(draft)
        if request_id is not None:
            check_name(request_id, "request_id")

        def plan(tx: Tx) -> Seq:
            try:
                id = inbox.accept(tx, self.id, draft, mode=mode, request_id=request_id)
            except RequestAlreadyAcceptedError as known:
                # Decided here, on the line, because two may ask at once.
                if on_duplicate == "return":
                    return known.input_id
                raise
            if self._intake is not None:
                self._intake(tx, self.id, id, inbox.InboxItem(mode, draft, request_id))
            return id

        return await self._commit(plan, call)

    async def result(self, input_id: Seq, *, call: Call | None = None) -> InputResult | None:
        """Return what became of an input, or ``None`` if there is no such input here."""
        await self._driver.reading(call)
        check_id(input_id, "input_id")
        return inbox.read_result(self._driver.storage, self.id, input_id)

    async def cancel_queued(
        self, input_id: Seq, *, call: Call | None = None
    ) -> Literal["cancelled", "placed", "not_found"]:
        """Withdraw an input that waits; say so where it has a place already (IN-6)."""
        check_id(input_id, "input_id")
        return await self._commit(lambda tx: inbox.withdraw(tx, self.id, input_id), call)

    # --- State ---

    def value(self, name: Value[T]) -> ValueHandle[T]:
        """Return one value of this conversation, or of the session."""
        return ValueHandle(self._driver, name, self.id, self._bound)

    def list(self, name: ListOf[T]) -> ListHandle[T]:
        """Return one list of this conversation, or of the session."""
        return ListHandle(self._driver, name, self.id, self._bound)

    async def config(
        self, kind: TaskType[S], *, call: Call | None = None
    ) -> dict[str, object | None]:
        """Return the values that a kind declares, as they are here; absent ones as ``None``."""
        await self._driver.reading(call)
        return read_config(self._driver, kind, self.id)

    async def configure(
        self, kind: TaskType[S], values: Mapping[str, object], *, call: Call | None = None
    ) -> None:
        """Set some of the values that a kind declares, in one commit."""
        check_task_kind(kind)
        check_mapping(values, "values", "a mapping of the names that the kind declares to values")
        unknown = sorted(map(shown, values.keys() - kind.config.keys()))
        if unknown:
            raise _no_config(kind.name, unknown, kind.config)

        def plan(tx: Tx) -> None:
            for name, value in values.items():
                tx.value(kind.config[name]).set(value)

        await self._commit(plan, call)

    async def context(self, at: At | None = None, *, call: Call | None = None) -> Context:
        """Return what a model would see at a position; now if not given.

        It is a copy. Cost: what was appended since any handle of the conversation asked; a position
        before the newest entry is read from storage.
        """
        await self._driver.reading(call)
        return self._caches.context(self._cache, at)


class _Abort:
    """What an abort has still to write."""

    def __init__(self, scheduler: Scheduler, conversation: Seq) -> None:
        self._scheduler = scheduler
        self._marks: list[Seq] = []
        self._conversations = [conversation]
        self._looked = False

    @property
    def unfinished(self) -> bool:
        """Whether one batch was not enough."""
        return bool(self._marks or self._conversations)

    def write(self, tx: Tx) -> int:
        """Write as much as a batch holds, marks first; return how many tasks were marked."""
        if not self._looked:
            self._look()
        part, self._marks = self._marks[:BATCH_WRITES_MAX], self._marks[BATCH_WRITES_MAX:]
        marked = sum(tx.abort_task(id) for id in part)
        # A withdrawn item is two writes.
        room = (BATCH_WRITES_MAX - len(part)) // 2
        while self._conversations and room:
            conversation = self._conversations[0]
            items = [
                item.id
                for item in inbox.queued(tx, conversation)
                if item.value.mode in ("steer", "followUp")
            ]
            for id in items[:room]:
                inbox.withdraw(tx, conversation, id, reason="aborted")
            if len(items) > room:
                break
            room -= len(items)
            del self._conversations[0]
        return marked

    def _look(self) -> None:
        """Find out on the line what there is to abort, once."""
        live = self._scheduler.live
        found = self._scheduler.foreground_closure(self._conversations)
        self._marks = [id for id in found if not live[id].task.abort]
        within = {live[id].task.conversation_id for id in found}
        self._conversations = sorted({*self._conversations, *within})
        self._looked = True


class Conversations:
    """Makes the handles of a session's conversations."""

    def __init__(self, driver: Driver, intake: Intake | None) -> None:
        self._driver = driver
        self._intake = intake
        self._caches = ContextCaches(driver.storage)

    def handle(self, id: Seq, bound: Invocation | None = None) -> ConversationHandle:
        """Return a handle of a conversation that exists."""
        return ConversationHandle(
            self._driver, id, caches=self._caches, bound=bound, intake=self._intake
        )

    def find(self, id: Seq, bound: Invocation | None = None) -> ConversationHandle | None:
        """Return a handle, or ``None`` if there is no such conversation."""
        if id not in self._driver.storage.get_conversations((id,)):
            return None
        return self.handle(id, bound)


def read_config(driver: Driver, kind: TaskType[S], conversation: Seq) -> dict[str, object | None]:
    """Return the values that a kind declares, as they are in a conversation."""
    check_task_kind(kind)
    found: dict[str, object | None] = {}
    for key, name in kind.config.items():
        version = driver.storage.get_value(name.address(conversation))
        found[key] = None if version is None else name.decode(version.value)
    return found


def _no_config(kind: str, unknown: Iterable[str], known: Iterable[str]) -> KindError:
    problem = f"kind {kind!r} declares no config {', '.join(unknown)}"
    return KindError("TASKS-1", f"{problem}; declared: {', '.join(sorted(known)) or 'none'}")
