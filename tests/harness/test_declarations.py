"""Kinds and names as their authors write them: made with a type, and refused where ill formed."""

from collections.abc import Mapping
from typing import ClassVar

import pytest

from pico_harness.errors import KindError
from pico_harness.kinds import EntryKind, TaskDeclaration, TaskOf, TaskState, check_declaration
from pico_harness.state import Value
from pico_store.records import TaskRole


def test_a_kind_and_a_name_can_be_made_with_their_type() -> None:
    assert EntryKind[int]("number", int) == EntryKind("number", int)
    assert Value[int]("session", "number", int) == Value("session", "number", int)
    task = TaskOf[str](1, 1, "kind", "start", "state", (), False, False, False, ())  # type: ignore[arg-type]
    assert task.state == "state"


class Numbered(TaskState, frozen=True, tag=7):
    pass


class Elsewhere(TaskState, frozen=True, tag_field="type"):
    pass


class Done(TaskState, frozen=True):
    pass


@pytest.mark.parametrize("variant", [Numbered, Elsewhere])
def test_a_variant_that_storage_could_not_tell_apart_is_refused(variant: type[TaskState]) -> None:
    class Odd(TaskDeclaration):
        name = "odd"
        states: ClassVar[Mapping[type[TaskState], TaskRole]] = {variant: "start", Done: "terminal"}

    with pytest.raises(KindError, match="allowed: a text under 'status'"):
        check_declaration(Odd())
