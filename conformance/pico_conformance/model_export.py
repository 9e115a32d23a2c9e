"""The model's export: the whole logical state in canonical order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from pico_conformance.model_reads import get_entry
from pico_conformance.model_state import Change, Spot, State, is_rewindable
from pico_store.address import ConversationAddress, Seq
from pico_store.batch import ListAppend, ListClear, ListRemove, ValueSet
from pico_store.records import BatchRange
from pico_store.snapshot import (
    AddressPolicy,
    DeletedConversation,
    ListItem,
    ListMarker,
    SnapshotHeader,
    SnapshotItem,
    ValueVersion,
)


def export(state: State, batches: Sequence[BatchRange]) -> Iterator[SnapshotItem]:
    """Yield everything that some read can still depend on."""
    kinds = {entry.kind for entry in state.entries.values()}
    yield SnapshotHeader(Seq(state.last_seq), tuple(sorted(kinds)))
    for id, conversation in state.conversations.items():
        if state.is_live(id):
            yield conversation
        elif through := state.inherited_through(id):
            yield DeletedConversation(conversation, Seq(through))
    for id in state.entries:
        entry = get_entry(state, id)
        if entry is not None:
            yield entry
    for id in state.tasks:
        task = state.task(id)
        if task is not None:
            yield replace(task, owns=())
    yield from _policies(state)
    yield from _state(state)
    for batch in batches:
        if batch.task is None or state.is_live_task(batch.task):
            yield batch


def _policies(state: State) -> Iterator[SnapshotItem]:
    def order(where: Spot) -> tuple[int, str, str, bool, str]:
        return (where.holder, where.shape, where.namespace, where.key is not None, where.key or "")

    spots = [s for s in state.changes if s.scope == "conversation" and state.is_live(Seq(s.holder))]
    for where in sorted(spots, key=order):
        address = state.changes[where][0].write.address
        assert isinstance(address, ConversationAddress)
        yield AddressPolicy(address, where.shape)


def _state(state: State) -> Iterator[SnapshotItem]:
    values: list[ValueVersion] = []
    items: list[ListItem] = []
    markers: list[ListMarker] = []
    for where, changes in state.changes.items():
        if where.scope == "conversation":
            through = state.readable_through(Seq(where.holder))
            if is_rewindable(changes[0]):
                for change in changes:
                    if change.seq <= through:
                        _add_history(change, values, items, markers)
                continue
            if not state.is_live(Seq(where.holder)):
                continue
        address = changes[0].write.address
        if where.shape == "list":
            shown = state.elements(where, rewind=False)
            items += [ListItem(id, address, value) for id, value in shown.items()]
        else:
            current = state.value(where, rewind=False)
            if current is not None and isinstance(current.write, ValueSet):
                values.append(ValueVersion(current.seq, address, current.write.value))
    yield from sorted(values, key=lambda value: value.seq)
    yield from sorted(items, key=lambda item: item.id)
    yield from sorted(markers, key=lambda marker: marker.seq)


def _add_history(
    change: Change,
    values: list[ValueVersion],
    items: list[ListItem],
    markers: list[ListMarker],
) -> None:
    seq, write = change
    address = write.address
    assert isinstance(address, ConversationAddress)
    if isinstance(write, ValueSet):
        values.append(ValueVersion(seq, address, write.value))
    elif isinstance(write, ListAppend):
        items.append(ListItem(seq, address, write.value))
    elif isinstance(write, ListRemove):
        markers.append(ListMarker(seq, address, write.element))
    elif isinstance(write, ListClear):
        markers.append(ListMarker(seq, address))
    else:
        values.append(ValueVersion(seq, address))
