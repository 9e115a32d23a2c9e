"""The checks of arguments, which come before anything else of a call happens (ARG-1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from pico_harness.errors import ArgumentError
from pico_store.limits import SEQ_MAX
from pico_store.shown import shown

MILLISECONDS_MAX: Final = SEQ_MAX
"""Farther away than any clock will go, and what timers can still count with."""


def wrong(found: object, argument: str, allowed: str) -> ArgumentError:
    """Return the error that says what an argument is and what it may be."""
    what = shown(found)
    if type(found) not in (bool, type(None)):
        what = f"{type(found).__name__} {what}"
    return ArgumentError(argument, f"{what}; allowed: {allowed}")


def check_instance(value: object, wanted: type, argument: str, allowed: str) -> None:
    """Refuse what is not of a class."""
    if not isinstance(value, wanted):
        raise wrong(value, argument, allowed)


def check_flag(value: object, argument: str) -> None:
    """Refuse what is not true or false, for anything else would count as one of them."""
    if value is not True and value is not False:
        raise wrong(value, argument, "True or False")


def check_choice(value: object, choices: tuple[str, ...], argument: str) -> None:
    """Refuse what is none of some texts."""
    if type(value) is not str or value not in choices:
        raise wrong(value, argument, ", ".join(map(repr, choices)))


def check_id(value: object, argument: str) -> None:
    """Refuse what no id can be; a number that nothing has is for who looks for it."""
    if type(value) is not int:
        raise wrong(value, argument, "an id, which is an integer")


def check_count(value: object, argument: str) -> None:
    """Refuse what is not an integer of at least 1."""
    if type(value) is not int or value < 1:
        raise wrong(value, argument, "an integer of at least 1")


def check_milliseconds(value: object, argument: str) -> None:
    """Refuse what is no number of milliseconds that a timer can count with.

    A number below 0 is none to refuse: it is a time before the clock's 0, or time that has run out.
    """
    # Written so that what is not a number, which is neither more nor less, does not pass.
    if type(value) not in (int, float) or not value <= MILLISECONDS_MAX:  # type: ignore[operator]
        raise wrong(value, argument, "a number of milliseconds, at most 2^53-1")


def check_callable(value: object, argument: str, allowed: str) -> None:
    """Refuse what cannot be called."""
    if not callable(value):
        raise wrong(value, argument, allowed)


def check_mapping(value: object, argument: str, allowed: str) -> None:
    """Refuse what is no mapping."""
    if not isinstance(value, Mapping):
        raise wrong(value, argument, allowed)


def check_iterable(value: object, argument: str, allowed: str) -> None:
    """Refuse what cannot be gone through, and what has parts that nobody means: letters, keys."""
    if type(value) is tuple or type(value) is list:
        # Asking the abstract classes takes longer than all else that a task costs here.
        return
    if not isinstance(value, Iterable) or isinstance(value, (str, bytes, Mapping)):
        raise wrong(value, argument, allowed)
