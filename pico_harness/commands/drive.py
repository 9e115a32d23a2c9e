"""`pico drive`: runs the tasks of a session until it is idle."""

from __future__ import annotations

from argparse import ArgumentParser

from pico_store.command import Command, deferred
from pico_store.commands.opening import add_session, add_store, number


def _add_arguments(parser: ArgumentParser) -> None:
    add_store(parser)
    add_session(parser)
    parser.add_argument(
        "--kinds",
        metavar="MODULE:ATTRIBUTE",
        action="append",
        help="the task kinds that can run; commas between several",
    )
    parser.add_argument(
        "--resume",
        metavar="TASK",
        type=number,
        action="append",
        default=[],
        help="let a parked task go on; may be given several times",
    )
    parser.add_argument(
        "--abort",
        metavar="TASK",
        type=number,
        action="append",
        default=[],
        help="mark a task as to be aborted; without --kinds, do nothing else",
    )
    parser.add_argument(
        "--orphan",
        action="store_true",
        help="settle foreground tasks of other kinds as orphaned, instead of stopping at them",
    )


command = Command(
    "drive",
    "run the tasks of a session until it is idle",
    _add_arguments,
    deferred("pico_harness.commands.driving:run"),
)
