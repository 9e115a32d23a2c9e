"""The short way of one more append to a task's list takes and refuses what the long way does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pico_store.address import ScratchAddress, Seq
from pico_store.backends import open_store
from pico_store.batch import (
    Batch,
    ListAppend,
    ListClear,
    ListRemove,
    MainBatch,
    ScratchBatch,
    ValueSet,
)
from pico_store.digest import digest
from pico_store.errors import RefusedError
from pico_store.storage import Storage
from tests.backends.jsonl.scene import ROOT_BATCH, digest_of, made, settling, task

TASK = Seq(2)
SECOND = Seq(3)
FRAMES = ScratchAddress(TASK, "frames")


class _Text(str):
    __slots__ = ()


class _Number(int):
    pass


def _append(value: Any, address: Any = FRAMES, task: Any = TASK) -> Batch:
    return ScratchBatch(task, (ListAppend(address, value),))


# Each is committed right after an append to FRAMES.
AFTER_AN_APPEND: dict[str, Callable[[Storage], Batch]] = {
    "the same address": lambda s: _append("b"),
    "an equal address": lambda s: _append("b", ScratchAddress(TASK, "frames")),
    "another namespace": lambda s: _append("b", ScratchAddress(TASK, "other")),
    "a key": lambda s: _append("b", ScratchAddress(TASK, "frames", "k")),
    "an empty key": lambda s: _append("b", ScratchAddress(TASK, "frames", "")),
    "the next task": lambda s: _append("b", ScratchAddress(SECOND, "frames"), SECOND),
    "the next task's address": lambda s: _append("b", ScratchAddress(SECOND, "frames")),
    "the next task's batch": lambda s: _append("b", FRAMES, SECOND),
    "a clear": lambda s: ScratchBatch(TASK, (ListClear(FRAMES),)),
    "a removal": lambda s: ScratchBatch(TASK, (ListRemove(FRAMES, s.last_seq),)),
    "a value": lambda s: ScratchBatch(TASK, (ValueSet(FRAMES, 1),)),
    "two appends": lambda s: ScratchBatch(
        TASK, (ListAppend(FRAMES, 1), ListAppend(ScratchAddress(TASK, "other"), 2))
    ),
    "a settlement": lambda s: settling(TASK),
    "a list of writes": lambda s: ScratchBatch(TASK, [ListAppend(FRAMES, 1)]),  # type: ignore[arg-type]
    "no write": lambda s: ScratchBatch(TASK, ()),
    "a main batch": lambda s: MainBatch((ListAppend(FRAMES, 1),)),
    "no JSON": lambda s: _append(float("nan")),
    "a surrogate": lambda s: _append({"d": "\ud800"}),
    "a tuple": lambda s: _append(("b",)),
    "a float as task": lambda s: _append("b", FRAMES, 2.0),
    "a number of another type as task": lambda s: _append("b", FRAMES, _Number(TASK)),
    "an address with a float": lambda s: _append("b", ScratchAddress(2.0, "frames")),  # type: ignore[arg-type]
    "an address with another number type": lambda s: _append(
        "b",
        ScratchAddress(_Number(TASK), "frames"),  # type: ignore[arg-type]
    ),
    "an address with another text type": lambda s: _append(
        "b", ScratchAddress(TASK, _Text("frames"))
    ),
}


def _verdicts(storage: Storage, name: str) -> list[object]:
    found: list[object] = []
    for batch in (
        ROOT_BATCH,
        MainBatch((task(TASK), task(SECOND))),
        _append("a"),
        _append("a"),
        AFTER_AN_APPEND[name],
        _append("c"),
        _append("c", ScratchAddress(TASK, "other")),
        _append("c"),
    ):
        try:
            found.append(storage.commit(batch if not callable(batch) else batch(storage)))
        except RefusedError as error:
            found.append((type(error), error.clause, error.path, error.problem))
    return found


@pytest.mark.parametrize("name", AFTER_AN_APPEND)
def test_what_follows_an_append_is_judged_as_ever(path: Path, name: str) -> None:
    plain = open_store("memory:").create("a")
    expected = _verdicts(plain, name)
    with made(path, "process") as storage:
        assert _verdicts(storage, name) == expected
        assert digest(storage.export()) == digest(plain.export())

    assert digest_of(path) == digest(plain.export())


def test_the_short_way_is_taken(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[object] = []
    with made(path, "process") as storage:
        storage.commit(ROOT_BATCH)
        storage.commit(MainBatch((task(TASK),)))
        storage.commit(_append("a"))
        monkeypatch.setattr("pico_jsonl.writer.check_batch", lambda *all: checked.append(all))
        for _ in range(3):
            storage.commit(_append("b"))
            storage.commit(_append("b", ScratchAddress(TASK, "frames")))
        assert storage.last_seq == 9

    assert checked == []
