"""All attacks."""

from __future__ import annotations

from typing import Final

from fuzz import crash, errors, flip, full, lines, power, strange, torn
from fuzz.attack import Attack

ATTACKS: Final[tuple[Attack, ...]] = (
    crash.ATTACK,
    power.ATTACK,
    torn.ATTACK,
    flip.ATTACK,
    full.ATTACK,
    errors.ATTACK,
    lines.ATTACK,
    strange.ATTACK,
)
