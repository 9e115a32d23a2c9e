"""The subcommands of this package: `pico conformance` and `pico zoo`."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError

from pico_store.command import Command, deferred


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "backend",
        nargs="?",
        help="a backend's name, a store URL whose path is not used, or module:attribute",
    )
    parser.add_argument(
        "--all", action="store_true", help="test every installed backend and show them side by side"
    )
    # `--json FILE` reads as one thing; to the parser it is a flag and this argument.
    parser.add_argument("file", nargs="?", help="with --json: write the object there")
    parser.add_argument(
        "--seconds",
        type=_positive,
        metavar="N",
        help="replay histories for so long, after the rule tests (else 400 histories)",
    )
    parser.add_argument(
        "--writes", type=_count, metavar="N", help="replay until so many writes are accepted"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="which histories (1)")
    parser.add_argument(
        "--first", type=_natural, default=0, metavar="N", help="the history to begin with (0)"
    )
    parser.add_argument("--no-rules", action="store_true", help="leave the rule tests out")
    parser.add_argument("--jobs", type=_count, default=1, metavar="N", help="processes (1)")
    parser.add_argument(
        "--other",
        metavar="BACKEND",
        help="where sessions move to in the middle of a history (memory); 'none': nowhere",
    )
    parser.add_argument(
        "--failure",
        default="conformance_failure.py",
        metavar="FILE",
        help="where the shortest failing history goes, as a file to run (%(default)s)",
    )


def _positive(text: str) -> float:
    value = _number(text)
    if not 0 <= value < float("inf"):
        raise ArgumentTypeError(f"{text}; allowed: 0 or more")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r}; allowed: a number") from None


def _count(text: str) -> int:
    value = _natural(text)
    if value < 1:
        raise ArgumentTypeError(f"{text}; allowed: 1 or more")
    return value


def _natural(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ArgumentTypeError(f"{text!r}; allowed: a whole number, 0 or more")
    return int(text)


conformance = Command(
    "conformance",
    "test a backend against the model and the rules of the contract",
    _add_arguments,
    deferred("pico_conformance.run:run_conformance"),
)
