"""Puts a fault into the harness, as an edit of its source in memory, and takes it out again."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from textwrap import dedent


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of one function."""

    target: str
    """``module:Class.method`` or ``module:function``, below ``pico_harness``."""
    old: str
    """What stands there, once."""
    new: str


@dataclass(frozen=True, slots=True)
class Planted:
    """A fault by name."""

    name: str
    edits: tuple[Edit, ...]


class MisfitError(Exception):
    """The source has changed, and the fault no longer fits: write it anew."""


@contextmanager
def planted(fault: Planted) -> Iterator[None]:
    """Run with a fault in the harness.

    Raises:
        MisfitError: What is to be replaced is not there exactly once.
    """
    undone: list[tuple[object, str, object]] = []
    try:
        for edit in fault.edits:
            owner, name = _find(edit.target)
            before = vars(owner)[name]
            undone.append((owner, name, before))
            setattr(owner, name, _edited(fault.name, before, edit))
        yield
    finally:
        for owner, name, before in reversed(undone):
            setattr(owner, name, before)


def _find(target: str) -> tuple[object, str]:
    module, _, path = target.partition(":")
    owner: object = import_module(f"pico_harness.{module}")
    *above, name = path.split(".")
    for part in above:
        owner = getattr(owner, part)
    return owner, name


def _edited(fault: str, before: object, edit: Edit) -> object:
    function = getattr(before, "__func__", before)
    assert inspect.isfunction(function)
    source = dedent(inspect.getsource(function))
    if source.count(edit.old) != 1:
        count = source.count(edit.old)
        raise MisfitError(f"{fault}: {edit.old!r} is {count} times in {edit.target}; allowed: once")
    made: dict[str, object] = {}
    code = compile(source.replace(edit.old, edit.new), f"<{fault}>", "exec")
    exec(code, function.__globals__, made)
    return made[function.__name__]
