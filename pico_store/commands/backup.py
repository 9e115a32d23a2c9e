"""`pico backup`: a copy of a whole store in one file, made while others write."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from pico_store.backends import backends
from pico_store.command import Command, UsageError
from pico_store.commands.opening import add_store, existing_store
from pico_store.commands.output import print_json, print_line


def _add_arguments(parser: ArgumentParser) -> None:
    add_store(parser)
    parser.add_argument("file", metavar="FILE", help="where the copy goes; must not exist")


def _run(args: Namespace) -> int:
    scheme, colon, path = args.file.partition(":")
    if colon and scheme in backends():
        raise UsageError(
            f"{args.file} is a URL; a backup is written to a file: {path or 'backup.db'}, or "
            f"./{args.file} if that is its name"
        )
    with existing_store(args.store) as store:
        store.backup(args.file)
    if args.json:
        print_json({"store": args.store, "file": args.file})
    else:
        print_line(f"{args.store} is backed up to {args.file}")
    return 0


command = Command("backup", "write a consistent copy of a store to a file", _add_arguments, _run)
