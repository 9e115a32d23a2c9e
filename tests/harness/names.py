"""The names of entries and state that the tests of the harness write under."""

from __future__ import annotations

from pico_harness import (
    EntryKind,
    conversation_value,
    scratch_value,
    session_list,
    session_value,
)

NOTE = EntryKind[object]("note")
COUNT = session_value("count", int)
ANY = session_value("any")
ITEMS = session_list("items", int)
MARK = conversation_value("mark", int, rewind=True)
MEMO = scratch_value("memo", int)
