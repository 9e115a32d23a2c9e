"""The simulated loop: virtual time, chosen order, exact repetition."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from pico_harness.testing.loop import (
    Choices,
    DeadlockError,
    DelayChoices,
    EndlessError,
    HaltedError,
    RandomChoices,
    SimulatedLoop,
)


def make(choices: Choices, steps_max: int = 1_000) -> SimulatedLoop:
    # The rest of a loop's methods needs the outside world.
    return SimulatedLoop(choices, steps_max=steps_max)  # type: ignore[abstract]


def order_of(choices: Choices) -> str:
    """Return the order in which five tasks, ready at once, run."""
    met: list[str] = []

    async def step(name: str) -> None:
        met.append(name)

    async def main() -> None:
        await asyncio.gather(*(step(name) for name in "abcde"))

    loop = make(choices)
    loop.run(main())
    loop.close()
    return "".join(met)


def test_a_seed_repeats_its_order_and_other_seeds_have_others() -> None:
    orders = [order_of(RandomChoices(seed)) for seed in range(50)]

    assert orders == [order_of(RandomChoices(seed)) for seed in range(50)]
    assert len(set(orders)) > 30


def test_without_preemptions_callbacks_run_in_the_order_of_becoming_ready() -> None:
    assert order_of(RandomChoices(3, preemption=0.0)) == "abcde"
    assert order_of(DelayChoices(frozenset())) == "abcde"


def test_a_delay_lets_the_next_one_run_first() -> None:
    assert order_of(DelayChoices(frozenset({0}))) == "bacde"
    assert order_of(DelayChoices(frozenset({0, 2}))) == "badce"


def test_an_hour_passes_at_once() -> None:
    async def main() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    assert make(RandomChoices(1)).run(main()) == 3600


def race(choices: Choices) -> str:
    """Return who is first: a timer that is due, or ten callbacks one after the other."""
    met: list[str] = []

    async def busy() -> None:
        for _ in range(10):
            await asyncio.sleep(0)
        met.append("busy")

    async def late() -> None:
        await asyncio.sleep(0.001)
        met.append("late")

    async def main() -> None:
        await asyncio.gather(busy(), late())

    loop = make(choices)
    loop.run(main())
    loop.close()
    return met[0]


def test_a_timer_comes_first_only_where_the_processor_is_slow() -> None:
    assert {race(RandomChoices(seed)) for seed in range(40)} == {"busy"}
    assert {race(RandomChoices(seed, slow=0.2)) for seed in range(40)} == {"busy", "late"}


def test_what_waits_for_nothing_that_can_come_is_a_deadlock() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    loop = make(RandomChoices(1))

    with pytest.raises(DeadlockError, match="main"):
        loop.run(main())
    loop.close()


def test_what_goes_on_for_ever_is_stopped() -> None:
    async def main() -> None:
        while True:
            await asyncio.sleep(0)

    loop = make(RandomChoices(1), steps_max=100)

    with pytest.raises(EndlessError):
        loop.run(main())
    loop.close()


def test_a_halted_loop_runs_nothing_more_and_drops_what_it_had() -> None:
    after: list[str] = []
    loop = make(RandomChoices(1))

    async def main() -> None:
        try:
            loop.halt()
            await asyncio.sleep(1)
        finally:
            after.append("unwound")

    with pytest.raises(HaltedError):
        loop.run(main())

    assert after == []
    loop.close()
    assert after == ["unwound"]


def test_threads_and_sockets_are_refused() -> None:
    async def main() -> None:
        await asyncio.to_thread(len, "abc")

    loop = make(RandomChoices(1))

    with pytest.raises(NotImplementedError):
        loop.run(main())
    loop.close()


def test_an_exception_that_nobody_handles_is_told() -> None:
    told: list[str] = []

    def fail() -> None:
        raise ValueError("lost")

    async def main() -> None:
        asyncio.get_running_loop().call_soon(fail)
        await asyncio.sleep(1)

    loop = make(RandomChoices(1))
    loop.on_unhandled = told.append
    loop.run(main())
    loop.close()

    assert "ValueError: lost" in told[0]


def test_timeouts_of_asyncio_work() -> None:
    async def slow() -> None:
        await asyncio.sleep(10)

    async def main() -> float:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(slow(), 2)
        return asyncio.get_running_loop().time()

    coroutine: Coroutine[Any, Any, float] = main()

    assert make(RandomChoices(1)).run(coroutine) == 2
