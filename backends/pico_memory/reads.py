"""The reads of the contract over a session in memory, for any storage that keeps one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

from pico_memory.bodies import task_record
from pico_memory.lists import visible_elements
from pico_memory.resident import Resident
from pico_memory.scans import (
    entry_segments,
    find_batches,
    find_conversations,
    find_entries,
    find_tasks,
    newest_head,
    rewind_policy,
)
from pico_memory.snapshot import snapshot
from pico_memory.state import SessionState
from pico_memory.values import present_values, value_version
from pico_store.address import Address, ConversationAddress, Seq, Shape
from pico_store.errors import InvalidQueryError, UnknownConversationError
from pico_store.query import (
    BatchQuery,
    ConversationQuery,
    EntryQuery,
    ListQuery,
    TaskQuery,
    ValueQuery,
)
from pico_store.query_check import (
    check_address,
    check_at,
    check_batch_query,
    check_conversation_query,
    check_entry_query,
    check_ids,
    check_list_query,
    check_policy_question,
    check_position,
    check_task_query,
    check_value_query,
)
from pico_store.records import (
    At,
    BatchRange,
    Conversation,
    Element,
    Entry,
    JsonValue,
    KeyedVersion,
    Page,
    Task,
    ValuePage,
    Version,
)
from pico_store.shown import shown
from pico_store.snapshot import SnapshotItem
from pico_store.storage import Counters

T = TypeVar("T")


class Reads:
    """The reads of one handle.

    Each takes the lock while it collects rows, which cannot change, and decodes them after it.
    """

    __slots__ = ("_counters", "_lock", "_resident")

    def __init__(self, resident: Resident, counters: Counters) -> None:
        self._resident = resident
        self._lock = resident.lock
        self._counters = counters

    # --- Conversations ---

    def get_conversations(self, ids: Iterable[Seq]) -> dict[Seq, Conversation]:
        wanted = check_ids(ids)
        with self._lock:
            found = self._settled().conversations
            return {id: found[id] for id in wanted if id in found}

    def scan_conversations(self, query: ConversationQuery) -> Page[Conversation]:
        window = check_conversation_query(query)
        with self._lock:
            state = self._settled()
            items, more = _take(find_conversations(state, query, window), window.limit)
            read_at = state.last_seq
        return Page(items, read_at, items[-1].id if more else None)

    # --- Entries ---

    def get_entries(self, ids: Iterable[Seq]) -> dict[Seq, Entry]:
        wanted = check_ids(ids)
        with self._lock:
            state = self._settled()
            rows = [state.entries[id] for id in wanted if id in state.entries]
            rows = [row for row in rows if row[0] <= state.cap(row[1])]
            bodies = state.bodies
            self._counters.rows_decoded += len(rows)
        return {row[0]: bodies.entry(row) for row in rows}

    def scan_entries(self, query: EntryQuery) -> Page[Entry]:
        window = check_entry_query(query)
        with self._lock:
            state = self._settled()
            _check_conversation(state, query.conversation_id, "conversationId")
            found = entry_segments(state, query.conversation_id, window)
            ids, more = _take(find_entries(state, query, found, window), window.limit)
            rows = [state.entries[id] for id in ids]
            read_at, bodies = state.last_seq, state.bodies
            self._counters.queries += len(found) - 1
            self._counters.rows_decoded += len(rows)
        return Page(list(map(bodies.entry, rows)), read_at, ids[-1] if more else None)

    def newest_head(self, conversation: Seq, at: Seq) -> Entry | None:
        at = check_position(at)
        with self._lock:
            state = self._settled()
            _check_conversation(state, conversation, "conversation")
            id, levels = newest_head(state, conversation, at)
            self._counters.queries += levels - 1
            if id is None:
                return None
            row, bodies = state.entries[id], state.bodies
            self._counters.rows_decoded += 1
        return bodies.entry(row)

    # --- Tasks ---

    def get_tasks(self, ids: Iterable[Seq]) -> dict[Seq, Task]:
        wanted = check_ids(ids)
        with self._lock:
            state = self._settled()
            rows = [(id, state.tasks[id], _owns(state, id)) for id in wanted if id in state.tasks]
            bodies = state.bodies
            self._counters.rows_decoded += len(rows)
        return {id: task_record(bodies, id, row, owns) for id, row, owns in rows}

    def scan_tasks(self, query: TaskQuery) -> Page[Task]:
        window = check_task_query(query)
        with self._lock:
            state = self._settled()
            for id in query.conversation_ids or ():
                _check_conversation(state, id, "conversationIds")
            found, more = _take(find_tasks(state, query, window), window.limit)
            rows = [(id, row, _owns(state, id)) for id, row in found]
            read_at, bodies = state.last_seq, state.bodies
            self._counters.rows_decoded += len(rows)
        items = [task_record(bodies, id, row, owns) for id, row, owns in rows]
        return Page(items, read_at, items[-1].id if more else None)

    # --- Values and lists ---

    def get_value(self, address: Address, at: At | None = None) -> Version[JsonValue] | None:
        check_address(address)
        check_at(address, at)
        with self._lock:
            state = self._settled()
            position = _check_readable(state, address, at, "value")
            version = value_version(state, address, position)
            if version is None or version[1] is None:
                return None
            bodies = state.bodies
            self._counters.rows_decoded += 1
        return Version(version[0], bodies.value(version[0], version[1]))

    def scan_values(self, query: ValueQuery) -> ValuePage:
        limit = check_value_query(query)
        scope = query.scope
        with self._lock:
            state = self._settled()
            if isinstance(scope, ConversationAddress):
                _check_conversation(state, scope.conversation, "scope.conversation")
            rows, more = _take(present_values(state, scope, query.after), limit)
            read_at, bodies = state.last_seq, state.bodies
            self._counters.rows_decoded += len(rows)
        items = [KeyedVersion(key, seq, bodies.value(seq, body)) for key, seq, body in rows]
        return ValuePage(items, read_at, items[-1].key if more else None)

    def read_list(self, address: Address, query: ListQuery) -> Page[Element[JsonValue]]:
        window = check_list_query(address, query)
        with self._lock:
            state = self._settled()
            position = _check_readable(state, address, query.at, "list")
            found = visible_elements(state, address, position, window)
            rows, more = _take(found, window.limit)
            read_at, bodies = state.last_seq, state.bodies
            self._counters.rows_decoded += len(rows)
        items = [Element(id, bodies.value(id, body)) for id, body in rows]
        return Page(items, read_at, items[-1].id if more else None)

    def rewind_policy(self, address: ConversationAddress, shape: Shape) -> bool | None:
        check_policy_question(address, shape)
        with self._lock:
            return rewind_policy(self._settled(), address, shape)

    # --- The session as a whole ---

    def last_seq(self) -> Seq:
        with self._lock:
            return self._resident.settled().last_seq

    def entry_kinds(self) -> frozenset[str]:
        with self._lock:
            return frozenset(self._settled().kinds)

    def scan_batches(self, query: BatchQuery) -> Page[BatchRange]:
        window = check_batch_query(query)
        with self._lock:
            state = self._settled()
            items, more = _take(find_batches(state, window), window.limit)
            read_at = state.last_seq
        return Page(items, read_at, items[-1].first if more else None)

    def export(self) -> Iterator[SnapshotItem]:
        """Return the items of the state at the time of the call."""
        with self._lock:
            found = snapshot(self._settled())
        return found.items()

    def _settled(self) -> SessionState:
        self._counters.queries += 1
        return self._resident.settled()


def _take(found: Iterator[T], limit: int) -> tuple[list[T], bool]:
    """Return the first items, at most ``limit``, and whether another one follows."""
    items = list(islice(found, limit + 1))
    if len(items) <= limit:
        return items, False
    items.pop()
    return items, True


def _owns(state: SessionState, task: Seq) -> tuple[Seq, ...]:
    return tuple(state.owned.get(task, ()))


def _check_conversation(state: SessionState, id: Seq, path: str) -> None:
    if type(id) is not int:
        raise InvalidQueryError("PAGE-6", path, f"{shown(id)}; allowed: an integer")
    if id not in state.conversations:
        problem = f"no conversation {shown(id)}; allowed: one that exists and is not deleted"
        raise UnknownConversationError("PAGE-6", path, problem)


def _check_readable(
    state: SessionState, address: Address, at: At | None, shape: Shape
) -> int | None:
    """Refuse an address that cannot be read as asked; return the position, 0 for the start."""
    if not isinstance(address, ConversationAddress):
        return None
    _check_conversation(state, address.conversation, "address.conversation")
    policy = rewind_policy(state, address, shape)
    if policy is not None and policy != address.rewind:
        problem = f"{address.rewind}; the first write of this address fixed {policy}"
        raise InvalidQueryError("VAL-1", "address.rewind", problem)
    if at is None:
        return None
    if at == "start":
        return 0
    if not state.shows(address.conversation, at):
        problem = f"{shown(at)} is not an entry that conversation {address.conversation} shows"
        raise InvalidQueryError("VAL-7", "at", problem)
    return at
