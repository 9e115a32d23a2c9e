"""The rules of form that no linter knows, each with a proof that it finds what it looks for."""

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

import pytest

from tests.packaging.repository import ROOT

MODULE_LINES_MAX = 499
FUNCTION_LINES_MAX = 59
VAGUE_NAMES = frozenset({"utils", "util", "helpers", "helper", "common", "base", "manager"})
# The folders that hold the project's own Python.
FOLDERS = (
    "pico_store",
    "pico_harness",
    "backends",
    "conformance",
    "asv_bench",
    "fuzz",
    "tests",
    "examples",
)

TASK = re.compile(r"\bTODO\b(?!\(#\d+\))")


class Module(NamedTuple):
    """One source file, its path relative to the root."""

    path: PurePosixPath
    text: str

    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path.name)


def vague_name(module: Module) -> Iterator[str]:
    """A name says what is inside; these only say that something is."""
    path = module.path
    for part in (*path.parent.parts, path.stem):
        if part.strip("_") in VAGUE_NAMES:
            yield f"{path}: {part!r} says nothing about what is inside"


def long_module(module: Module) -> Iterator[str]:
    """A module is read in one sitting."""
    count = len(module.text.splitlines())
    if count > MODULE_LINES_MAX:
        yield f"{module.path}: {count} lines; allowed: {MODULE_LINES_MAX}"


def long_function(module: Module) -> Iterator[str]:
    """A function, from its ``def`` to its last line and with its docstring, fits a screen."""
    for node in ast.walk(module.tree()):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            count = (node.end_lineno or node.lineno) - node.lineno + 1
            if count > FUNCTION_LINES_MAX:
                place = f"{module.path}:{node.lineno}"
                yield f"{place}: {node.name} has {count} lines; allowed: {FUNCTION_LINES_MAX}"


def silent_module(module: Module) -> Iterator[str]:
    """A module starts with what it is for."""
    if not (ast.get_docstring(module.tree()) or "").strip():
        yield f"{module.path}:1: starts without a docstring that says what the module is for"


def busy_init(module: Module) -> Iterator[str]:
    """A package's ``__init__`` re-exports names under their own names and does nothing else."""
    if module.path.name != "__init__.py":
        return
    for node in module.tree().body:
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                continue
            case ast.ImportFrom(names=names) if all(n.asname == n.name for n in names):
                continue
            case _:
                yield (
                    f"{module.path}:{node.lineno}: {ast.unparse(node)[:60]!r}; "
                    "allowed: `from package.module import Name as Name`"
                )


def loose_task(module: Module) -> Iterator[str]:
    """What is left to do is an issue; the comment names it."""
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type == tokenize.COMMENT and TASK.search(token.string):
            place = f"{module.path}:{token.start[0]}"
            yield f"{place}: {token.string!r} names no issue; allowed: 'TODO(#12): ...'"


RULES: list[Callable[[Module], Iterator[str]]] = [
    vague_name,
    long_module,
    long_function,
    silent_module,
    busy_init,
    loose_task,
]


def modules() -> list[Module]:
    found = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    return [
        Module(PurePosixPath(path.relative_to(ROOT).as_posix()), path.read_text(encoding="utf-8"))
        for path in found
    ]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_source_follows(rule: Callable[[Module], Iterator[str]]) -> None:
    offences = [offence for module in modules() for offence in rule(module)]

    assert not offences, "\n".join([str(rule.__doc__), *offences])


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    [
        (vague_name, "pico_store/utils.py", ""),
        (vague_name, "tests/_helpers.py", ""),
        (vague_name, "pico_store/common/row.py", ""),
        (long_module, "pico_store/batch.py", "x = 1\n" * 500),
        (long_function, "pico_store/batch.py", "def f():\n" + "    x = 1\n" * 59),
        (long_function, "pico_store/batch.py", "class A:\n  async def f():\n" + "    x = 1\n" * 59),
        (silent_module, "pico_store/batch.py", "import os\n"),
        (silent_module, "pico_store/batch.py", '""\n'),
        (busy_init, "pico_store/__init__.py", "from pico_store.batch import Batch\n"),
        (busy_init, "pico_store/__init__.py", "from pico_store.batch import Batch as B\n"),
        (busy_init, "pico_store/__init__.py", "import os\n"),
        (busy_init, "pico_store/__init__.py", "VERSION = '1'\n"),
        (loose_task, "pico_store/batch.py", "x = 1  # TODO: later\n"),
        (loose_task, "pico_store/batch.py", "x = 1  # TODO(someone) later\n"),
    ],
)
def test_a_rule_finds_its_offence(
    rule: Callable[[Module], Iterator[str]], path: str, text: str
) -> None:
    assert list(rule(Module(PurePosixPath(path), text)))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("pico_store/batch.py", '"""Say it."""\n' + "x = 1\n" * 498),
        ("pico_store/batch.py", '"""Say it."""\n\ndef f():\n' + "    x = 1\n" * 58),
        ("pico_store/batch.py", '"""Say it."""\nx = "TODO"  # TODO(#12): make it y\n'),
        ("pico_store/__init__.py", '"""Say it."""\nfrom pico_store.batch import A as A, B as B\n'),
        ("tests/test_common_prefix.py", '"""Say it."""\n'),
    ],
)
def test_no_rule_finds_an_offence_where_there_is_none(path: str, text: str) -> None:
    module = Module(PurePosixPath(path), text)

    assert [offence for rule in RULES for offence in rule(module)] == []
