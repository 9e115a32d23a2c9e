"""Profiles: what kind of history a generator makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class Profile:
    """How long histories are and what they are made of."""

    name: str
    operations: tuple[int, int]
    """At least and at most."""
    steps: tuple[int, int]
    """Of one batch."""
    weights: Mapping[str, int] = field(default_factory=dict)
    """By kind of step, where they differ from `WEIGHTS`."""
    scratch: float = 0.15
    """How many batches write scratch."""
    mistakes: float = 0.12
    """How many batches are wrong."""
    handles: float = 0.06
    """How many operations are about the session as a whole."""
    oddness: float = 0.08
    """How many names are awkward."""


WEIGHTS: Final[Mapping[str, int]] = {
    "entry": 10,
    "fork": 4,
    "fresh": 1,
    "delete": 1,
    "task": 4,
    "patch": 3,
    "settle": 3,
    "set": 6,
    "unset": 3,
    "append": 6,
    "remove": 3,
    "clear": 1,
}

PROFILES: Final[Mapping[str, Profile]] = {
    profile.name: profile
    for profile in (
        Profile("tiny", (3, 10), (1, 4), scratch=0.1, mistakes=0.05),
        Profile("fork-deep", (20, 50), (1, 4), {"fork": 14, "delete": 2, "task": 1}, scratch=0.02),
        Profile(
            "list-heavy",
            (15, 40),
            (1, 6),
            {"append": 20, "remove": 10, "clear": 4, "fork": 7, "set": 1, "unset": 1},
        ),
        Profile("scratch", (15, 40), (1, 6), {"task": 8, "settle": 5}, scratch=0.6),
        Profile(
            "delete",
            (20, 50),
            (1, 4),
            {"delete": 7, "fork": 9, "fresh": 4, "task": 8, "settle": 5},
            scratch=0.05,
        ),
        Profile(
            "values",
            (15, 40),
            (1, 8),
            {"set": 20, "unset": 10, "fork": 6, "append": 1, "remove": 1},
            oddness=0.3,
        ),
        Profile("invalid", (15, 40), (1, 6), mistakes=0.6, handles=0.03),
        Profile("mixed", (30, 80), (1, 12), handles=0.08),
    )
}
