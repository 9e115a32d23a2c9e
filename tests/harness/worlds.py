"""Stores of every kind that sessions are tested on, and how their commits can be held up."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from pico_harness import ConversationHandle, Harness, Options
from pico_harness.task_kind import RunnableKind
from pico_store.address import Seq
from pico_store.backends import open_store
from pico_store.digest import digest
from pico_store.storage import Storage, Store
from tests.harness.scripted import Planned, Script

R = TypeVar("R")
P = ParamSpec("P")

MODES = ("memory", "memory-held", "sqlite", "sqlite-power", "sqlite-held")
"""Inline on both engines, through a thread, and through a gate that the test holds."""


class Gate:
    """Carries out on the loop what would wait for a disk, one after the other; can be shut."""

    def __init__(self) -> None:
        self._held: deque[Callable[[], None]] = deque()
        self._shut = False
        self._arrived: list[asyncio.Future[None]] = []

    def __call__(self, work: Callable[[], R], /) -> asyncio.Future[R]:
        loop = asyncio.get_running_loop()
        result: asyncio.Future[R] = loop.create_future()
        self._held.append(partial(_carry_out, work, result))
        for arrived in self._arrived:
            arrived.set_result(None)
        self._arrived.clear()
        if not self._shut:
            loop.call_soon(self._pass_one)
        return result

    def _pass_one(self) -> None:
        if self._held and not self._shut:
            self._held.popleft()()

    def shut(self) -> None:
        """Hold everything from now on."""
        self._shut = True

    def open(self) -> None:
        """Let pass what is held, and everything after."""
        self._shut = False
        while self._held:
            self._held.popleft()()

    async def arrival(self) -> None:
        """Wait until something is held."""
        if not self._held:
            arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._arrived.append(arrived)
            await arrived


def _carry_out(work: Callable[[], R], result: asyncio.Future[R]) -> None:
    try:
        result.set_result(work())
    except BaseException as error:  # noqa: BLE001 - handed on whole
        result.set_exception(error)


@dataclass(slots=True)
class World:
    """One store and how sessions on it commit."""

    store: Store
    gate: Gate | None = None
    opened: list[Harness] = field(default_factory=list)
    storages: list[Storage] = field(default_factory=list)

    async def open(
        self,
        *kinds: RunnableKind,
        options: Options | None = None,
        wrap: Callable[[Storage], Storage] = lambda storage: storage,
    ) -> Harness:
        """Open session ``a``, after a crash of whoever has it open."""
        known = {info.id for info in self.store.sessions()}
        if "a" in known:
            storage = self.store.open("a", take_over=True)
        else:
            storage = self.store.create("a")
        chosen = options or Options()
        if self.gate is not None:
            self.gate.open()
            chosen = _with_away(chosen, self.gate)
        storage = wrap(storage)
        harness = await Harness.open(storage, tasks=kinds, options=chosen)
        self.opened.append(harness)
        self.storages.append(storage)
        return harness

    def digest(self) -> str:
        """Return the digest of what a fresh open of session ``a`` sees."""
        storage = self.store.open("a", read_only=True)
        try:
            return digest(storage.export())
        finally:
            storage.close()


def _with_away(options: Options, gate: Gate) -> Options:
    return Options(
        on_task_fault=options.on_task_fault,
        crashes_max=options.crashes_max,
        on_report=options.on_report,
        intake=options.intake,
        clock=options.clock,
        telemetry=options.telemetry,
        away=gate,
    )


def make_world(mode: str, folder: Path) -> World:
    """Make the world of a mode."""
    engine, _, how = mode.partition("-")
    urls = {
        "memory": "memory:",
        "sqlite": f"sqlite:{folder}/a.db",
        "jsonl": f"jsonl:{folder}/a",
        "lmdb": f"lmdb:{folder}/a",
    }
    url = urls[engine]
    if how == "power":
        url += "?durability=power"
    return World(open_store(url), Gate() if how == "held" else None)


def on_loop(test: Callable[P, Coroutine[object, object, None]]) -> Callable[P, None]:
    """Run a test on an event loop of its own, on which nothing may go wrong unseen."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        strays: list[str] = []

        async def watched() -> None:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(
                lambda _, context: strays.append(
                    f"{context['message']}: {context.get('exception')!r}"
                )
            )
            await test(*args, **kwargs)

        asyncio.run(watched())
        assert not strays, strays

    return run


async def planned(world: World, kind: Script) -> tuple[Harness, ConversationHandle, Seq]:
    """Open a session with a kind, and plan one task of it in the root."""
    harness = await world.open(kind)
    root = await harness.root()
    return harness, root, await root.commit(lambda tx: tx.task(kind, Planned()))


async def until_inflight(harness: Harness, count: int) -> None:
    """Wait until so many tasks are in flight."""
    while len((await harness.inspect()).inflight) < count:
        await asyncio.sleep(0)


async def settle_down(harness: Harness) -> None:
    """Let everything happen that can happen without the test."""
    calm = 0
    while calm < 20:
        calm = calm + 1 if harness._driver.line.idle else 0
        await asyncio.sleep(0)


async def outcome(awaitable: Awaitable[R]) -> R | BaseException:
    """Return what comes of something, an error too."""
    try:
        return await awaitable
    except BaseException as error:  # noqa: BLE001 - looked at by who asks
        return error


async def both(*races: Awaitable[R]) -> list[R | BaseException]:
    """Ask for several things at once, in this order, and return what came of each."""
    return await asyncio.gather(*(outcome(race) for race in races))
