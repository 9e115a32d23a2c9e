"""What every scripted run must have come to once everything is terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pico_harness.testing.ledger import Fact
from pico_harness.testing.scenario import Plan
from pico_harness.testing.scripted import NOTE, Stage


def check_facts(stage: Stage) -> Iterator[str]:
    """Yield what differs from a run without crashes, but for explicit interruptions.

    Every plan whose turn came has exactly one task; every task is terminal, in a status that
    something explains; each note of a task that is done was written once, and its successors and
    children exist; every input that was placed is answered.
    """
    ledger = stage.ledger
    by_key: dict[int, list[Fact]] = {}
    for fact in ledger.tasks.values():
        key = fact.state["key"]
        assert isinstance(key, int)
        by_key.setdefault(key, []).append(fact)
    notes = Counter(str(data) for kind, data in ledger.entries if kind == NOTE.name)
    expected = {key for keys in stage.scenario.groups for key in keys}
    for key, facts in by_key.items():
        if len(facts) > 1:
            yield f"plan {key} has tasks {[fact.id for fact in facts]}"
        plan = stage.scenario.plans[key]
        yield from _check_task(stage, plan, facts[0], notes)
        if facts[0].status == "done":
            expected |= set(plan.then)
            for step in plan.steps:
                if step.op == "child":
                    expected |= set(stage.scenario.children[step.number])
    if missing := expected - by_key.keys():
        yield f"plans {sorted(missing)} have no task"
    for input, status in ledger.inputs.items():
        if status == "running" and not _held(stage, input[1]):
            yield f"input {input} was placed and is not answered"


def _check_task(stage: Stage, plan: Plan, fact: Fact, notes: Counter[str]) -> Iterator[str]:
    ops = {step.op for step in plan.steps}
    explained = {
        "done": True,
        "aborted": fact.abort,
        "interrupted": not plan.replay and (fact.id in stage.lost or "bare" in ops),
        "orphaned": plan.extra and not plan.background,
        "faulted": bool(ops & {"raise", "bare"}) or fact.id in stage.excused,
    }
    if not explained.get(fact.status, False):
        yield f"task {fact.id} (plan {plan.key}) ended {fact.status} for no reason"
    for index, step in enumerate(plan.steps):
        found = notes[str([plan.key, index])]
        wanted = 1 if step.op == "note" and fact.status == "done" else None
        if found > 1 or (wanted is not None and found != wanted):
            yield f"note {index} of task {fact.id} (plan {plan.key}) was written {found} times"


def _held(stage: Stage, input: str) -> bool:
    """Tell whether the task that had the input was ended by the harness, which knows no inputs."""
    return any(
        fact.status in ("orphaned", "faulted") and str(fact.state.get("input")) == input
        for fact in stage.ledger.tasks.values()
    )
