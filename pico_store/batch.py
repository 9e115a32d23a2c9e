"""Writes and batches: what one commit carries."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from pico_store.address import Address, Seq
from pico_store.records import Conversation, Entry, JsonObject, JsonValue, Task, TaskRole


class ValueSet(Struct, frozen=True, tag_field="type", tag="value.set", forbid_unknown_fields=True):
    """Give the address a new current value; an identical one is still a write."""

    address: Address
    value: JsonValue


class ValueDelete(
    Struct, frozen=True, tag_field="type", tag="value.delete", forbid_unknown_fields=True
):
    """Make the address absent; on a rewindable one this hides an inherited value too."""

    address: Address


class ListAppend(
    Struct, frozen=True, tag_field="type", tag="list.append", forbid_unknown_fields=True
):
    """Add an element, whose id is this write's number."""

    address: Address
    value: JsonValue


class ListRemove(
    Struct, frozen=True, tag_field="type", tag="list.remove", forbid_unknown_fields=True
):
    """Hide one element that is visible at the address now."""

    address: Address
    element: Seq


class ListClear(
    Struct, frozen=True, tag_field="type", tag="list.clear", forbid_unknown_fields=True
):
    """Hide every element that is visible at the address now."""

    address: Address


class DeleteConversation(
    Struct, frozen=True, tag_field="type", tag="deleteConversation", forbid_unknown_fields=True
):
    """Delete a conversation and all that its tasks own, transitively."""

    id: Seq


class PatchTask(
    Struct,
    frozen=True,
    tag_field="type",
    tag="patch",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """Replace a live task's status, role and state together, and/or set its abort mark."""

    id: Seq
    status: str | None = None
    role: TaskRole | None = None
    state: JsonObject | None = None
    abort: bool = False


class SettleTask(
    Struct,
    frozen=True,
    tag_field="type",
    tag="settle",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """End a live task and delete its scratch."""

    id: Seq
    status: str
    state: JsonObject
    role: TaskRole = "terminal"


StateWrite: TypeAlias = ValueSet | ValueDelete | ListAppend | ListRemove | ListClear
MainWrite: TypeAlias = (
    StateWrite | Conversation | DeleteConversation | Entry | Task | PatchTask | SettleTask
)


class MainBatch(Struct, frozen=True, tag_field="kind", tag="main", forbid_unknown_fields=True):
    """Writes that commit together. Write ``i`` gets number ``last_seq + 1 + i``."""

    writes: tuple[MainWrite, ...]


class ScratchBatch(
    Struct, frozen=True, tag_field="kind", tag="scratch", forbid_unknown_fields=True
):
    """State writes of one live task's scratch, and nothing else."""

    task: Seq
    writes: tuple[StateWrite, ...]


Batch: TypeAlias = MainBatch | ScratchBatch
