"""The values and lists of one owner: the session, a conversation or a live task's scratch."""

from __future__ import annotations

from bisect import bisect_left
from typing import TypeAlias

from sortedcontainers import SortedList

from pico_memory.rows import ElementRow, VersionRow
from pico_store.address import Seq
from pico_store.records import BatchRange

ListName: TypeAlias = tuple[str, str | None]
"""``namespace, key``."""

Cell: TypeAlias = VersionRow | list[VersionRow]
"""What one address holds: its current version, or, if it rewinds, all versions, ascending.

A deleted sticky value stays as a tombstone, which keeps the address's policy.
"""


class ValueSpace:
    """The values of one namespace."""

    __slots__ = ("_order", "cells")

    def __init__(self) -> None:
        self.cells: dict[str | None, Cell] = {}
        # Made by the first scan: most namespaces are never scanned, and scratch dies young.
        self._order: SortedList[str] | None = None

    def order(self) -> SortedList[str]:
        """Return the keys of the keyed cells by code point."""
        if self._order is None:
            self._order = SortedList(key for key in self.cells if key is not None)
        return self._order

    def add_key(self, key: str | None) -> None:
        """Note a new cell."""
        if self._order is not None and key is not None:
            self._order.add(key)

    def drop_key(self, key: str | None) -> None:
        """Note a cell that went."""
        if self._order is not None and key is not None:
            self._order.remove(key)

    def forget_order(self) -> None:
        """Make the next scan sort anew; after an interruption the order cannot be trusted."""
        self._order = None


class RewindList:
    """The history of a list in one conversation."""

    __slots__ = ("clears", "items", "removed")

    def __init__(self) -> None:
        self.items: list[ElementRow] = []
        """Every element appended here, hidden or not."""
        self.removed: dict[Seq, Seq] = {}
        """The number of the removal of an element, which may be an inherited one."""
        self.clears: list[Seq] = []

    def last_clear(self, through: int) -> int:
        """Return the newest clear at or before a position; 0 if there is none."""
        index = bisect_left(self.clears, through + 1)
        return self.clears[index - 1] if index else 0


ListState: TypeAlias = list[ElementRow] | RewindList
"""What one list address holds: its visible elements, or its history if it rewinds."""


class Scope:
    """The values and lists of one owner. An address that is in here has a fixed policy."""

    __slots__ = ("lists", "values")

    def __init__(self) -> None:
        self.values: dict[str, ValueSpace] = {}
        self.lists: dict[ListName, ListState] = {}

    def cell(self, namespace: str, key: str | None) -> Cell | None:
        """Return what a value's address holds, or ``None`` if it was never written."""
        space = self.values.get(namespace)
        return None if space is None else space.cells.get(key)


class Scratch:
    """The scratch of one live task, and the batches that wrote it."""

    __slots__ = ("batches", "scope")

    def __init__(self) -> None:
        self.scope = Scope()
        self.batches: list[BatchRange] = []


def has_element(items: list[ElementRow], element: Seq) -> bool:
    """Tell whether an ascending list of elements holds one."""
    index = bisect_left(items, (element,))
    return index < len(items) and items[index][0] == element
