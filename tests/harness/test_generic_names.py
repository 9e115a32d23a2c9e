"""Kinds and names of state can be made with their type written out, as type checkers ask for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pico_harness import EntryKind, TaskOf
from pico_harness.state import ListOf, Value
from pico_store.address import Seq


@pytest.mark.parametrize(
    "make",
    [
        lambda: EntryKind[dict[str, int]]("note"),
        lambda: Value[int]("session", "n", int),
        lambda: ListOf[int]("session", "n", int),
        lambda: TaskOf[int](Seq(2), Seq(1), "k", "start", 1, (), False, False, False, ()),
    ],
)
def test_a_generic_record_takes_its_type_and_stays_frozen(make: Callable[[], object]) -> None:
    made = make()

    with pytest.raises(AttributeError):
        made.name = "other"  # type: ignore[attr-defined]
    assert made == make()
    assert hash(made) == hash(make())
