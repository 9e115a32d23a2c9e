"""`pico inspect`: the live tasks of a session, without disturbing who works on it."""

from __future__ import annotations

from argparse import ArgumentParser

from pico_store.command import Command, deferred
from pico_store.commands.opening import add_session, add_store


def _add_arguments(parser: ArgumentParser) -> None:
    add_store(parser)
    add_session(parser)
    parser.add_argument(
        "--kinds",
        metavar="MODULE:ATTRIBUTE",
        action="append",
        help="task kinds to judge by, to tell what nobody here could run; commas between several",
    )


command = Command(
    "inspect",
    "show the live tasks of a session",
    _add_arguments,
    deferred("pico_harness.commands.inspecting:run"),
)
