"""The rules of the contract about writes, one method a write type.

The way of a write that is right is short: where a rule needs several looks, the first that fails
leads to a method that says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeAlias

from pico_store.address import (
    Address,
    ConversationAddress,
    ScratchAddress,
    Seq,
    SessionAddress,
    Shape,
)
from pico_store.batch import (
    DeleteConversation,
    ListAppend,
    ListClear,
    ListRemove,
    MainWrite,
    PatchTask,
    SettleTask,
    ValueDelete,
    ValueSet,
)
from pico_store.entry_body import pack_entry
from pico_store.errors import InvalidBatchError, RefusedError
from pico_store.names import check_common_name, check_name, check_seq, known_names
from pico_store.pending import PendingState
from pico_store.records import Conversation, Entry, ForkPoint, Task
from pico_store.shown import shown
from pico_store.strict_json import pack
from pico_store.view import CommittedView, TaskFacts

ROOT: Final = Seq(1)
_LIVE: Final = ("start", "inflight")
_TERMINAL: Final = ("terminal",)
_ADDRESSES: Final = (SessionAddress, ConversationAddress, ScratchAddress)


class Rules:
    """The rules, one method a write type; each takes the write and its number."""

    __slots__ = ("_first", "_met", "_saw_entry", "_state", "_task", "_view", "deletions", "passing")

    def __init__(self, view: CommittedView, first: Seq, task: Seq | None) -> None:
        self._state = PendingState(view, first)
        self._view = view
        self._first = first
        self._task = task
        self._saw_entry = False
        # The conversation that a write named last: mostly the next write names it too.
        self._met: Conversation | None = None
        # Most batches have none of either.
        self.deletions: dict[int, list[Seq]] | None = None
        self.passing: set[Seq] | None = None

    def check_scratch_task(self) -> None:
        check_seq(self._task, "task")
        assert self._task is not None
        facts = self._view.task(self._task)
        if facts is None or not facts.live:
            problem = f"task {self._task} is {'terminal' if facts else 'unknown'}; "
            raise InvalidBatchError("TASK-4", "task", problem + "allowed: a live task")

    def check(self, writes: tuple[MainWrite, ...]) -> list[bytes | None]:
        """Check the writes in order and return their packed payloads."""
        rules = _MAIN_RULES if self._task is None else _SCRATCH_RULES
        bodies: list[bytes | None] = []
        seq = self._first
        if seq == ROOT and type(writes[0]) is not Conversation:
            problem = f"{type(writes[0]).__name__}; allowed as a session's first write: its root"
            raise InvalidBatchError("SEQ-3", "writes[0]", problem)
        try:
            for write in writes:
                rule = rules.get(type(write))
                if rule is None:
                    self._refuse_type(write)
                bodies.append(rule(self, write, seq))
                seq += 1  # type: ignore[assignment]
        except RefusedError as error:
            path = f"writes[{seq - self._first}]" + (f".{error.path}" if error.path else "")
            raise type(error)(error.clause, path, error.problem) from error.__cause__
        return bodies

    def _refuse_type(self, write: object) -> NoReturn:
        if self._task is not None and type(write) in _MAIN_RULES:
            problem = f"{type(write).__name__}; allowed in a scratch batch: value and list writes"
            raise InvalidBatchError("SEQ-7", "", problem)
        problem = f"{type(write).__name__}; allowed: the write types of pico_store.batch"
        raise InvalidBatchError("SEQ-7", "", problem)

    # --- State ---

    def value_set(self, write: ValueSet, seq: Seq) -> bytes:
        self._check_address(write.address, "value")
        return pack(write.value, "value")

    def value_delete(self, write: ValueDelete, seq: Seq) -> None:
        self._check_address(write.address, "value")

    def list_append(self, write: ListAppend, seq: Seq) -> bytes:
        self._check_address(write.address, "list")
        body = pack(write.value, "value")
        self._state.steps.append((write.address, seq, "append", None))
        return body

    def list_remove(self, write: ListRemove, seq: Seq) -> None:
        self._check_address(write.address, "list")
        check_seq(write.element, "element")
        if not self._state.element_visible(write.address, write.element):
            problem = f"{write.element} is not an element that this list shows now"
            raise InvalidBatchError("VAL-5", "element", problem)
        self._state.steps.append((write.address, seq, "remove", write.element))
        if write.element >= self._first:
            if self.passing is None:
                self.passing = set()
            self.passing.add(write.element)

    def list_clear(self, write: ListClear, seq: Seq) -> None:
        self._check_address(write.address, "list")
        self._state.steps.append((write.address, seq, "clear", None))

    def _check_address(self, address: Address, shape: Shape) -> None:
        kind = type(address)
        if (kind is ScratchAddress) is (self._task is None) or kind not in _ADDRESSES:
            self._refuse_address(address)
        if kind is ScratchAddress and (
            type(address.task) is not int or address.task != self._task  # type: ignore[union-attr]
        ):
            check_seq(address.task, "address.task")  # type: ignore[union-attr]
            problem = f"{shown(address.task)}; allowed: {self._task}, the batch's own task"  # type: ignore[union-attr]
            raise InvalidBatchError("SEQ-7", "address.task", problem)
        name = address.namespace
        if type(name) is not str or name not in known_names:
            check_common_name(name, "address.namespace")
        if address.key is not None:
            check_name(address.key, "address.key", empty=True)
        if kind is ConversationAddress:
            self._check_conversation_address(address, shape)  # type: ignore[arg-type]

    def _refuse_address(self, address: Address) -> NoReturn:
        if type(address) not in _ADDRESSES:
            problem = f"{type(address).__name__}; allowed: an address of pico_store.address"
            raise InvalidBatchError("VAL-1", "address", problem)
        if self._task is None:
            problem = "scratch; allowed in a main batch: session and conversation addresses"
        else:
            problem = "not scratch; allowed in a scratch batch: its own task's addresses"
        raise InvalidBatchError("SEQ-7", "address", problem)

    def _check_conversation_address(self, address: ConversationAddress, shape: Shape) -> None:
        id, met = address.conversation, self._met
        if met is None or id != met.id or type(id) is not int:
            self._conversation(id, "address.conversation", "VAL-1")
        if type(address.rewind) is not bool:
            problem = f"{shown(address.rewind)}; allowed: True or False"
            raise InvalidBatchError("VAL-1", "address.rewind", problem)
        policy = self._state.rewind_policy(address, shape)
        if policy is None:
            self._state.add_policy(address, shape)
        elif policy != address.rewind:
            problem = f"{address.rewind}; the first write of this address fixed {policy}"
            raise InvalidBatchError("VAL-1", "address.rewind", problem)
        if address.rewind and self._saw_entry:
            problem = "a rewindable write after an entry of the same batch; put it before"
            raise InvalidBatchError("SEQ-7", "address.rewind", problem)

    # --- Conversations ---

    def conversation(self, write: Conversation, seq: Seq) -> None:
        if write.id != seq or type(write.id) is not int:
            self._refuse_id(write.id, seq)
        parent, owner = write.parent, write.owner
        if seq == ROOT and (parent is not None or owner is not None):
            problem = "the root with a parent or owner; allowed: neither"
            raise InvalidBatchError("SEQ-3", "", problem)
        if parent is not None:
            if type(parent) is not ForkPoint:
                problem = f"{type(parent).__name__}; allowed: ForkPoint or None"
                raise InvalidBatchError("FORK-1", "parent", problem)
            source = self._conversation(parent.conversation_id, "parent.conversationId", "FORK-1")
            check_seq(parent.at, "parent.at")
            if not self._state.entry_visible(source, parent.at):
                problem = f"{parent.at} is not an entry that conversation {source.id} shows"
                raise InvalidBatchError("FORK-1", "parent.at", problem)
        if owner is not None:
            self._known_task(owner, "owner", "TASK-5")
        self._state.add_conversation(write)

    def delete_conversation(self, write: DeleteConversation, seq: Seq) -> None:
        self._conversation(write.id, "id", "DEL-1")
        if write.id == ROOT:
            raise InvalidBatchError("DEL-1", "id", "the root; allowed: any other conversation")
        taken, live = self._state.subtree(write.id)
        if live:
            names = ", ".join(map(str, live[:5])) + (" ..." if len(live) > 5 else "")
            problem = f"{write.id} or what it owns has live tasks: {names}; settle them first"
            raise InvalidBatchError("DEL-1", "id", problem)
        self._state.remove_conversations(taken)
        self._met = None
        if self.deletions is None:
            self.deletions = {}
        self.deletions[seq - self._first] = taken

    # --- Entries ---

    def entry(self, write: Entry, seq: Seq) -> bytes:
        if write.id != seq or type(write.id) is not int:
            self._refuse_id(write.id, seq)
        id, conversation = write.conversation_id, self._met
        if conversation is None or id != conversation.id or type(id) is not int:
            conversation = self._conversation(id, "conversationId", "ENT-1")
        kind = write.kind
        if type(kind) is not str or kind not in known_names:
            check_common_name(kind, "kind")
        if write.key is not None:
            check_name(write.key, "key", empty=True)
        if write.by_task_id is not None:
            self._known_task(write.by_task_id, "byTaskId", "ENT-1")
        body = pack_entry(write)
        if write.head is not None:
            self._check_head(write.head, conversation, seq)
            self._state.add_head(seq, conversation.id, write.head)
        for index, edit in enumerate(write.edits) if write.edits else ():
            path = f"edits[{index}].target"
            check_seq(edit.target, path)
            if edit.target >= seq or not self._state.entry_visible(conversation, edit.target):
                problem = f"{edit.target} is not an earlier entry that the conversation shows"
                raise InvalidBatchError("ENT-4", path, problem)
        self._state.entries[seq] = conversation.id
        self._saw_entry = True
        return body

    def _check_head(self, head: Seq, conversation: Conversation, seq: Seq) -> None:
        check_seq(head, "head")
        if head != seq and not (head < seq and self._state.entry_visible(conversation, head)):
            problem = f"{head} is neither this entry nor an earlier one that the conversation shows"
            raise InvalidBatchError("ENT-2", "head", problem)
        boundary = self._state.head_boundary(conversation)
        if boundary is not None and head < boundary:
            problem = f"{head} is before {boundary}, where the newest head begins the context"
            raise InvalidBatchError("ENT-2", "head", problem)

    # --- Tasks ---

    def task(self, write: Task, seq: Seq) -> bytes:
        if write.id != seq or type(write.id) is not int:
            self._refuse_id(write.id, seq)
        id, conversation = write.conversation_id, self._met
        if conversation is None or id != conversation.id or type(id) is not int:
            conversation = self._conversation(id, "conversationId", "TASK-1")
        kind = write.kind
        if type(kind) is not str or kind not in known_names:
            check_common_name(kind, "kind")
        body = self._state_body(write.status, write.role, write.state, _LIVE)
        after = write.after
        if after:
            if type(after) not in (tuple, list):
                problem = f"{type(after).__name__}; allowed: a tuple of task ids"
                raise InvalidBatchError("TASK-1", "after", problem)
            for index, task in enumerate(after):
                self._known_task(task, f"after[{index}]", "TASK-1")
            if len(set(after)) != len(after):
                problem = f"{shown(list(after))} repeats a task; allowed: each once"
                raise InvalidBatchError("TASK-1", "after", problem)
        elif type(after) not in (tuple, list):
            problem = f"{shown(after)}; allowed: a tuple of task ids"
            raise InvalidBatchError("TASK-1", "after", problem)
        if write.abort is not False or write.owns != ():
            self._refuse_set(write)
        if type(write.background) is not bool:
            problem = f"{shown(write.background)}; allowed: True or False"
            raise InvalidBatchError("TASK-1", "background", problem)
        if type(write.turn) is not bool:
            problem = f"{shown(write.turn)}; allowed: True or False"
            raise InvalidBatchError("TASK-1", "turn", problem)
        self._state.tasks[seq] = TaskFacts(conversation.id, True)
        return body

    def _refuse_set(self, write: Task) -> None:
        """Refuse what a new task may not have; an empty list of owned ones is nothing."""
        if type(write.owns) not in (tuple, list) or write.owns:
            problem = "set in a new task; allowed: never written, it follows from the "
            raise InvalidBatchError("TASK-5", "owns", f"{problem}conversations' owners")
        if write.abort is not False:
            problem = f"{shown(write.abort)} in a new task; allowed: False, set by a later patch"
            raise InvalidBatchError("TASK-3", "abort", problem)

    def patch(self, write: PatchTask, seq: Seq) -> bytes | None:
        self._live_task(write.id)
        if type(write.abort) is not bool:
            problem = f"{shown(write.abort)}; allowed: True or False"
            raise InvalidBatchError("TASK-3", "abort", problem)
        status, role, state = write.status, write.role, write.state
        if status is not None or role is not None or state is not None:
            if status is None or role is None or state is None:
                problem = "status, role and state go together; allowed: all three or none"
                raise InvalidBatchError("TASK-2", "", problem)
            return self._state_body(status, role, state, _LIVE)
        if not write.abort:
            problem = "changes nothing; allowed: status, role and state together, or abort"
            raise InvalidBatchError("TASK-2", "", problem)
        return None

    def settle(self, write: SettleTask, seq: Seq) -> bytes:
        facts = self._live_task(write.id)
        body = self._state_body(write.status, write.role, write.state, _TERMINAL)
        self._state.tasks[write.id] = TaskFacts(facts.conversation, False)
        return body

    def _state_body(
        self, status: object, role: object, state: object, roles: tuple[str, ...]
    ) -> bytes:
        if type(status) is not str or status not in known_names:
            check_common_name(status, "status")
        if type(role) is not str or role not in roles:
            allowed = " or ".join(roles)
            raise InvalidBatchError("TASK-2", "role", f"{shown(role)}; allowed here: {allowed}")
        if type(state) is not dict:
            problem = f"{type(state).__name__}; allowed: a dict with a status"
            raise InvalidBatchError("TASK-2", "state", problem)
        found = state.get("status")
        if found is not status and (found != status or type(found) is not str):
            problem = f"{shown(found)}; allowed: {status!r:.60}, the task's status"
            raise InvalidBatchError("TASK-2", "state.status", problem)
        return pack(state, "state")

    # --- Lookups ---

    def _refuse_id(self, id: object, seq: Seq) -> NoReturn:
        raise InvalidBatchError("SEQ-1", "id", f"{shown(id)}; this write gets number {seq}")

    def _conversation(self, id: Seq, path: str, clause: str) -> Conversation:
        found = self._met = self._state.conversation(id) if type(id) is int else None
        if found is None:
            check_seq(id, path)
            problem = f"no conversation {id}; allowed: one that exists and is not deleted"
            raise InvalidBatchError(clause, path, problem)
        return found

    def _known_task(self, id: Seq, path: str, clause: str) -> None:
        if type(id) is not int or self._state.task(id) is None:
            check_seq(id, path)
            problem = f"no task {id}; allowed: one that exists, created before this write"
            raise InvalidBatchError(clause, path, problem)

    def _live_task(self, id: Seq) -> TaskFacts:
        facts = self._state.task(id) if type(id) is int else None
        if facts is None or not facts.live:
            check_seq(id, "id")
            problem = f"task {id} is {'terminal' if facts else 'unknown'}; allowed: a live task"
            raise InvalidBatchError("TASK-2", "id", problem)
        return facts


_Rule: TypeAlias = "Callable[[Rules, Any, Seq], bytes | None]"
_SCRATCH_RULES: dict[type, _Rule] = {
    ValueSet: Rules.value_set,
    ValueDelete: Rules.value_delete,
    ListAppend: Rules.list_append,
    ListRemove: Rules.list_remove,
    ListClear: Rules.list_clear,
}
_MAIN_RULES: dict[type, _Rule] = {
    **_SCRATCH_RULES,
    Conversation: Rules.conversation,
    DeleteConversation: Rules.delete_conversation,
    Entry: Rules.entry,
    Task: Rules.task,
    PatchTask: Rules.patch,
    SettleTask: Rules.settle,
}
