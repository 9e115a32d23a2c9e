"""Wrappers round a right backend that are wrong where a subclass says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import ClassVar, TypeVar, cast

from msgspec.structs import replace

from pico_memory.state import SessionState
from pico_memory.storage import MemoryStorage
from pico_memory.view import MemoryView
from pico_store.address import Address, ConversationAddress, Seq, Shape
from pico_store.batch import Batch, MainBatch, MainWrite, ScratchBatch
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
    ForkPoint,
    JsonValue,
    KeyedVersion,
    Page,
    Task,
    ValuePage,
    Version,
)
from pico_store.storage import Storage, Store

T = TypeVar("T")
Query = TypeVar("Query", BatchQuery, ConversationQuery, EntryQuery, ListQuery, TaskQuery)


class Faulty:
    """A storage that answers as another one does, except where a subclass differs."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def __getattr__(self, name: str) -> object:
        return getattr(self.storage, name)

    def parent(self, conversation: Seq) -> ForkPoint | None:
        """Return where a conversation leaves its parent, if it has one that is live."""
        record = self.storage.get_conversations((conversation,)).get(conversation)
        if record is None or record.parent is None:
            return None
        source = record.parent.conversation_id
        return record.parent if self.storage.get_conversations((source,)) else None

    def above(self, address: Address, shape: Shape) -> tuple[ConversationAddress, Seq] | None:
        """Return the address in the parent that a rewindable one inherits from, and the cut."""
        if not isinstance(address, ConversationAddress) or not address.rewind:
            return None
        parent = self.parent(address.conversation)
        if parent is None:
            return None
        source = replace(address, conversation=parent.conversation_id)
        sticky = self.storage.rewind_policy(source, shape) is False
        return None if sticky else (source, parent.at)

    @property
    def state(self) -> SessionState:
        """The records and indexes of a session in memory, to be spoiled."""
        assert isinstance(self.storage, MemoryStorage)
        return self.storage._resident.settled()


class FaultyStore:
    """A store like another one, except where a subclass differs or where its storages do."""

    fault: ClassVar[type[Faulty]] = Faulty

    def __init__(self, store: Store, fault: type[Faulty] | None = None) -> None:
        self.store = store
        self._fault = self.fault if fault is None else fault

    def __getattr__(self, name: str) -> object:
        return getattr(self.store, name)

    @classmethod
    def open_at(cls, open_store: Callable[[str], Store], path: str) -> Store:
        """Open the store at a path."""
        return cast(Store, cls(open_store(path)))

    @classmethod
    def holding(cls, fault: type[Faulty]) -> Callable[[Callable[[str], Store], str], Store]:
        """Return what opens a store that is right itself, but not its storages."""
        return partial(cls._open_holding, fault)

    @classmethod
    def _open_holding(
        cls, fault: type[Faulty], open_store: Callable[[str], Store], path: str
    ) -> Store:
        return cast(Store, cls(open_store(path), fault))

    def create(self, session_id: str) -> Storage:
        return self.wrapped(self.store.create(session_id))

    def open(self, session_id: str, *, read_only: bool = False, take_over: bool = False) -> Storage:
        return self.wrapped(self.store.open(session_id, read_only=read_only, take_over=take_over))

    def wrapped(self, storage: Storage) -> Storage:
        """Return a storage with the fault round it."""
        return cast(Storage, self._fault(storage))


class AfterCommit(Faulty):
    """Spoils the state after each write of a commit."""

    def after(self, write: MainWrite, seq: Seq) -> None:
        """Do what is wrong; the whole batch is committed by now."""
        raise NotImplementedError

    def commit(self, batch: Batch, *, expected_first: Seq | None = None) -> BatchRange:
        done = self.storage.commit(batch, expected_first=expected_first)
        for seq, write in enumerate(batch.writes, done.first):
            self.after(write, Seq(seq))
        return done


class Rewritten(Faulty):
    """Changes each write on its way in."""

    def write(self, write: MainWrite) -> MainWrite:
        """Return what is written instead."""
        raise NotImplementedError

    def commit(self, batch: Batch, *, expected_first: Seq | None = None) -> BatchRange:
        if type(batch) in (MainBatch, ScratchBatch) and type(batch.writes) in (tuple, list):
            batch = replace(batch, writes=tuple(map(self.write, batch.writes)))
        return self.storage.commit(batch, expected_first=expected_first)


class Lenient(Faulty):
    """Judges batches by wrong answers to what the shared checks ask."""

    view: ClassVar[type[MemoryView]]

    def commit(self, batch: Batch, *, expected_first: Seq | None = None) -> BatchRange:
        assert isinstance(self.storage, MemoryStorage)
        resident = self.storage._resident
        right = resident.view
        resident.view = self.view(right.state)
        try:
            return self.storage.commit(batch, expected_first=expected_first)
        finally:
            resident.view = right


class Readdressed(Rewritten):
    """Finds state under an address that is not quite the one given."""

    def named(self, namespace: str, key: str | None) -> tuple[str, str | None]:
        """Return the namespace and key that are used instead."""
        raise NotImplementedError

    def address(self, address: Address) -> Address:
        """Return the address that is used instead."""
        namespace, key = address.namespace, address.key
        if type(namespace) is not str or (key is not None and type(key) is not str):
            return address
        namespace, key = self.named(namespace, key)
        return replace(address, namespace=namespace, key=key)

    def write(self, write: MainWrite) -> MainWrite:
        found = getattr(write, "address", None)
        if not hasattr(found, "namespace"):
            return write
        return replace(write, address=self.address(cast(Address, found)))

    def get_value(self, address: Address, at: At | None = None) -> Version[JsonValue] | None:
        return self.storage.get_value(self.address(address), at)

    def read_list(self, address: Address, query: ListQuery) -> Page[Element[JsonValue]]:
        return self.storage.read_list(self.address(address), query)

    def rewind_policy(self, address: ConversationAddress, shape: Shape) -> bool | None:
        if not isinstance(address, ConversationAddress):
            return self.storage.rewind_policy(address, shape)
        return self.storage.rewind_policy(cast(ConversationAddress, self.address(address)), shape)


