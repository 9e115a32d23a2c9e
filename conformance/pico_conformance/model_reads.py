"""The model's reads: every question of the interface, answered from lists of writes.

A refusal without a clause is one for which the contract does not settle it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from pico_conformance.model_state import FOREVER, Spot, State, spot
from pico_store.address import Address, ConversationAddress, Seq, Shape
from pico_store.batch import ValueSet
from pico_store.errors import InvalidQueryError, UnknownConversationError
from pico_store.query import (
    BatchQuery,
    ConversationQuery,
    EntryQuery,
    ListQuery,
    TaskQuery,
    ValueQuery,
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

T = TypeVar("T")
LIMIT_MAX = 10_000


class _Bounds(Protocol):
    @property
    def after(self) -> Seq | None: ...
    @property
    def before(self) -> Seq | None: ...
    @property
    def limit(self) -> int: ...


def get(ids: Iterable[Seq], find: Callable[[Seq], T | None]) -> dict[Seq, T]:
    """Return what was found by id, in the order asked."""
    found: dict[Seq, T] = {}
    for id in ids:
        if type(id) is not int:
            raise InvalidQueryError("", "ids", f"{id!r}")
        record = find(id)
        if record is not None:
            found[id] = record
    return found


def get_conversation(state: State, id: Seq) -> Conversation | None:
    """Return a live conversation."""
    return state.conversations[id] if state.is_live(id) else None


def get_entry(state: State, id: Seq) -> Entry | None:
    """Return an entry that some live conversation shows."""
    entry = state.entries.get(id)
    if entry is None or id > state.readable_through(entry.conversation_id):
        return None
    return entry


def scan_conversations(state: State, query: ConversationQuery) -> Page[Conversation]:
    """Return a page of live conversations."""
    found = state.live_conversations()
    if query.parent is not None:
        found = [c for c in found if c.parent and c.parent.conversation_id == query.parent]
    if query.owner is not None:
        found = [c for c in found if c.owner == query.owner]
    if query.owner_conversation is not None:
        owners = [
            t.id for t in state.tasks.values() if t.conversation_id == query.owner_conversation
        ]
        found = [c for c in found if c.owner in owners]
    return _page(state, found, lambda c: c.id, query)


def scan_entries(state: State, query: EntryQuery) -> Page[Entry]:
    """Return a page of the entries that a conversation shows."""
    if query.key is not None and query.kind is None:
        raise InvalidQueryError("PAGE-8", "key", "without a kind")
    _check_bounds(query)
    _check_live(state, query.conversation_id)
    found = state.visible_entries(query.conversation_id)
    if query.kind is not None:
        found = [e for e in found if e.kind == query.kind]
    if query.key is not None:
        found = [e for e in found if e.key == query.key]
    if query.from_ is not None:
        found = [e for e in found if e.id >= query.from_]
    if query.through is not None:
        found = [e for e in found if e.id <= query.through]
    return _page(state, found, lambda e: e.id, query)


def newest_head(state: State, conversation: Seq, at: Seq) -> Entry | None:
    """Return the newest visible entry with a head."""
    if type(at) is not int or at < 1:
        raise InvalidQueryError("ENT-5", "at", f"{at!r}")
    _check_live(state, conversation)
    return state.newest_head(conversation, at)


def scan_tasks(state: State, query: TaskQuery) -> Page[Task]:
    """Return a page of tasks."""
    _check_bounds(query)
    for id in query.conversation_ids or ():
        _check_live(state, id)
    found = [task for id in state.tasks if (task := state.task(id)) is not None]
    if query.conversation_ids is not None:
        found = [t for t in found if t.conversation_id in query.conversation_ids]
    if query.live is not None:
        found = [t for t in found if (t.role != "terminal") == query.live]
    if query.role is not None:
        found = [t for t in found if t.role == query.role]
    if query.kind is not None:
        found = [t for t in found if t.kind == query.kind]
    if query.abort is not None:
        found = [t for t in found if t.abort == query.abort]
    if query.background is not None:
        found = [t for t in found if t.background == query.background]
    if query.turn is not None:
        found = [t for t in found if t.turn == query.turn]
    return _page(state, found, lambda t: t.id, query)


def get_value(state: State, address: Address, at: At | None) -> Version[JsonValue] | None:
    """Return the value at an address."""
    where, position = _check_address(state, address, "value", at)
    rewind = isinstance(address, ConversationAddress) and address.rewind
    found = state.value(where, rewind=rewind, at=position)
    return None if found is None else Version(found.seq, _value(found.write))


def scan_values(state: State, query: ValueQuery) -> ValuePage:
    """Return a page of the present keyed values of one namespace."""
    scope = query.scope
    if scope.key is not None:
        raise InvalidQueryError("", "scope.key", "present")
    _check_limit(query.limit)
    if query.after is not None and type(query.after) is not str:
        raise InvalidQueryError("", "after", f"{query.after!r}")
    if isinstance(scope, ConversationAddress):
        _check_live(state, scope.conversation)
    place = spot(scope, "value")
    keys = {
        where.key
        for where in state.changes
        if (where.scope, where.shape, where.namespace) == (place.scope, "value", place.namespace)
        and where.key is not None
        and (query.after is None or where.key > query.after)
    }
    found: list[KeyedVersion[JsonValue]] = []
    for key in sorted(keys):
        where = place._replace(key=key)
        # An own write decides the policy; without one only a rewindable value can be inherited.
        rewind = place.scope == "conversation" and state.policy(where) is not False
        change = state.value(where, rewind=rewind)
        if change is not None:
            found.append(KeyedVersion(key, change.seq, _value(change.write)))
    limit = min(query.limit, LIMIT_MAX)
    more = len(found) > limit
    found = found[:limit]
    return ValuePage(found, Seq(state.last_seq), found[-1].key if more else None)


def read_list(state: State, address: Address, query: ListQuery) -> Page[Element[JsonValue]]:
    """Return a page of the elements that a list shows."""
    _check_bounds(query)
    where, position = _check_address(state, address, "list", query.at)
    rewind = isinstance(address, ConversationAddress) and address.rewind
    shown = state.elements(where, rewind=rewind, at=position)
    found = [Element(id, value) for id, value in shown.items()]
    return _page(state, found, lambda element: element.id, query)


def rewind_policy(state: State, address: ConversationAddress, shape: Shape) -> bool | None:
    """Return the policy that the first write of an address fixed."""
    if not state.is_live(address.conversation):
        return None
    return state.policy(spot(address, shape))


def scan_batches(
    state: State, batches: Sequence[BatchRange], query: BatchQuery
) -> Page[BatchRange]:
    """Return a page of batch boundaries."""
    found = [b for b in batches if b.task is None or state.is_live_task(b.task)]
    return _page(state, found, lambda b: b.first, query)


# --- What the reads share ---


def _value(write: object) -> JsonValue:
    assert isinstance(write, ValueSet)
    return write.value


def _check_live(state: State, conversation: Seq) -> None:
    if not state.is_live(conversation):
        raise UnknownConversationError("", "conversation", f"{conversation!r}")


def _check_address(state: State, address: Address, shape: Shape, at: At | None) -> tuple[Spot, int]:
    """Return which spot an address names and the position to read at."""
    where = spot(address, shape)
    history = isinstance(address, ConversationAddress) and address.rewind
    if not history and at is not None:
        # A read that breaks two clauses is refused by either.
        clause = "" if isinstance(address, ConversationAddress) else "VAL-7"
        raise InvalidQueryError(clause, "at", "not rewindable")
    if not isinstance(address, ConversationAddress):
        return where, FOREVER
    if at is not None and at != "start" and type(at) is not int:
        raise InvalidQueryError("VAL-7", "at", f"{at!r}")
    _check_live(state, address.conversation)
    position = FOREVER if at is None else 0 if at == "start" else at
    hidden = type(at) is int and not state.shows(address.conversation, at)
    policy = state.policy(where)
    if policy is not None and policy != address.rewind:
        raise InvalidQueryError("" if hidden else "VAL-1", "address.rewind", f"{address.rewind}")
    if hidden:
        raise InvalidQueryError("VAL-7", "at", f"{at!r}")
    return where, position


def _check_limit(limit: object) -> None:
    if type(limit) is not int or limit < 1:
        raise InvalidQueryError("PAGE-3", "limit", f"{limit!r}")


def _check_bounds(query: _Bounds) -> None:
    _check_limit(query.limit)
    for bound in (query.after, query.before):
        if bound is not None and type(bound) is not int:
            raise InvalidQueryError("PAGE-3", "after or before", f"{bound!r}")


def _page(state: State, found: list[T], id_of: Callable[[T], Seq], query: _Bounds) -> Page[T]:
    _check_bounds(query)
    found = sorted(found, key=id_of)
    if query.after is not None:
        found = [item for item in found if id_of(item) > query.after]
    if query.before is not None:
        found = [item for item in found if id_of(item) < query.before]
        if query.after is None:
            found.reverse()
    limit = min(query.limit, LIMIT_MAX)
    more = len(found) > limit
    found = found[:limit]
    return Page(found, Seq(state.last_seq), id_of(found[-1]) if more else None)
