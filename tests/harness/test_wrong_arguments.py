"""Each parameter of each public method meets wrong values: a typed error, and nothing happened.

The methods are found by introspection, so that one that is added needs a row here. What may be
passed although it looks wrong is named beside it; everything else must raise a `PicoError`, after
which the session goes on and equals a fresh open of its store.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import pytest

from pico_harness import (
    Cancellation,
    ConversationHandle,
    Harness,
    Registry,
    ScratchTx,
    TaskRuntime,
    Tx,
)
from pico_harness.handles import ListHandle, ValueHandle
from pico_harness.tx_state import TxList, TxValue
from pico_store.errors import PicoError
from pico_store.storage import Storage
from tests.harness.names import COUNT, ITEMS
from tests.harness.scripted import Done, Running, Task
from tests.harness.worlds import World, on_loop
from tests.harness.wrong_values import CALL, LIVE, ROWS, WRONG, Configured, goes_on, scene


def methods(of: type) -> Iterator[tuple[str, list[inspect.Parameter]]]:
    """Yield the public methods of a class and their parameters."""
    for name, found in inspect.getmembers(of, inspect.isroutine):
        if not name.startswith("_") or (of is Registry and name in ("__getitem__", "__contains__")):
            yield (
                name,
                [
                    one
                    for one in inspect.signature(found).parameters.values()
                    if one.name not in ("self", "cls")
                ],
            )


@pytest.mark.parametrize("of", list(ROWS), ids=lambda of: of.__name__)
def test_every_public_method_and_parameter_has_a_row(of: type) -> None:
    found = {
        name: {one.name for one in parameters if one.name != "call"}
        for name, parameters in methods(of)
    }

    assert {name: set(row) for name, row in ROWS[of].items()} == found


Use: TypeAlias = Callable[[Any], object]


@dataclass
class Attack:
    """Tries every wrong value at every parameter of one object's methods."""

    storage: Storage
    problems: list[str] = field(default_factory=list)
    tried: int = 0

    def report(self) -> str:
        """Return what was wrong; empty: nothing, and something was tried."""
        assert self.tried
        return "\n".join(self.problems)

    async def methods_of(
        self,
        subject: object,
        of: type,
        within: Callable[[Use], object] = lambda use: use(None),
    ) -> None:
        """Try the methods of an object.

        Args:
            subject: The object; ignored where ``within`` is given.
            of: Its class.
            within: Runs what is tried with an object that is made for it.
        """
        for name, parameters in methods(of):
            if of is Harness and name == "open":
                continue
            row = {**ROWS[of][name], "call": CALL}
            for tried in parameters:
                for label, wrong in WRONG.items():
                    takes = row[tried.name].takes
                    if label in row[tried.name].skips or (label in takes and tried.name == "call"):
                        continue
                    values = {one.name: row[one.name].value for one in parameters}
                    values[tried.name] = wrong
                    where = f"{of.__name__}.{name}({tried.name}={label})"
                    await self.one(
                        where,
                        _bound(subject, name, parameters, values),
                        within,
                        takes=label in takes,
                    )

    async def one(
        self,
        where: str,
        use: Callable[[Any], object],
        within: Callable[[Use], object],
        *,
        takes: bool,
    ) -> None:
        """Try one wrong value."""
        self.tried += 1
        await self._others_are_through()
        before = self.storage.last_seq
        try:
            found = within(use)
            if inspect.isawaitable(found):
                await found
        except PicoError:
            if self.storage.last_seq != before:
                self.problems.append(f"{where} was refused and wrote")
        except Exception as error:  # noqa: BLE001 - what this looks for
            self.problems.append(f"{where} raised {type(error).__name__}: {error}")
        else:
            if not takes:
                self.problems.append(f"{where} was taken")

    async def _others_are_through(self) -> None:
        """Let the tasks that were made by what was taken write what they write."""
        quiet = 0
        while quiet < 5:
            before = self.storage.last_seq
            await asyncio.sleep(0)
            quiet = quiet + 1 if self.storage.last_seq == before else 0


def _bound(
    subject: object, name: str, parameters: list[inspect.Parameter], values: Mapping[str, object]
) -> Use:
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    ordered = [values[one.name] for one in parameters if one.kind in places]
    named = {one.name: values[one.name] for one in parameters if one.kind not in places}

    def use(within: Any) -> object:
        return getattr(subject if within is None else within, name)(*ordered, **named)

    return use


@pytest.mark.parametrize(
    ("of", "subject"),
    [
        (Harness, lambda harness, root: harness),
        (ConversationHandle, lambda harness, root: root),
        (ValueHandle, lambda harness, root: root.value(COUNT)),
        (ListHandle, lambda harness, root: root.list(ITEMS)),
        (Registry, lambda harness, root: harness.task_kinds),
    ],
    ids=lambda of: getattr(of, "__name__", ""),
)
@on_loop
async def test_wrong_arguments_of_the_host_are_refused(
    memory: World, of: type, subject: Callable[[Harness, ConversationHandle], object]
) -> None:
    kind = Configured()
    harness = await scene(memory, kind)
    attack = Attack(memory.storages[-1])

    await attack.methods_of(subject(harness, await harness.root()), of)

    assert attack.report() == ""
    await goes_on(memory, harness, kind)


def _itself(runtime: TaskRuntime, use: Use) -> object:
    return use(runtime)


def _in_tx(runtime: TaskRuntime, use: Use) -> object:
    return runtime.commit(use)


def _in_value(runtime: TaskRuntime, use: Use) -> object:
    return runtime.commit(lambda tx: use(tx.value(COUNT)))


def _in_list(runtime: TaskRuntime, use: Use) -> object:
    return runtime.commit(lambda tx: use(tx.list(ITEMS)))


def _in_scratch(runtime: TaskRuntime, use: Use) -> object:
    return runtime.scratch(use)


@pytest.mark.parametrize(
    ("of", "within"),
    [
        (TaskRuntime, _itself),
        (Tx, _in_tx),
        (TxValue, _in_value),
        (TxList, _in_list),
        (ScratchTx, _in_scratch),
    ],
    ids=lambda of: getattr(of, "__name__", ""),
)
@on_loop
async def test_wrong_arguments_of_a_task_are_refused(
    memory: World, of: type, within: Callable[[TaskRuntime, Use], object]
) -> None:
    attacks: list[Attack] = []

    async def execute(task: Task, runtime: TaskRuntime) -> None:
        await runtime.commit(lambda tx: tx.patch(task.id, Running()))
        if task.id == LIVE:
            attacks.append(Attack(memory.storages[-1]))
            await attacks[0].methods_of(None, of, partial(within, runtime))
        await runtime.commit(lambda tx: tx.settle(task.id, Done()))

    kind = Configured(execute)
    harness = await scene(memory, kind)
    await harness.drive()
    await harness.wait_for_task(LIVE)

    assert attacks[0].report() == ""
    await goes_on(memory, harness, kind)


@on_loop
async def test_wrong_arguments_of_a_cancellation_are_refused(memory: World) -> None:
    await memory.open()
    attack = Attack(memory.storages[-1])

    await attack.methods_of(None, Cancellation, lambda use: use(Cancellation()))

    assert attack.report() == ""
