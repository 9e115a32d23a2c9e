"""The subcommands of this package: `pico figures` and `pico compare`."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError

from pico_store.command import Command, deferred


def _add_arguments(parser: ArgumentParser) -> None:
    # `--json FILE` reads as one thing; to the parser it is a flag and this argument.
    parser.add_argument("file", nargs="?", help="with --json: write the object there")
    parser.add_argument(
        "--only",
        metavar="NAME",
        action="append",
        help="measure the figures whose name contains this; may be given several times",
    )
    parser.add_argument(
        "--reps", type=_count, default=5, metavar="N", help="repetitions (%(default)s)"
    )
    parser.add_argument(
        "--dir",
        metavar="DIR",
        help="where to work, on the disk to be measured; large sessions are kept there",
    )
    parser.add_argument(
        "--turns", type=_count, metavar="N", help="turns of the workload a case (2,000)"
    )
    parser.add_argument(
        "--entries", type=_count, metavar="N", help="entries of the large session (1,000,000)"
    )
    parser.add_argument(
        "--session",
        metavar="FILE",
        help="a recorded session to be compressed, as pico import reads",
    )
    parser.add_argument(
        "--seconds", type=_count, metavar="N", help="replay histories for so long (10)"
    )


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 12 or not int(text):
        raise ArgumentTypeError(f"{text[:40]!r}; allowed: a whole number, 1 or more")
    return int(text)


def _add_compare_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "url",
        nargs="*",
        help="stores to compare, whose paths are not used; else every installed backend",
    )
    parser.add_argument("--turns", type=_count, metavar="N", help="turns of the workload (300)")
    parser.add_argument(
        "--entries", type=_count, metavar="N", help="entries of the large session (50,000)"
    )
    parser.add_argument("--dir", metavar="DIR", help="where to work, on the disk to be measured")
    parser.add_argument("--output", dest="file", metavar="FILE", help="with --json: write there")


figures = Command(
    "figures",
    "measure every figure that is promised and say whether it holds",
    _add_arguments,
    deferred("pico_bench.run:run_figures"),
)
compare = Command(
    "compare",
    "measure what each backend takes on this machine",
    _add_compare_arguments,
    deferred("pico_bench.compare:run_compare"),
)
