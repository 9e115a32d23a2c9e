"""What `pico simulate` does and prints."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from time import perf_counter

from pico_harness.testing.campaign import Hunt, Tally, campaign, hunt
from pico_harness.testing.run import Report
from pico_store.command import UsageError


def run_simulate(args: Namespace) -> int:
    """Run seeds, or hunt planted faults; 1 if something is not as it has to be."""
    if args.only and not args.planted:
        raise UsageError("--only names planted faults; allowed: with --planted")
    if args.planted:
        return _hunt(len(args.seeds), args.only, as_json=args.json)
    begun = perf_counter()
    tally = campaign(args.seeds, backend=args.backend, jobs=args.jobs)
    seconds = perf_counter() - begun
    if args.json:
        print(json.dumps(_tally(tally, seconds)))
    else:
        for failure in tally.failures:
            print("\n".join(failed(failure, args.backend)))
        rate = f"{tally.runs / seconds:.0f} runs a second"
        print(
            f"{tally.runs} runs, {tally.tasks} tasks, {tally.commits} commits; "
            f"{len(tally.failures)} failed; {rate}"
        )
    return 1 if tally.failures else 0


def failed(report: Report, backend: str = "memory:") -> list[str]:
    """Return the lines that tell of a failing run: trace, problems, how to see it again."""
    option = "" if backend == "memory:" else f" --backend {backend}"
    return [
        f"=== seed {report.seed}",
        *report.trace,
        *(f"seed {report.seed}: {problem}" for problem in report.problems),
        f"again: pico simulate --seeds {report.seed}{option}",
    ]


def _tally(tally: Tally, seconds: float) -> dict[str, object]:
    failures = [
        {"seed": report.seed, "problems": report.problems, "trace": report.trace}
        for report in tally.failures
    ]
    return {
        "runs": tally.runs,
        "tasks": tally.tasks,
        "commits": tally.commits,
        "seconds": round(seconds, 3),
        "failures": failures,
    }


def _hunt(seeds_max: int, names: list[str], *, as_json: bool) -> int:
    hunts: list[Hunt] = []
    for found in hunt(seeds_max, names):
        hunts.append(found)
        if not as_json:
            print(_line(found))
            sys.stdout.flush()
    wrong = [found.name for found in hunts if not found.right]
    if as_json:
        rows = [{"name": h.name, "harmless": h.harmless, "seeds": h.seeds} for h in hunts]
        print(json.dumps({"planted": rows, "wrong": wrong}))
    else:
        print(f"{len(hunts)} planted, {len(wrong)} not as they should be")
    return 1 if wrong else 0


def _line(found: Hunt) -> str:
    seeds = "-" if found.seeds is None else str(found.seeds)
    note = "" if found.right else "  WRONG"
    kind = "harmless: " if found.harmless else ""
    return f"{seeds:>6}  {kind}{found.name}{note}"
