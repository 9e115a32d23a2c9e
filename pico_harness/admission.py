"""Who may change what: the checks of a call and of the batch that it builds."""

from __future__ import annotations

from collections.abc import Iterable

from pico_harness.call import Call, Invocation
from pico_harness.errors import (
    AuthorityError,
    BuilderError,
    SessionClosedError,
    SessionFaultedError,
    SessionStoppingError,
    StaleInvocationError,
    TaskCancelledError,
    UnknownTaskError,
    WaitCycleError,
)
from pico_harness.scheduler import Scheduler
from pico_harness.tx import Tx
from pico_harness.waits import Waiter
from pico_store.address import Seq
from pico_store.errors import UnknownConversationError
from pico_store.records import Conversation, Task
from pico_store.storage import Storage


class Admission:
    """Decides whether a call may write now, and whether what it built may be committed.

    Source: design §5.4, §6.2, §6.3, §6.4; LINE-6.
    """

    def __init__(self, scheduler: Scheduler, storage: Storage) -> None:
        self._scheduler = scheduler
        self._storage = storage
        self.fault: tuple[str, BaseException | None] | None = None
        """What faulted the session, in words and as it was raised."""
        self._links: dict[Seq, Seq | None] = {}
        """Of the conversations that the batch puts work into, as `check` read them.

        `Ancestry` asks `above` for them after the commit, when no read may fail any more.
        """

    # --- Calls ---

    def check_phase(self) -> None:
        """Refuse everything once the session closes or is faulted."""
        phase = self._scheduler.phase
        if phase == "open" or phase == "stopping":
            return
        if self.fault is not None:
            raise self.faulted()
        raise SessionClosedError(f"the session is {phase}; open it again")

    def faulted(self) -> SessionFaultedError:
        """Return a new error that says what faulted the session."""
        assert self.fault is not None
        problem, cause = self.fault
        error = SessionFaultedError(f"the session is faulted: {problem}; open it again")
        error.__cause__ = cause
        return error

    def admit(self, call: Call, bound: Invocation | None = None) -> Invocation | None:
        """Refuse a call that may not write now, and return the invocation that makes it.

        Args:
            call: Whose call it is.
            bound: The invocation that the caller's runtime was made for.

        Raises:
            SessionClosedError: The session closes.
            SessionFaultedError: The session is faulted.
            SessionStoppingError: A shutdown was admitted, and this is not its clean-up.
            StaleInvocationError: The invocation returned, its task is settled, or the runtime is
                another invocation's.
            TaskCancelledError: The task carries the mark, and this is not its abort.
        """
        if self._scheduler.phase != "open":
            self.check_phase()
        invocation = call.invocation
        if bound is not None and bound is not invocation:
            whose = "no invocation" if invocation is None else f"task {invocation.task_id}"
            problem = f"the runtime of task {bound.task_id} ({bound.method}) used by {whose}"
            raise StaleInvocationError(f"{problem}; allowed: by its own invocation (TASKS-7)")
        if invocation is None:
            if self._scheduler.phase == "stopping":
                raise SessionStoppingError("a shutdown was admitted; open the session again after")
            return None
        id = invocation.task_id
        if self._scheduler.running.get(id) is not invocation:
            problem = f"{invocation.method} of task {id} has returned"
            raise StaleInvocationError(f"{problem}; nothing more can be written in its name")
        live = self._scheduler.live.get(id)
        if live is None:
            problem = f"task {id} is settled"
            raise StaleInvocationError(f"{problem}; its invocation can write nothing more")
        if live.task.abort and invocation.method != "abort":
            problem = f"task {id} ({live.task.kind}) was aborted"
            raise TaskCancelledError(f"{problem}; its {invocation.method} can write nothing more")
        return invocation

    def check_wait(self, waiter: Waiter) -> None:
        """Refuse a wait for what does not exist, and one of a task for the whole session.

        Raises:
            UnknownTaskError, UnknownConversationError: There is none.
            WaitCycleError: A task would wait for all that it is a part of.
        """
        if waiter.task is not None:
            if waiter.task not in self._scheduler.live and not self._storage.get_tasks(
                (waiter.task,)
            ):
                raise UnknownTaskError("TASKS-6", f"no task {waiter.task} to wait for")
        elif waiter.conversation is not None:
            if self._scheduler.busy(waiter.conversation):
                return  # Live tasks are in conversations that exist.
            if waiter.conversation not in self._storage.get_conversations((waiter.conversation,)):
                problem = f"no conversation {waiter.conversation} to drive"
                raise UnknownConversationError("PAGE-6", "", problem)
        elif waiter.by is not None:
            problem = f"task {waiter.by} would drive the whole session, of which it is a part"
            raise WaitCycleError("TASKS-4", f"{problem}; allowed: a conversation that it owns")

    # --- Batches ---

    def check(self, tx: Tx) -> None:
        """Refuse a batch that breaks a rule of the harness, and read the links that it needs.

        Raises:
            BuilderError: Dependencies outside the ownership tree, or a deletion of busy work.
            AuthorityError: An owner that is not live.
            WaitCycleError: New work that would wait for itself.
        """
        self._links.clear()
        new = tx.tasks_made
        if not new and not tx.conversations_written:
            # Nothing in it has a place to be checked: most commits of most tasks.
            return
        for conversation in tx.conversations_written.values():
            if isinstance(conversation, Conversation):
                self._check_owner(tx, conversation)
        for task in new:
            self._link(tx, task.conversation_id)
            if task.after:
                self._check_dependencies(tx, task)
        if new:
            self._scheduler.waits.check_new(new)
        for id, conversation in tx.conversations_written.items():
            if not isinstance(conversation, Conversation):
                self._check_deletion(tx, id, new)

    def _check_owner(self, tx: Tx, conversation: Conversation) -> None:
        owner = conversation.owner
        if owner is None or owner in self._scheduler.live:
            return
        if owner < tx.first:
            problem = f"conversation {conversation.id} with owner {owner}, which is not live"
            raise AuthorityError("LINE-6", f"{problem}; allowed: a live task")

    def _check_dependencies(self, tx: Tx, task: Task) -> None:
        written, living = tx.tasks_written, self._scheduler.live
        unknown = [id for id in task.after if id not in written and id not in living]
        stored = self._storage.get_tasks(unknown) if unknown else {}
        for id in task.after:
            live = living.get(id)
            found = written.get(id) or (live.task if live is not None else stored.get(id))
            if found is None:
                problem = f"task {task.id} is after {id}, which does not exist"
                raise BuilderError("TASKS-4", f"{problem}; allowed: tasks created before")
            if found.conversation_id == task.conversation_id:
                continue
            if self._root(tx, found.conversation_id) != self._root(tx, task.conversation_id):
                problem = f"task {task.id} of conversation {task.conversation_id} is after {id} "
                problem += f"of {found.conversation_id}, in another ownership tree"
                raise BuilderError("TASKS-4", f"{problem}; allowed: tasks of the same tree")

    def _check_deletion(self, tx: Tx, id: Seq, new: Iterable[Task]) -> None:
        busy = {i: self._scheduler.live[i].task.conversation_id for i in self._scheduler.live.ids()}
        for invocation in self._scheduler.running.values():
            busy.setdefault(invocation.task_id, invocation.conversation_id)
        busy |= {task.id: task.conversation_id for task in new}
        for task, conversation in sorted(busy.items()):
            if id in self._lineage(tx, conversation):
                problem = f"conversation {id} or what it owns is busy: task {task}"
                raise BuilderError("DEL-1", f"{problem}; allowed: once that settled and returned")

    # --- Links ---

    def above(self, conversation: Seq) -> Seq | None:
        """Return the conversation of the task that owns one; reads what `check` did not."""
        if conversation in self._links:
            return self._links[conversation]
        found = self._storage.get_conversations((conversation,)).get(conversation)
        return self._owner_home(found, {})

    def _owner_home(self, found: Conversation | None, written: dict[Seq, Task]) -> Seq | None:
        if found is None or found.owner is None:
            return None
        live = self._scheduler.live.get(found.owner)
        owner = written.get(found.owner) or (live.task if live is not None else None)
        if owner is None:
            owner = self._storage.get_tasks((found.owner,)).get(found.owner)
        return owner.conversation_id if owner is not None else None

    def _link(self, tx: Tx, conversation: Seq) -> None:
        """Read the links of a conversation now, because after the commit nothing may fail."""
        id: Seq | None = conversation
        while id is not None and id not in self._links and id not in self._scheduler.ancestry:
            written = tx.conversations_written.get(id)
            found = written if isinstance(written, Conversation) else None
            if found is None:
                found = self._storage.get_conversations((id,)).get(id)
            self._links[id] = self._owner_home(found, tx.tasks_written)
            id = self._links[id]

    def _lineage(self, tx: Tx, conversation: Seq) -> list[Seq]:
        self._link(tx, conversation)
        found: list[Seq] = []
        id: Seq | None = conversation
        while id is not None:
            if id in self._links:
                found.append(id)
                id = self._links[id]
            else:
                return found + list(self._scheduler.ancestry.lineage(id))
        return found

    def _root(self, tx: Tx, conversation: Seq) -> Seq:
        return self._lineage(tx, conversation)[-1]
