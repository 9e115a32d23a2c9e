"""How fast a backend is compared with the model."""

from __future__ import annotations

import time
from typing import Final

from pico_bench.case import CaseError, Numbers, Setting
from pico_conformance.campaign import Plan, run
from pico_conformance.target import resolve_target

WHOLE: Final = 10
"""One history of so many is compared in whole at its end, the others by samples and export."""


def sqlite(setting: Setting) -> Numbers:
    """Measure the writes a minute that histories put into the model and into SQLite.

    Raises:
        CaseError: They differ, so that how fast does not matter.
    """
    target, other = resolve_target("sqlite"), resolve_target("memory")
    plan = Plan(target, setting.seed, other, whole=WHOLE)
    start, cpu = time.perf_counter(), time.process_time()
    outcome = run(plan, seconds=setting.seconds)
    spent = time.perf_counter() - start
    if outcome.finding is not None:
        raise CaseError("sqlite differs from the model; run pico conformance sqlite")
    cpu = time.process_time() - cpu
    return {"writes_per_minute": outcome.tally.writes / spent * 60, "cpu_share": cpu / spent}
