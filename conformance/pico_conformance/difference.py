"""What differs: found by comparing a backend with the model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from pico_conformance.model import Accepted, Refused
from pico_store.snapshot import SnapshotItem

_encode = msgspec.json.Encoder().encode


class DifferenceError(AssertionError):
    """A backend did not do what the model says."""

    def __init__(self, what: str, expected: object, found: object) -> None:
        super().__init__(f"{what}\n  expected: {expected!s:.1000}\n  found:    {found!s:.1000}")
        self.what = what


@dataclass(frozen=True, slots=True)
class Failure:
    """A difference and where in its history it showed."""

    message: str
    operation: int
    """The index of the operation; the history's length if it showed at the end."""


def expect(what: str, expected: object, found: object) -> None:
    """Raise a difference unless two things are equal."""
    if expected != found:
        raise DifferenceError(what, expected, found)


def verdict_text(verdict: Accepted | Refused) -> str:
    """Return what the model decided about a batch, for people."""
    if isinstance(verdict, Accepted):
        return f"accepted as {verdict.range!r}"
    allowed = ", ".join(sorted({f"{f.clause} ({f.error.__name__})" for f in verdict.faults}))
    where = "the batch" if verdict.write is None else f"writes[{verdict.write}]"
    return f"{where} refused by {allowed}"


def compare_exports(
    what: str, expected: Iterable[SnapshotItem], found: Iterable[SnapshotItem]
) -> None:
    """Raise a difference at the first item that differs, or that is missing or too many."""
    ours, theirs = list(expected), list(found)
    for index in range(max(len(ours), len(theirs))):
        if index >= len(theirs):
            raise DifferenceError(f"{what}: item {index} is missing", ours[index], "the end")
        if index >= len(ours):
            raise DifferenceError(f"{what}: item {index} is too many", "the end", theirs[index])
        mine, other = ours[index], theirs[index]
        if _encode(mine) != _encode(other) or mine != other:
            raise DifferenceError(f"{what}: item {index} differs", mine, other)


def spoil(value: object) -> None:
    """Change everything in a value that can be changed, as a careless caller might."""
    if isinstance(value, list):
        for part in value:
            spoil(part)
        value.append("spoiled")
    elif isinstance(value, dict):
        for part in value.values():
            spoil(part)
        value["spoiled"] = "spoiled"
    elif isinstance(value, tuple):
        for part in value:
            spoil(part)
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            spoil(getattr(value, name))
