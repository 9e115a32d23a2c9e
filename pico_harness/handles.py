"""Handles of single values and lists, bound to the session, a conversation or an invocation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from pico_harness.arguments import check_instance, wrong
from pico_harness.call import Call, Invocation, calling
from pico_harness.driver import Driver
from pico_harness.state import ListOf, Value
from pico_harness.tx import Tx
from pico_store.address import Seq
from pico_store.query import ListQuery
from pico_store.records import At, Element, Page

T = TypeVar("T")
R = TypeVar("R")


class _Bound:
    """What a handle is bound to."""

    def __init__(
        self, driver: Driver, conversation: Seq | None, bound: Invocation | None = None
    ) -> None:
        self._driver = driver
        self._conversation = conversation
        self._invocation = bound

    def _commit(self, plan: Callable[[Tx], R], call: Call | None) -> Awaitable[R]:
        return self._driver.commit(
            plan,
            calling(call),
            conversation=self._conversation,
            bound=self._invocation,
        )


def _check_name(name: Value[T] | ListOf[T], wanted: type) -> None:
    how = "session_value" if wanted is Value else "session_list"
    check_instance(name, wanted, "name", f"a {wanted.__name__}, such as {how}('words')")
    if name.scope == "scratch":
        allowed = "a name of the session or of a conversation; scratch is for runtime.scratch"
        raise wrong(name, "name", allowed)


class ValueHandle(_Bound, Generic[T]):
    """One value of the session or of a conversation."""

    def __init__(
        self,
        driver: Driver,
        name: Value[T],
        conversation: Seq | None,
        bound: Invocation | None = None,
    ) -> None:
        super().__init__(driver, conversation, bound)
        _check_name(name, Value)
        self._name = name
        self._address = name.address(conversation)

    async def get(self, at: At | None = None, *, call: Call | None = None) -> T | None:
        """Return the value, or ``None`` where it is absent; ``at`` an entry, if it rewinds."""
        await self._driver.reading(call)
        version = self._driver.storage.get_value(self._address, at)
        return None if version is None else self._name.decode(version.value)

    async def set(self, value: T, *, call: Call | None = None) -> None:
        """Give it a value, in a commit of its own."""
        await self._commit(lambda tx: tx.value(self._name).set(value), call)

    async def delete(self, *, call: Call | None = None) -> None:
        """Make it absent, in a commit of its own."""
        await self._commit(lambda tx: tx.value(self._name).delete(), call)


class ListHandle(_Bound, Generic[T]):
    """One list of the session or of a conversation."""

    def __init__(
        self,
        driver: Driver,
        name: ListOf[T],
        conversation: Seq | None,
        bound: Invocation | None = None,
    ) -> None:
        super().__init__(driver, conversation, bound)
        _check_name(name, ListOf)
        self._name = name
        self._address = name.address(conversation)

    async def read(
        self, query: ListQuery | None = None, *, call: Call | None = None
    ) -> Page[Element[T]]:
        """Return a page of its elements."""
        await self._driver.reading(call)
        asked = query if query is not None else ListQuery()
        page = self._driver.storage.read_list(self._address, asked)
        items = [Element(item.id, self._name.decode(item.value)) for item in page.items]
        return Page(items, page.read_at, page.next)

    async def append(self, value: T, *, call: Call | None = None) -> Seq:
        """Add an element and return its id, in a commit of its own."""
        return await self._commit(lambda tx: tx.list(self._name).append(value), call)

    async def remove(self, element: Seq, *, call: Call | None = None) -> None:
        """Hide one element that is shown, in a commit of its own."""
        await self._commit(lambda tx: tx.list(self._name).remove(element), call)

    async def clear(self, *, call: Call | None = None) -> None:
        """Hide every element, in a commit of its own."""
        await self._commit(lambda tx: tx.list(self._name).clear(), call)
