"""The checks of read arguments, shared by all backends.

Each returns the argument in the form that an engine wants, or raises `InvalidQueryError`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple, Protocol

from pico_store.address import Address, ConversationAddress, ScratchAddress, Seq, SessionAddress
from pico_store.errors import InvalidQueryError
from pico_store.limits import PAGE_ITEMS_MAX, SEQ_MAX
from pico_store.query import (
    BatchQuery,
    ConversationQuery,
    EntryQuery,
    ListQuery,
    TaskQuery,
    ValueQuery,
)
from pico_store.records import At
from pico_store.shown import shown

_CURSORS = (BatchQuery, ConversationQuery, EntryQuery, ListQuery, TaskQuery)
_ADDRESSES = (SessionAddress, ConversationAddress, ScratchAddress)


class Cursor(Protocol):
    """The paging part of a query whose cursors are numbers."""

    @property
    def after(self) -> Seq | None:
        """Exclusive lower bound."""
        ...

    @property
    def before(self) -> Seq | None:
        """Exclusive upper bound."""
        ...

    @property
    def limit(self) -> int:
        """Items a page."""
        ...


class Window(NamedTuple):
    """The numbers that a page may show and the direction it runs in."""

    first: int
    """Inclusive, at least 1."""
    last: int
    """Inclusive, at most 2^53-1; below ``first`` when nothing can match."""
    newest_first: bool
    limit: int

    def narrowed(self, first: int, last: int) -> Window:
        """Return the window cut to two inclusive bounds."""
        return Window(max(self.first, first), min(self.last, last), self.newest_first, self.limit)


def check_window(query: Cursor) -> Window:
    """Return what a query's cursors and limit mean.

    Source: SPEC.md, PAGE-1 to PAGE-3.
    """
    _check_query(query, _CURSORS)
    after, before = query.after, query.before
    first = 1 if after is None else max(_integer(after, "after") + 1, 1)
    last = SEQ_MAX if before is None else min(_integer(before, "before") - 1, SEQ_MAX)
    newest_first = before is not None and after is None
    return Window(first, last, newest_first, check_limit(query.limit))


def _check_query(query: object, allowed: type | tuple[type, ...]) -> None:
    if not isinstance(query, allowed):
        kinds = allowed if isinstance(allowed, tuple) else (allowed,)
        names = ", ".join(kind.__name__ for kind in kinds)
        problem = f"{type(query).__name__}; allowed: {names}"
        raise InvalidQueryError("PAGE-3", "query", problem)


def check_limit(limit: object) -> int:
    """Return the number of items that a page may hold, 1 to 10,000."""
    if type(limit) is not int or limit < 1:
        problem = f"{shown(limit)}; allowed: an integer of at least 1"
        raise InvalidQueryError("PAGE-3", "limit", problem)
    return min(limit, PAGE_ITEMS_MAX)


def check_ids(ids: Iterable[Seq]) -> list[Seq]:
    """Return the ids that can exist, each once, in the order of their first mention.

    Source: SPEC.md, PAGE-6.
    """
    if not isinstance(ids, Iterable):
        raise InvalidQueryError("PAGE-6", "ids", f"{shown(ids)}; allowed: an iterable of integers")
    # Before repeats are dropped: True equals 1, and would pass behind it.
    wanted = list(ids)
    for id in wanted:
        if type(id) is not int:
            problem = f"{shown(id)} of type {type(id).__name__}; allowed: integers"
            raise InvalidQueryError("PAGE-6", "ids", problem)
    return [id for id in dict.fromkeys(wanted) if 0 < id <= SEQ_MAX]


def check_position(at: object) -> Seq:
    """Return a numeric position, at least 1."""
    if type(at) is not int or at < 1:
        problem = f"{shown(at)}; allowed: an integer of at least 1"
        raise InvalidQueryError("ENT-5", "at", problem)
    return Seq(at)


def check_conversation_id(id: object, path: str) -> Seq:
    """Return a number that may name a conversation."""
    if type(id) is not int:
        raise InvalidQueryError("PAGE-6", path, f"{shown(id)}; allowed: an integer")
    return Seq(id)


def check_entry_query(query: EntryQuery) -> Window:
    """Return the window of an entry query, ``from_`` and ``through`` included."""
    _check_query(query, EntryQuery)
    check_conversation_id(query.conversation_id, "conversationId")
    _optional_text(query.kind, "kind")
    _optional_text(query.key, "key")
    if query.key is not None and query.kind is None:
        raise InvalidQueryError("PAGE-8", "key", "without a kind; allowed: together with one")
    window = check_window(query)
    first = 1 if query.from_ is None else _integer(query.from_, "from")
    last = SEQ_MAX if query.through is None else _integer(query.through, "through")
    return window.narrowed(first, last)


def check_conversation_query(query: ConversationQuery) -> Window:
    """Return the window of a conversation query after checking its filters' types."""
    _check_query(query, ConversationQuery)
    for path, id in (
        ("parent", query.parent),
        ("owner", query.owner),
        ("ownerConversation", query.owner_conversation),
    ):
        if id is not None:
            check_conversation_id(id, path)
    return check_window(query)


