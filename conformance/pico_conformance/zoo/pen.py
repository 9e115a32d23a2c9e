"""Mutants by name, so that `pico conformance pico_conformance.zoo.pen:NAME` finds one."""

from __future__ import annotations

from pico_conformance.zoo.mutant import Mutant, controls, load_mutants


def __getattr__(name: str) -> Mutant:
    found = {**load_mutants(), **controls()}.get(name)
    if found is None:
        raise AttributeError(f"no mutant {name!r}")
    return found
