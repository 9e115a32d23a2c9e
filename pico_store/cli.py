"""The `pico` command: finds the subcommand that is asked for, runs it, and says what went wrong."""

from __future__ import annotations

import os
import sys
import traceback
from argparse import PARSER, REMAINDER, ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points, version
from typing import NoReturn, TextIO

from pico_store.command import ENTRY_POINT_GROUP, Command, UsageError
from pico_store.errors import MissingDriverError, PicoError, RefusedError
from pico_store.interruption import came, raised_again

DONE = 0
USAGE = 2
"""Something in the request is wrong."""
UNUSABLE = 3
"""The store cannot be used, now or ever."""
INTERNAL = 70
"""A fault of pico itself."""
INTERRUPTED = 130
BROKEN_PIPE = 141
TRACEBACK_VARIABLE = "PICO_TRACEBACK"

_INTRODUCTION = """\
usage: pico COMMAND ...

Durable storage for agent conversations. A STORE is a URL:
sqlite:FILE, lmdb:FOLDER, jsonl:FOLDER or memory:

"""
_EXAMPLES = """
first steps:
  pico import session.jsonl sqlite:sessions.db
  pico show sqlite:sessions.db
  pico fork sqlite:sessions.db --at 42
  pico COMMAND --help

Each command has --json. Exit codes: 0 done, 1 what was checked does not hold, 2 usage,
3 the store cannot be used.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `pico` with the given arguments, the process's own by default.

    Returns:
        The exit code: 0 done, 1 the thing checked does not hold, 2 usage, 3 the store cannot be
        used; 130 interrupted, 141 the reader of the output went away, 70 a fault of pico.
    """
    # A stream that was closed before the process began is None; writing to it cannot work.
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - lives as long as the process
    if sys.stdout is None:
        return _say("there is no output to write to: it was closed", UNUSABLE)
    _never_fail_to_print(sys.stdout)
    with raised_again():
        code = _outcome(list(sys.argv[1:] if argv is None else argv))
        stopped = came()
    try:
        sys.stdout.flush()
    except OSError:
        # It was said already; the interpreter would fail once more on its way out.
        _silence(sys.stdout)
    if stopped and code != INTERRUPTED:
        # It met the last moments, or code that holds on to what it should pass on.
        return _say("interrupted", 128 + stopped)
    return code


def _outcome(arguments: list[str]) -> int:
    """Run a command and return its exit code, whatever happens."""
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return _say("interrupted", INTERRUPTED)
    except MissingDriverError as error:
        return _say(str(error), UNUSABLE)
    except (UsageError, RefusedError) as error:
        return _say(str(error), USAGE)
    except PicoError as error:
        return _say(str(error), UNUSABLE)
    except OSError as error:
        where = f"{error.filename}: " if error.filename is not None else ""
        return _say(f"{where}{error.strerror or error}", UNUSABLE)
    except Exception as error:  # noqa: BLE001 - the last boundary: a traceback helps no user
        if os.environ.get(TRACEBACK_VARIABLE):
            traceback.print_exc()
        problem = f"a fault of pico itself: {type(error).__name__}: {error}"
        return _say(f"{problem}; {TRACEBACK_VARIABLE}=1 shows where, please report it", INTERNAL)


def _dispatch(arguments: list[str]) -> int:
    match arguments:
        case []:
            print(_overview(), end="", file=sys.stderr)
            return USAGE
        case ["-h" | "--help" | "help"]:
            print(_overview(), end="")
            return DONE
        case ["--version"]:
            print(f"pico {version('pico-store')}")
            return DONE
        case ["help", name, *_]:
            return _run(name, ["--help"])
        case [name, *rest]:
            return _run(name, rest)
    raise AssertionError(arguments)


def _run(name: str, arguments: list[str]) -> int:
    point = _points().get(name)
    if point is None:
        near = get_close_matches(name, _points(), n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise UsageError(f"no command {name!r}; {hint}pico --help lists them")
    command = _load(point)
    if isinstance(command, str):
        raise UsageError(f"{name}: {command}")
    parser = _Parser(
        prog=f"pico {command.name}",
        description=command.help,
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    command.add_arguments(parser)
    # Arguments may stand on both sides of options, unless one takes all that follows.
    # The actions of a parser are not public, but nothing else tells.
    greedy = any(action.nargs in (PARSER, REMAINDER) for action in parser._actions)
    parse = parser.parse_args if greedy else parser.parse_intermixed_args
    try:
        args = parse(arguments)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else USAGE
    return command.run(args)


class _Parser(ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog.removeprefix('pico ')}: {message}; see {self.prog} --help")


def _points() -> dict[str, EntryPoint]:
    points = entry_points(group=ENTRY_POINT_GROUP)
    return {point.name: point for point in sorted(points, key=lambda point: point.name)}


def _load(point: EntryPoint) -> Command | str:
    """Return a command, or what is missing for it."""
    try:
        command = point.load()
    except ModuleNotFoundError as error:
        return f"needs the Python module {error.name!r}, which is not installed; install it first"
    except (ImportError, AttributeError) as error:
        return f"cannot be loaded: {error}; install its package again"
    if not isinstance(command, Command):
        return f"{point.value} is not a Command; install its package again"
    return command


def _overview() -> str:
    lines = []
    for name, point in _points().items():
        command = _load(point)
        text = f"({command})" if isinstance(command, str) else command.help
        lines.append(f"  {name:<12} {text}\n")
    return f"{_INTRODUCTION}commands:\n{''.join(lines)}{_EXAMPLES}"


def _say(problem: str, code: int) -> int:
    line = " ".join(problem.split())
    try:
        print(f"pico: {line}", file=sys.stderr)
    except BrokenPipeError:
        _silence(sys.stderr)
    return code


def _never_fail_to_print(stream: TextIO) -> None:
    """Write what the terminal's encoding lacks as escapes instead of failing."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def _silence(stream: TextIO) -> None:
    """Send what is still buffered to nowhere, so that the end of the process cannot fail."""
    try:
        number = stream.fileno()
    except (OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


if __name__ == "__main__":
    sys.exit(main())
