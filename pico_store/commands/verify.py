"""`pico verify`: whether a store holds what was written."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from pico_store.command import Command
from pico_store.commands.opening import add_store, existing_store
from pico_store.commands.output import plural, print_json, print_line
from pico_store.records import JsonObject
from pico_store.storage import Problem


def _add_arguments(parser: ArgumentParser) -> None:
    add_store(parser)


def _run(args: Namespace) -> int:
    with existing_store(args.store) as store:
        report = store.verify()
    if args.json:
        problems = [_as_json(problem) for problem in report.problems]
        print_json({"store": args.store, "records": report.records, "problems": problems})
    else:
        for problem in report.problems:
            where = f"session {problem.session}, " if problem.session is not None else ""
            print_line(f"{where}{problem.where}: {problem.what}")
        records = plural(report.records, "record")
        print_line(f"{records} read, {plural(len(report.problems), 'problem')}")
    return 1 if report.problems else 0


def _as_json(problem: Problem) -> JsonObject:
    return {"session": problem.session, "where": problem.where, "what": problem.what}


command = Command("verify", "read a whole store and compare its checksums", _add_arguments, _run)
