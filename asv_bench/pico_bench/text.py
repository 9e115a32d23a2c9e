"""Real text to cut payloads from, so that sizes and compression mean something."""

from __future__ import annotations

import inspect
from functools import cache
from importlib import import_module
from pydoc_data import topics
from random import Random
from typing import Final

_MODULES: Final = (
    "argparse",
    "ast",
    "configparser",
    "dataclasses",
    "inspect",
    "json.decoder",
    "logging",
    "pathlib",
    "shutil",
    "subprocess",
    "tarfile",
    "threading",
    "typing",
)


@cache
def prose() -> str:
    """Return English: the language's own reference, its white space joined."""
    return " ".join(" ".join(topics.topics.values()).split())


@cache
def source() -> str:
    """Return Python source of the standard library."""
    return "\n".join(inspect.getsource(import_module(name)) for name in _MODULES)


def cut(random: Random, text: str, length: int) -> str:
    """Return a piece of a text from a random place."""
    start = random.randrange(len(text) - length)
    return text[start : start + length]