def check_list_query(address: Address, query: ListQuery) -> Window:
    """Return the window of a list query after checking where it reads."""
    check_address(address)
    _check_query(query, ListQuery)
    check_at(address, query.at)
    return check_window(query)


def check_batch_query(query: BatchQuery) -> Window:
    """Return the window of a batch query."""
    _check_query(query, BatchQuery)
    return check_window(query)


def check_task_query(query: TaskQuery) -> Window:
    """Return the window of a task query after checking its filters' types."""
    _check_query(query, TaskQuery)
    ids = query.conversation_ids
    if ids is not None:
        # What can be read once only would be used up here.
        if not isinstance(ids, Collection):
            problem = f"{shown(ids)}; allowed: a tuple of integers, or None"
            raise InvalidQueryError("PAGE-6", "conversationIds", problem)
        for id in ids:
            check_conversation_id(id, "conversationIds")
    _optional_text(query.kind, "kind")
    if not _is_one_of(query.role, (None, "start", "inflight", "terminal")):
        problem = f"{shown(query.role)}; allowed: start, inflight, terminal"
        raise InvalidQueryError("PAGE-8", "role", problem)
    for name in ("live", "abort", "background", "turn"):
        flag = getattr(query, name)
        if flag is not None and type(flag) is not bool:
            raise InvalidQueryError("PAGE-8", name, f"{shown(flag)}; allowed: True, False or None")
    return check_window(query)


def check_value_query(query: ValueQuery) -> int:
    """Return the limit of a value query after checking its scope and cursor."""
    _check_query(query, ValueQuery)
    check_address(query.scope, "scope")
    if query.scope.key is not None:
        raise InvalidQueryError("VAL-4", "scope.key", "set; allowed: an address without a key")
    _optional_text(query.after, "after")
    return check_limit(query.limit)


def check_address(address: object, path: str = "address") -> None:
    """Refuse what is not an address, or one whose parts are of other types."""
    if not isinstance(address, _ADDRESSES):
        problem = f"{type(address).__name__}; allowed: an address of pico_store.address"
        raise InvalidQueryError("VAL-1", path, problem)
    _text(address.namespace, f"{path}.namespace")
    _optional_text(address.key, f"{path}.key")
    if isinstance(address, ConversationAddress):
        check_conversation_id(address.conversation, f"{path}.conversation")
        rewind: object = address.rewind
        if type(rewind) is not bool:
            problem = f"{shown(rewind)}; allowed: True or False"
            raise InvalidQueryError("VAL-1", f"{path}.rewind", problem)
    elif isinstance(address, ScratchAddress):
        check_conversation_id(address.task, f"{path}.task")


def check_policy_question(address: object, shape: object) -> None:
    """Refuse an address that has no policy, and a shape that there is not.

    Source: SPEC.md, VAL-9.
    """
    check_address(address)
    if not isinstance(address, ConversationAddress):
        problem = f"{type(address).__name__}; allowed: ConversationAddress"
        raise InvalidQueryError("VAL-9", "address", problem)
    if not _is_one_of(shape, ("value", "list")):
        raise InvalidQueryError("VAL-9", "shape", f"{shown(shape)}; allowed: value, list")


def check_at(address: Address, at: At | None) -> None:
    """Refuse a position on an address that keeps no history, or one of no meaning.

    Source: SPEC.md, VAL-7.
    """
    if at is None:
        return
    if not isinstance(address, ConversationAddress) or not address.rewind:
        problem = f"{shown(at)} on an address without history; allowed: rewindable addresses"
        raise InvalidQueryError("VAL-7", "at", problem)
    if not _is_one_of(at, ("start",)) and type(at) is not int:
        problem = f"{shown(at)}; allowed: an entry's id or 'start'"
        raise InvalidQueryError("VAL-7", "at", problem)


def _is_one_of(value: object, allowed: tuple[str | None, ...]) -> bool:
    """Tell whether a value is one of some texts and not only equal to it."""
    return (value is None or type(value) is str) and value in allowed


def _integer(value: object, path: str) -> int:
    if type(value) is not int:
        problem = f"{shown(value)} of type {type(value).__name__}; allowed: an integer"
        raise InvalidQueryError("PAGE-3", path, problem)
    return value


def _optional_text(value: object, path: str) -> None:
    if value is not None:
        _text(value, path)


def _text(value: object, path: str) -> None:
    if type(value) is not str:
        raise InvalidQueryError("PAGE-8", path, f"{type(value).__name__}; allowed: str")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            problem = "lone surrogate; allowed: Unicode scalar values"
            raise InvalidQueryError("JSON-3", path, problem) from None
