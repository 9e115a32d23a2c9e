"""The figures that are promised: what each is, its bar, its aim, and what it is made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from pico_bench.case import Numbers

Results: TypeAlias = Mapping[str, Numbers]
"""The numbers of one repetition, by case."""


@dataclass(frozen=True, slots=True)
class Case:
    """Something to run in a process of its own."""

    target: str
    """``module:function``, which takes a `Setting` and returns numbers."""
    preparation: str = ""
    """Another one that has to be run once before."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One promised figure."""

    name: str
    what: str
    unit: str
    bar: float
    aim: float
    cases: tuple[str, ...]
    measure: Callable[[Results], float]
    """Computes it from the cases of one repetition."""
    at_least: bool = False
    """Whether more is better."""

    def holds(self, measured: float) -> bool:
        """Tell whether a measured value reaches the bar."""
        return measured >= self.bar if self.at_least else measured <= self.bar

    def reaches_aim(self, measured: float) -> bool:
        """Tell whether a measured value reaches the aim."""
        return measured >= self.aim if self.at_least else measured <= self.aim


_LARGE: Final = "pico_bench.large_case"
_HARNESS: Final = "pico_bench.harness_case"
CASES: Final[Mapping[str, Case]] = {
    "raw sqlite": Case("pico_bench.turns_case:raw_sqlite"),
    "sqlite": Case("pico_bench.turns_case:sqlite"),
    "raw memory": Case("pico_bench.turns_case:raw_memory"),
    "memory": Case("pico_bench.turns_case:memory"),
    "power, one": Case("pico_bench.power_case:one"),
    "power, many": Case("pico_bench.power_case:many"),
    "raw lmdb": Case("pico_bench.turns_case:raw_lmdb"),
    "lmdb": Case("pico_bench.turns_case:lmdb"),
    "lmdb power, one": Case("pico_bench.power_case:lmdb_one"),
    "lmdb power, many": Case("pico_bench.power_case:lmdb_many"),
    "lmdb, large": Case("pico_bench.lmdb_case:large_lmdb", "pico_bench.lmdb_case:make"),
    "recorded sqlite": Case("pico_bench.recorded_case:recorded_sqlite"),
    "recorded lmdb": Case("pico_bench.recorded_case:recorded_lmdb"),
    "raw jsonl": Case("pico_bench.jsonl_case:raw"),
    "jsonl": Case("pico_bench.jsonl_case:turns"),
    "jsonl, large": Case("pico_bench.jsonl_case:large", "pico_bench.jsonl_case:make"),
    "large": Case(f"{_LARGE}:calls", f"{_LARGE}:make"),
    "large, growth": Case(f"{_LARGE}:growth", f"{_LARGE}:make"),
    "task, alone": Case(f"{_HARNESS}:alone"),
    "task, together": Case(f"{_HARNESS}:together"),
    "flat": Case(f"{_HARNESS}:flat"),
    "flat, background": Case(f"{_HARNESS}:flat_background"),
    "flat, children": Case(f"{_HARNESS}:flat_children"),
    "finished": Case(f"{_HARNESS}:opening", f"{_HARNESS}:make"),
    "loop, sqlite": Case("pico_bench.loop_case:loop_sqlite"),
    "loop, lmdb": Case("pico_bench.loop_case:loop_lmdb"),
    "conformance": Case("pico_bench.conformance_case:sqlite"),
}


def _large(name: str, what: str, call: str) -> Figure:
    return Figure(
        name=f"large.{name}",
        what=f"1,000,000 entries ÷ 10,000: {what}",
        unit="×",
        bar=1.2,
        aim=1.08,
        cases=("large",),
        measure=lambda results: results["large"][call],
    )


def _task(name: str, what: str, case: str) -> Figure:
    return Figure(
        name=f"harness.{name}",
        what=f"a task of three commits, {what}, memory: harness − storage: CPU",
        unit="µs",
        bar=120,
        aim=60,
        cases=(case,),
        measure=lambda results: results[case]["over_us"],
    )


def _flat(name: str, beside: str, case: str) -> Figure:
    return Figure(
        name=f"harness.{name}",
        what=f"last 1,000 of 100,000 tasks ÷ first 1,000{beside}: CPU",
        unit="×",
        bar=1.1,
        aim=1.03,
        cases=(case,),
        measure=lambda results: results[case]["ratio"],
    )


def _loop(backend: str, called: str) -> Figure:
    case = f"loop, {backend}"
    return Figure(
        name=f"harness.loop.{backend}",
        what=f"{called}, power, commits of 100 KB: the event loop is late, p99",
        unit="ms",
        bar=5,
        aim=2,
        cases=(case,),
        measure=lambda results: results[case]["p99_ms"],
    )


def _recorded(backend: str, called: str) -> Figure:
    case = f"recorded {backend}"
    return Figure(
        name=f"{backend}.compressed",
        what=f"{called}, a recorded session, zstd, vacuumed: bytes on disk ÷ payload",
        unit="×",
        bar=0.5,
        aim=0.4,
        cases=(case,),
        measure=lambda results: results[case]["disk"] / results[case]["surviving"],
    )


