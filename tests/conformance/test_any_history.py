"""Histories that hypothesis chooses and shrinks: a second opinion on the suite's own generator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from pico_conformance.bench import Bench, open_bench
from pico_conformance.operation import History
from pico_conformance.reproduce import AS_FOUND, replay_once
from pico_conformance.strategies import histories
from pico_conformance.target import resolve_target
from tests.conformance.fault import ClearLeaks, faulty

_SETTINGS = settings(
    max_examples=150,
    # One bench serves all examples; each takes a fresh session of it.
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.large_base_example,
    ],
)


@pytest.fixture(params=["memory", "sqlite", "lmdb:x?durability=process", "jsonl"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    with open_bench(resolve_target(request.param)) as bench:
        yield bench


@_SETTINGS
@given(history=histories(profiles=("tiny", "fork-deep", "list-heavy", "delete")))
def test_any_history_agrees_with_the_model(bench: Bench, history: History) -> None:
    failure = replay_once(bench, None, history, AS_FOUND)

    assert failure is None, failure.message


def test_a_planted_fault_is_found_this_way_too() -> None:
    target = faulty(ClearLeaks)

    @settings(_SETTINGS, max_examples=1_000, phases=(Phase.generate,))
    @given(history=histories(profiles=("list-heavy",)))
    def look(history: History) -> None:
        with open_bench(target) as bench:
            failure = replay_once(bench, None, history, AS_FOUND)
        assert failure is None

    with pytest.raises(AssertionError):
        look()
