"""State within a transaction: one value or one list, read and written by its typed name."""

from __future__ import annotations

from abc import abstractmethod
from typing import Generic, TypeVar, get_args

from pico_harness.arguments import wrong
from pico_harness.state import ListOf, Value
from pico_harness.tx_reads import ABSENT, TxReads
from pico_store.address import Address, Seq
from pico_store.batch import (
    ListAppend,
    ListClear,
    ListRemove,
    StateWrite,
    ValueDelete,
    ValueSet,
)
from pico_store.query import ListQuery
from pico_store.records import At, Element, Page

T = TypeVar("T")

_STATE_WRITES = frozenset(get_args(StateWrite))


class StateTx(TxReads):
    """A transaction that takes writes of state."""

    __slots__ = ()

    @abstractmethod
    def write_state(self, write: StateWrite) -> Seq:
        """Add a state write and return its number."""
        ...


def check_state_write(write: StateWrite) -> None:
    """Refuse what is no write of a value or a list."""
    if type(write) not in _STATE_WRITES:
        raise wrong(write, "write", "a write of a value or a list")


class TxValue(Generic[T]):
    """One value within a transaction."""

    __slots__ = ("_address", "_name", "_tx")

    def __init__(self, tx: StateTx, name: Value[T], address: Address) -> None:
        self._tx = tx
        self._name = name
        self._address = address

    def get(self, at: At | None = None) -> T | None:
        """Return the value, or ``None`` where it is absent.

        Args:
            at: A committed entry; only of rewindable values.
        """
        stored = self._tx.read_value(self._address, at)
        return None if stored is ABSENT else self._name.decode(stored)  # type: ignore[arg-type]

    def set(self, value: T) -> None:
        """Give it a value."""
        self._write(ValueSet(self._address, self._name.encode(value)))

    def delete(self) -> None:
        """Make it absent, an inherited one too."""
        self._write(ValueDelete(self._address))

    def _write(self, write: ValueSet | ValueDelete) -> None:
        self._tx.write_state(write)
        absent = isinstance(write, ValueDelete)
        self._tx.values_written[self._address] = ABSENT if absent else write.value  # type: ignore[union-attr]


class TxList(Generic[T]):
    """One list within a transaction."""

    __slots__ = ("_address", "_name", "_tx")

    def __init__(self, tx: StateTx, name: ListOf[T], address: Address) -> None:
        self._tx = tx
        self._name = name
        self._address = address

    def append(self, value: T) -> Seq:
        """Add an element and return its id."""
        return self._write(ListAppend(self._address, self._name.encode(value)))

    def remove(self, element: Seq) -> None:
        """Hide one element that is shown now."""
        self._write(ListRemove(self._address, element))

    def clear(self) -> None:
        """Hide every element."""
        self._write(ListClear(self._address))

    def _write(self, write: ListAppend | ListRemove | ListClear) -> Seq:
        seq = self._tx.write_state(write)
        self._tx.lists_written.add(self._address)
        return seq

    def read(self, query: ListQuery | None = None) -> Page[Element[T]]:
        """Return a page of its elements; refused after a write of it in the same transaction."""
        page = self._tx.read_list(self._address, query if query is not None else ListQuery())
        items = [Element(item.id, self._name.decode(item.value)) for item in page.items]
        return Page(items, page.read_at, page.next)