FIGURES: Final[tuple[Figure, ...]] = (
    Figure(
        name="sqlite.turns",
        what="SQLite through the full interface, ordered ÷ raw loop: CPU",
        unit="×",
        bar=1.5,
        aim=1.25,
        cases=("raw sqlite", "sqlite"),
        measure=lambda results: results["sqlite"]["cpu_us"] / results["raw sqlite"]["cpu_us"],
    ),
    Figure(
        name="memory.turns",
        what="memory through the full interface − bare dictionaries: CPU a commit",
        unit="µs",
        bar=6,
        aim=3,
        cases=("raw memory", "memory"),
        measure=lambda results: results["memory"]["cpu_us"] - results["raw memory"]["cpu_us"],
    ),
    Figure(
        name="sqlite.power",
        what="power, 16 sessions on one file ÷ one: commits a second",
        unit="×",
        bar=6,
        aim=8,
        cases=("power, one", "power, many"),
        measure=lambda results: (
            results["power, many"]["commits_per_second"]
            / results["power, one"]["commits_per_second"]
        ),
        at_least=True,
    ),
    Figure(
        name="sqlite.disk",
        what="SQLite, closed: bytes on disk ÷ payload that must survive",
        unit="×",
        bar=1.35,
        aim=1.10,
        cases=("sqlite",),
        measure=lambda results: results["sqlite"]["disk"] / results["sqlite"]["surviving"],
    ),
    Figure(
        name="lmdb.turns",
        what="LMDB through the full interface, process ÷ raw loop: CPU",
        unit="×",
        bar=2.2,
        aim=1.4,
        cases=("raw lmdb", "lmdb"),
        measure=lambda results: results["lmdb"]["cpu_us"] / results["raw lmdb"]["cpu_us"],
    ),
    Figure(
        name="lmdb.power",
        what="power, 16 sessions on one environment ÷ one: commits a second",
        unit="×",
        bar=6,
        aim=8,
        cases=("lmdb power, one", "lmdb power, many"),
        measure=lambda results: (
            results["lmdb power, many"]["commits_per_second"]
            / results["lmdb power, one"]["commits_per_second"]
        ),
        at_least=True,
    ),
    Figure(
        name="lmdb.disk",
        what="LMDB, closed: bytes on disk ÷ payload that must survive",
        unit="×",
        bar=1.7,
        aim=1.3,
        cases=("lmdb",),
        measure=lambda results: results["lmdb"]["disk"] / results["lmdb"]["surviving"],
    ),
    Figure(
        name="lmdb.open",
        what="LMDB, 1,000,000 entries: time of a warm open",
        unit="ms",
        bar=10,
        aim=3,
        cases=("lmdb, large",),
        measure=lambda results: results["lmdb, large"]["ms"],
    ),
    Figure(
        name="lmdb.growth",
        what="LMDB, 1,000,000 entries: private memory taken by an open",
        unit="MiB",
        bar=4,
        aim=2,
        cases=("lmdb, large",),
        measure=lambda results: results["lmdb, large"]["bytes"] / 2**20,
    ),
    _recorded("sqlite", "SQLite"),
    _recorded("lmdb", "LMDB"),
    Figure(
        name="jsonl.turns",
        what="JSONL through the full interface, process ÷ raw loop with indexes: CPU",
        unit="×",
        bar=4,
        aim=2.2,
        cases=("raw jsonl", "jsonl"),
        measure=lambda results: results["jsonl"]["cpu_us"] / results["raw jsonl"]["cpu_us"],
    ),
    Figure(
        name="jsonl.disk",
        what="JSONL, closed: bytes on disk ÷ payload that must survive",
        unit="×",
        bar=3.5,
        aim=1.85,
        cases=("jsonl",),
        measure=lambda results: results["jsonl"]["disk"] / results["jsonl"]["surviving"],
    ),
    Figure(
        name="jsonl.vacuumed",
        what="JSONL, vacuumed: bytes on disk ÷ payload that must survive",
        unit="×",
        bar=1.3,
        aim=1.3,
        cases=("jsonl",),
        measure=lambda results: results["jsonl"]["vacuumed"] / results["jsonl"]["surviving"],
    ),
    Figure(
        name="jsonl.open",
        what="JSONL, 1,000,000 entries: CPU time of an open",
        unit="s",
        bar=10,
        aim=6,
        cases=("jsonl, large",),
        measure=lambda results: results["jsonl, large"]["cpu"],
    ),
    Figure(
        name="jsonl.growth",
        what="JSONL, 1,000,000 entries: private memory taken by an open",
        unit="MiB",
        bar=400,
        aim=250,
        cases=("jsonl, large",),
        measure=lambda results: results["jsonl, large"]["bytes"] / 2**20,
    ),
    _large("open", "open", "open"),
    _large("page", "newest page", "page"),
    _large("fork", "fork", "fork"),
    _large("head", "newest head", "head"),
    Figure(
        name="large.growth",
        what="1,000,000 entries: private memory taken by an open",
        unit="MiB",
        bar=4,
        aim=2,
        cases=("large, growth",),
        measure=lambda results: results["large, growth"]["bytes"] / 2**20,
    ),
    _task("task", "one at a time", "task, alone"),
    _task("tasks", "many at once", "task, together"),
    _flat("flat", "", "flat"),
    _flat("flat.background", ", 10,000 live background tasks beside", "flat, background"),
    _flat("flat.children", ", 100,000 finished children", "flat, children"),
    Figure(
        name="harness.open",
        what="SQLite, 100,000 finished children, two live tasks: rows decoded by open, drive",
        unit="rows",
        bar=50,
        aim=10,
        cases=("finished",),
        measure=lambda results: results["finished"]["rows"],
    ),
    _loop("sqlite", "SQLite"),
    _loop("lmdb", "LMDB"),
    Figure(
        name="conformance.speed",
        what="writes a minute checked against the model on SQLite",
        unit="writes/min",
        bar=60_000,
        aim=60_000,
        cases=("conformance",),
        measure=lambda results: results["conformance"]["writes_per_minute"],
        at_least=True,
    ),
)
