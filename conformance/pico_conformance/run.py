"""`pico conformance`: the rules, then histories, then one table of what that proved."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import msgspec

from pico_conformance.campaign import Finding, Plan, run
from pico_conformance.coverage import HISTORIES_ENOUGH, missed
from pico_conformance.report import Report, as_json, print_report, print_side_by_side
from pico_conformance.reproduce import literal, shortest, source_text
from pico_conformance.rule import load_rules, run_rule
from pico_conformance.tally import Tally
from pico_conformance.target import Target, check_opens, resolve_target
from pico_conformance.workers import unwound_by_sigterm
from pico_store.backends import backends
from pico_store.command import UsageError
from pico_store.commands.output import print_json
from pico_store.errors import MissingDriverError
from pico_store.records import JsonObject

WHOLE = 4
"""One history of so many is compared in whole."""


def run_conformance(args: Namespace) -> int:
    """Test one backend or all, print what came of it and return 1 if anything differs."""
    folder = Path(args.failure).parent
    if not folder.is_dir():
        # Said now and not after the minutes that finding a failure takes.
        raise UsageError(f"conformance: --failure: {folder} is no folder; make it first")
    if args.all:
        return _run_all(args)
    if args.backend is None:
        raise UsageError("conformance: name a backend, or give --all; see --help")
    if args.file is not None and not args.json:
        raise UsageError(f"conformance: {args.file!r} is one argument too many; see --help")
    report = _test(args, args.backend, args.failure)
    _show(args, args.file, as_json(report), lambda: print_report(report))
    return 0 if report.holds else 1


def _run_all(args: Namespace) -> int:
    # There is no backend to name, so that a name can only be where the object goes.
    file = args.backend
    if args.file is not None or (file is not None and not args.json):
        raise UsageError("conformance: name a backend or give --all, not both")
    reports = []
    for name, backend in backends().items():
        if isinstance(backend, MissingDriverError):
            raise UsageError(f"conformance: {backend}")
        failure = Path(args.failure)
        reports.append(_test(args, name, str(failure.with_stem(f"{failure.stem}_{name}"))))
    _show(
        args,
        file,
        {"backends": [as_json(report) for report in reports]},
        lambda: print_side_by_side(reports),
    )
    return 0 if all(report.holds for report in reports) else 1


def _show(args: Namespace, file: str | None, found: JsonObject, show: Callable[[], None]) -> None:
    if args.json and file is None:
        print_json(found)
    else:
        show()
    if file is not None:
        Path(file).write_bytes(msgspec.json.format(msgspec.json.encode(found)))


def _test(args: Namespace, backend: str, failure: str) -> Report:
    target = resolve_target(backend)
    other = _other(args.other, target)
    if args.jobs > 1 and not target.named:
        raise UsageError("conformance: --jobs needs a backend that other processes find by name")
    # Here too: it makes a folder, and a run that is stopped leaves none behind.
    with unwound_by_sigterm():
        check_opens(target)
    # By default the same histories on every backend, just as many as must meet everything.
    histories = HISTORIES_ENOUGH if args.seconds is None and args.writes is None else None
    report = Report(target.name, args.seed)
    start = time.monotonic()
    with unwound_by_sigterm(), _Progress() as progress:
        rules = [] if args.no_rules else load_rules()
        for number, rule in enumerate(rules, 1):
            progress.say(f"rules: {number} of {len(rules)}")
            report.results.append(run_rule(rule, target))
        report.outcome = run(
            Plan(target, args.seed, other, whole=WHOLE),
            seconds=args.seconds,
            writes=args.writes,
            histories=histories,
            first=args.first,
            jobs=args.jobs,
            progress=progress.tally,
        )
        report.missed = missed(report.outcome.tally)
        if report.outcome.finding is not None:
            progress.say("shrinking the failing history")
            _shorten(report, report.outcome.finding, target, other, failure)
    report.seconds = time.monotonic() - start
    return report


def _other(name: str | None, target: Target) -> Target | None:
    if name == "none":
        return None
    if name is not None:
        return resolve_target(name)
    # A difference while the session is away must be the target's own, so it goes where the
    # simplest backend is; that one is tested by itself.
    return None if target.name.startswith("memory") else resolve_target("memory")


def _shorten(
    report: Report, finding: Finding, target: Target, other: Target | None, file: str
) -> None:
    history, failure, care = shortest(target, other, finding.history)
    report.message = finding.failure.message if failure is None else failure.message
    if failure is None:
        report.message += "\n  (seen once; the same history did not fail again)"
    report.shortest = [literal(operation) for operation in history]
    away = None if other is None else other.name
    text = source_text(target.name, away, history, failure or finding.failure, care)
    Path(file).write_text(text, encoding="utf-8")
    report.file = file


class _Progress:
    """One line on a terminal that is written over; nothing in a pipe."""

    def __init__(self) -> None:
        self._shows = sys.stderr.isatty()

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *error: object) -> None:
        if self._shows:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def say(self, text: str) -> None:
        if self._shows:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()

    def tally(self, tally: Tally) -> None:
        self.say(f"{tally.histories:,} histories, {tally.writes:,} writes, {tally.reads:,} reads")
