"""Whatever error a user may meet can be imported from the package that raises it."""

from __future__ import annotations

import importlib
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
