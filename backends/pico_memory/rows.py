"""The rows that a session keeps: what is indexed of a record, and its payload."""

from __future__ import annotations

from typing import TypeAlias

from pico_store.address import Seq
from pico_store.records import TaskRole

# Rows are plain tuples: one is made for each write, and a named one costs three times as much.

Body: TypeAlias = bytes | int
"""A payload: packed, or a number by which the state's `Bodies` find it somewhere else."""

EntryRow: TypeAlias = tuple[Seq, Seq, str, str | None, Seq | None, Seq | None, Body]
"""``id, conversation, kind, key, by_task, head, body``."""

TaskRow: TypeAlias = tuple[Seq, str, str, TaskRole, tuple[Seq, ...], bool, bool, bool, Body]
"""``conversation, kind, status, role, after, background, turn, abort, body``."""

ElementRow: TypeAlias = tuple[Seq, Body]
"""``id, body``. Lists of them ascend, and ``bisect`` finds ``(id,)`` just before its element."""

VersionRow: TypeAlias = tuple[Seq, Body | None]
"""``seq, body``; no body is a tombstone."""
