"""Counting what a run did, so that a run that tried too little is seen."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Tally:
    """What was done and compared, in numbers. Two of them can be added up."""

    histories: int = 0
    operations: int = 0
    commits: int = 0
    writes: int = 0
    """In accepted batches."""
    types: Counter[str] = field(default_factory=Counter)
    """Accepted writes by type."""
    types_met: Counter[str] = field(default_factory=Counter)
    """Histories that had an accepted write of a type."""
    reads: int = 0
    """Answers compared."""
    exports: int = 0
    """Exports compared item by item."""
    refusals: Counter[str] = field(default_factory=Counter)
    """Refused batches by clause."""
    mistakes: Counter[str] = field(default_factory=Counter)
    """Mistakes that were refused, by name."""
    acts: Counter[str] = field(default_factory=Counter)
    """What was done to sessions as a whole."""
    methods: Counter[str] = field(default_factory=Counter)
    """Answers compared, by method."""
    situations: Counter[str] = field(default_factory=Counter)
    """Histories that met a rare situation, by its name."""

    def add(self, other: Tally) -> None:
        """Count what another tally counted, too."""
        self.histories += other.histories
        self.operations += other.operations
        self.commits += other.commits
        self.writes += other.writes
        self.reads += other.reads
        self.exports += other.exports
        self.types.update(other.types)
        self.types_met.update(other.types_met)
        self.refusals.update(other.refusals)
        self.mistakes.update(other.mistakes)
        self.acts.update(other.acts)
        self.methods.update(other.methods)
        self.situations.update(other.situations)
