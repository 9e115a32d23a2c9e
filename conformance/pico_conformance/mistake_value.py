"""Mistakes in values, names and numbers: what no state makes right."""

from __future__ import annotations

import enum
from collections.abc import Callable
from random import Random
from typing import Final

from pico_conformance import sample
from pico_conformance.ground import Ground, WriteMistake, forged
from pico_store.address import ConversationAddress, Seq, SessionAddress
from pico_store.batch import (
    DeleteConversation,
    ListAppend,
    ListClear,
    ListRemove,
    PatchTask,
    SettleTask,
    ValueDelete,
    ValueSet,
)
from pico_store.records import Conversation, JsonValue, Omit


class _Colour(enum.IntEnum):
    RED = 1


class _Text(str):
    __slots__ = ()


# --- Values that are not strict JSON ---


def _cyclic(random: Random) -> object:
    ring: list[object] = []
    ring.append({"again": ring} if random.random() < 0.5 else ring)
    return ring


_BAD_VALUES: Final[dict[str, Callable[[Random], object]]] = {
    "JSON-1 tuple": lambda random: (1, 2),
    "JSON-1 bytes": lambda random: b"x",
    "JSON-1 str subclass": lambda random: _Text("x"),
    "JSON-1 IntEnum": lambda random: _Colour.RED,
    "JSON-1 int key": lambda random: {1: 2},
    "JSON-1 None key": lambda random: {None: 2},
    "JSON-1 str subclass key": lambda random: {_Text("k"): 2},
    "JSON-1 set": lambda random: {1},
    "JSON-1 object": lambda random: object(),
    "JSON-1 complex": lambda random: 1j,
    "JSON-2 nan": lambda random: float("nan"),
    "JSON-2 infinity": lambda random: random.choice((float("inf"), float("-inf"))),
    "JSON-2 int too large": lambda random: random.choice((2**64, 2**80, 10**400)),
    "JSON-2 int too small": lambda random: random.choice((-(2**63) - 1, -(2**64), -(10**400))),
    "JSON-3 lone surrogate": lambda random: random.choice(("\ud800", "a\udfffb", "\udc00\ud800")),
    "JSON-3 lone surrogate in a key": lambda random: {"a\ud83d": 1},
    "JSON-4 too deep": lambda random: sample.deep(random.choice((201, 202, 5000)), random),
    "JSON-4 cyclic": _cyclic,
}


def _buried(bad: object, random: Random) -> object:
    """Put a bad value somewhere into good ones."""
    for _ in range(random.choice((0, 0, 1, 2))):
        if random.random() < 0.5:
            bad = {"x": sample.value(random, 4), "items": bad}
        else:
            bad = [sample.value(random, 4), bad, 1]
    return bad


def _bad_value(name: str) -> WriteMistake:
    def make(ground: Ground) -> object | None:
        random = ground.random
        bad = _buried(_BAD_VALUES[name](random), random)
        choice = random.randrange(7)
        if choice == 0:
            return forged(ValueSet(SessionAddress("a"), None), value=bad)
        if choice == 1:
            return forged(ListAppend(SessionAddress("a"), None), value=bad)
        if choice == 2:
            return forged(ground.entry(), data=bad)
        if choice == 3:
            return forged(ground.entry(), model=[{"role": "user", "content": bad}])
        if choice == 4:
            return forged(ground.task(), state={"status": "ready", "x": bad})
        live = ground.live_task()
        if choice == 5 and live is not None:
            return PatchTask(live, "x", "start", _state("x", bad))
        if choice == 6 and live is not None:
            return SettleTask(live, "x", _state("x", bad))
        return forged(ValueSet(SessionAddress("a", "k"), None), value=[bad])

    return make


def _state(status: str, bad: object) -> dict[str, JsonValue]:
    """Return a task's state with something in it that is no JSON."""
    state: dict[str, JsonValue] = {"status": status}
    state["x"] = bad  # type: ignore[assignment]
    return state


_BAD_NAMES: Final[dict[str, object]] = {
    "JSON-5 name too long": "x" * 1025,
    "JSON-5 name too long in bytes": "\u20ac" * 342,
    "JSON-5 empty name": "",
    "JSON-5 name of bytes": b"a",
    "JSON-5 name of str subclass": _Text("a"),
    "JSON-3 name with a surrogate": "a\ud800",
}


def _bad_name(name: str) -> WriteMistake:
    def make(ground: Ground) -> object | None:
        bad, choice = _BAD_NAMES[name], ground.random.randrange(6)
        if choice == 0:
            return ValueSet(forged(SessionAddress("a"), namespace=bad), 1)
        if choice == 1:
            address = ConversationAddress(ground.conversation(), "a", rewind=True)
            return ListClear(forged(address, namespace=bad))
        if choice == 2:
            return forged(ground.entry(), kind=bad)
        if choice == 3:
            return forged(ground.task(), kind=bad)
        if choice == 4 and bad != "":
            return forged(ground.entry(), key=bad)
        if bad != "":
            return ValueDelete(forged(SessionAddress("a"), key=bad))
        return forged(ground.task(), status="", state={"status": ""})

    return make


# --- Numbers that are none ---

_NO_SEQ: Final[tuple[object, ...]] = (0, -1, 2**53, 2**64, True, 1.0, "1", None)


def _no_seq(ground: Ground) -> object | None:
    bad, choice = ground.random.choice(_NO_SEQ), ground.random.randrange(8)
    if choice == 0:
        return forged(ground.entry(), conversation_id=bad)
    if choice == 1 and bad is not None:
        return forged(ground.entry(), head=bad)
    if choice == 2:
        return forged(ListRemove(SessionAddress("a"), Seq(1)), element=bad)
    if choice == 3:
        return forged(ground.task(), conversation_id=bad)
    if choice == 4:
        return forged(PatchTask(Seq(1), abort=True), id=bad)
    if choice == 5:
        return forged(DeleteConversation(Seq(1)), id=bad)
    if choice == 6:
        return forged(ground.entry(), edits=(forged(Omit(Seq(1)), target=bad),))
    address = forged(ConversationAddress(Seq(1), "a"), conversation=bad)
    return ValueSet(address, 1)


def _wrong_id(ground: Ground) -> object | None:
    seq, random = ground.seq, ground.random
    bad = random.choice((seq + 1, seq - 1, float(seq), str(seq), None, 0, -seq, 2**53))
    if seq == 1 and random.random() < 0.5:
        bad = True
    record = random.choice((ground.entry(), ground.task(), Conversation(id=seq)))
    return forged(record, id=bad)


VALUE_MISTAKES: Final[dict[str, WriteMistake]] = {
    **{name: _bad_value(name) for name in _BAD_VALUES},
    **{name: _bad_name(name) for name in _BAD_NAMES},
    "SEQ-1 wrong id": _wrong_id,
    "SEQ-2 no number": _no_seq,
}
