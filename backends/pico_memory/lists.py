"""Which elements a list shows, to its conversation or to a fork of it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from pico_memory.rows import ElementRow
from pico_memory.scope import ListName, RewindList, has_element
from pico_memory.state import SessionState
from pico_store.address import Address, ConversationAddress, Seq
from pico_store.forks import segments
from pico_store.query_check import Window


def shows_element(state: SessionState, address: Address, element: Seq, at: int | None) -> bool:
    """Tell whether a list shows an element now, or at a position.

    Cost: one step a fork level, down to the element's conversation.
    """
    name: ListName = (address.namespace, address.key)
    if type(address) is not ConversationAddress or not address.rewind:
        scope = state.scope(address)
        items = None if scope is None else scope.lists.get(name)
        return type(items) is list and has_element(items, element)
    through = state.last_seq if at is None else at
    reader = address.conversation
    while element <= through:
        scope = state.scopes.get(reader)
        found = None if scope is None else scope.lists.get(name)
        if type(found) is RewindList:
            if found.removed.get(element, through + 1) <= through:
                return False
            if found.last_clear(through) > element:
                return False
            if has_element(found.items, element):
                return True
        parent = state.conversation(reader).parent
        if parent is None:
            return False
        through = min(through, parent.at)
        reader = parent.conversation_id
    return False


def visible_elements(
    state: SessionState, address: Address, at: int | None, window: Window
) -> Iterator[ElementRow]:
    """Yield the elements that a list shows in a window, in the window's direction."""
    name: ListName = (address.namespace, address.key)
    if type(address) is ConversationAddress and address.rewind:
        stretches = _stretches(state, address, name, at)
        if not window.newest_first:
            stretches.reverse()
        for stretch in stretches:
            yield from _unhidden(stretch, window)
        return
    scope = state.scope(address)
    items = None if scope is None else scope.lists.get(name)
    if type(items) is list:
        yield from _between(items, window)


class _Remover(NamedTuple):
    removed: dict[Seq, Seq]
    through: int


class _Stretch(NamedTuple):
    """One conversation's part of a list, as far as the reader sees it."""

    items: list[ElementRow]
    after: int
    """The newest clear in here that the reader sees."""
    through: int
    removers: list[_Remover]
    """Those of the reader and of what lies between, nearest first; shared by all stretches."""
    remover_count: int
    """How many of them are at least as near as this stretch."""


def _stretches(
    state: SessionState, address: ConversationAddress, name: ListName, at: int | None
) -> list[_Stretch]:
    """Return the parts of a rewindable list, the reader's own first."""
    found: list[_Stretch] = []
    removers: list[_Remover] = []
    reader = state.conversations[address.conversation]
    for segment in segments(reader, state.last_seq if at is None else at, state.conversation):
        scope = state.scopes.get(segment.conversation)
        part = None if scope is None else scope.lists.get(name)
        if type(part) is not RewindList:
            continue
        if part.removed:
            removers.append(_Remover(part.removed, segment.through))
        clear = part.last_clear(segment.through)
        found.append(_Stretch(part.items, clear, segment.through, removers, len(removers)))
        if clear:
            # It is newer than all that lies behind, and hides that.
            break
    return found


def _unhidden(stretch: _Stretch, window: Window) -> Iterator[ElementRow]:
    removers = stretch.removers[: stretch.remover_count]
    for row in _between(stretch.items, window.narrowed(stretch.after + 1, stretch.through)):
        if not any(
            remover.removed.get(row[0], remover.through + 1) <= remover.through
            for remover in removers
        ):
            yield row


def _between(items: list[ElementRow], window: Window) -> Iterator[ElementRow]:
    start = bisect_left(items, (window.first,))
    stop = max(start, bisect_left(items, (window.last + 1,)))
    indexes = range(stop - 1, start - 1, -1) if window.newest_first else range(start, stop)
    return map(items.__getitem__, indexes)
