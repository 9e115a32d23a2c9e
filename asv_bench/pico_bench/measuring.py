"""Running the cases of figures, interleaved over repetitions."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from pico_bench.case import CaseError, Numbers, Setting
from pico_bench.figures import CASES, Figure

RunCase: TypeAlias = Callable[[str, Setting], Numbers]


@dataclass(slots=True)
class Measured:
    """A figure and what it came to in each repetition."""

    figure: Figure
    values: list[float] = field(default_factory=list)
    problem: str = ""
    """Why there is no verdict."""

    @property
    def median(self) -> float:
        """The value that counts."""
        return statistics.median(self.values)

    @property
    def holds(self) -> bool:
        """Whether it was measured and reaches its bar."""
        return not self.problem and self.figure.holds(self.median)


def measure(
    figures: Sequence[Figure],
    setting: Setting,
    *,
    repetitions: int,
    run_case: RunCase,
    progress: Callable[[str], None],
) -> tuple[list[Measured], dict[str, list[Numbers]]]:
    """Run every case that the figures need, all of them once a repetition.

    A case that fails costs its figures their verdict and nothing else; it is not run again.

    Returns:
        The figures with their values, and the numbers of each case by repetition.
    """
    names = list(dict.fromkeys(name for figure in figures for name in figure.cases))
    failed: dict[str, str] = {}
    _prepare(names, setting, failed, run_case, progress)
    measured = [Measured(figure) for figure in figures]
    numbers: dict[str, list[Numbers]] = {name: [] for name in names}
    for repetition in range(1, repetitions + 1):
        results: dict[str, Numbers] = {}
        for name in names:
            if name in failed:
                continue
            progress(f"repetition {repetition} of {repetitions}: {name}")
            try:
                results[name] = run_case(CASES[name].target, setting)
            except CaseError as error:
                failed[name] = str(error)
            else:
                numbers[name].append(results[name])
        for one in measured:
            if all(name in results for name in one.figure.cases):
                one.values.append(one.figure.measure(results))
    for one in measured:
        one.problem = _problem(one.figure, failed)
    return measured, numbers


def _prepare(
    names: Sequence[str],
    setting: Setting,
    failed: dict[str, str],
    run_case: RunCase,
    progress: Callable[[str], None],
) -> None:
    outcomes: dict[str, str] = {"": ""}
    for name in names:
        preparation = CASES[name].preparation
        if preparation not in outcomes:
            progress(f"preparing: {name}")
            try:
                run_case(preparation, setting)
            except CaseError as error:
                outcomes[preparation] = str(error)
            else:
                outcomes[preparation] = ""
        if outcomes[preparation]:
            failed[name] = outcomes[preparation]


def _problem(figure: Figure, failed: Mapping[str, str]) -> str:
    return next((failed[name] for name in figure.cases if name in failed), "")
