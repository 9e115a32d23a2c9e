"""A campaign: every attack on every backend for a while, and one table of what came of it."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from fuzz.attack import Budget, Outcome
from fuzz.attacks import ATTACKS
from fuzz.corpus import FOLDER, keep


def main(arguments: Sequence[str]) -> int:
    """Run a campaign and print its table; return 1 if a promise was broken."""
    options = _parse(arguments)
    pairs = [
        (attack, backend)
        for attack in ATTACKS
        for backend in attack.backends
        if (not options.attack or attack.name in options.attack)
        and (not options.backend or backend in options.backend)
    ]
    if not pairs:
        print("no attack of this name on a backend of this name", file=sys.stderr)
        return 2
    print(f"seed {options.seed}")
    print(f"{'attack':8} {'backend':8} {'tries':>9} {'a second':>9} {'faults':>7}")
    budget = Budget(options.tries, None if options.tries else options.seconds / len(pairs))
    outcomes = []
    for attack, backend in pairs:
        outcomes.append(attack.run(backend, options.seed, budget))
        _tell(outcomes[-1], options.keep)
    return _conclude(outcomes)


def _parse(arguments: Sequence[str]) -> Namespace:
    parser = ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="for all together (%(default)s)"
    )
    parser.add_argument("--tries", type=int, help="of each attack on each backend, instead")
    parser.add_argument(
        "--seed", type=int, default=time.time_ns() // 1_000_000 % 10**9, help="where to begin"
    )
    names = ", ".join(attack.name for attack in ATTACKS)
    parser.add_argument("--attack", action="append", metavar="NAME", help=f"only this: {names}")
    parser.add_argument("--backend", action="append", metavar="NAME", help="only this one")
    parser.add_argument(
        "--keep", type=Path, default=FOLDER, metavar="DIR", help="where faults go (%(default)s)"
    )
    return parser.parse_args(arguments)


def _tell(outcome: Outcome, folder: Path) -> None:
    """Print the row of an outcome and keep what was found at once: a campaign may be stopped."""
    rate = outcome.tries / outcome.seconds if outcome.seconds else 0.0
    row = f"{outcome.attack:8} {outcome.backend:8} {outcome.tries:9,} {rate:9,.0f} "
    row += f"{len(outcome.faults):7}  {outcome.missing}"
    print(row.rstrip(), flush=True)
    for fault in outcome.faults:
        print(f"  seed {fault.seed}: {fault.what}\n  kept in {keep(fault, folder)}", flush=True)


def _conclude(outcomes: list[Outcome]) -> int:
    """Say what all came to."""
    faults = sum(len(outcome.faults) for outcome in outcomes)
    tries = sum(outcome.tries for outcome in outcomes)
    print(f"\n{tries:,} tries, {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
