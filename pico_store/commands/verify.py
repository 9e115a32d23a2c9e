"""`pico verify`: whether a store holds what was written."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import replace

from pico_store.command import Command
from pico_store.commands.opening import add_store, existing_store
from pico_store.commands.output import plural, print_json, print_line
from pico_store.commands.salvage import new_store_url, salvage_all
from pico_store.errors import StoreDamagedError
from pico_store.records import JsonObject, JsonValue
from pico_store.salvage import Outcome
from pico_store.storage import Problem, VerifyReport


def _add_arguments(parser: ArgumentParser) -> None:
    add_store(parser)
    parser.add_argument(
        "--salvage",
        metavar="NEW",
        help="copy what is whole into a new store: a URL, or a path for one of the same backend",
    )


def _run(args: Namespace) -> int:
    # Refused before the whole store is read.
    new = None if args.salvage is None else new_store_url(args.salvage, args.store)
    ended = _signal_of_opening(args.store)
    if ended:
        what = f"damaged so that opening it ended a process with signal {ended}; restore a backup"
        report = VerifyReport(0, (Problem(None, "store", what),))
    else:
        report = _verify(args.store)
    found = [_unadvised(problem) for problem in report.problems]
    if not args.json:
        for problem in found:
            print_line(_as_text(problem))
        records = plural(report.records, "record")
        print_line(f"{records} read, {plural(len(found), 'problem')}")
    problems: list[JsonValue] = [_as_json(problem) for problem in found]
    told: JsonObject = {"store": args.store, "records": report.records, "problems": problems}
    saved_all = True
    if new is not None:
        outcomes, beside = salvage_all(args.store, new)
        left_out = [one for outcome in outcomes for one in outcome.left_out] + beside
        altered = [one for outcome in outcomes for one in outcome.altered]
        saved_all = not left_out and not altered
        told["salvaged"] = {
            "store": new,
            "sessions": [_outcome_as_json(outcome) for outcome in outcomes],
            "leftOut": [_as_json(problem) for problem in left_out],
            "altered": [_as_json(change) for change in altered],
        }
        if not args.json:
            _print_salvaged(new, outcomes, left_out, altered)
    if args.json:
        print_json(told)
    return 0 if saved_all and not found else 1


def _print_salvaged(
    new: str, outcomes: list[Outcome], left_out: list[Problem], altered: list[Problem]
) -> None:
    for problem in left_out:
        print_line(f"left out: {_as_text(problem)}")
    for change in altered:
        print_line(f"altered: {_as_text(change)}")
    for outcome in outcomes:
        if outcome.items:
            how = "as it reads" if _is_whole(outcome) else "in part"
            items = plural(outcome.items, "item")
            print_line(f"{outcome.digest}  {outcome.session}  {items}, saved {how}")
    saved = sum(1 for outcome in outcomes if outcome.items)
    print_line(f"{saved:,} of {plural(len(outcomes), 'session')} saved in {new}")


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


def _as_text(problem: Problem) -> str:
    where = f"session {problem.session}, " if problem.session is not None else ""
    return f"{where}{problem.where}: {problem.what}"


def _is_whole(outcome: Outcome) -> bool:
    return bool(outcome.items) and not outcome.left_out and not outcome.altered


def _outcome_as_json(outcome: Outcome) -> JsonObject:
    return {
        "session": outcome.session,
        "items": outcome.items,
        "digest": outcome.digest or None,
        "whole": _is_whole(outcome),
    }


def _as_json(problem: Problem) -> JsonObject:
    return {"session": problem.session, "where": problem.where, "what": problem.what}


command = Command("verify", "read a whole store and compare its checksums", _add_arguments, _run)
