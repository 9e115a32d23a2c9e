"""`pico digest`: one short text for the whole state of a session."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from pico_store.command import Command
from pico_store.commands.opening import add_store, existing_store, session
from pico_store.commands.output import counted, print_json, print_line
from pico_store.digest import digest
from pico_store.records import JsonValue


def _add_arguments(parser: ArgumentParser) -> None:
    add_store(parser)
    parser.add_argument("session", metavar="SESSION", nargs="?", help="all of them if not given")


def _run(args: Namespace) -> int:
    found: list[JsonValue] = []
    with existing_store(args.store) as store:
        ids = [info.id for info in store.sessions()]
        if args.session is not None:
            ids = [args.session]
        for id in ids:
            with session(store, id) as storage:
                last_seq = storage.last_seq
                text = digest(counted(storage.export(), f"reading {id}", sys.stderr))
            found.append({"session": id, "lastSeq": last_seq, "digest": text})
            if not args.json:
                print_line(f"{text}  {id}")
    if args.json:
        print_json({"digests": found})
    return 0


command = Command("digest", "print the digest of each session", _add_arguments, _run)
