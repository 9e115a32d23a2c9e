"""The subcommand `pico simulate`."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError

from pico_store.command import Command, deferred

_RANGE = "allowed: A..B, from A up to but without B, or one seed"
_SEEDS_MAX = 10_000_000
_DIGITS_MAX = 15


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--seeds", type=_seeds, default=range(2_000), metavar="A..B", help="which runs (0..2000)"
    )
    parser.add_argument(
        "--backend",
        default="memory:",
        metavar="URL",
        help="a store URL without a path; stores are made in a temporary folder (%(default)s)",
    )
    parser.add_argument("--jobs", type=_count, default=1, metavar="N", help="processes (1)")
    parser.add_argument(
        "--planted",
        action="store_true",
        help="plant every known fault and tell how many seeds find it",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="with --planted: a part of names",
    )


def _seeds(text: str) -> range:
    first, dots, last = text.partition("..")
    if not (_whole(first) and (_whole(last) or not dots)):
        raise ArgumentTypeError(f"{text!r:.60}; {_RANGE}")
    stop = int(last) if dots else int(first) + 1
    if stop <= int(first):
        raise ArgumentTypeError(f"{text!r:.60} holds no seed; {_RANGE}")
    if stop - int(first) > _SEEDS_MAX:
        raise ArgumentTypeError(f"{text!r:.60}; allowed: at most {_SEEDS_MAX:,} seeds at once")
    return range(int(first), stop)


def _whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX


def _count(text: str) -> int:
    if not _whole(text) or int(text) < 1:
        raise ArgumentTypeError(f"{text!r}; allowed: a whole number, 1 or more")
    return int(text)


simulate = Command(
    "simulate",
    "run the harness under random schedules, crashes and faults, each from a seed",
    _add_arguments,
    deferred("pico_harness.testing.show:run_simulate"),
)