class Paged(Faulty):
    """Goes wrong alike in every scan with numbers as cursors."""

    def page(self, scan: Callable[[Query], Page[T]], query: Query) -> Page[T]:
        """Answer a scan."""
        raise NotImplementedError

    def scan_conversations(self, query: ConversationQuery) -> Page[Conversation]:
        return self.page(self.storage.scan_conversations, query)

    def scan_entries(self, query: EntryQuery) -> Page[Entry]:
        return self.page(self.storage.scan_entries, query)

    def scan_tasks(self, query: TaskQuery) -> Page[Task]:
        return self.page(self.storage.scan_tasks, query)

    def scan_batches(self, query: BatchQuery) -> Page[BatchRange]:
        return self.page(self.storage.scan_batches, query)

    def read_list(self, address: Address, query: ListQuery) -> Page[Element[JsonValue]]:
        return self.page(partial(self.storage.read_list, address), query)


class Got(Faulty):
    """Goes wrong alike in every read by ids."""

    def get(
        self, read: Callable[[Iterable[Seq]], dict[Seq, T]], ids: Iterable[Seq]
    ) -> dict[Seq, T]:
        """Answer a read by ids."""
        raise NotImplementedError

    def get_conversations(self, ids: Iterable[Seq]) -> dict[Seq, Conversation]:
        return self.get(self.storage.get_conversations, ids)

    def get_entries(self, ids: Iterable[Seq]) -> dict[Seq, Entry]:
        return self.get(self.storage.get_entries, ids)

    def get_tasks(self, ids: Iterable[Seq]) -> dict[Seq, Task]:
        return self.get(self.storage.get_tasks, ids)


class EntriesShown(Faulty):
    """Shows other entries, in scans of a conversation, than are there."""

    def shown(self, conversation: Seq, items: list[Entry]) -> list[Entry]:
        """Return what is shown instead of all matches, ascending."""
        raise NotImplementedError

    def scan_entries(self, query: EntryQuery) -> Page[Entry]:
        right = self.storage.scan_entries(query)
        items = self.shown(query.conversation_id, every(self.storage.scan_entries, query))
        return turned(items, query, right.read_at)


class ElementsShown(Faulty):
    """Shows other elements of a list than are there."""

    def shown(
        self, address: Address, at: At | None, items: list[Element[JsonValue]]
    ) -> list[Element[JsonValue]]:
        """Return what is shown instead of all elements, ascending."""
        raise NotImplementedError

    def read_list(self, address: Address, query: ListQuery) -> Page[Element[JsonValue]]:
        right = self.storage.read_list(address, query)
        items = every(partial(self.storage.read_list, address), query)
        return turned(self.shown(address, query.at, items), query, right.read_at)


def number(item: object) -> int:
    """Return the number that a page is ordered by."""
    return item.first if isinstance(item, BatchRange) else item.id  # type: ignore[attr-defined]


def walked(ids: Iterable[Seq]) -> Iterable[Seq]:
    """Return ids in a form that can be walked through twice; what is none as it is."""
    given: object = ids
    return list(ids) if isinstance(given, Iterable) else ids


def every(scan: Callable[[Query], Page[T]], query: Query) -> list[T]:
    """Return all matches of a query, ascending, whatever its cursors and limit."""
    items: list[T] = []
    page = scan(replace(query, after=None, before=None, limit=10_000))
    items += page.items
    while page.next is not None:
        page = scan(replace(query, after=page.next, before=None, limit=10_000))
        items += page.items
    return items


def turned(items: list[T], query: Query, read_at: Seq) -> Page[T]:
    """Return the page that a query asks for, of all of its matches."""
    first = 1 if query.after is None else query.after + 1
    last = 2**63 if query.before is None else query.before - 1
    found = [item for item in items if first <= number(item) <= last]
    if query.before is not None and query.after is None:
        found.reverse()
    limit = min(query.limit, 10_000)
    more = len(found) > limit
    return Page(found[:limit], read_at, Seq(number(found[limit - 1])) if more else None)


def every_value(storage: Storage, query: ValueQuery) -> list[KeyedVersion[JsonValue]]:
    """Return all present keyed values of a scan's namespace, by key."""
    items: list[KeyedVersion[JsonValue]] = []
    after: str | None = None
    while True:
        page = storage.scan_values(replace(query, after=after, limit=10_000))
        items += page.items
        if page.next is None:
            return items
        after = page.next


def turned_values(
    items: list[KeyedVersion[JsonValue]],
    query: ValueQuery,
    read_at: Seq,
    order: Callable[[str], object] = str,
) -> ValuePage:
    """Return the page of values that a query asks for, of all keys in an order."""
    rank = cast(Callable[[str], str], order)
    found = sorted(items, key=lambda item: rank(item.key))
    if query.after is not None:
        found = [item for item in found if rank(item.key) > rank(query.after)]
    limit = min(query.limit, 10_000)
    more = len(found) > limit
    return ValuePage(found[:limit], read_at, found[limit - 1].key if more else None)
