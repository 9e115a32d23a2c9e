"""`pico zoo`: every mutant hunted, side by side, and one table of what caught it."""

from __future__ import annotations

import os
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from difflib import get_close_matches
from multiprocessing import get_context
from pathlib import Path

import msgspec

from pico_conformance.zoo.hunt import Catch, hunt
from pico_conformance.zoo.mutant import Mutant, controls, load_mutants
from pico_store.command import UsageError
from pico_store.commands.output import plural, print_json, print_line, table


def run_zoo(args: Namespace) -> int:
    """Hunt mutants, print what caught each and return 1 if one got through."""
    if args.file is not None and not args.json:
        raise UsageError(f"zoo: {args.file!r} is one argument too many; see --help")
    jobs = os.cpu_count() or 1 if args.jobs is None else args.jobs
    if jobs < 1:
        raise UsageError(f"zoo: --jobs {jobs}; allowed: 1 or more")
    mutants = _chosen(args.only)
    start = time.monotonic()
    found = {catch.name: catch for catch in hunt_all(list(mutants), args.seed, jobs)}
    catches = [found[name] for name in mutants]
    seconds = time.monotonic() - start
    survivors = [
        catch.name for catch in catches if mutants[catch.name].clauses and not catch.caught
    ]
    slandered = [
        catch.name for catch in catches if catch.caught and not mutants[catch.name].clauses
    ]
    report = as_json(catches, mutants, args.seed, seconds, survivors, slandered)
    if args.json and args.file is None:
        print_json(report)
    else:
        print_report(catches, mutants, seconds, survivors, slandered)
    if args.file is not None:
        Path(args.file).write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    return 1 if survivors or slandered else 0


def _chosen(names: list[str] | None) -> dict[str, Mutant]:
    """Return the mutants to hunt: all and the controls, or those that are named."""
    # The controls first: they run through everything, the one on SQLite longer than any mutant.
    every = {**controls(), **load_mutants()}
    for name in names or ():
        if name not in every:
            near = get_close_matches(name, every, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UsageError(f"zoo: no mutant {name!r}{hint}")
    return every if names is None else {name: every[name] for name in names}


def hunt_all(names: list[str], seed: int, jobs: int) -> Iterator[Catch]:
    """Hunt mutants in processes of their own, several at once; yield what came of each."""
    # A fresh interpreter for each process: no threads and handles of this one are in the others.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(_hunt_there, name, seed) for name in names]
        for done, future in enumerate(as_completed(waiting), 1):
            if sys.stderr.isatty():
                sys.stderr.write(f"\r\x1b[K{done} of {len(names)}")
            yield future.result()
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")


def _hunt_there(name: str, seed: int) -> Catch:
    return hunt({**controls(), **load_mutants()}[name], seed)


# --- Showing ---


def print_report(
    catches: list[Catch],
    mutants: dict[str, Mutant],
    seconds: float,
    survivors: list[str],
    slandered: list[str],
) -> None:
    """Print one line a mutant, then what the hunt came to."""
    head = ("mutant", "breaks", "rule", "writes", "s", "replay", "writes", "s")
    lines = [head, *(_line(catch, mutants[catch.name]) for catch in catches)]
    for line in table(lines):
        print(line)
    planted = [catch for catch in catches if mutants[catch.name].clauses]
    by_rules = sum(bool(catch.rules.caught_by) for catch in planted)
    by_replay = sum(bool(catch.replay.caught_by) for catch in planted)
    print_line()
    print_line(
        f"{plural(len(planted), 'mutant')}: {by_rules} caught by rules, {by_replay} by random "
        f"histories alone, {len(survivors)} by neither; {seconds:.0f} s"
    )
    for name in survivors:
        print_line(f"SURVIVED: {name}: {mutants[name].description}")
    for name in slandered:
        print_line(f"CAUGHT WITHOUT A FAULT: {name}")


def _line(catch: Catch, mutant: Mutant) -> tuple[str, ...]:
    cells = [catch.name, " ".join(mutant.clauses) or "-"]
    for trail in (catch.rules, catch.replay):
        cells += [trail.caught_by.removeprefix("test_") or "-"]
        cells += [f"{trail.writes:,}", f"{trail.seconds:.1f}"]
    return tuple(cells)


def as_json(
    catches: list[Catch],
    mutants: dict[str, Mutant],
    seed: int,
    seconds: float,
    survivors: list[str],
    slandered: list[str],
) -> dict[str, object]:
    """Return the hunt for programs."""
    return {
        "seed": seed,
        "seconds": round(seconds, 3),
        "survivors": survivors,
        "caughtWithoutFault": slandered,
        "mutants": [
            {
                "name": catch.name,
                "description": mutants[catch.name].description,
                "clauses": list(mutants[catch.name].clauses),
                "base": mutants[catch.name].base,
                "caught": catch.caught,
                "rules": msgspec.to_builtins(catch.rules),
                "replay": msgspec.to_builtins(catch.replay),
            }
            for catch in catches
        ],
    }
