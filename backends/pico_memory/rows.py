"""The rows that a session keeps, and the records that reads make of them."""

from __future__ import annotations

from typing import TypeAlias

from pico_store.address import Seq
from pico_store.entry_body import EntryColumns, unpack_entry
from pico_store.records import Entry, Task, TaskRole
from pico_store.strict_json import unpack

# Rows are plain tuples: one is made for each write, and a named one costs three times as much.

EntryRow: TypeAlias = tuple[Seq, Seq, str, str | None, Seq | None, Seq | None, bytes]
"""``id, conversation, kind, key, by_task, head, body``."""

TaskRow: TypeAlias = tuple[Seq, str, str, TaskRole, tuple[Seq, ...], bool, bool, bool, bytes]
"""``conversation, kind, status, role, after, background, turn, abort, body``."""

ElementRow: TypeAlias = tuple[Seq, bytes]
"""``id, body``. Lists of them ascend, and ``bisect`` finds ``(id,)`` just before its element."""

VersionRow: TypeAlias = tuple[Seq, bytes | None]
"""``seq, body``; no body is a tombstone."""


def entry_record(row: EntryRow) -> Entry:
    """Return a fresh entry."""
    id, conversation, kind, key, by_task, head, body = row
    return unpack_entry(EntryColumns(id, conversation, kind, key, by_task, head), body)


def task_record(id: Seq, row: TaskRow, owns: tuple[Seq, ...]) -> Task:
    """Return a fresh task."""
    conversation, kind, status, role, after, background, turn, abort, body = row
    return Task(
        id=id,
        conversation_id=conversation,
        kind=kind,
        status=status,
        role=role,
        state=unpack(body),  # type: ignore[arg-type]  # a state is always an object
        after=after,
        background=background,
        turn=turn,
        abort=abort,
        owns=owns,
    )
