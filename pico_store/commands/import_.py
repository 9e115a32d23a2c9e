"""`pico import`: a session that another agent recorded becomes one of a store."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator
from pathlib import Path

from pico_store.command import Command, UsageError
from pico_store.commands.opening import new_or_existing_store
from pico_store.commands.output import counted, plural, print_json, print_line
from pico_store.importing import (
    ImportReport,
    PreparedImport,
    Transcript,
    TranscriptError,
    read_transcript,
)
from pico_store.importing.lines import Line
from pico_store.names import check_name
from pico_store.records import JsonObject


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "file", metavar="FILE", help="a JSONL transcript of the pi agent or of Claude Code"
    )
    parser.add_argument("store", metavar="STORE", help="a store's URL; made if missing")
    parser.add_argument(
        "--session", metavar="ID", help="its name in the store; what the file says if not given"
    )


def _run(args: Namespace) -> int:
    transcript = _read(args.file)
    name = args.session
    if name is None:
        name = transcript.session_id or Path(args.file).stem
    check_name(name, "sessionId")
    try:
        prepared = PreparedImport(transcript)
    except TranscriptError as error:
        raise UsageError(f"{args.file}: {error}") from error
    # Only now, so that a file that is refused makes no store.
    with new_or_existing_store(args.store) as store:
        if name in {info.id for info in store.sessions()}:
            raise UsageError(
                f"{store.url} holds a session {name!r} already; name another: --session ID"
            )
        report = prepared.load(store, name)
    if args.json:
        print_json(_as_json(report))
    else:
        _print(report)
    return 0


def _read(file: str) -> Transcript:
    def watch(lines: Iterator[Line]) -> Iterable[Line]:
        return counted(lines, "lines read", sys.stderr)

    try:
        with Path(file).open("rb") as stream:
            return read_transcript(stream, watch)
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror or error}") from error
    except TranscriptError as error:
        raise UsageError(f"{file}: {error}") from error


def _print(report: ImportReport) -> None:
    lines = plural(report.lines, "line")
    print_line(f"session {report.session}: imported {lines} of format {report.format}")
    conversations = plural(report.conversations, "conversation")
    print_line(f"  {conversations}, {plural(report.entries, 'entry')}:")
    for kind, count in report.kinds.items():
        print_line(f"  {count:>8,}  {kind}")
    if report.notes:
        total = sum(report.notes.values())
        print_line(
            f"  {plural(total, 'record')} without a message kept as import.* entries, "
            "which no model sees"
        )
    if report.replaced:
        print_line(f"  {plural(report.replaced, 'lone surrogate')} replaced by U+FFFD")
    if report.repeated:
        print_line(f"  {plural(report.repeated, 'repeated record')} taken once")
    if report.lost_parents:
        names = "names" if report.lost_parents == 1 else "name"
        print_line(
            f"  {plural(report.lost_parents, 'record')} {names} a parent that is not in the file; "
            "placed behind the last message above"
        )


def _as_json(report: ImportReport) -> JsonObject:
    return {
        "session": report.session,
        "format": report.format,
        "lastSeq": report.last_seq,
        "lines": report.lines,
        "conversations": report.conversations,
        "entries": report.entries,
        "kinds": {**report.kinds},
        "notes": {**report.notes},
        "replaced": report.replaced,
        "repeated": report.repeated,
        "lostParents": report.lost_parents,
    }


command = Command("import", "read a recorded session into a store", _add_arguments, _run)
