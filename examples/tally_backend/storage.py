"""A handle on one session: the contract's reads, and `commit`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import RLock
from typing import TypeVar

from msgspec import structs

from pico_store.address import Address, ConversationAddress, Seq, Shape
from pico_store.batch import Batch
from pico_store.check import check_batch
from pico_store.entry_body import unpack_entry
from pico_store.errors import (
    InvalidQueryError,
    OwnershipLostError,
    StorageClosedError,
    UnknownConversationError,
    UnsupportedError,
)
from pico_store.limits import SEQ_MAX
from pico_store.query import (
    BatchQuery,
    ConversationQuery,
    EntryQuery,
    ListQuery,
    TaskQuery,
    ValueQuery,
)
from pico_store.query_check import (
    Window,
    check_address,
    check_at,
    check_batch_query,
    check_conversation_id,
    check_conversation_query,
    check_entry_query,
    check_ids,
    check_list_query,
    check_policy_question,
    check_position,
    check_task_query,
    check_value_query,
)
from pico_store.records import (
    At,
    BatchRange,
    Conversation,
    Element,
    Entry,
    JsonValue,
    KeyedVersion,
    Page,
    Task,
    ValuePage,
    Version,
)
from pico_store.shown import shown
from pico_store.snapshot import SnapshotItem
from pico_store.storage import Counters, OpenReport, Owner
from pico_store.strict_json import unpack
from pico_store.view import StorageView
from tally_backend.ledger import Ledger, unbound
from tally_backend.snapshot import snapshot

T = TypeVar("T")


@dataclass
class Session:
    """What the handles of one session share."""

    ledger: Ledger
    epoch: int = 0
    owner: Owner | None = None
    lock: RLock = field(default_factory=RLock)


class TallyStorage:
    """A `Storage`. One lock is held for every call, so that a read sees whole batches."""

    def __init__(self, session_id: str, session: Session, *, read_only: bool) -> None:
        self.session_id = session_id
        self.epoch = session.epoch
        self.read_only = read_only
        self.commit_waits = False
        self.counters = Counters()
        self.open_report = OpenReport()
        self._session = session
        self._closed = False

    # --- Writing ---

    def commit(self, batch: Batch, *, expected_first: Seq | None = None) -> BatchRange:
        with self._session.lock:
            ledger = self._open()
            if self.read_only:
                raise UnsupportedError("OWN-2", "", "a commit to a session opened read-only")
            if self.epoch != self._session.epoch:
                raise OwnershipLostError(f"session {self.session_id!r} was opened by another owner")
            # Every rule of the contract is in here; it asks through this class's own reads.
            checked = check_batch(batch, StorageView(self), expected_first)
            made = ledger.apply(checked)
            self.counters.commits += 1
            return made

    def close(self) -> None:
        with self._session.lock:
            if not self._closed and not self.read_only and self.epoch == self._session.epoch:
                self._session.owner = None
            self._closed = True

    def _open(self) -> Ledger:
        if self._closed:
            raise StorageClosedError(f"session {self.session_id!r} was closed; open it again")
        return self._session.ledger

    # --- Point reads ---

    @property
    def last_seq(self) -> Seq:
        with self._session.lock:
            return self._open().last_seq

    def get_conversations(self, ids: Iterable[Seq]) -> dict[Seq, Conversation]:
        with self._read() as ledger:
            return {id: ledger.conversations[id] for id in check_ids(ids) if ledger.is_live(id)}

    def get_entries(self, ids: Iterable[Seq]) -> dict[Seq, Entry]:
        with self._read() as ledger:
            found = [id for id in check_ids(ids) if id in ledger.entries]
            reach = {id: ledger.reach(ledger.entries[id][0].conversation_id) for id in found}
            return {id: self._entry(id) for id in found if id <= reach[id]}

    def get_tasks(self, ids: Iterable[Seq]) -> dict[Seq, Task]:
        with self._read() as ledger:
            return {id: self._task(id) for id in check_ids(ids) if id in ledger.tasks}

    def newest_head(self, conversation: Seq, at: Seq) -> Entry | None:
        with self._read() as ledger:
            self._live(check_conversation_id(conversation, "conversation"))
            shown = ledger.shown(conversation, check_position(at))
            heads = [columns.id for columns in shown if columns.head is not None]
            return self._entry(heads[-1]) if heads else None

    def get_value(self, address: Address, at: At | None = None) -> Version[JsonValue] | None:
        with self._read() as ledger:
            found = ledger.versions(address, self._position(address, "value", at))
            if found is None or found[1] is None:
                return None
            return Version(found[0], self._payload(found[1]))

    def rewind_policy(self, address: ConversationAddress, shape: Shape) -> bool | None:
        with self._read() as ledger:
            check_policy_question(address, shape)
            if not ledger.is_live(address.conversation):
                return None
            return ledger.policies.get((unbound(address), shape))

    def entry_kinds(self) -> frozenset[str]:
        with self._read() as ledger:
            return frozenset(ledger.kinds)

    # --- Pages ---

    def scan_conversations(self, query: ConversationQuery) -> Page[Conversation]:
        with self._read() as ledger:
            window = check_conversation_query(query)

            def matches(found: Conversation) -> bool:
                parent = None if found.parent is None else found.parent.conversation_id
                owner = None if found.owner is None else ledger.tasks[found.owner][0]
                home = None if owner is None else owner.conversation_id
                return (
                    query.parent in (None, parent)
                    and query.owner in (None, found.owner)
                    and query.owner_conversation in (None, home)
                )

            live = [c for c in ledger.conversations.values() if ledger.is_live(c.id)]
            ids = [conversation.id for conversation in live if matches(conversation)]
            return self._page(window, ids, ledger.conversations.__getitem__)

    def scan_entries(self, query: EntryQuery) -> Page[Entry]:
        with self._read() as ledger:
            window = check_entry_query(query)
            self._live(query.conversation_id)
            shown = ledger.shown(query.conversation_id, SEQ_MAX)
            of_kind = [c for c in shown if query.kind in (None, c.kind)]
            ids = [columns.id for columns in of_kind if query.key in (None, columns.key)]
            return self._page(window, ids, self._entry)

    def scan_tasks(self, query: TaskQuery) -> Page[Task]:
        with self._read() as ledger:
            window = check_task_query(query)
            for id in query.conversation_ids or ():
                self._live(id)

            def matches(task: Task) -> bool:
                within = query.conversation_ids
                return (
                    (within is None or task.conversation_id in within)
                    and query.live in (None, task.role != "terminal")
                    and query.role in (None, task.role)
                    and query.kind in (None, task.kind)
                    and query.abort in (None, task.abort)
                    and query.background in (None, task.background)
                    and query.turn in (None, task.turn)
                )

            ids = [id for id, (task, _) in ledger.tasks.items() if matches(task)]
            return self._page(window, ids, self._task)

    def read_list(self, address: Address, query: ListQuery) -> Page[Element[JsonValue]]:
        with self._read() as ledger:
            window = check_list_query(address, query)
            found = ledger.visible_elements(address, self._position(address, "list", query.at))
            return self._page(window, list(found), lambda id: Element(id, self._payload(found[id])))

    def scan_values(self, query: ValueQuery) -> ValuePage:
        with self._read() as ledger:
            limit = check_value_query(query)
            if isinstance(query.scope, ConversationAddress):
                self._live(query.scope.conversation)
            present = ledger.keyed(query.scope)
            keys = [key for key in present if query.after is None or key > query.after]
            items = [
                KeyedVersion(key, present[key][0], self._payload(present[key][1]))
                for key in keys[:limit]
            ]
            return ValuePage(items, ledger.last_seq, items[-1].key if keys[limit:] else None)

    def scan_batches(self, query: BatchQuery) -> Page[BatchRange]:
        with self._read() as ledger:
            batches = {batch.first: batch for batch in ledger.batches}
            return self._page(check_batch_query(query), list(batches), batches.__getitem__)

    def export(self) -> Iterator[SnapshotItem]:
        with self._read() as ledger:
            # A list, so that what commits meanwhile is not seen.
            return iter(list(snapshot(ledger)))

    # --- Shared by the reads ---

    @contextmanager
    def _read(self) -> Iterator[Ledger]:
        with self._session.lock:
            self.counters.queries += 1
            yield self._open()

    def _page(self, window: Window, ids: list[Seq], item: Callable[[Seq], T]) -> Page[T]:
        found = [id for id in sorted(ids) if window.first <= id <= window.last]
        if window.newest_first:
            found.reverse()
        shown = found[: window.limit]
        next = shown[-1] if len(found) > window.limit else None
        # Only what is shown is decoded.
        return Page([item(id) for id in shown], self._session.ledger.last_seq, next)

    def _payload(self, body: bytes) -> JsonValue:
        self.counters.rows_decoded += 1
        return unpack(body)

    def _entry(self, id: Seq) -> Entry:
        self.counters.rows_decoded += 1
        columns, body = self._session.ledger.entries[id]
        return unpack_entry(columns, body)

    def _task(self, id: Seq) -> Task:
        ledger = self._session.ledger
        task, body = ledger.tasks[id]
        return structs.replace(task, state=self._payload(body), owns=ledger.owns(id))

    def _live(self, id: Seq) -> None:
        if not self._session.ledger.is_live(id):
            raise UnknownConversationError("PAGE-6", "", f"no conversation {shown(id)}")

    def _position(self, address: Address, shape: Shape, at: At | None) -> int:
        """Return where an address is to be read, after checking that it may be read there."""
        check_address(address)
        check_at(address, at)
        ledger = self._session.ledger
        if not isinstance(address, ConversationAddress):
            return SEQ_MAX
        self._live(address.conversation)
        if ledger.policies.get((unbound(address), shape), address.rewind) != address.rewind:
            raise InvalidQueryError("VAL-1", "address.rewind", "not what the first write fixed")
        if at == "start":
            return 0
        if at is None:
            return SEQ_MAX
        if all(columns.id != at for columns in ledger.shown(address.conversation, at)):
            raise InvalidQueryError("VAL-7", "at", f"{shown(at)} is no entry that it shows")
        return at
