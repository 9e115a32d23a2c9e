"""The subcommand `pico zoo`."""

from __future__ import annotations

from argparse import ArgumentParser

from pico_store.command import Command, deferred


def _add_arguments(parser: ArgumentParser) -> None:
    # `--json FILE` reads as one thing; to the parser it is a flag and this argument.
    parser.add_argument("file", nargs="?", help="with --json: write the object there")
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="hunt this mutant alone; may be repeated"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="which histories (1)")
    parser.add_argument("--jobs", type=int, metavar="N", help="processes (as many as cores)")


zoo = Command(
    "zoo",
    "plant every known fault and print how the suite catches it",
    _add_arguments,
    deferred("pico_conformance.zoo.run:run_zoo"),
)
