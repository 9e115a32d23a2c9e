"""Transactions: what a builder reads and writes; ids are final, and one batch comes of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, TypeVar

import msgspec
from msgspec import UNSET

from pico_harness.arguments import check_flag, check_instance, check_iterable
from pico_harness.errors import AuthorityError, KindError, UnknownTaskError
from pico_harness.kinds import EntryKind, TaskState, TaskType, check_task_kind, status_of
from pico_harness.owned import own
from pico_harness.registry import Kinds
from pico_harness.state import ListOf, Value, plain
from pico_harness.tx_reads import ABSENT
from pico_harness.tx_state import StateTx, TxList, TxValue, check_state_write
from pico_store.address import Address, ConversationAddress, Seq
from pico_store.batch import (
    DeleteConversation,
    MainBatch,
    MainWrite,
    PatchTask,
    ScratchBatch,
    SettleTask,
    StateWrite,
)
from pico_store.names import check_seq
from pico_store.records import (
    ContextEdit,
    Conversation,
    Entry,
    ForkPoint,
    JsonObject,
    JsonValue,
    Replace,
    Task,
)
from pico_store.shown import shown
from pico_store.storage import Storage

D = TypeVar("D")
S = TypeVar("S", bound=TaskState)
T = TypeVar("T")


class Tx(StateTx):
    """One transaction of the session, for as long as its builder runs.

    Guarantees:
        Point reads see what was written before in it; a scan that its own writes would change
        raises. Ids are final when returned. Nothing is written unless the builder returns.

    Source: design §9.2; LINE-1, LINE-2, LINE-6.
    """

    __slots__ = (
        "_by",
        "_default_conversation",
        "_own",
        "_saw_entry",
        "creates",
        "tasks_made",
        "writes",
    )

    def __init__(
        self,
        storage: Storage,
        kinds: Kinds,
        *,
        by: Seq | None = None,
        own: Task | None = None,
        conversation: Seq | None = None,
        creates: bool = True,
    ) -> None:
        """Begin a transaction.

        Args:
            storage: What it reads, and what its batch is for.
            kinds: The kinds that it may make tasks of.
            by: The task in whose name it writes; ``None`` for the host.
            own: That task as it is committed, where it is at hand; read if not given.
            conversation: Where its names and records are, unless a call says otherwise.
            creates: See the attribute.
        """
        super().__init__(storage, kinds)
        self.writes: list[MainWrite] = []
        self.tasks_made: list[Task] = []
        """What it creates, in order; these are in ``tasks_written`` too, as they become."""
        self._by = by
        self._own = own
        self._default_conversation = conversation
        self.creates = creates
        """Whether it may make work: an abort may not (design §6.3)."""
        self._saw_entry = False

    # --- State ---

    def value(self, name: Value[T], *, conversation: Seq | None = None) -> TxValue[T]:
        """Return the value that a name stands for.

        Args:
            name: A session or conversation value.
            conversation: Whose; not needed where the transaction is bound to one.
        """
        self._check_name(name, Value)
        return TxValue(self, name, self._address(name, conversation))

    def list(self, name: ListOf[T], *, conversation: Seq | None = None) -> TxList[T]:
        """Return the list that a name stands for; see `value`."""
        self._check_name(name, ListOf)
        return TxList(self, name, self._address(name, conversation))

    def _address(self, name: Value[T] | ListOf[T], conversation: Seq | None) -> Address:
        self._check_alive()
        if name.scope == "scratch":
            problem = f"scratch state {name.namespace!r} in a main transaction"
            raise self._poisoned("LINE-6", f"{problem}; allowed: in runtime.scratch")
        if name.scope == "session":
            return name.address(None if conversation is None else _checked(conversation))
        return name.address(self._conversation(conversation))

    def _conversation(self, conversation: Seq | None) -> Seq:
        found = self._default_conversation if conversation is None else _checked(conversation)
        if found is None:
            problem = "no conversation; allowed: conversation=ID, or a conversation's own commit"
            raise self._poisoned("LINE-6", problem)
        return found

    def write_state(self, write: StateWrite) -> Seq:
        """Add a state write; rewindable conversation state comes before entries (design §3.2)."""
        check_state_write(write)
        address = write.address
        if self._saw_entry and isinstance(address, ConversationAddress) and address.rewind:
            problem = f"rewindable state {address.namespace!r} written after an entry"
            raise self._poisoned("LINE-6", f"{problem}; allowed: before every entry of the commit")
        return self._push(write)

    def _push(self, write: MainWrite) -> Seq:
        self._check_alive()
        self.writes.append(write)
        return Seq(self.first + len(self.writes) - 1)

    # --- Entries ---

    def entry(
        self,
        kind: EntryKind[D],
        data: D | None = None,
        *,
        conversation: Seq | None = None,
        model: Sequence[JsonObject] | None = None,
        key: str | None = None,
        head: Seq | Literal["self"] | None = None,
        edits: Iterable[ContextEdit] | None = None,
    ) -> Seq:
        """Append an entry and return its id.

        Args:
            kind: Its kind, which need not be registered.
            data: What it carries besides messages; nothing is stored for ``None``.
            conversation: Where; not needed where the transaction is bound to one.
            model: The messages that it contributes to the context.
            key: An indexed name within the kind.
            head: Where the context begins from here on; ``"self"`` for this entry.
            edits: Changes to what earlier entries contribute.
        """
        self._check_alive()
        if not isinstance(kind, EntryKind):
            problem = f"an entry of kind {shown(kind)}"
            raise KindError("KIND-1", f"{problem}; allowed: an EntryKind")
        if model is not None:
            check_iterable(model, "model", "a list of messages")
        if edits is not None:
            check_iterable(edits, "edits", "a list of Omit and Replace")
        id = Seq(self.first + len(self.writes))
        stored: JsonValue | D | None
        if kind.type is None or data is None:
            stored = own(data)
        else:
            stored = plain(data, kind.type, f"entry of kind {kind.name!r}")
        entry = Entry(
            id=id,
            conversation_id=self._conversation(conversation),
            kind=kind.name,
            key=key,
            by_task_id=self._by,
            data=UNSET if data is None else stored,  # type: ignore[arg-type]
            model=None if model is None else own(list(model)),
            head=id if head == "self" else head,
            edits=None if edits is None else tuple(map(_own_edit, edits)),
        )
        self._saw_entry = True
        self.entries_written[id] = entry
        return self._push(entry)

    # --- Tasks ---

    def task(
        self,
        kind: TaskType[S],
        state: S,
        *,
        conversation: Seq | None = None,
        after: Iterable[Seq] = (),
        background: bool = False,
    ) -> Seq:
        """Create a task in its kind's initial status and return its id.

        Args:
            kind: A registered kind.
            state: Its initial variant.
            conversation: Where; not needed where the transaction is bound to one.
            after: Tasks of the same ownership tree that must be terminal before it starts.
            background: Whether its conversation is idle without it, and its abort leaves it alone.

        Raises:
            KindError: The kind is not registered, or the state is none of its own.
            AuthorityError: An abort invocation creates no successors (design §6.3).
        """
        self._check_creates("task")
        check_task_kind(kind)
        check_flag(background, "background")
        registered = self._kinds.task_kind(kind.name)
        registered.role(state)
        if type(state) is not registered.initial:
            problem = f"a new {kind.name!r} task in status {status_of(state)!r}"
            allowed = status_of(registered.initial)
            raise self._poisoned("LINE-6", f"{problem}; allowed: {allowed!r}")
        check_iterable(after, "after", "ids of tasks")
        id = Seq(self.first + len(self.writes))
        stored = _stored(state, kind.name)
        task = Task(
            id=id,
            conversation_id=self._conversation(conversation),
            kind=kind.name,
            status=stored["status"],  # type: ignore[arg-type]
            role="start",
            state=stored,
            after=tuple(after),
            background=background,
            turn=registered.turn,
        )
        self.tasks_written[id] = task
        self.tasks_made.append(task)
        self.writes.append(task)
        return id

    def patch(self, task: Seq, state: TaskState) -> None:
        """Give the invocation's own task another state that is not terminal.

        Args:
            task: Its id.
            state: The whole new variant; `msgspec.structs.replace` changes single fields.

        Raises:
            AuthorityError: It is not the invocation's own task, or the host asks.
            UnknownTaskError: It is terminal, or was settled before in this transaction.
            KindError: The state is none of its kind's.
            BuilderError: The state's role is terminal; that is what `settle` is for.
        """
        self._transition(task, state, settle=False)

    def settle(self, task: Seq, state: TaskState) -> None:
        """End the invocation's own task; its scratch goes with the same commit.

        Args:
            task: Its id.
            state: A variant of role terminal.

        Raises:
            BuilderError: The state's role is not terminal; otherwise as `patch`.
        """
        self._transition(task, state, settle=True)

    def _transition(self, id: Seq, state: TaskState, *, settle: bool) -> None:
        self._check_alive()
        task = self._own_task(id)
        role = self._kinds.task_kind(task.kind).role(state)
        stored = _stored(state, task.kind)
        # Its tag is in there; asking the class for it takes longer.
        status: str = stored["status"]  # type: ignore[assignment]
        if (role == "terminal") is not settle:
            verb, other = ("settle", "patch") if settle else ("patch", "settle")
            problem = f"{verb} of task {id} ({task.kind}) to {status!r}, whose role is {role}"
            raise self._poisoned("LINE-6", f"{problem}; allowed: {other}")
        self.tasks_written[id] = msgspec.structs.replace(
            task, status=status, role=role, state=stored
        )
        self.writes.append(
            SettleTask(id, status, stored) if settle else PatchTask(id, status, role, stored)
        )

    def _own_task(self, id: Seq) -> Task:
        check_seq(id, "task")
        if id != self._by:
            who = "the host" if self._by is None else f"task {self._by}"
            problem = f"{who} changes the state of task {id}"
            raise self._poison(
                AuthorityError("LINE-6", f"{problem}; allowed: its own invocation, and abort marks")
            )
        task = self.tasks_written.get(id) or self._own or self._task(id)
        if task is None or task.role == "terminal":
            problem = f"task {id} was settled already in this transaction"
            raise self._poison(UnknownTaskError("LINE-6", problem))
        return task

    def abort_task(self, task: Seq) -> bool:
        """Mark a live task as to be aborted; False where it is terminal or unknown.

        Source: design §6.3; marking again changes nothing.
        """
        self._check_alive()
        check_seq(task, "task")
        found = self._task(task)
        if found is None or found.role == "terminal":
            return False
        if not found.abort:
            self.tasks_written[task] = msgspec.structs.replace(found, abort=True)
            self._push(PatchTask(task, abort=True))
        return True

    # --- Conversations ---

    def create_conversation(
        self, *, owner: Seq | None = None, fork: ForkPoint | None = None
    ) -> Seq:
        """Create a conversation and return its id.

        Args:
            owner: The live task that it belongs to.
            fork: What it continues; its entries up to there are shared.

        Raises:
            AuthorityError: An abort invocation makes none; nor has one an owner that is not live,
                which is found at the commit.
        """
        self._check_creates("conversation")
        if owner is not None:
            check_seq(owner, "owner")
        if fork is not None:
            check_instance(fork, ForkPoint, "fork", "a ForkPoint")
        id = Seq(self.first + len(self.writes))
        conversation = Conversation(id, fork, owner)
        self.conversations_written[id] = conversation
        return self._push(conversation)

    def delete_conversation(self, conversation: Seq) -> None:
        """Delete a conversation and all that its tasks own.

        The commit is refused while a task in there is live, or its method has not returned.
        """
        self._check_alive()
        check_seq(conversation, "conversation")
        self.conversations_written[conversation] = ABSENT
        self._push(DeleteConversation(conversation))

    def _check_creates(self, what: str) -> None:
        self._check_alive()
        if not self.creates:
            problem = f"the abort of task {self._by} creates a {what}"
            raise self._poison(
                AuthorityError("TASKS-7", f"{problem}; allowed: outcomes and clean-up")
            )

    def batch(self) -> MainBatch | None:
        """End the transaction and return its batch; ``None`` if nothing was written."""
        self.end()
        return MainBatch(tuple(self.writes)) if self.writes else None


def _checked(conversation: Seq) -> Seq:
    check_seq(conversation, "conversation")
    return conversation


def _own_edit(edit: ContextEdit) -> ContextEdit:
    if isinstance(edit, Replace):
        return msgspec.structs.replace(edit, messages=own(edit.messages))
    return edit


def _stored(state: TaskState, kind: str) -> JsonObject:
    return plain(state, type(state), f"state {status_of(state)!r} of kind {kind!r}")  # type: ignore[return-value]


class ScratchTx(StateTx):
    """One transaction of a task's scratch; it reads everything and writes nothing else.

    Source: design §4.6.
    """

    __slots__ = ("_by", "writes")

    def __init__(self, storage: Storage, kinds: Kinds, *, by: Seq) -> None:
        super().__init__(storage, kinds)
        self.writes: list[StateWrite] = []
        self._by = by

    def value(self, name: Value[T]) -> TxValue[T]:
        """Return the scratch value that a name stands for."""
        self._check_name(name, Value)
        return TxValue(self, name, self._address(name))

    def list(self, name: ListOf[T]) -> TxList[T]:
        """Return the scratch list that a name stands for."""
        self._check_name(name, ListOf)
        return TxList(self, name, self._address(name))

    def _address(self, name: Value[T] | ListOf[T]) -> Address:
        self._check_alive()
        if name.scope != "scratch":
            problem = f"{name.scope} state {name.namespace!r} in a scratch transaction"
            raise self._poisoned("LINE-6", f"{problem}; allowed: scratch names")
        return name.address(self._by)

    def write_state(self, write: StateWrite) -> Seq:
        """Add a write of this scratch."""
        self._check_alive()
        check_state_write(write)
        self.writes.append(write)
        return Seq(self.first + len(self.writes) - 1)

    def batch(self) -> ScratchBatch | None:
        """End the transaction and return its batch; ``None`` if nothing was written."""
        self.end()
        return ScratchBatch(self._by, tuple(self.writes)) if self.writes else None
