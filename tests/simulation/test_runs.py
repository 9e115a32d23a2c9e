"""Simulated runs of the harness as it is."""

import os
import subprocess
import sys
from dataclasses import replace
from itertools import combinations, product
from typing import Final

import pytest

from pico_harness.testing.campaign import campaign, quiet
from pico_harness.testing.loop import DelayChoices
from pico_harness.testing.run import run
from pico_harness.testing.scenario import Act, Life, generate
from pico_harness.testing.show import failed
from pico_harness.testing.storage import Fault
from pico_store.backends import open_store

# With the hunts for planted faults about 20,000 schedules.
RANDOM_RUNS = 4_000
DELAYED_RUNS = 8_000
CRASHED_RUNS = 2_000
CRASHES: Final[tuple[Fault, ...]] = ("crash_before", "crash_after")


def test_no_schedule_breaks_a_promise() -> None:
    tally = campaign(range(RANDOM_RUNS))

    assert not tally.failures, "\n".join(failed(tally.failures[0]))
    assert tally.runs == RANDOM_RUNS
    # A run is about ten tasks, or it shows little.
    assert 9 < tally.tasks / tally.runs < 13


def test_no_delay_of_up_to_two_callbacks_breaks_a_promise() -> None:
    runs = 0
    seed = 0
    with quiet() as ran:
        while runs < DELAYED_RUNS:
            seed += 1
            scenario = generate(seed, tasks=2)
            for delays in combinations(range(0, 60, 2), 2):
                store = open_store("memory:")
                choices = DelayChoices(frozenset(delays))
                report = run(seed, store, scenario=scenario, choices=choices)
                assert not report.problems, f"seed {seed}, delays {delays}: {report.problems}"
                ran()
                runs += 1


def test_a_crash_at_any_commit_changes_nothing_in_the_end() -> None:
    acts = (*(Act("create", 2 * n) for n in range(3)), Act("drive_all", 0), Act("accept", 1))
    runs = seed = crashed = 0
    with quiet() as ran:
        while runs < CRASHED_RUNS:
            seed += 1
            scenario = generate(seed, tasks=3)
            for at, fault in product(range(20), CRASHES):
                lives = (Life(acts, {at: fault}, away=seed % 2 == 0, end_ms=5_000),)
                case = replace(scenario, lives=lives)
                report = run(seed, open_store("memory:"), scenario=case, traced=seed == 1)
                assert not report.problems, f"seed {seed}, {fault} at {at}: {report.problems}"
                crashed += any(fault in line for line in report.trace)
                ran()
                runs += 1
    # The first scenario alone is traced, and has a crash at each of its commits.
    assert crashed > 8


@pytest.mark.parametrize("backend", ["sqlite:", "jsonl:", "lmdb:"])
def test_no_schedule_breaks_a_promise_on_disk(backend: str) -> None:
    tally = campaign(range(40), backend=backend)

    assert not tally.failures, "\n".join(failed(tally.failures[0], backend))


def traces(seeds: range) -> list[tuple[str, ...]]:
    with quiet():
        return [run(seed, open_store("memory:"), traced=True).trace for seed in seeds]


def test_a_seed_repeats_a_run_exactly() -> None:
    first = traces(range(20))

    assert first == traces(range(20))
    assert min(map(len, first)) > 20


_DIGEST = """
from hashlib import sha256
from pico_harness.testing.run import run
from pico_harness.testing.storage import Fault
from pico_store.backends import open_store
for seed in range(12):
    trace = run(seed, open_store("memory:"), traced=True).trace
    print(seed, sha256("\\n".join(trace).encode()).hexdigest())
"""


def test_a_seed_repeats_a_run_exactly_in_another_process() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", _DIGEST],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
        ).stdout
        for hash_seed in ("0", "1", "4711")
    }

    assert len(outputs) == 1
    assert len(outputs.pop().splitlines()) == 12
