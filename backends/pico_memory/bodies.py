"""Payloads in stored form, and the records that reads make of rows."""

from __future__ import annotations

from typing import Final, Protocol

from pico_memory.rows import Body, EntryRow, TaskRow
from pico_store.address import Seq
from pico_store.entry_body import EntryColumns, unpack_entry
from pico_store.records import Entry, JsonObject, JsonValue, Task
from pico_store.strict_json import unpack


class Bodies(Protocol):
    """Makes fresh objects of the payloads that a state's rows hold or refer to.

    Raises `StoreDamagedError`, naming the record, for one that is not what was written.
    """

    def entry(self, row: EntryRow) -> Entry:
        """Return the entry of a row."""
        ...

    def state(self, task: Seq, body: Body) -> JsonObject:
        """Return the state of a task."""
        ...

    def value(self, seq: Seq, body: Body) -> JsonValue:
        """Return the value or list element that a write of this number stored."""
        ...


class PackedBodies:
    """Payloads that the rows hold themselves, as `strict_json.pack` made them."""

    __slots__ = ()

    def entry(self, row: EntryRow) -> Entry:
        id, conversation, kind, key, by_task, head, body = row
        assert type(body) is bytes
        return unpack_entry(EntryColumns(id, conversation, kind, key, by_task, head), body)

    def state(self, task: Seq, body: Body) -> JsonObject:
        assert type(body) is bytes
        return unpack(body)  # type: ignore[return-value]  # a state is always an object

    def value(self, seq: Seq, body: Body) -> JsonValue:
        assert type(body) is bytes
        return unpack(body)


PACKED: Final = PackedBodies()


def task_record(bodies: Bodies, id: Seq, row: TaskRow, owns: tuple[Seq, ...]) -> Task:
    """Return a fresh task."""
    conversation, kind, status, role, after, background, turn, abort, body = row
    return Task(
        id=id,
        conversation_id=conversation,
        kind=kind,
        status=status,
        role=role,
        state=bodies.state(id, body),
        after=after,
        background=background,
        turn=turn,
        abort=abort,
        owns=owns,
    )
