"""Backends with one planted fault each, made from the one in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pico_conformance.target import Target, resolve_target
from pico_store.address import Address, ConversationAddress, Seq
from pico_store.batch import Batch
from pico_store.check import check_batch
from pico_store.errors import RefusedError, StorageClosedError, UnsupportedError
from pico_store.query import ListQuery
from pico_store.records import BatchRange, Element, Entry, JsonValue, Page
from pico_store.snapshot import SnapshotItem
from pico_store.storage import Storage, Store
from pico_store.view import StorageView


class Wrapped:
    """A storage that answers as another one does, except where a subclass differs."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def __getattr__(self, name: str) -> object:
        return getattr(self.storage, name)


class _Store:
    def __init__(self, store: Store, wrap: Callable[[Storage], Wrapped]) -> None:
        self._store = store
        self._wrap = wrap

    def create(self, session_id: str) -> Wrapped:
        return self._wrap(self._store.create(session_id))

    def open(self, session_id: str, *, read_only: bool = False, take_over: bool = False) -> Wrapped:
        storage = self._store.open(session_id, read_only=read_only, take_over=take_over)
        return self._wrap(storage)

    def load(self, session_id: str, items: Iterable[SnapshotItem]) -> None:
        self._store.load(session_id, items)

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


class CutTooEarly(Wrapped):
    """An inherited head exactly at the cut does not count."""

    def newest_head(self, conversation: Seq, at: Seq) -> Entry | None:
        record = self.storage.get_conversations((conversation,)).get(conversation)
        found = self.storage.newest_head(conversation, at)
        cut = None if record is None or record.parent is None else record.parent.at
        return None if found is not None and found.id == cut else found


class ClearLeaks(Wrapped):
    """A clear in a fork does not hide what the fork inherits."""

    def read_list(self, address: Address, query: ListQuery) -> Page[Element[JsonValue]]:
        page = self.storage.read_list(address, query)
        if page.items or not isinstance(address, ConversationAddress) or query.at is not None:
            return page
        record = self.storage.get_conversations((address.conversation,))[address.conversation]
        if not address.rewind or record.parent is None:
            return page
        source = record.parent.conversation_id
        above = ConversationAddress(source, address.namespace, address.key, True)
        if self.storage.rewind_policy(above, "list") is not True:
            return page
        return self.storage.read_list(above, query)


class FirstEntryVanishes(Wrapped):
    """An entry is lost when a session is opened a second time."""

    def get_entries(self, ids: Iterable[Seq]) -> dict[Seq, Entry]:
        found = self.storage.get_entries(ids)
        if self.storage.epoch > 1:
            found.pop(Seq(2), None)
        return found


class CheckedByReads(Wrapped):
    """No fault: each verdict is compared with one that only asks the interface's own reads."""

    def commit(self, batch: Batch, *, expected_first: Seq | None = None) -> BatchRange:
        said = None if self.storage.read_only else self._verdict(batch, expected_first)
        refusal: RefusedError | None = None
        try:
            return self.storage.commit(batch, expected_first=expected_first)
        except RefusedError as error:
            refusal = error
            raise
        finally:
            if not isinstance(refusal, UnsupportedError):
                assert said == (None if refusal is None else str(refusal))

    def _verdict(self, batch: Batch, expected_first: Seq | None) -> str | None:
        try:
            check_batch(batch, StorageView(self.storage), expected_first)
        except RefusedError as error:
            return str(error)
        except StorageClosedError:
            return None
        return None


def faulty(wrap: Callable[[Storage], Wrapped]) -> Target:
    """Return a target with a fault planted into every storage."""
    memory = resolve_target("memory")

    def open_at(path: str) -> Store:
        return _Store(memory.open_store(path), wrap)  # type: ignore[return-value]

    return Target("faulty", memory.promises, open_at)
