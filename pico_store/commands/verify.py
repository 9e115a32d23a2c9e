"""`pico verify`: whether a store holds what was written."""

from __future__ import annotations

import os
import sys
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
    ended = _signal_of_opening(args.store)
    if ended:
        what = f"damaged so that opening it ended a process with signal {ended}; restore a backup"
        report = VerifyReport(0, (Problem(None, "store", what),))
    else:
        report = _verify(args.store)
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


def _verify(url: str) -> VerifyReport:
    try:
        with existing_store(url) as store:
            return store.verify()
    except StoreDamagedError as error:
        # So damaged that it cannot be opened or read on, which is what was asked.
        return VerifyReport(0, (Problem(None, "store", str(error)),))


def _signal_of_opening(url: str) -> int:
    """Open a store in a process of its own; return the signal that this ended with, or 0.

    A damaged file that is mapped into memory can end whoever reads it.
    """
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            # What a library says of its end, and an error that is told again, are no news.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            with existing_store(url):
                pass
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def _unadvised(problem: Problem) -> Problem:
    """Return a problem without the advice to do what was done just now."""
    what, advice, _ = problem.what.partition("; run pico verify")
    return replace(problem, what=f"{what}; restore a backup") if advice else problem


def _as_json(problem: Problem) -> JsonObject:
    return {"session": problem.session, "where": problem.where, "what": problem.what}


command = Command("verify", "read a whole store and compare its checksums", _add_arguments, _run)
