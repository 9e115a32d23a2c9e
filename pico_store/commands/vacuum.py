"""`pico vacuum`: give back the room of what nothing shows any more."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from pico_store.command import Command
from pico_store.commands.opening import add_store, existing_store
from pico_store.commands.output import plural, print_json, print_line


def _add_arguments(parser: ArgumentParser) -> None:
    add_store(parser)


def _run(args: Namespace) -> int:
    with existing_store(args.store) as store:
        report = store.vacuum()
    if args.json:
        print_json(
            {
                "store": args.store,
                "bytesBefore": report.bytes_before,
                "bytesAfter": report.bytes_after,
                "recordsDropped": report.records_dropped,
            }
        )
    else:
        print_line(
            f"{report.bytes_before:,} bytes before, {report.bytes_after:,} after; "
            f"{plural(report.records_dropped, 'record')} dropped"
        )
    return 0


command = Command("vacuum", "give back the room of what was deleted", _add_arguments, _run)
