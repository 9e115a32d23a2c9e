"""`pico verify`: whether a store holds what was written."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import replace

from pico_store.command import Command
from pico_store.commands.opening import add_store, existing_store
from pico_store.commands.output import plural, print_json, print_line
from pico_store.errors import StoreDamagedError
from pico_store.records import JsonObject
from pico_store.storage import Problem, VerifyReport


def _add_arguments(parser: ArgumentParser) -> None:
    add_store(parser)


def _run(args: Namespace) -> int:
    try:
        with existing_store(args.store) as store:
            report = store.verify()
    except StoreDamagedError as error:
        # So damaged that it cannot be opened or read on, which is what was asked.
        report = VerifyReport(0, (Problem(None, "store", str(error)),))
    found = [_unadvised(problem) for problem in report.problems]
    if args.json:
        problems = [_as_json(problem) for problem in found]
        print_json({"store": args.store, "records": report.records, "problems": problems})
    else:
        for problem in found:
            where = f"session {problem.session}, " if problem.session is not None else ""
            print_line(f"{where}{problem.where}: {problem.what}")
        records = plural(report.records, "record")
        print_line(f"{records} read, {plural(len(found), 'problem')}")
    return 1 if found else 0


def _unadvised(problem: Problem) -> Problem:
    """Return a problem without the advice to do what was done just now."""
    what, advice, _ = problem.what.partition("; run pico verify")
    return replace(problem, what=f"{what}; restore a backup") if advice else problem


def _as_json(problem: Problem) -> JsonObject:
    return {"session": problem.session, "where": problem.where, "what": problem.what}


command = Command("verify", "read a whole store and compare its checksums", _add_arguments, _run)
