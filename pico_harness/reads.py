"""Reads of a session by its handles: what is committed, without waiting for what is not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar, overload

from pico_harness.arguments import check_instance
from pico_harness.call import Call
from pico_harness.driver import Driver
from pico_harness.kinds import Ended, EntryKind, TaskOf, TaskState, TaskType, check_task_kind
from pico_store.address import Seq
from pico_store.query import ConversationQuery, EntryQuery, TaskQuery
from pico_store.records import Conversation, Entry, Page, Task

S = TypeVar("S", bound=TaskState)
D = TypeVar("D")


class SessionReads:
    """What can be read of a session.

    Guarantees:
        A read sees whole commits only. It never waits for one that is under way.

    Source: design §9.1.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    @overload
    async def get_entry(self, id: Seq, /, *, call: Call | None = None) -> Entry | None: ...
    @overload
    async def get_entry(
        self, kind: EntryKind[D], id: Seq, /, *, call: Call | None = None
    ) -> Entry | None: ...
    async def get_entry(
        self, kind: EntryKind[D] | Seq, id: Seq | None = None, /, *, call: Call | None = None
    ) -> Entry | None:
        """Return an entry, or ``None``; with a kind, also ``None`` if it is of another."""
        await self._driver.reading(call)
        if id is None:
            asked: Seq = kind  # type: ignore[assignment]
            return self._driver.storage.get_entries((asked,)).get(asked)
        check_instance(kind, EntryKind, "kind", "an EntryKind before the id, or the id alone")
        assert isinstance(kind, EntryKind)
        found = self._driver.storage.get_entries((id,)).get(id)
        return found if found is not None and kind.matches(found) else None

    async def get_entries(
        self, ids: Iterable[Seq], *, call: Call | None = None
    ) -> dict[Seq, Entry]:
        """Return the named entries in the order asked; unknown ids are left out."""
        await self._driver.reading(call)
        return self._driver.storage.get_entries(ids)

    async def entries(self, query: EntryQuery, *, call: Call | None = None) -> Page[Entry]:
        """Return a page of a transcript, inherited entries included."""
        await self._driver.reading(call)
        return self._driver.storage.scan_entries(query)

    @overload
    async def get_task(self, id: Seq, /, *, call: Call | None = None) -> Task | None: ...
    @overload
    async def get_task(
        self, kind: TaskType[S], id: Seq, /, *, call: Call | None = None
    ) -> TaskOf[S | Ended] | None: ...
    async def get_task(
        self, kind: TaskType[S] | Seq, id: Seq | None = None, /, *, call: Call | None = None
    ) -> Task | TaskOf[S | Ended] | None:
        """Return a task, or ``None``; with a kind, also ``None`` if it is of another."""
        await self._driver.reading(call)
        if id is None:
            asked: Seq = kind  # type: ignore[assignment]
            return self._driver.storage.get_tasks((asked,)).get(asked)
        check_task_kind(kind)
        assert isinstance(kind, TaskType)
        found = self._driver.storage.get_tasks((id,)).get(id)
        return kind.read(found) if found is not None and kind.matches(found) else None

    @overload
    async def get_tasks(
        self, ids: Iterable[Seq], /, *, call: Call | None = None
    ) -> dict[Seq, Task]: ...
    @overload
    async def get_tasks(
        self, kind: TaskType[S], ids: Iterable[Seq], /, *, call: Call | None = None
    ) -> dict[Seq, TaskOf[S | Ended]]: ...
    async def get_tasks(
        self,
        kind: TaskType[S] | Iterable[Seq],
        ids: Iterable[Seq] | None = None,
        /,
        *,
        call: Call | None = None,
    ) -> dict[Seq, Task] | dict[Seq, TaskOf[S | Ended]]:
        """Return the named tasks in the order asked; those of other kinds are left out."""
        await self._driver.reading(call)
        if ids is None:
            return self._driver.storage.get_tasks(kind)  # type: ignore[arg-type]
        check_task_kind(kind)
        assert isinstance(kind, TaskType)
        found = self._driver.storage.get_tasks(ids)
        return {id: kind.read(task) for id, task in found.items() if kind.matches(task)}

    async def tasks(self, query: TaskQuery, *, call: Call | None = None) -> Page[Task]:
        """Return a page of tasks."""
        await self._driver.reading(call)
        return self._driver.storage.scan_tasks(query)

    async def conversations(
        self, query: ConversationQuery, *, call: Call | None = None
    ) -> Page[Conversation]:
        """Return a page of conversations."""
        await self._driver.reading(call)
        return self._driver.storage.scan_conversations(query)
