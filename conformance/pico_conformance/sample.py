"""What histories are made of: names, keys, statuses and values, the awkward ones included."""

from __future__ import annotations

from random import Random
from typing import Final

from pico_store.records import JsonObject, JsonValue

PLAIN_NAMES: Final = ("a", "b", "c")
ODD_NAMES: Final = (
    "__proto__",
    "constructor",
    "A",
    " ",
    "\x00",
    "\x00a",
    "a\x00",
    "a\x00b",
    "\u2028",
    "\u2029x",
    "\x85",
    "\u00e9",
    "e\u0301",
    "\uff5e",
    "\U0001f600",
    "\U00010000",
    "\uffff",
    "a/b",
    "../a",
    "a%00",
    "x" * 1024,
    "x" * 1023 + "y",
    "\u20ac" * 341 + "z",
    "\U0001f600" * 256,
)
"""U+FF5E sorts before U+1F600 by code point and after it by UTF-16 unit."""

TWINS: Final = (
    ("\u00e9", "e\u0301"),
    ("\uff5e", "\U0001f600"),
    ("\uffff", "\U00010000"),
    ("a", "a\x00b"),
    ("A", "a"),
    ("a", "a "),
    ("\u20ac" * 341 + "y", "\u20ac" * 341 + "z"),
    ("", None),
)
"""Two keys that are easily taken for one, or for each other's order."""

ODD_STRINGS: Final = (*ODD_NAMES, "", "\x00\x00", "null", '"', "\\", "\ufeff", "\x7f", "\u202e")
ODD_NUMBERS: Final[tuple[int | float, ...]] = (
    0,
    1,
    1.0,
    -1,
    2**31,
    2**32,
    2**53,
    2**53 + 1,
    2.0**53,
    2**63 - 1,
    2**63,
    2**64 - 1,
    -(2**63),
    0.1,
    -0.0,
    0.0,
    5e-324,
    1e308,
    1.7976931348623157e308,
    1e16,
    1e22,
)
STATUSES: Final = ("ready", "running", "waiting")
KINDS: Final = ("note", "user", "assistant")


def name(random: Random, oddness: float = 0.1) -> str:
    """Return a namespace or kind: mostly one of few, so that histories meet themselves."""
    return random.choice(ODD_NAMES if random.random() < oddness else PLAIN_NAMES)


def kind(random: Random, oddness: float = 0.05) -> str:
    """Return an entry's or task's kind."""
    return random.choice(ODD_NAMES if random.random() < oddness else KINDS)


def key(random: Random, oddness: float = 0.2) -> str | None:
    """Return an address's key, or none."""
    if random.random() < 0.25:
        return None
    return random.choice(ODD_STRINGS[:-7] if random.random() < oddness else ("", "k", "K", "l"))


def value(random: Random, depth: int = 0) -> JsonValue:
    """Return a strict value."""
    choice = random.random()
    if choice < 0.25:
        return random.randrange(100)
    if choice < 0.4:
        return random.choice(ODD_NUMBERS)
    if choice < 0.5:
        return random.choice((None, True, False))
    if choice < 0.65:
        return random.choice(ODD_STRINGS)
    if choice < 0.75:
        return random.choice(PLAIN_NAMES) * random.choice((1, 10, 300))
    if choice < 0.76 and depth == 0:
        return deep(200, random)
    if depth > 3:
        return []
    if choice < 0.88:
        return [value(random, depth + 1) for _ in range(random.randrange(4))]
    return json_object(random, depth + 1)


def json_object(random: Random, depth: int = 0) -> JsonObject:
    """Return an object, its keys in no particular order."""
    keys = [random.choice((*ODD_STRINGS, "z", "y", "x")) for _ in range(random.randrange(4))]
    return {key: value(random, depth + 1) for key in keys}


def state(random: Random, status: str) -> JsonObject:
    """Return a task's state."""
    members = json_object(random) if random.random() < 0.5 else {}
    return {**members, "status": status}


def deep(levels: int, random: Random) -> JsonValue:
    """Return a value of so many levels."""
    found: JsonValue = random.choice((1, "x", None))
    for _ in range(levels):
        found = [found] if random.random() < 0.5 else {"k": found}
    return found
