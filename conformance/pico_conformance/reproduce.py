"""A failing history as a file that anybody can run: `python FILE`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial
from typing import Protocol, runtime_checkable

from pico_conformance.bench import Bench, open_bench
from pico_conformance.difference import Failure
from pico_conformance.operation import Commit, Handle, History
from pico_conformance.replay import Care, Recorded, Replay
from pico_conformance.shrink import shrink
from pico_conformance.target import Target, resolve_target

AT_THE_END = Care(reads=0)
ALWAYS = Care(reads=0, every_operation=True)
AS_FOUND = Care()


def replay_once(bench: Bench, other: Bench | None, history: History, care: Care) -> Failure | None:
    """Replay a history by itself and return what differed."""
    _, failure = Replay(bench, other, care=care).run(Recorded(history))
    return failure


def shortest(
    target: Target, other: Target | None, history: History
) -> tuple[History, Failure | None, Care]:
    """Return the shortest history that fails like this one, its failure and how it is seen.

    The failure is ``None`` if the history does not fail again, which is itself a finding: what a
    backend does then depends on more than the history.
    """
    with ExitStack() as stack:
        bench = stack.enter_context(open_bench(target))
        away = None if other is None else stack.enter_context(open_bench(other))
        # Comparing everything once at the end is cheap and does not depend on chance.
        for care in (AT_THE_END, ALWAYS, AS_FOUND):
            failure = replay_once(bench, away, history, care)
            if failure is None:
                continue
            if replay_once(bench, away, history[: failure.operation], care) is not None:
                history = history[: failure.operation]
            history = shrink(history, partial(_fails, bench, away, care))
            return history, replay_once(bench, away, history, care) or failure, care
        return history, None, AS_FOUND


def _fails(bench: Bench, other: Bench | None, care: Care, history: History) -> bool:
    return replay_once(bench, other, history, care) is not None


def source_text(
    target: str, other: str | None, history: History, failure: Failure | None, care: Care
) -> str:
    """Return a Python file that replays a history and shows the difference."""
    names = sorted(_names(history))
    message = "" if failure is None else failure.message
    comment = "\n".join(f"# {line}".rstrip()[:99] for line in message.splitlines()[:12])
    operations = "".join(f"    {literal(operation)},\n" for operation in history)
    unset = "from msgspec import UNSET\n\n" if "UNSET" in operations else ""
    return f'''"""A history on which {target!r} and the model differ; `python FILE` shows how."""

{unset}from pico_conformance.operation import {", ".join(names)}
from pico_conformance.replay import Care
from pico_conformance.reproduce import show

{comment}
HISTORY = (
{operations})

if __name__ == "__main__":
    care = {care!r}
    raise SystemExit(show({target!r}, {other!r}, HISTORY, care))
'''


def show(target: str, other: str | None, history: History, care: Care) -> int:
    """Replay a history, print the difference and return 1 if there is one."""
    with ExitStack() as stack:
        bench = stack.enter_context(open_bench(resolve_target(target)))
        away = None if other is None else stack.enter_context(open_bench(resolve_target(other)))
        failure = replay_once(bench, away, history, care)
    if failure is None:
        print("no difference")
        return 0
    place = "at the end" if failure.operation >= len(history) else f"after {failure.operation}"
    print(f"{target}: {len(history)} operations; differs {place}", file=sys.stderr)
    print(failure.message)
    return 1


def literal(value: object) -> str:
    """Return an operation as Python source, without what is as it would be anyway."""
    if isinstance(value, tuple) and isinstance(value, _Fields):
        parts = []
        for name, part in zip(value._fields, value, strict=True):
            if name not in value._field_defaults or repr(value._field_defaults[name]) != repr(part):
                parts.append(f"{name}={literal(part)}")
        return f"{type(value).__name__}({', '.join(parts)})"
    if type(value) is tuple:
        inner = ", ".join(map(literal, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return repr(value)


@runtime_checkable
class _Fields(Protocol):
    """What a named tuple has beside its items."""

    @property
    def _fields(self) -> tuple[str, ...]: ...
    @property
    def _field_defaults(self) -> dict[str, object]: ...


def _names(history: History) -> Iterable[str]:
    names = {"Commit"}
    for operation in history:
        names.add(type(operation).__name__)
        if isinstance(operation, Commit):
            if operation.mistake is not None:
                names.add("Mistake")
            for step in operation.steps:
                names.add(type(step).__name__)
                if hasattr(step, "where"):
                    names.add("Where")
        else:
            assert isinstance(operation, Handle)
    return names
