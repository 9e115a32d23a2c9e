"""Simulated runs of the harness as it is."""

import os
import subprocess
import sys
from itertools import combinations

import pytest

from pico_harness.testing.campaign import campaign, quiet
from pico_harness.testing.loop import DelayChoices
from pico_harness.testing.run import run
from pico_harness.testing.scenario import generate
from pico_harness.testing.show import failed
from pico_store.backends import open_store

RANDOM_RUNS = 8_000
DELAYED_RUNS = 12_000


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


@pytest.mark.parametrize("backend", ["sqlite:", "jsonl:", "lmdb:"])
def test_no_schedule_breaks_a_promise_on_disk(backend: str) -> None:
    tally = campaign(range(100), backend=backend)

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
