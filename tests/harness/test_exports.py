"""Whatever error a user may meet can be imported from the package that raises it."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import pico_harness
import pico_harness.testing

# What the simulation of the harness itself raises and catches.
WITHIN = {"CrashError", "MisfitError", "ScriptedError"}


def errors() -> dict[str, type[BaseException]]:
    """Return the error classes that the modules of the package define, by module and name."""
    found: dict[str, type[BaseException]] = {}
    for module in pkgutil.walk_packages(pico_harness.__path__, "pico_harness."):
        for name, value in vars(importlib.import_module(module.name)).items():
            own = isinstance(value, type) and value.__module__ == module.name
            if own and issubclass(value, BaseException) and name not in WITHIN:
                found[f"{module.name}.{name}"] = value
    return found


def test_every_error_is_exported() -> None:
    found = errors()
    missing = []
    for path, error in found.items():
        package = pico_harness.testing if ".testing." in path else pico_harness
        if getattr(package, error.__name__, None) is not error:
            missing.append(path)

    assert missing == []
    assert len(found) > 20


def test_the_signature_of_every_class_can_be_asked_for() -> None:
    """Editors ask; a field that hides a name within its own annotation breaks that."""
    asked = [
        inspect.signature(value, eval_str=True)
        for value in vars(pico_harness).values()
        # Exceptions without a method of their own have no signature in Python.
        if isinstance(value, type) and not issubclass(value, BaseException)
    ]

    assert len(asked) > 20
