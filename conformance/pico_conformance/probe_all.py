"""All reads: every record, page and position of a session, to compare."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from msgspec.structs import replace

from pico_conformance.ground import forged
from pico_conformance.model import Model
from pico_conformance.model_state import Spot, State
from pico_conformance.probe import Read, ask
from pico_store.address import (
    Address,
    ConversationAddress,
    ScratchAddress,
    Seq,
    SessionAddress,
)
from pico_store.query import (
    BatchQuery,
    ConversationQuery,
    EntryQuery,
    ListQuery,
    TaskQuery,
    ValueQuery,
)
from pico_store.records import At

Q = TypeVar("Q")


def every_read(model: Model) -> Iterator[Read]:
    """Yield every point read, every scan in pages of 1 to 3, and every state at every position."""
    state = model.state
    last = min(state.last_seq + 2, 500)
    near = [Seq(number) for number in range(last)]
    records = [*state.conversations, *state.entries, *state.tasks]
    yield Read("get_conversations", ([*near, *records],))
    yield Read("get_entries", ([*reversed(near), *records],))
    yield Read("get_tasks", ([*near, *records],))
    yield Read("entry_kinds", ())
    yield from _pages(model, "scan_conversations", ConversationQuery())
    yield from _pages(model, "scan_batches", BatchQuery())
    yield from _every_filter(state)
    for conversation in state.conversations:
        yield from _every_read_of(model, conversation)
    for where, changes in state.changes.items():
        yield from _near(where)
        if where.scope != "conversation":
            yield from _every_read_at(model, changes[0].write.address, where, (None,))
            if where.shape == "value":
                scope = replace(changes[0].write.address, key=None)
                yield from _value_pages(model, scope)


def _pages(model: Model, method: str, query: object, *before: object) -> Iterator[Read]:
    """Yield the scans that walk through all pages, forwards and backwards."""
    for limit in (1, 2, 3):
        for direction in ("after", "before"):
            bounds: dict[str, object] = {} if direction == "after" else {"before": 2**60}
            while True:
                read = Read(method, (*before, forged(query, limit=limit, **bounds)))
                yield read
                following = getattr(ask(model, read).value, "next", None)
                if following is None:
                    break
                bounds = {direction: following}


def _every_filter(state: State) -> Iterator[Read]:
    for flag in (True, False):
        for name in ("live", "abort", "background", "turn"):
            yield Read("scan_tasks", (TaskQuery(**{name: flag}),))  # type: ignore[arg-type]
    for role in ("start", "inflight", "terminal"):
        yield Read("scan_tasks", (TaskQuery(role=role),))
    for kind in {task.kind for task in state.tasks.values()}:
        yield Read("scan_tasks", (TaskQuery(kind=kind, live=True),))
    for task in state.tasks:
        yield Read("scan_conversations", (ConversationQuery(owner=task),))
    for id in state.conversations:
        yield Read("scan_conversations", (ConversationQuery(parent=id),))
        yield Read("scan_conversations", (ConversationQuery(owner_conversation=id),))


def _every_read_of(model: Model, conversation: Seq) -> Iterator[Read]:
    state = model.state
    entries = EntryQuery(conversation_id=conversation)
    yield Read("scan_entries", (entries,))
    yield Read("scan_tasks", (TaskQuery(conversation_ids=(conversation,)),))
    if not state.is_live(conversation):
        yield Read("newest_head", (conversation, Seq(1)))
        for where in [where for where in state.changes if where.holder == conversation]:
            gone = ConversationAddress(conversation, where.namespace, where.key)
            yield Read("rewind_policy", (gone, where.shape))
            yield Read("get_value", (gone, None))
            yield Read("scan_values", (ValueQuery(scope=replace(gone, key=None)),))
        return
    yield from _pages(model, "scan_entries", entries)
    visible = state.visible_entries(conversation)
    for kind, key in {(e.kind, e.key) for e in visible} | {(e.kind, None) for e in visible}:
        query = EntryQuery(conversation_id=conversation, kind=kind, key=key)
        yield Read("scan_entries", (query,))
    every: list[At | None] = [None, "start", *(entry.id for entry in visible)]
    for entry in visible:
        yield Read("newest_head", (conversation, entry.id))
        window = EntryQuery(conversation_id=conversation, from_=entry.id, through=entry.id)
        yield Read("scan_entries", (window,))
    yield Read("newest_head", (conversation, Seq(2**53)))
    sources = {source for source, _ in state.chain(conversation)}
    spots = {
        where._replace(holder=conversation): None
        for where in state.changes
        if where.scope == "conversation" and where.holder in sources
    }
    for where in spots:
        policy = state.policy(where)
        address = ConversationAddress(conversation, where.namespace, where.key, policy is not False)
        yield Read("rewind_policy", (address, where.shape))
        yield from _every_read_at(model, address, where, every if address.rewind else (None,))
    for namespace in {where.namespace for where in spots if where.shape == "value"}:
        yield from _value_pages(model, ConversationAddress(conversation, namespace))


def _every_read_at(
    model: Model, address: Address, where: Spot, positions: Iterable[At | None]
) -> Iterator[Read]:
    for at in positions:
        if where.shape == "value":
            yield Read("get_value", (address, at))
        elif at is None:
            yield from _pages(model, "read_list", ListQuery(), address)
        else:
            yield Read("read_list", (address, ListQuery(at=at)))
            yield Read("read_list", (address, ListQuery(at=at, limit=1, before=Seq(2**60))))


def _near(where: Spot) -> Iterator[Read]:
    """Yield reads of what is not there, but nearly: another shape, scope or key."""
    holder = Seq(where.holder or 1)
    scratch = ScratchAddress(holder, where.namespace, where.key)
    yield Read("get_value", (scratch, None))
    yield Read("read_list", (scratch, ListQuery()))
    yield Read("scan_values", (ValueQuery(scope=replace(scratch, key=None)),))
    for key in (None, "", where.key):
        session = SessionAddress(where.namespace, key)
        yield Read("get_value", (session, None))
        yield Read("read_list", (session, ListQuery()))


def _value_pages(model: Model, scope: Address) -> Iterator[Read]:
    for limit in (1, 2, 3):
        after: str | None = None
        while True:
            read = Read("scan_values", (ValueQuery(scope=scope, after=after, limit=limit),))
            yield read
            after = getattr(ask(model, read).value, "next", None)
            if after is None:
                break
