"""The worlds that tests of the harness run in."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from pico_harness import line
from tests.harness.worlds import MODES, World, make_world


@pytest.fixture(autouse=True)
def _turns_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no turn of the loop depend on how busy the machine is."""
    monkeypatch.setattr(line, "SECONDS_A_TURN", math.inf)


@pytest.fixture(params=MODES)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """A store of each kind, with commits of each kind."""
    world = make_world(request.param, tmp_path)
    yield world
    world.store.close()


@pytest.fixture(params=("memory-held", "sqlite-held"))
def held(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """A store whose commits the test can hold up."""
    world = make_world(request.param, tmp_path)
    yield world
    world.store.close()


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[World]:
    """A store in memory, whose commits are short."""
    world = make_world("memory", tmp_path)
    yield world
    world.store.close()
