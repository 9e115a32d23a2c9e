"""A subcommand of `pico`, as its entry point of group `pico.commands` names it."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint

from pico_store.errors import PicoError

ENTRY_POINT_GROUP = "pico.commands"


class UsageError(PicoError):
    """What was typed cannot be done: type something else. `pico` ends with code 2."""


@dataclass(frozen=True, slots=True)
class Command:
    """One subcommand.

    `pico --help` imports every module that holds one, so such a module stays light: what is slow
    to import belongs into the module that `deferred` names.
    """

    name: str
    """What is typed behind `pico`."""
    help: str
    """One line for the list in `pico --help`."""
    add_arguments: Callable[[ArgumentParser], None]
    """Declares arguments and options; ``--json`` is there already, as ``args.json``."""
    run: Callable[[Namespace], int]
    """Does it and returns the exit code: 0 done, 1 the thing checked does not hold."""


def deferred(target: str) -> Callable[[Namespace], int]:
    """Return a ``run`` that imports ``module:function`` when it is called, and calls it."""

    def run(args: Namespace) -> int:
        function: Callable[[Namespace], int] = EntryPoint("run", target, ENTRY_POINT_GROUP).load()
        return function(args)

    return run
