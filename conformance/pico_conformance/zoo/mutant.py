"""Mutants: a backend, the fault that is planted into it, and where all of them are registered."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Literal, TypeAlias, TypeVar

from pico_conformance.target import Target, resolve_target
from pico_conformance.zoo.wrapper import Faulty, FaultyStore
from pico_store.backends import Promises
from pico_store.storage import Store

Base: TypeAlias = Literal["memory", "sqlite", "lmdb", "jsonl"]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A backend with one fault; called with a path it opens the store there."""

    name: str
    description: str
    """The fault in one line."""
    clauses: tuple[str, ...]
    """Of SPEC.md, that the fault breaks; none: nothing is planted."""
    base: Base
    """The backend that is right but for the fault."""
    wrap: Callable[[Callable[[str], Store], str], Store]

    @property
    def promises(self) -> Promises:
        """What the backend promises; the fault is that it does not keep it."""
        return resolve_target(self.base).promises

    def __call__(self, path: str) -> Store:
        """Open the store at a path."""
        return self.wrap(resolve_target(self.base).open_store, path)

    def target(self) -> Target:
        """Return the mutant as what the suite tests; other processes find it, too."""
        return Target(f"pico_conformance.zoo.pen:{self.name}", self.promises, self, named=True)


_MUTANTS: dict[str, Mutant] = {}

_Fault = TypeVar("_Fault", bound=type[Faulty] | type[FaultyStore])


def plant(*clauses: str, base: Base = "memory") -> Callable[[_Fault], _Fault]:
    """Register a class as a fault that breaks some clauses of SPEC.md.

    Args:
        clauses: At least one, such as ``"SEQ-1"``.
        base: The backend that the fault is planted into.
    """
    assert clauses, "a mutant names at least one clause that it breaks"

    def register(fault: _Fault) -> _Fault:
        assert fault.__name__ not in _MUTANTS, f"two mutants named {fault.__name__}"
        assert fault.__doc__, f"{fault.__name__} does not say what is wrong with it"
        _MUTANTS[fault.__name__] = _mutant(fault, fault.__doc__, clauses, base)
        return fault

    return register


def _mutant(
    fault: type[Faulty] | type[FaultyStore], text: str, clauses: tuple[str, ...], base: Base
) -> Mutant:
    wrap = fault.open_at if issubclass(fault, FaultyStore) else FaultyStore.holding(fault)
    return Mutant(fault.__name__, " ".join(text.split()), clauses, base, wrap)


def load_mutants() -> dict[str, Mutant]:
    """Import every module of `pico_conformance.zoo.faults` and return their mutants by name."""
    package: ModuleType = importlib.import_module("pico_conformance.zoo.faults")
    for module in pkgutil.iter_modules(package.__path__, "pico_conformance.zoo.faults."):
        importlib.import_module(module.name)
    return dict(_MUTANTS)


def controls() -> dict[str, Mutant]:
    """Return the backends of this project, wrapped as mutants are, with nothing planted.

    A suite that catches one of these catches by mistake.
    """
    bases: tuple[Base, ...] = ("sqlite", "lmdb", "jsonl", "memory")
    return {
        f"{base}_as_it_is": Mutant(
            f"{base}_as_it_is", "nothing is planted", (), base, FaultyStore.holding(Faulty)
        )
        for base in bases
    }
