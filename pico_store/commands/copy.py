"""`pico copy`: sessions from one store to another, their digests compared."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator

from pico_store.backends import split_url
from pico_store.command import Command, UsageError
from pico_store.commands.opening import existing_store, new_or_existing_store, session
from pico_store.commands.output import counted, print_json, print_line
from pico_store.copying import CopyReport, compare_sessions, copy_session
from pico_store.records import JsonObject
from pico_store.snapshot import SnapshotItem
from pico_store.storage import Store


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("source", metavar="SRC", help="the store to read")
    parser.add_argument("destination", metavar="DST", help="the store to write; made if missing")
    parser.add_argument(
        "--session",
        metavar="ID",
        action="append",
        help="a session to copy; may be given often; all of them if not given",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on with a copy that was interrupted: leave what DST holds with an equal digest",
    )


def _run(args: Namespace) -> int:
    reports: list[CopyReport] = []
    with existing_store(args.source) as source:
        if _is_one_place(args.source, args.destination):
            raise UsageError(
                f"{args.destination} is the store {args.source} itself; name another store to "
                "copy to"
            )
        ids = _chosen(source, args.session)
        for id in ids:
            _read_whole(source, id)
        # Only now, so that a wrong request or a damaged source makes no store.
        with new_or_existing_store(args.destination) as destination:
            there = {info.id for info in destination.sessions()}.intersection(ids)
            if there and not args.resume:
                raise UsageError(
                    f"{destination.url} holds a session {min(there)!r} already; copy to another "
                    "store, or go on with a copy that was interrupted with --resume"
                )
            for id in ids:
                report = (_compare if id in there else _copy)(source, destination, id)
                reports.append(report)
                if not args.json:
                    _print(report, args.destination, "was there" if id in there else "equal")
    if args.json:
        print_json({"copies": [_as_json(report) for report in reports]})
    return 0 if all(report.equal for report in reports) else 1


def _is_one_place(source: str, destination: str) -> bool:
    """Tell whether two URLs lead to one file or folder, however they are spelled."""
    try:
        return os.path.samefile(split_url(source)[1], split_url(destination)[1])
    except OSError:
        # The destination is not there yet, or cannot be looked at, which opening it will say.
        return False


def _chosen(source: Store, asked: list[str] | None) -> list[str]:
    there = [info.id for info in source.sessions()]
    if not there:
        raise UsageError(f"{source.url} holds no session")
    if asked is None:
        return there
    for id in asked:
        if id not in there:
            raise UsageError(f"{source.url} holds no session {id!r}; pico sessions lists them")
    return list(dict.fromkeys(asked))


def _read_whole(source: Store, id: str) -> None:
    """Make sure that a session can be read to its end."""
    with session(source, id) as storage:
        for _ in counted(storage.export(), f"reading {id}", sys.stderr):
            pass


def _copy(source: Store, destination: Store, id: str) -> CopyReport:
    def watch(items: Iterator[SnapshotItem]) -> Iterable[SnapshotItem]:
        return counted(items, f"copying {id}", sys.stderr)

    with session(source, id) as storage:
        return copy_session(storage, destination, id, watch)


def _compare(source: Store, destination: Store, id: str) -> CopyReport:
    with session(source, id) as original, session(destination, id) as copy:
        return compare_sessions(original, copy)


def _print(report: CopyReport, destination: str, outcome: str) -> None:
    if report.equal:
        print_line(f"{report.source_digest}  {report.session}  {report.items:,} items, {outcome}")
        return
    print_line(f"{report.source_digest}  {report.session}  as read")
    print_line(f"{report.destination_digest}  {report.session}  in {destination}: NOT EQUAL")


def _as_json(report: CopyReport) -> JsonObject:
    return {
        "session": report.session,
        "lastSeq": report.last_seq,
        "items": report.items,
        "sourceDigest": report.source_digest,
        "destinationDigest": report.destination_digest,
        "equal": report.equal,
    }


command = Command("copy", "copy sessions to another store", _add_arguments, _run)
