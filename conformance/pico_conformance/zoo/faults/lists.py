"""Faults in lists: markers that leak, hide too much or are lost."""

from __future__ import annotations

from bisect import insort
from functools import partial

from msgspec.structs import replace

from pico_conformance.zoo.mutant import plant
from pico_conformance.zoo.wrapper import (
    AfterCommit,
    ElementsShown,
    Faulty,
    Lenient,
    every,
    turned,
)
from pico_memory.rows import ElementRow
from pico_memory.scope import ListState, RewindList
from pico_memory.view import MemoryView
from pico_store.address import Address, ConversationAddress, Seq, SessionAddress
from pico_store.batch import Batch, ListAppend, ListClear, ListRemove, MainWrite
from pico_store.query import ListQuery
from pico_store.records import At, BatchRange, Element, JsonValue, Page
from pico_store.storage import Storage

Elements = list[Element[JsonValue]]


def _list(fault: Faulty, address: Address) -> ListState | None:
    scope = fault.state.scope(address)
    return None if scope is None else scope.lists.get((address.namespace, address.key))


def _source(fault: Faulty, address: Address) -> RewindList | None:
    above = fault.above(address, "list")
    found = None if above is None else _list(fault, above[0])
    return found if isinstance(found, RewindList) else None


@plant("VAL-6")
class ClearLeaksToSource(AfterCommit):
    """A clear in a fork clears its parent's list, too."""

    def after(self, write: MainWrite, seq: Seq) -> None:
        if isinstance(write, ListClear):
            source = _source(self, write.address)
            if source is not None:
                source.clears.append(seq)


@plant("VAL-6")
class RemovalLeaksToSource(AfterCommit):
    """Removing an inherited element in a fork removes it from its parent."""

    def after(self, write: MainWrite, seq: Seq) -> None:
        if isinstance(write, ListRemove):
            source = _source(self, write.address)
            if source is not None and any(id == write.element for id, _ in source.items):
                source.removed.setdefault(write.element, seq)


@plant("VAL-6")
class ClearKeepsInherited(ElementsShown):
    """A clear in a fork hides the fork's own elements, but not what it inherits."""

    def shown(self, address: Address, at: At | None, items: Elements) -> Elements:
        found = _list(self, address)
        above = self.above(address, "list")
        if above is None or at is not None or not isinstance(found, RewindList):
            return items
        inherited = every(partial(self.storage.read_list, above[0]), ListQuery(at=above[1]))
        kept = [item for item in inherited if item.id not in found.removed]
        return [*kept, *items] if found.clears else items


@plant("VAL-6")
class RemovalKeepsInherited(ElementsShown):
    """An inherited element that a fork removed shows all the same."""

    def shown(self, address: Address, at: At | None, items: Elements) -> Elements:
        found = _list(self, address)
        above = self.above(address, "list")
        if above is None or at is not None or not isinstance(found, RewindList) or found.clears:
            return items
        inherited = every(partial(self.storage.read_list, above[0]), ListQuery(at=above[1]))
        back = [item for item in inherited if item.id in found.removed]
        return sorted([*back, *items], key=lambda item: item.id)


@plant("VAL-6", "FORK-5")
class RemovalReachesFork(ElementsShown):
    """What a parent removes after the cut is missing from its fork."""

    def shown(self, address: Address, at: At | None, items: Elements) -> Elements:
        above = self.above(address, "list")
        if above is None:
            return items
        now = {item.id for item in every(partial(self.storage.read_list, above[0]), ListQuery())}
        return [item for item in items if item.id > above[1] or item.id in now]


@plant("FORK-5")
class AppendReachesFork(ElementsShown):
    """What a parent appends after the cut shows in its fork."""

    def shown(self, address: Address, at: At | None, items: Elements) -> Elements:
        above = self.above(address, "list")
        if above is None or at is not None:
            return items
        now = every(partial(self.storage.read_list, above[0]), ListQuery())
        return sorted(
            [*items, *(item for item in now if item.id > above[1])], key=lambda item: item.id
        )


@plant("VAL-7")
class ListAtIgnored(Faulty):
    """A list read at a position is the current one, with elements that were appended later."""

    def read_list(self, address: Address, query: ListQuery) -> Page[Element[JsonValue]]:
        right = self.storage.read_list(address, query)
        items = every(partial(self.storage.read_list, address), ListQuery())
        return turned(items, query, right.read_at)


@plant("VAL-7")
class MarkerHidesBefore(ElementsShown):
    """An element that was removed is missing at positions before the removal, too."""

    def shown(self, address: Address, at: At | None, items: Elements) -> Elements:
        now = every(partial(self.storage.read_list, address), ListQuery())
        return [item for item in items if item in now]


