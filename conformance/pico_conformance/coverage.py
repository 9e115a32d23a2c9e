"""Which clauses a run exercised, and how often."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from pico_conformance.mistake import MISTAKES
from pico_conformance.rule import RuleResult
from pico_conformance.situation import SITUATIONS
from pico_conformance.tally import Tally

_ENTRIES: Final = ("Entry",)
_VALUES: Final = ("ValueSet", "ValueDelete")
_LISTS: Final = ("ListAppend", "ListRemove", "ListClear")
_TASKS: Final = ("Task", "PatchTask", "SettleTask")
_STATE: Final = (*_VALUES, *_LISTS)
_ALL: Final = (*_ENTRIES, *_STATE, *_TASKS, "Conversation", "DeleteConversation")
_SCANS: Final = (
    "scan_conversations",
    "scan_entries",
    "scan_tasks",
    "scan_batches",
    "read_list",
    "scan_values",
)
_GETS: Final = ("get_conversations", "get_entries", "get_tasks")
_SHOWN: Final = ("scan_entries", "newest_head")
_STATE_READS: Final = ("get_value", "read_list", "scan_values")

# What replaying exercises of each clause: types of writes, and reads that would show a breach.
_EXERCISED: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "SEQ-1": (_ALL, _GETS),
    "SEQ-3": (("Conversation",), ("get_conversations",)),
    "SEQ-5": ((), (*_SCANS, *_GETS, "entry_kinds", "rewind_policy")),
    "SEQ-6": (_ALL, ()),
    "SEQ-9": (_ALL, ("scan_batches",)),
    "PAGE-1": ((), _SCANS),
    "PAGE-2": ((), _SCANS),
    "PAGE-3": ((), _SCANS),
    "PAGE-4": ((), _SCANS),
    "PAGE-5": ((), _SCANS),
    "PAGE-6": ((), (*_GETS, *_SHOWN, "scan_tasks", *_STATE_READS)),
    "PAGE-7": ((), ("scan_entries",)),
    "PAGE-8": ((), ("scan_entries", "scan_tasks")),
    "PAGE-9": (("Conversation",), ("scan_conversations",)),
    "PAGE-10": (_ENTRIES, ("entry_kinds",)),
    "ENT-1": (_ENTRIES, ("get_entries", "scan_entries")),
    "ENT-2": (_ENTRIES, ()),
    "ENT-4": (_ENTRIES, ("get_entries",)),
    "ENT-5": (_ENTRIES, ("newest_head",)),
    "ENT-6": (_ENTRIES, _SHOWN),
    "FORK-1": (("Conversation",), ("get_conversations",)),
    "FORK-2": (("Conversation",), _SHOWN),
    "FORK-3": (("Conversation",), _SHOWN),
    "FORK-4": (("Conversation",), (*_SHOWN, *_STATE_READS)),
    "FORK-5": (("Conversation",), _STATE_READS),
    "FORK-7": (("Conversation",), ("get_conversations", "scan_conversations")),
    "VAL-1": (_STATE, ("rewind_policy", *_STATE_READS)),
    "VAL-2": (("ValueSet",), ("get_value",)),
    "VAL-3": (("ValueDelete",), ("get_value", "scan_values")),
    "VAL-4": (_VALUES, ("scan_values",)),
    "VAL-5": (_LISTS, ("read_list",)),
    "VAL-6": (_LISTS, ("read_list",)),
    "VAL-7": (_STATE, ("get_value", "read_list")),
    "VAL-8": (_STATE, _STATE_READS),
    "VAL-9": (_STATE, ("rewind_policy",)),
    "VAL-10": (_STATE, _STATE_READS),
    "TASK-1": (("Task",), ("get_tasks", "scan_tasks")),
    "TASK-2": (("PatchTask", "SettleTask"), ("get_tasks", "scan_tasks")),
    "TASK-3": (("PatchTask",), ("get_tasks", "scan_tasks")),
    "TASK-4": (("SettleTask",), (*_STATE_READS, "scan_batches")),
    "TASK-5": (("Conversation",), ("get_tasks", "scan_conversations")),
    "TASK-6": (_TASKS, ("scan_tasks",)),
    "TASK-7": (("SettleTask",), ("get_tasks", "scan_tasks")),
    "DEL-1": (("DeleteConversation",), ("get_conversations", "scan_conversations")),
    "DEL-2": (("DeleteConversation",), (*_GETS, *_SCANS)),
    "DEL-4": (("DeleteConversation",), ("get_entries",)),
    "JSON-1": ((*_STATE, *_ENTRIES, *_TASKS), (*_STATE_READS, "get_entries", "get_tasks")),
    "JSON-2": ((*_STATE, *_ENTRIES, *_TASKS), (*_STATE_READS, "get_entries", "get_tasks")),
    "JSON-3": ((*_STATE, *_ENTRIES, *_TASKS), (*_STATE_READS, "get_entries", "get_tasks")),
    "JSON-4": ((*_STATE, *_ENTRIES, *_TASKS), (*_STATE_READS, "get_entries")),
    "JSON-6": ((*_STATE, *_ENTRIES, *_TASKS), (*_STATE_READS, "get_entries", "get_tasks")),
    "JSON-7": ((*_STATE, *_ENTRIES, *_TASKS), (*_STATE_READS, *_GETS)),
}
# Acts on whole sessions, and the clauses that would be broken if one of them showed.
_ACTED: Final[dict[str, tuple[str, ...]]] = {
    "OWN-1": ("second owner",),
    "OWN-2": ("read only",),
    "OWN-4": ("reopen", "another process"),
    "OWN-5": ("take over",),
    "OWN-6": ("load", "move"),
    "SEQ-2": ("near the end",),
    "DEL-5": ("vacuum",),
    "DUR-6": ("verify",),
    "DUR-7": ("backup",),
    "DUR-9": ("load", "move", "vacuum", "another process"),
    "DUR-10": ("load", "move"),
    "DUR-11": ("load", "move"),
}
HISTORIES_ENOUGH: Final = 400
"""From so many on, a run that misses a rare situation says that its generator is broken."""


BESIDE: Final[dict[str, str]] = {"SQL-2": "tests/backends/sqlite"}
"""The clauses that no store can be asked about from outside, and where they are tested."""


@dataclass(slots=True)
class Row:
    """What was done about one clause."""

    clause: str
    rules: int = 0
    failed: int = 0
    not_promised: int = 0
    histories: int = 0
    """That had an accepted write the clause is about."""
    writes: int = 0
    refusals: int = 0
    acts: int = 0
    reads: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def left_out(self) -> bool:
        """Whether all that is about the clause needs a promise that the target does not give."""
        exercised = self.histories or self.writes or self.refusals or self.acts or self.reads
        return bool(self.not_promised) and not self.rules and not exercised


def rows(results: Iterable[RuleResult], tally: Tally) -> list[Row]:
    """Return a row for every clause that a rule or a history is about, in the contract's order."""
    found: dict[str, Row] = {}

    def row(clause: str) -> Row:
        return found.setdefault(clause, Row(clause))

    for result in results:
        for clause in result.rule.clauses:
            row(clause).rules += result.verdict != "not promised"
            row(clause).failed += result.verdict == "failed"
            row(clause).not_promised += result.verdict == "not promised"
    if tally.histories:
        for clause, (types, methods) in _EXERCISED.items():
            row(clause).histories = max((tally.types_met[name] for name in types), default=0)
            row(clause).writes = sum(tally.types[name] for name in types)
            row(clause).reads = sum(tally.methods[name] for name in methods)
        for clause, acts in _ACTED.items():
            row(clause).acts = sum(tally.acts[name] for name in acts)
        for clause, count in tally.refusals.items():
            row(clause).refusals = count
    return sorted(found.values(), key=lambda row: _order(row.clause))


_SECTIONS: Final = ("SEQ", "OWN", "PAGE", "ENT", "FORK", "VAL", "TASK", "DEL", "JSON", "DUR")


def _order(clause: str) -> tuple[int, str, int]:
    section, _, number = clause.partition("-")
    place = _SECTIONS.index(section) if section in _SECTIONS else len(_SECTIONS)
    return place, section, int(re.sub(r"\D", "", number) or 0)


def missed(tally: Tally) -> list[str]:
    """Return what a run of enough histories must have met and this one has not."""
    if tally.histories < HISTORIES_ENOUGH:
        return []
    lacking = [f"situation: {name}" for name in SITUATIONS if not tally.situations[name]]
    lacking += [f"mistake: {name}" for name in MISTAKES if not tally.mistakes[name]]
    return lacking + _unused(tally.methods)


def _unused(methods: Counter[str]) -> list[str]:
    known = {*_SCANS, *_GETS, *_SHOWN, "get_value", "rewind_policy", "entry_kinds"}
    return [f"read: {name}" for name in sorted(known) if not methods[name]]
