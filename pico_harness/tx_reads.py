"""What a transaction reads: committed state with its own earlier writes laid over it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Literal, NoReturn, TypeAlias, TypeVar, overload

import msgspec

from pico_harness.errors import BuilderError, RejectedError
from pico_harness.kinds import Ended, TaskOf, TaskState, TaskType, check_task_kind
from pico_harness.registry import Kinds
from pico_store.address import Address, ConversationAddress, ScratchAddress, Seq, SessionAddress
from pico_store.query import EntryQuery, ListQuery, TaskQuery
from pico_store.query_check import (
    check_address,
    check_at,
    check_conversation_id,
    check_entry_query,
    check_ids,
    check_list_query,
    check_task_query,
)
from pico_store.records import (
    At,
    Conversation,
    Element,
    Entry,
    JsonValue,
    Page,
    Task,
)
from pico_store.shown import shown
from pico_store.storage import Storage

S = TypeVar("S", bound=TaskState)
R = TypeVar("R", Entry, Task)

_ADDRESSES = (SessionAddress, ConversationAddress, ScratchAddress)


class Absent:
    """The type of `ABSENT`."""

    __slots__ = ()


ABSENT: Final = Absent()
"""What is known not to be there, where ``None`` would say that nothing is known."""

Stored: TypeAlias = JsonValue | Absent


class TxReads:
    """The reads of a transaction, and its end.

    Point reads see the transaction's own earlier writes. A scan that they would change raises, and
    the transaction is then poisoned: it commits nothing, even if the builder goes on.

    Source: LINE-1, LINE-2.
    """

    __slots__ = (
        "_alive",
        "_kinds",
        "_storage",
        "conversations_written",
        "entries_written",
        "first",
        "lists_written",
        "poison",
        "tasks_written",
        "values_written",
    )

    def __init__(self, storage: Storage, kinds: Kinds) -> None:
        self._storage = storage
        self._kinds = kinds
        self._alive = True
        self.first = Seq(storage.last_seq + 1)
        """The number of the first write; the others follow."""
        self.poison: RejectedError | None = None
        """The first refusal, which `end` raises."""
        self.entries_written: dict[Seq, Entry] = {}
        self.tasks_written: dict[Seq, Task] = {}
        self.conversations_written: dict[Seq, Conversation | Absent] = {}
        self.values_written: dict[Address, Stored] = {}
        self.lists_written: set[Address] = set()

    # --- Point reads ---

    def get_entry(self, id: Seq) -> Entry | None:
        """Return an entry, or ``None``."""
        return self.get_entries((id,)).get(id)

    def get_entries(self, ids: Iterable[Seq]) -> dict[Seq, Entry]:
        """Return the named entries in the order asked; unknown ids are left out."""
        self._check_alive()
        return _over(self.entries_written, ids, self._storage.get_entries)

    @overload
    def get_task(self, kind: TaskType[S], id: Seq, /) -> TaskOf[S | Ended] | None: ...
    @overload
    def get_task(self, id: Seq, /) -> Task | None: ...
    def get_task(
        self, kind: TaskType[S] | Seq, id: Seq | None = None, /
    ) -> Task | TaskOf[S | Ended] | None:
        """Return a task, or ``None``; with a kind, also ``None`` if it is of another."""
        if id is None:
            asked: Seq = kind  # type: ignore[assignment]
            return self.get_tasks((asked,)).get(asked)
        check_task_kind(kind)
        assert isinstance(kind, TaskType)
        return self.get_tasks(kind, (id,)).get(id)

    @overload
    def get_tasks(
        self, kind: TaskType[S], ids: Iterable[Seq], /
    ) -> dict[Seq, TaskOf[S | Ended]]: ...
    @overload
    def get_tasks(self, ids: Iterable[Seq], /) -> dict[Seq, Task]: ...
    def get_tasks(
        self, kind: TaskType[S] | Iterable[Seq], ids: Iterable[Seq] | None = None, /
    ) -> dict[Seq, Task] | dict[Seq, TaskOf[S | Ended]]:
        """Return the named tasks in the order asked; those of other kinds are left out."""
        self._check_alive()
        if ids is None:
            asked: Iterable[Seq] = kind  # type: ignore[assignment]
            return _over(self.tasks_written, asked, self._storage.get_tasks)
        check_task_kind(kind)
        assert isinstance(kind, TaskType)
        found = _over(self.tasks_written, ids, self._storage.get_tasks)
        return {id: kind.read(task) for id, task in found.items() if kind.matches(task)}

    def _task(self, id: Seq) -> Task | None:
        """Return a task without the copy that a builder gets."""
        written = self.tasks_written.get(id)
        return written if written is not None else self._storage.get_tasks((id,)).get(id)

    def get_conversation(self, id: Seq) -> Conversation | None:
        """Return a live conversation, or ``None``."""
        self._check_alive()
        check_conversation_id(id, "id")
        written = self.conversations_written.get(id)
        if written is not None:
            return None if isinstance(written, Absent) else written
        return self._storage.get_conversations((id,)).get(id)

    def read_value(self, address: Address, at: At | None) -> Stored:
        """Return what stands at an address, or `ABSENT`."""
        self._check_alive()
        if at is not None or not isinstance(address, _ADDRESSES):
            check_address(address)
            check_at(address, at)
        if at is None and address in self.values_written:
            return _copy(self.values_written[address])
        if isinstance(address, ConversationAddress):
            made = self.conversations_written.get(address.conversation)
            if isinstance(made, Conversation):
                return self._inherited_value(address, made, at)
        if at is not None and at != "start" and at >= self.first:
            self._refuse_scan(f"the value {address.namespace!r} as of entry {at}")
        version = self._storage.get_value(address, at)
        return ABSENT if version is None else version.value

    def _inherited_value(
        self, address: ConversationAddress, made: Conversation, at: At | None
    ) -> Stored:
        """Return what a conversation made in this transaction shows without a write of its own."""
        if at is not None and at != "start":
            self._refuse_scan(f"the value {address.namespace!r} of conversation {made.id} at {at}")
        if made.parent is None or not address.rewind or at == "start":
            return ABSENT
        above = msgspec.structs.replace(address, conversation=made.parent.conversation_id)
        return self.read_value(above, made.parent.at)

    # --- Scans ---

    def entries(self, query: EntryQuery) -> Page[Entry]:
        """Return a page of a transcript; refused if this transaction wrote to it before."""
        self._check_alive()
        check_entry_query(query)
        self._check_transcript(query.conversation_id)
        return self._storage.scan_entries(query)

    def newest_head(self, conversation: Seq) -> Entry | None:
        """Return the newest entry with a head; refused if an earlier write could be it."""
        self._check_alive()
        check_conversation_id(conversation, "conversation")
        self._check_transcript(conversation)
        return self._storage.newest_head(conversation, self._storage.last_seq)

    def _check_transcript(self, conversation: Seq) -> None:
        written = any(e.conversation_id == conversation for e in self.entries_written.values())
        if written or conversation in self.conversations_written:
            self._refuse_scan(f"the transcript of conversation {conversation}")

    def tasks(self, query: TaskQuery) -> Page[Task]:
        """Return a page of tasks; refused if an earlier write of this transaction is in it."""
        self._check_alive()
        check_task_query(query)
        asked = query.conversation_ids
        for task in self.tasks_written.values():
            if asked is None or task.conversation_id in asked:
                self._refuse_scan(f"the tasks of conversation {task.conversation_id}")
        if asked is not None and not self.conversations_written.keys().isdisjoint(asked):
            self._refuse_scan("the tasks of a conversation made here")
        return self._storage.scan_tasks(query)

    def read_list(self, address: Address, query: ListQuery) -> Page[Element[JsonValue]]:
        """Return a page of a list; refused if this transaction wrote to it."""
        self._check_alive()
        check_list_query(address, query)
        made = isinstance(address, ConversationAddress) and (
            address.conversation in self.conversations_written
        )
        if address in self.lists_written or made:
            self._refuse_scan(f"the list {address.namespace!r}")
        return self._storage.read_list(address, query)

    # --- The end ---

    def end(self) -> None:
        """End the transaction: every later use raises.

        Raises:
            RejectedError: A read or write of it was refused, whether or not the builder caught it.
        """
        self._alive = False
        if self.poison is not None:
            raise self.poison

    def close(self) -> None:
        """End the transaction without a batch."""
        self._alive = False

    def _check_alive(self) -> None:
        if not self._alive:
            problem = "a transaction used after its builder returned"
            raise BuilderError("LINE-2", f"{problem}; allowed: within it")

    def _check_name(self, name: object, wanted: type) -> None:
        if not isinstance(name, wanted):
            problem = f"{shown(name)} is no {wanted.__name__}"
            raise self._poisoned("LINE-6", f"{problem}; allowed: a name made for one")

    def _refuse_scan(self, what: str) -> NoReturn:
        problem = f"{what} read after a write of this transaction changed it"
        raise self._poisoned("LINE-1", f"{problem}; allowed: reading first")

    def _poisoned(self, rule: Literal["LINE-1", "LINE-6"], problem: str) -> RejectedError:
        return self._poison(BuilderError(rule, problem))

    def _poison(self, error: RejectedError) -> RejectedError:
        if self.poison is None:
            self.poison = error
        return error


def _over(
    written: dict[Seq, R], asked: Iterable[Seq], read: Callable[[Iterable[Seq]], dict[Seq, R]]
) -> dict[Seq, R]:
    ids = check_ids(asked)
    if not written or written.keys().isdisjoint(ids):
        return read(ids)
    found = read([id for id in ids if id not in written])
    mine = {id: _copy_record(written[id]) for id in ids if id in written}
    return {id: mine.get(id) or found[id] for id in ids if id in mine or id in found}


def _copy_record(record: R) -> R:
    """Return a record that a builder may keep and change without changing the batch."""
    return msgspec.convert(msgspec.to_builtins(record), type(record))


def _copy(value: Stored) -> Stored:
    return value if isinstance(value, Absent) else msgspec.to_builtins(value)
