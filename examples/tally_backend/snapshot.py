"""A ledger as snapshot items in canonical order, and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import UNSET, structs

from pico_store.address import ConversationAddress, Seq
from pico_store.entry_body import pack_entry, unpack_entry
from pico_store.records import BatchRange, Conversation, Entry, Task
from pico_store.snapshot import (
    AddressPolicy,
    DeletedConversation,
    ListItem,
    ListMarker,
    SnapshotHeader,
    SnapshotItem,
    ValueVersion,
)
from pico_store.snapshot_check import check_snapshot
from pico_store.strict_json import pack, unpack
from tally_backend.ledger import Ledger, unbound


def snapshot(ledger: Ledger) -> Iterator[SnapshotItem]:
    """Yield the items (SPEC.md, DUR-10)."""
    yield SnapshotHeader(ledger.last_seq, tuple(sorted(ledger.kinds)))
    reach = {id: ledger.reach(id) for id in ledger.conversations}
    for id, conversation in ledger.conversations.items():
        if ledger.is_live(id):
            yield conversation
        elif reach[id]:
            yield DeletedConversation(conversation, Seq(int(reach[id])))
    for id, (columns, body) in ledger.entries.items():
        if id <= reach[columns.conversation_id]:
            yield unpack_entry(columns, body)
    for task, body in ledger.tasks.values():
        yield structs.replace(task, state=unpack(body))
    policies: list[AddressPolicy] = []
    for (address, shape), rewind in ledger.policies.items():
        if ledger.is_live(address.conversation):
            policies.append(AddressPolicy(structs.replace(address, rewind=rewind), shape))
    yield from sorted(policies, key=_policy_order)
    yield from _state(ledger, reach)
    yield from ledger.batches


def _policy_order(item: AddressPolicy) -> tuple[object, ...]:
    address = item.address
    keyed = (address.key is not None, address.key or "")
    return address.conversation, item.shape, address.namespace, *keyed


def _state(ledger: Ledger, reach: dict[Seq, float]) -> Iterator[SnapshotItem]:
    def kept(address: object, seq: Seq) -> bool:
        if not isinstance(address, ConversationAddress) or ledger.is_live(address.conversation):
            return True
        return address.rewind and seq <= reach[address.conversation]

    versions, items, markers = [], [], []
    for address, by_seq in ledger.values.items():
        for seq, body in by_seq.items():
            if kept(address, seq):
                value = UNSET if body is None else unpack(body)
                versions.append(ValueVersion(seq, address, value))
    for address, by_id in ledger.elements.items():
        items += [ListItem(id, address, unpack(b)) for id, b in by_id.items() if kept(address, id)]
    for list_address, marks in ledger.markers.items():
        assert isinstance(list_address, ConversationAddress)
        for seq, element in marks.items():
            if kept(list_address, seq):
                markers.append(ListMarker(seq, list_address, element))
    yield from sorted(versions, key=lambda item: item.seq)
    yield from sorted(items, key=lambda item: item.id)
    yield from sorted(markers, key=lambda item: item.seq)


def restore(items: Iterable[SnapshotItem]) -> Ledger:
    """Return the ledger that items describe, or refuse them."""
    ledger = Ledger()
    for index, item in enumerate(check_snapshot(items)):
        path = f"items[{index}]"
        match item:
            case SnapshotHeader():
                ledger.last_seq = item.last_seq
                ledger.kinds.update(item.entry_kinds)
            case Conversation():
                ledger.conversations[item.id] = item
            case DeletedConversation():
                ledger.conversations[item.conversation.id] = item.conversation
                ledger.deleted.add(item.conversation.id)
            case Entry():
                ledger.add_entry(item, pack_entry(item))
            case Task():
                body = pack(item.state, f"{path}.state")
                ledger.tasks[item.id] = (structs.replace(item, state={}), body)
            case AddressPolicy():
                ledger.policies[unbound(item.address), item.shape] = item.address.rewind
                if item.shape == "value":
                    ledger.values[item.address] = {}
            case ValueVersion():
                packed = None if item.value is UNSET else pack(item.value, f"{path}.value")
                ledger.values.setdefault(item.address, {})[item.seq] = packed
            case ListItem():
                body = pack(item.value, f"{path}.value")
                ledger.elements.setdefault(item.address, {})[item.id] = body
            case ListMarker():
                ledger.markers.setdefault(item.address, {})[item.seq] = item.element
            case BatchRange():
                ledger.batches.append(item)
    return ledger
