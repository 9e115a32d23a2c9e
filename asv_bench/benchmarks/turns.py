"""The workload "turns" on every backend, and on the raw loops for comparison."""

from __future__ import annotations

from collections.abc import Callable
from tempfile import TemporaryDirectory
from typing import ClassVar

from pico_bench import turns_case
from pico_bench.case import Numbers, Setting

_CASES: dict[str, Callable[[Setting], Numbers]] = {
    "memory": turns_case.memory,
    "memory, raw": turns_case.raw_memory,
    "sqlite": turns_case.sqlite,
    "sqlite, raw": turns_case.raw_sqlite,
}
_TURNS = 300


class Commit:
    """What a commit of the workload costs."""

    params: ClassVar[list[str]] = list(_CASES)
    param_names: ClassVar[list[str]] = ["backend"]
    timeout = 120.0

    def track_cpu(self, backend: str) -> float:
        """Return CPU microseconds a commit."""
        return _measure(backend)["cpu_us"]

    track_cpu.unit = "µs"  # type: ignore[attr-defined]


class Disk:
    """What the workload leaves on disk."""

    def track_ratio(self) -> float:
        """Return bytes of the closed files ÷ bytes that must survive."""
        numbers = _measure("sqlite")
        return numbers["disk"] / numbers["surviving"]

    track_ratio.unit = "×"  # type: ignore[attr-defined]


def _measure(backend: str) -> Numbers:
    with TemporaryDirectory() as folder:
        return _CASES[backend](Setting(folder=folder, turns=_TURNS))
