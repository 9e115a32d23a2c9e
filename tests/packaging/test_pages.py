"""What the pages point at is there, and the way through the code is what a program takes."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, ModuleType

import pytest

from pico_harness import ConversationHandle, Harness, TaskRuntime, Tx
from pico_harness.errors import RejectedError
from tests.packaging.repository import ROOT

CORE = ROOT / "pico_harness"
EXPLANATIONS = sorted((ROOT / "docs" / "explanation").glob("*.md"))
# Where the packages are.
ROOTS = (ROOT, ROOT / "backends", ROOT / "conformance", ROOT / "asv_bench")
WAY = ROOT / "docs" / "explanation" / "one-task-from-accept-to-settlement.md"
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("pico_*/SPEC.md"), ROOT / "README.md"])
# The pages that name parts of the harness.
NAMING = [*EXPLANATIONS, CORE / "SPEC.md", ROOT / "docs" / "how-to" / "write-a-task-kind.md"]

LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")
PATH = re.compile(r"`((?:pico_\w+|tests|docs|examples|fuzz)/[\w./-]+)`")
# A name with a dot in a code span, or one of a class anywhere, such as in a diagram.
NAME = re.compile(r"`([A-Za-z]\w*(?:\.(?!md\b|py\b)\w+)+)`|\b([A-Z]\w+\.(?!md\b)[a-z_]\w*)\b")
# What things are called where no type says what they are.
CALLED: dict[str, type] = {
    "tx": Tx,
    "runtime": TaskRuntime,
    "harness": Harness,
    "root": ConversationHandle,
    "error": RejectedError,
}


def modules() -> dict[str, ModuleType]:
    """Return the harness's modules by their own names."""
    return {
        path.stem: importlib.import_module(f"pico_harness.{path.stem}")
        for path in sorted(CORE.glob("*.py"))
        if path.stem not in ("__init__", "otel")
    }


def origins(name: str) -> Iterator[object]:
    """Yield what the first part of a dotted name may stand for."""
    found = modules()
    if name in found:
        yield found[name]
    if name in CALLED:
        yield CALLED[name]
    for module in found.values():
        if isinstance(getattr(module, name, None), type):
            yield getattr(module, name)
    if name in sys.modules:
        yield sys.modules[name]


def is_there(name: str) -> bool:
    """Tell whether a dotted name leads to something."""
    first, *rest = name.split(".")
    return any(leads(origin, rest) for origin in origins(first))


def leads(origin: object, rest: list[str]) -> bool:
    for number, part in enumerate(rest):
        if not hasattr(origin, part):
            # An attribute that each instance gets; nothing more is known of it.
            last = number == len(rest) - 1
            return last and isinstance(origin, type) and f"self.{part}" in inspect.getsource(origin)
        origin = getattr(origin, part)
    return True


def unknown_names(text: str) -> list[str]:
    """Return the names of a page that lead nowhere."""
    named = {one or other for one, other in NAME.findall(text)}
    return sorted(name for name in named if not is_there(name))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_links_and_paths_of_a_page_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = [page.parent / link for link in LINK.findall(text) if "://" not in link]
    paths = [path for path in PATH.findall(text) if not any((r / path).exists() for r in ROOTS)]

    assert [str(link) for link in links if not link.exists()] + paths == []


@pytest.mark.parametrize("page", NAMING, ids=lambda page: page.name)
def test_the_names_of_a_page_are_those_of_the_code(page: Path) -> None:
    assert unknown_names(page.read_text(encoding="utf-8")) == []


def test_a_name_that_leads_nowhere_is_found() -> None:
    text = "`line.Line.hurry`, Scheduler.committed, Driver.stroll, `tx.settle`, `Scheduler.running`"

    assert unknown_names(text) == ["Driver.stroll", "line.Line.hurry"]


def named_calls(text: str) -> list[str]:
    """Return the functions that the numbered steps of the way name, in their order."""
    steps = "\n".join(re.findall(r"^\d+\. .*(?:\n   .*)*", text, re.MULTILINE))
    found = modules()
    return [name for name in re.findall(r"`(\w+(?:\.\w+)+)`", steps) if name.split(".")[0] in found]


def recorded_calls(text: str) -> list[str]:
    """Run the program of a page and return the harness's functions as they are called.

    A function that waits counts once more each time that it goes on.
    """
    *setting, last = doctest.DocTestParser().get_examples(text)
    names: dict[str, object] = {}
    calls: list[str] = []

    def note(frame: FrameType, event: str, arg: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.parent == CORE:
            calls.append(f"{path.stem}.{frame.f_code.co_qualname}")

    for example in setting:
        exec(compile(example.source, WAY.name, "exec"), names)
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        exec(compile(last.source, WAY.name, "exec"), names)
    finally:
        sys.setprofile(before)
    return calls


def out_of_order(named: list[str], calls: list[str]) -> list[str]:
    """Return the first name that is not called after those before it; nothing: all are."""
    left = iter(calls)
    return next(([name] for name in named if name not in left), [])


def test_the_way_through_the_code_is_the_one_that_is_taken() -> None:
    text = WAY.read_text(encoding="utf-8")
    named = named_calls(text)

    assert len(named) > 40
    assert out_of_order(named, recorded_calls(text)) == []


def test_a_call_in_the_wrong_place_is_found() -> None:
    steps = "1. `line.Line.run` and `builder.build`\n   `tx.Tx.batch`\n\n`line.Line.post`\n"

    assert named_calls(steps) == ["line.Line.run", "builder.build", "tx.Tx.batch"]
    assert out_of_order(["a", "b", "a"], ["a", "c", "b", "a"]) == []
    assert out_of_order(["a", "b", "a"], ["a", "a", "b"]) == ["a"]
