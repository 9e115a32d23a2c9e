"""`pico conformance`: the rules, then histories, then one table of what that proved."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

import msgspec

from pico_conformance.campaign import Finding, Outcome, Plan, run
from pico_conformance.coverage import BESIDE, HISTORIES_ENOUGH, Row, missed, rows
from pico_conformance.reproduce import literal, shortest, source_text
from pico_conformance.rule import RuleResult, load_rules, run_rule
from pico_conformance.tally import Tally
from pico_conformance.target import Target, check_opens, resolve_target
from pico_conformance.workers import unwound_by_sigterm
from pico_store.command import UsageError
from pico_store.commands.output import plural, print_json, print_line, table

WHOLE = 4
"""One history of so many is compared in whole."""


@dataclass(slots=True)
class Report:
    """Everything that a run of `pico conformance` found out."""

    target: str
    seed: int
    results: list[RuleResult] = field(default_factory=list)
    outcome: Outcome = field(default_factory=Outcome)
    missed: list[str] = field(default_factory=list)
    shortest: list[str] = field(default_factory=list)
    """The operations of the shortest failing history."""
    message: str = ""
    """What differs at the end of it."""
    file: str = ""
    """Where it was written."""
    seconds: float = 0.0

    @property
    def failed_rules(self) -> list[RuleResult]:
        """The rules that do not hold."""
        return [result for result in self.results if result.verdict == "failed"]

    @property
    def holds(self) -> bool:
        """Whether nothing differs and the run was worth something."""
        return self.compared and not (self.failed_rules or self.outcome.finding or self.missed)

    @property
    def compared(self) -> bool:
        """Whether anything was tested at all."""
        ran = any(result.verdict != "not promised" for result in self.results)
        return ran or self.outcome.tally.histories > 0


def run_conformance(args: Namespace) -> int:
    """Test a backend, print what came of it and return 1 if anything differs."""
    if args.file is not None and not args.json:
        raise UsageError(f"conformance: {args.file!r} is one argument too many; see --help")
    target = resolve_target(args.backend)
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
            _shorten(report, report.outcome.finding, target, other, args.failure)
    report.seconds = time.monotonic() - start
    if args.json and args.file is None:
        print_json(as_json(report))
    else:
        print_report(report)
    if args.file is not None:
        Path(args.file).write_bytes(msgspec.json.format(msgspec.json.encode(as_json(report))))
    return 0 if report.holds else 1


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


# --- Showing ---


def print_report(report: Report) -> None:
    """Print the table by clause, then the total, then what failed."""
    found = rows(report.results, report.outcome.tally)
    for line in table(_table(found)):
        print(line)
    tally = report.outcome.tally
    tested = [row for row in found if not row.left_out]
    left_out = f" ({len(found) - len(tested)} not promised)" if len(tested) < len(found) else ""
    ran = [result for result in report.results if result.verdict != "not promised"]
    print_line()
    print_line(
        f"{report.target}: {plural(len(tested), 'clause')}{left_out}, "
        f"{plural(len(ran), 'rule test')}, "
        f"{_histories(tally.histories)}, {plural(tally.writes, 'write')}, "
        f"{plural(tally.refusals.total(), 'refusal')}, {plural(tally.reads, 'read')} and "
        f"{plural(tally.exports, 'export')} compared in {report.seconds:.1f} s"
    )
    if tally.histories:
        last = report.outcome.stop - 1
        print_line(f"seed {report.seed}, histories {report.outcome.first} to {last}")
    if report.results:
        for clause, place in BESIDE.items():
            print_line(f"beside the backend ({place}): {clause}")
    for name, needs in sorted({(r.rule.name, r.detail) for r in report.results if _left_out(r)}):
        print_line(f"not promised ({needs}): {name}")
    for result in report.failed_rules:
        print_line()
        print_line(f"RULE BROKEN {', '.join(result.rule.clauses)}: {result.rule.name}")
        for line in result.detail.splitlines()[-12:]:
            print_line(f"  {line}")
    if report.missed:
        print_line()
        print_line("THE GENERATOR IS BROKEN; it never met:")
        for name in report.missed:
            print_line(f"  {name}")
    finding = report.outcome.finding
    if finding is not None:
        print_line()
        print_line(f"DIFFERENCE in history {finding.number} of seed {report.seed}:")
        for line in report.message.splitlines():
            print_line(f"  {line}")
        print_line(f"the shortest history that shows it ({len(report.shortest)} operations):")
        for text in report.shortest:
            print_line(f"  {text}")
        print_line(f"run it: python {report.file}")
    print_line()
    if not report.compared:
        print_line(
            "NOTHING WAS COMPARED: no rule and no history; leave --no-rules out or give time"
        )
    print_line("conforms" if report.holds else "DOES NOT CONFORM")


def _histories(count: int) -> str:
    return f"{count:,} {'history' if count == 1 else 'histories'}"


def _left_out(result: RuleResult) -> bool:
    return result.verdict == "not promised"


def _table(found: list[Row]) -> list[tuple[str, ...]]:
    head = ("clause", "rules", "histories", "writes", "refusals", "acts", "reads", "verdict")
    lines: list[tuple[str, ...]] = [head]
    for row in found:
        verdict = "ok"
        if row.failed:
            verdict = f"{row.failed} BROKEN"
        elif row.left_out:
            verdict = "not promised"
        counts = (row.histories, row.writes, row.refusals, row.acts, row.reads)
        cells = [f"{count:,}" if count else "-" for count in counts]
        lines.append((row.clause, str(row.rules), *cells, verdict))
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return [
        (line[0], *(c.rjust(w) for c, w in zip(line[1:-1], widths[1:-1], strict=True)), line[-1])
        for line in lines
    ]


def as_json(report: Report) -> dict[str, object]:
    """Return a report for programs."""
    tally = report.outcome.tally
    return {
        "target": report.target,
        "conforms": report.holds,
        "seconds": round(report.seconds, 3),
        "seed": report.seed,
        "firstHistory": report.outcome.first,
        "lastHistory": report.outcome.stop - 1,
        "clauses": [asdict(row) for row in rows(report.results, tally)],
        "rules": [
            {
                "name": result.rule.name,
                "clauses": list(result.rule.clauses),
                "verdict": result.verdict,
                "detail": result.detail,
            }
            for result in report.results
        ],
        "tally": {name: _plain(getattr(tally, name)) for name in Tally.__slots__},
        "missed": report.missed,
        "difference": report.message or None,
        "shortest": report.shortest,
        "file": report.file or None,
    }


def _plain(count: int | Counter[str]) -> object:
    return count if isinstance(count, int) else dict(sorted(count.items()))


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
