"""`pico figures`: measure, print one row a figure, end with 1 if one falls short."""

from __future__ import annotations

import os
import platform
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from pico_bench.case import Numbers, Setting, run_case
from pico_bench.figures import FIGURES, Figure
from pico_bench.measuring import Measured, measure
from pico_store.command import UsageError
from pico_store.commands.output import plural, print_json, print_line, table
from pico_store.records import JsonObject


def run_figures(args: Namespace) -> int:
    """Measure the figures that are asked for and return 1 if one falls short of its bar."""
    if args.file is not None and not args.json:
        raise UsageError(f"figures: {args.file!r} is one argument too many; see --help")
    figures = _chosen(args.only)
    with TemporaryDirectory(prefix="pico-figures-") as folder:
        setting = _setting(args, args.dir or folder)
        measured, numbers = measure(
            figures, setting, repetitions=args.reps, run_case=run_case, progress=_progress
        )
    if args.json:
        report = _as_json(measured, numbers, setting)
        if args.file is None:
            print_json(report)
        else:
            Path(args.file).write_bytes(msgspec.json.encode(report) + b"\n")
    if not args.json or args.file is not None:
        for line in _lines(measured, setting):
            print_line(line)
    return 0 if all(one.holds for one in measured) else 1


def _chosen(names: Sequence[str] | None) -> list[Figure]:
    if names is None:
        return list(FIGURES)
    known = ", ".join(figure.name for figure in FIGURES)
    for name in names:
        if not any(name in figure.name for figure in FIGURES):
            raise UsageError(f"figures: no figure {name!r}; there are: {known}")
    return [figure for figure in FIGURES if any(name in figure.name for name in names)]


def _setting(args: Namespace, folder: str) -> Setting:
    given = {"turns": args.turns, "entries": args.entries, "seconds": args.seconds}
    changes = {name: value for name, value in given.items() if value is not None}
    if args.session is not None:
        changes["session"] = os.path.abspath(args.session)
    return msgspec.structs.replace(Setting(kept=os.path.abspath(folder)), **changes)


def _lines(measured: Sequence[Measured], setting: Setting) -> list[str]:
    rows: list[tuple[str, ...]] = [("figure", "", "bar", "aim", "measured", "spread", "")]
    rows += [_row(one) for one in measured]
    lines = list(table(rows))
    for one in measured:
        if one.problem:
            lines.append(f"{one.figure.name} was not measured: {one.problem}")
    whole = Setting()
    for name in ("turns", "entries"):
        asked, given = getattr(whole, name), getattr(setting, name)
        if given < asked:
            lines.append(f"a trial: {given:,} {name}; the figures are promised for {asked:,}")
    short = sum(not one.holds for one in measured)
    lines.append(
        f"{plural(short, 'figure')} of {len(measured)} fell short"
        if short
        else f"{plural(len(measured), 'figure')} measured, all hold"
    )
    return lines


def _row(one: Measured) -> tuple[str, ...]:
    figure = one.figure
    bound = "≥" if figure.at_least else "≤"
    bar, aim = f"{bound} {_shown(figure.bar)}", f"{bound} {_shown(figure.aim)}"
    if one.problem:
        return (figure.name, figure.what, bar, aim, "–", "–", "failed")
    verdict = "aim" if figure.reaches_aim(one.median) else "bar" if one.holds else "SHORT"
    median = f"{_shown(one.median)} {figure.unit}"
    spread = f"{_shown(min(one.values))} – {_shown(max(one.values))}"
    return (figure.name, figure.what, bar, aim, median, spread, verdict)


def _shown(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _as_json(
    measured: Sequence[Measured], numbers: dict[str, list[Numbers]], setting: Setting
) -> JsonObject:
    figures: list[JsonObject] = [
        {
            "name": one.figure.name,
            "what": one.figure.what,
            "unit": one.figure.unit,
            "bar": one.figure.bar,
            "aim": one.figure.aim,
            "atLeast": one.figure.at_least,
            "measured": None if one.problem else one.median,
            "values": list(one.values),
            "holds": one.holds,
            "problem": one.problem or None,
        }
        for one in measured
    ]
    return {
        "figures": list(figures),
        "cases": {
            name: [dict(repetition) for repetition in case] for name, case in numbers.items()
        },
        "setting": {
            "turns": setting.turns,
            "entries": setting.entries,
            "fewEntries": setting.few_entries,
            "commits": setting.commits,
            "calls": setting.calls,
            "seconds": setting.seconds,
        },
        "machine": {
            "python": platform.python_version(),
            "system": platform.platform(),
            "cores": os.cpu_count(),
        },
    }


def _progress(text: str) -> None:
    """Say on a terminal what is being measured; quiet on anything else."""
    if sys.stderr.isatty():
        print(f"\r{text}\x1b[K", end="\r", file=sys.stderr, flush=True)
