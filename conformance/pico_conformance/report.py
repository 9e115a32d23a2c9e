"""What a run of `pico conformance` found out, as text and as an object."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from pico_conformance.campaign import Outcome
from pico_conformance.coverage import BESIDE, Row, rows
from pico_conformance.rule import RuleResult
from pico_conformance.tally import Tally
from pico_store.commands.output import plural, print_line, table
from pico_store.records import JsonObject, JsonValue


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


def print_report(report: Report) -> None:
    """Print the table by clause, then the total, then what failed."""
    found = rows(report.results, report.outcome.tally)
    for line in table(_table(found)):
        print(line)
    print_line()
    _print_total(report, found)
    if report.results:
        for clause, place in BESIDE.items():
            print_line(f"beside the backend ({place}): {clause}")
    for name, needs in sorted({(r.rule.name, r.detail) for r in report.results if _left_out(r)}):
        print_line(f"not promised ({needs}): {name}")
    _print_faults(report)
    print_line()
    if not report.compared:
        print_line(
            "NOTHING WAS COMPARED: no rule and no history; leave --no-rules out or give time"
        )
    print_line("conforms" if report.holds else "DOES NOT CONFORM")


def print_side_by_side(reports: Sequence[Report]) -> None:
    """Print the verdict of each clause on each backend, then the totals, then what failed."""
    found = {r.target: {row.clause: row for row in _rows_of(r)} for r in reports}
    clauses = dict.fromkeys(clause for each in found.values() for clause in each)
    lines: list[tuple[str, ...]] = [("clause", *found)]
    for clause in clauses:
        cells = [_verdict(each[clause]) if clause in each else "-" for each in found.values()]
        lines.append((clause, *cells))
    for line in table(lines):
        print(line)
    print_line()
    for report in reports:
        _print_total(report, _rows_of(report))
    for report in reports:
        _print_faults(report)
    print_line()
    for report in reports:
        print_line(f"{report.target}: {'conforms' if report.holds else 'DOES NOT CONFORM'}")


def _rows_of(report: Report) -> list[Row]:
    return rows(report.results, report.outcome.tally)


def _print_total(report: Report, found: list[Row]) -> None:
    tally = report.outcome.tally
    tested = [row for row in found if not row.left_out]
    left_out = f" ({len(found) - len(tested)} not promised)" if len(tested) < len(found) else ""
    ran = [result for result in report.results if result.verdict != "not promised"]
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


def _print_faults(report: Report) -> None:
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


def _histories(count: int) -> str:
    return f"{count:,} {'history' if count == 1 else 'histories'}"


def _left_out(result: RuleResult) -> bool:
    return result.verdict == "not promised"


def _table(found: list[Row]) -> list[tuple[str, ...]]:
    head = ("clause", "rules", "histories", "writes", "refusals", "acts", "reads", "verdict")
    lines: list[tuple[str, ...]] = [head]
    for row in found:
        counts = (row.histories, row.writes, row.refusals, row.acts, row.reads)
        cells = [f"{count:,}" if count else "-" for count in counts]
        lines.append((row.clause, str(row.rules), *cells, _verdict(row)))
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return [
        (line[0], *(c.rjust(w) for c, w in zip(line[1:-1], widths[1:-1], strict=True)), line[-1])
        for line in lines
    ]


def _verdict(row: Row) -> str:
    if row.failed:
        return f"{row.failed} BROKEN"
    return "not promised" if row.left_out else "ok"


def as_json(report: Report) -> JsonObject:
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
        "missed": list[JsonValue](report.missed),
        "difference": report.message or None,
        "shortest": list[JsonValue](report.shortest),
        "file": report.file or None,
    }


def _plain(count: int | Counter[str]) -> JsonValue:
    return count if isinstance(count, int) else dict(sorted(count.items()))
