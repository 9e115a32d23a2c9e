"""A session's state as the canonical stream of items."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter, itemgetter
from typing import NamedTuple, TypeAlias

from pico_memory.bodies import Bodies, task_record
from pico_memory.rows import Body, EntryRow, TaskRow
from pico_memory.scans import find_batches
from pico_memory.scope import RewindList, Scope
from pico_memory.state import SessionState
from pico_store.address import (
    Address,
    ConversationAddress,
    ScratchAddress,
    Seq,
    SessionAddress,
    Shape,
)
from pico_store.limits import SEQ_MAX
from pico_store.query_check import Window
from pico_store.records import BatchRange, Conversation
from pico_store.snapshot import (
    AddressPolicy,
    DeletedConversation,
    ListItem,
    ListMarker,
    SnapshotHeader,
    SnapshotItem,
    ValueVersion,
)

_EVERYTHING = Window(1, SEQ_MAX, newest_first=False, limit=SEQ_MAX)

_Addressed: TypeAlias = tuple[Seq, Address, Body | None]
"""``seq, address, body``."""


class Snapshot(NamedTuple):
    """All that an export yields, with payloads still packed and shared with the state."""

    bodies: Bodies
    header: SnapshotHeader
    conversations: list[Conversation | DeletedConversation]
    entries: list[EntryRow]
    tasks: list[tuple[Seq, TaskRow]]
    policies: list[AddressPolicy]
    versions: list[_Addressed]
    elements: list[_Addressed]
    markers: list[ListMarker]
    batches: list[BatchRange]

    def items(self) -> Iterator[SnapshotItem]:
        """Yield the items in canonical order, each payload decoded when its turn comes."""
        yield self.header
        yield from self.conversations
        bodies = self.bodies
        yield from map(bodies.entry, self.entries)
        for id, task in self.tasks:
            yield task_record(bodies, id, task, ())
        yield from self.policies
        for seq, address, body in self.versions:
            if body is None:
                yield ValueVersion(seq, address)
            else:
                yield ValueVersion(seq, address, bodies.value(seq, body))
        for seq, address, body in self.elements:
            assert body is not None
            yield ListItem(seq, address, bodies.value(seq, body))
        yield from self.markers
        yield from self.batches


def snapshot(state: SessionState) -> Snapshot:
    """Return the whole state as of now; later commits do not touch what is returned.

    Cost: a reference to each record; decodes nothing.
    """
    caps = {id: cap for id in state.deleted if (cap := state.cap(id))}
    records: list[Conversation | DeletedConversation] = [
        state.conversations[id] if id in state.conversations
        else DeletedConversation(state.deleted[id], Seq(caps[id]))
        for id in sorted([*state.conversations, *caps])
    ]  # fmt: skip
    entries = [
        row
        for row in state.entries.values()
        if row[1] in state.conversations or row[0] <= caps.get(row[1], 0)
    ]
    held = _Held()
    held.add(state.session, SessionAddress)
    for id, scope in state.scopes.items():
        if id in state.conversations:
            held.add(scope, partial(ConversationAddress, id))
        elif id in caps:
            held.add_inherited(scope, partial(ConversationAddress, id), caps[id])
    for id, scratch in state.scratch.items():
        held.add(scratch.scope, partial(ScratchAddress, id))
    return Snapshot(
        state.bodies,
        SnapshotHeader(state.last_seq, tuple(sorted(state.kinds))),
        records,
        entries,
        [(id, state.tasks[id]) for id in state.task_ids if id in state.tasks],
        sorted(held.policies, key=policy_order),
        sorted(held.versions, key=itemgetter(0)),
        sorted(held.elements, key=itemgetter(0)),
        sorted(held.markers, key=attrgetter("seq")),
        list(find_batches(state, _EVERYTHING)),
    )


class _Held:
    """What the scopes hold, addressed."""

    def __init__(self) -> None:
        self.policies: list[AddressPolicy] = []
        self.versions: list[_Addressed] = []
        self.elements: list[_Addressed] = []
        self.markers: list[ListMarker] = []

    def add(self, scope: Scope, address: Callable[[str, str | None], Address]) -> None:
        """Add all of a scope that can be read: current state, and what rewinds."""
        for namespace, space in scope.values.items():
            for key, cell in space.cells.items():
                place = address(namespace, key)
                if isinstance(place, ConversationAddress):
                    self._add_policy(place, "value", rewind=type(cell) is list)
                if type(cell) is tuple and cell[1] is not None:
                    self.versions.append((cell[0], place, cell[1]))
        for (namespace, key), found in scope.lists.items():
            place = address(namespace, key)
            if isinstance(place, ConversationAddress):
                self._add_policy(place, "list", rewind=type(found) is RewindList)
            if type(found) is list:
                self.elements += [(id, place, body) for id, body in found]
        self.add_inherited(scope, address, SEQ_MAX)

    def add_inherited(
        self, scope: Scope, address: Callable[[str, str | None], Address], through: int
    ) -> None:
        """Add the part of a scope that rewinds, up to a position."""
        for namespace, space in scope.values.items():
            for key, cell in space.cells.items():
                if type(cell) is list:
                    place = _rewindable(address(namespace, key))
                    self.versions += [(seq, place, body) for seq, body in cell if seq <= through]
        for (namespace, key), found in scope.lists.items():
            if type(found) is RewindList:
                place = _rewindable(address(namespace, key))
                self.elements += [(id, place, body) for id, body in found.items if id <= through]
                self.markers += [
                    ListMarker(seq, place, element)
                    for element, seq in found.removed.items()
                    if seq <= through
                ]
                self.markers += [ListMarker(seq, place) for seq in found.clears if seq <= through]

    def _add_policy(self, address: ConversationAddress, shape: Shape, *, rewind: bool) -> None:
        self.policies.append(AddressPolicy(_rewindable(address) if rewind else address, shape))


def _rewindable(address: Address) -> ConversationAddress:
    assert isinstance(address, ConversationAddress)
    return ConversationAddress(address.conversation, address.namespace, address.key, True)


def policy_order(policy: AddressPolicy) -> tuple[Seq, Shape, str, bool, str]:
    """Return what sorts policies canonically."""
    address = policy.address
    key = address.key
    return address.conversation, policy.shape, address.namespace, key is not None, key or ""