@plant("FORK-5")
class ListNotInherited(ElementsShown):
    """A fork starts without its parent's rewindable lists."""

    def shown(self, address: Address, at: At | None, items: Elements) -> Elements:
        above = self.above(address, "list")
        return items if above is None else [item for item in items if item.id > above[1]]


@plant("FORK-5", "VAL-8")
class StickyListInherited(ElementsShown):
    """A fork shows its parent's sticky list until it writes its own."""

    def shown(self, address: Address, at: At | None, items: Elements) -> Elements:
        if not isinstance(address, ConversationAddress) or address.rewind:
            return items
        parent = self.parent(address.conversation)
        if parent is None or self.storage.rewind_policy(address, "list") is not None:
            return items
        above = ConversationAddress(parent.conversation_id, address.namespace, address.key)
        if self.storage.rewind_policy(above, "list"):
            return items
        return every(partial(self.storage.read_list, above), ListQuery())


@plant("VAL-8", "DUR-1")
class RemovalUndoneByClose(Faulty):
    """An element removed from a sticky list is back when the session is opened again."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage)
        self._removed: list[tuple[Address, ElementRow]] = []

    def commit(self, batch: Batch, *, expected_first: Seq | None = None) -> BatchRange:
        rows = [
            (write.address, row)
            for write in getattr(batch, "writes", None) or ()
            if isinstance(write, ListRemove) and isinstance(write.address, SessionAddress)
            for row in _rows(_list(self, write.address))
            if row[0] == write.element
        ]
        done = self.storage.commit(batch, expected_first=expected_first)
        self._removed += rows
        return done

    def close(self) -> None:
        for address, row in self._removed:
            found = _list(self, address)
            if isinstance(found, list):
                insort(found, row)
        self._removed.clear()
        self.storage.close()


class _AnythingShown(MemoryView):
    def element_visible(self, address: Address, element: Seq, at: Seq | None) -> bool:
        scope = self.state.scope(address)
        found = None if scope is None else scope.lists.get((address.namespace, address.key))
        if not isinstance(found, RewindList):
            return super().element_visible(address, element, at)
        return any(id == element for id, _ in found.items)


@plant("VAL-5")
class HiddenRemoved(Lenient):
    """An element that was removed or cleared may be removed again."""

    view = _AnythingShown


class _OwnShown(MemoryView):
    def element_visible(self, address: Address, element: Seq, at: Seq | None) -> bool:
        scope = self.state.scope(address)
        found = None if scope is None else scope.lists.get((address.namespace, address.key))
        own = any(id == element for id, _ in _rows(found))
        return own and super().element_visible(address, element, at)


@plant("VAL-5", "VAL-6")
class InheritedNotRemovable(Lenient):
    """A fork cannot remove an element that it inherits."""

    view = _OwnShown


@plant("PAGE-4")
class LimitCountsHidden(Faulty):
    """The limit of a page counts elements that were removed, so that pages come short."""

    def read_list(self, address: Address, query: ListQuery) -> Page[Element[JsonValue]]:
        right = self.storage.read_list(address, query)
        found = _list(self, address)
        if not isinstance(found, RewindList) or self.above(address, "list") is not None:
            return right
        shown = {item.id for item in every(partial(self.storage.read_list, address), query)}
        value = self.state.bodies.value
        rows = [Element[JsonValue](id, value(id, body)) for id, body in found.items]
        page = turned(rows, query, right.read_at)
        return replace(page, items=[item for item in page.items if item.id in shown])


@plant("SEQ-6", "VAL-5")
class ClearTakesLaterAppend(AfterCommit):
    """A clear takes along what the same batch appends after it."""

    def after(self, write: MainWrite, seq: Seq) -> None:
        found = _list(self, write.address) if isinstance(write, ListClear) else None
        if isinstance(found, list):
            found[:] = [row for row in found if row[0] < seq]


@plant("SEQ-6", "VAL-5")
class ClearKeepsLastBatch(AfterCommit):
    """A clear leaves what the same batch appended before it."""

    def after(self, write: MainWrite, seq: Seq) -> None:
        found = _list(self, write.address) if isinstance(write, ListClear) else None
        if isinstance(found, RewindList) and found.clears and found.items:
            last = self.state.batches[-1]
            if last.task is None and found.items[-1][0] >= last.first:
                found.clears.remove(seq)


@plant("VAL-5")
class EqualElementsMerged(AfterCommit):
    """Appending a value that a list holds already adds nothing."""

    def after(self, write: MainWrite, seq: Seq) -> None:
        found = _list(self, write.address) if isinstance(write, ListAppend) else None
        rows = _rows(found)
        bodies = {body for id, body in rows if id < seq}
        rows[:] = [row for row in rows if row[0] != seq or row[1] not in bodies]


def _rows(found: ListState | None) -> list[ElementRow]:
    """Return the elements of a list that it was given itself, hidden ones included."""
    if found is None:
        return []
    return found.items if isinstance(found, RewindList) else found
