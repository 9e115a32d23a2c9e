"""Which value an address shows, to its conversation or to a fork of it."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterator
from typing import TypeAlias

from pico_memory.rows import Body, VersionRow
from pico_memory.scope import Cell, ValueSpace
from pico_memory.state import SessionState
from pico_store.address import Address, ConversationAddress, Seq
from pico_store.forks import segments

KeyedRow: TypeAlias = tuple[str, Seq, Body]
"""``key, seq, body``."""

_Part: TypeAlias = tuple[ValueSpace, int]
"""A namespace in one conversation, and how far the reader sees it, inclusive."""


def value_version(state: SessionState, address: Address, at: int | None) -> VersionRow | None:
    """Return the version that an address shows now or at a position; a tombstone is one too.

    Cost: one step a fork level, down to the nearest version.
    """
    if type(address) is not ConversationAddress or not address.rewind:
        scope = state.scope(address)
        cell = None if scope is None else scope.cell(address.namespace, address.key)
        return cell if type(cell) is tuple else None
    through = state.last_seq if at is None else at
    reader = address.conversation
    while True:
        scope = state.scopes.get(reader)
        if scope is not None:
            cell = scope.cell(address.namespace, address.key)
            version = _version(cell, through)
            if version is not None:
                return version
        parent = state.conversation(reader).parent
        if parent is None:
            return None
        through = min(through, parent.at)
        reader = parent.conversation_id


def present_values(state: SessionState, scope: Address, after: str | None) -> Iterator[KeyedRow]:
    """Yield the present keyed values of a namespace after a key, by key."""
    held = state.scope(scope)
    own = None if held is None else held.values.get(scope.namespace)
    inherited = _inherited(state, scope) if type(scope) is ConversationAddress else []
    last: str | None = None
    for key in _keys(own, inherited, after):
        if key == last:
            continue
        last = key
        version = _shown(own, inherited, key)
        if version is not None and version[1] is not None:
            yield key, version[0], version[1]


def _inherited(state: SessionState, scope: ConversationAddress) -> list[_Part]:
    """Return the namespace in the reader's ancestors, the nearest first."""
    found: list[_Part] = []
    reader = state.conversations[scope.conversation]
    for segment in segments(reader, state.last_seq, state.conversation)[1:]:
        held = state.scopes.get(segment.conversation)
        space = None if held is None else held.values.get(scope.namespace)
        if space is not None:
            found.append((space, segment.through))
    return found


def _keys(own: ValueSpace | None, inherited: list[_Part], after: str | None) -> Iterator[str]:
    orders = [space.order() for space, _ in inherited]
    if own is not None:
        orders.append(own.order())
    return heapq.merge(*(order.irange(after, inclusive=(False, True)) for order in orders))


def _shown(own: ValueSpace | None, inherited: list[_Part], key: str) -> VersionRow | None:
    cell = None if own is None else own.cells.get(key)
    if cell is not None:
        # An own write of either policy, present or absent, stands before what is inherited.
        return cell[-1] if type(cell) is list else cell  # type: ignore[return-value]
    for space, through in inherited:
        version = _version(space.cells.get(key), through)
        if version is not None:
            return version
    return None


def _version(cell: Cell | None, through: int) -> VersionRow | None:
    """Return the newest version of a rewindable cell up to a position; sticky ones show none."""
    if type(cell) is not list:
        return None
    index = bisect_left(cell, (through + 1,))
    return cell[index - 1] if index else None
