"""Changing texts and JSON a little, so that they are nearly right."""

from __future__ import annotations

import json
from random import Random
from typing import Final, TypeAlias

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"

_SCALARS: Final[list[Json]] = [
    *(None, True, False, 0, 1, -1, 2, 2**53, 2**53 - 1, 2**63, 2**64, -(2**63) - 1, 10**40),
    *(1.0, 0.5, -0.0, 1e308, 1e-320, "", "a", "a" * 300, "\ud800", "\0", "é", "main", "session"),
]
_HOLDERS: Final[list[Json]] = [[], {}, [[]], [None], {"": None}, {"type": "entry"}, {"id": 1}]
ODD: Final = (*_SCALARS, *_HOLDERS)
_DEEP: Final = 210


def mutate_json(value: Json, random: Random) -> Json:
    """Return a copy that differs in one place."""
    copy: Json = json.loads(json.dumps(value))
    holders: list[dict[str, Json] | list[Json]] = []
    _collect(copy, holders)
    if not holders:
        return random.choice(ODD)
    holder = random.choice(holders)
    if isinstance(holder, dict):
        _mutate_object(holder, random, holders)
    else:
        _mutate_list(holder, random, holders)
    return copy


def _collect(value: Json, holders: list[dict[str, Json] | list[Json]]) -> None:
    if isinstance(value, dict | list) and value:
        holders.append(value)
        for part in value.values() if isinstance(value, dict) else value:
            _collect(part, holders)


def _mutate_object(
    holder: dict[str, Json], random: Random, holders: list[dict[str, Json] | list[Json]]
) -> None:
    name = random.choice(list(holder))
    match random.randrange(6):
        case 0:
            del holder[name]
        case 1:
            holder[random.choice(("x", "id", "type", "first", "writes", "task", "at", ""))] = (
                random.choice(ODD)
            )
        case 2:
            other = random.choice(list(holder))
            holder[name], holder[other] = holder[other], holder[name]
        case _:
            holder[name] = _other(holder[name], random, holders)


def _mutate_list(
    holder: list[Json], random: Random, holders: list[dict[str, Json] | list[Json]]
) -> None:
    index = random.randrange(len(holder))
    match random.randrange(5):
        case 0:
            del holder[index]
        case 1:
            holder.insert(index, json.loads(json.dumps(random.choice(holder))))
        case 2:
            random.shuffle(holder)
        case _:
            holder[index] = _other(holder[index], random, holders)


def _other(value: Json, random: Random, holders: list[dict[str, Json] | list[Json]]) -> Json:
    """Return something in place of a value: near it, from elsewhere, or odd."""
    chance = random.random()
    if type(value) is int and chance < 0.6:
        return value + random.choice((-2, -1, 1, 2, 1000))
    if isinstance(value, str) and value and chance < 0.4:
        place = random.randrange(len(value))
        return value[:place] + random.choice('a\0é\ud800"\\') + value[place + 1 :]
    if chance < 0.7:
        found: Json = json.loads(json.dumps(random.choice(holders)))
        return found
    if chance < 0.72:
        deep: Json = 1
        for _ in range(_DEEP):
            deep = [deep]
        return deep
    return random.choice(ODD)


def mutate_bytes(text: bytes, random: Random) -> bytes:
    """Return a text that differs in a few bytes, or in how its parts follow one another."""
    changed = bytearray(text)
    for _ in range(random.choice((1, 1, 1, 2, 5))):
        place = random.randrange(len(changed) + 1)
        match random.randrange(7):
            case 0 if changed:
                changed[place % len(changed)] ^= 1 << random.randrange(8)
            case 1:
                changed[place:place] = random.randbytes(random.randint(1, 4))
            case 2:
                del changed[place : place + random.randint(1, 20)]
            case 3:
                other = random.randrange(len(changed) + 1)
                changed[place:place] = changed[other : other + random.randint(1, 80)]
            case 4:
                changed[place:place] = random.choice(
                    (b"\n", b"\r\n", b"\0", b"\xff", b"{", b"}", b'"', b"NaN", b"1e999", b"\\ud800")
                )
            case 5:
                del changed[place:]
            case _:
                lines = bytes(changed).splitlines(keepends=True)
                if len(lines) > 1:
                    first, second = random.sample(range(len(lines)), 2)
                    lines[first], lines[second] = lines[second], lines[first]
                    changed = bytearray(b"".join(lines))
    return bytes(changed)


def dump(value: Json, random: Random) -> bytes:
    """Return a value as JSON, now and then with a key twice."""
    text = json.dumps(value, ensure_ascii=random.random() < 0.5, separators=(",", ":"))
    found = text.encode("utf-8", "surrogatepass")
    if random.random() < 0.05 and found.startswith(b"{") and len(found) > 2:
        member = found[1:].partition(b",")[0].rstrip(b"}")
        return b"{" + member + b"," + found[1:]
    return found
