"""Task kinds that a command line names as ``module:attribute``."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable
from types import ModuleType

from pico_harness.errors import KindError
from pico_harness.kinds import check_declaration
from pico_harness.registry import Registry
from pico_harness.task_kind import RunnableKind
from pico_store.command import UsageError

_FORM = "module:attribute, such as jobs:fetch"


def load_kinds(names: Iterable[str]) -> Registry[RunnableKind]:
    """Return the kinds that names stand for.

    An attribute is a kind, a class of kinds that needs no arguments, or a list or tuple of these.
    Modules are looked for in the current folder first.

    Args:
        names: Each with commas between several.

    Raises:
        UsageError: A name stands for no kind, or two kinds have one name.
    """
    if os.getcwd() not in sys.path:
        # The installed command's path begins with the folder that it is in.
        sys.path.insert(0, os.getcwd())
    kinds = Registry[RunnableKind]("task", check_declaration)
    for name in ",".join(names).split(","):
        for kind in _named(name.strip()):
            try:
                kinds.register(kind)
            except KindError as error:
                raise UsageError(f"{name}: {error}") from error
    return kinds


def _named(name: str) -> list[RunnableKind]:
    module_name, colon, attribute = name.partition(":")
    if not (colon and module_name and attribute):
        raise UsageError(f"{name!r:.80} names no kind; allowed: {_FORM}")
    module = _module(module_name)
    if not hasattr(module, attribute):
        raise UsageError(f"module {module_name} has no {attribute!r}; {_known(module)}")
    found = getattr(module, attribute)
    parts = found if isinstance(found, list | tuple) else [found]
    return [_kind(name, part, module) for part in parts]


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            where = "the current folder or among what is installed"
            raise UsageError(f"no module {name!r} in {where}; allowed: {_FORM}") from error
        problem = f"module {name} needs {error.name!r}, which is not installed"
        raise UsageError(f"{problem}; install it first") from error
    except Exception as error:
        problem = f"importing {name} raised {type(error).__name__}: {error}"
        raise UsageError(f"{problem}; correct the module") from error


def _kind(name: str, found: object, module: ModuleType) -> RunnableKind:
    if isinstance(found, type) and issubclass(found, RunnableKind):
        try:
            return found()
        except TypeError as error:
            problem = f"{name} cannot be made without arguments: {error}"
            raise UsageError(f"{problem}; name an instance") from error
    if isinstance(found, RunnableKind):
        return found
    problem = f"{name} is {type(found).__name__}, which is no task kind"
    raise UsageError(f"{problem}; {_known(module)}")


def _known(module: ModuleType) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, RunnableKind)]
    found = ", ".join(f"{module.__name__}:{name}" for name in sorted(names))
    return f"its kinds: {found}" if found else "it has no instance of TaskKind"
