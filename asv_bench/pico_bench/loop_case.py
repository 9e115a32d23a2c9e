"""How long the event loop is held up while one of its tasks commits 100 KB at a time, `power`."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Coroutine
from contextlib import closing
from random import Random
from typing import Final, NamedTuple

from pico_bench.case import Numbers, Setting
from pico_bench.harness_kinds import BRIEF
from pico_bench.text import cut, prose
from pico_harness.conversation import ConversationHandle
from pico_harness.harness import Harness
from pico_harness.kinds import EntryKind
from pico_harness.state import conversation_value
from pico_store.address import Seq
from pico_store.backends import open_store

_CHARACTERS: Final = 100_000
_SLICE: Final = 100
"""Commits that are watched at a time."""
_TICK: Final = 0.001
"""Seconds between two looks at the clock."""
_BLOB: Final = EntryKind[object]("blob")
_SMALL: Final = conversation_value("small", rewind=False)


def loop_sqlite(setting: Setting) -> Numbers:
    """Measure SQLite."""
    return asyncio.run(_measure(f"sqlite:{setting.folder}/loop.db?durability=power", setting))


def loop_lmdb(setting: Setting) -> Numbers:
    """Measure LMDB."""
    return asyncio.run(_measure(f"lmdb:{setting.folder}/loop?durability=power", setting))


async def _measure(url: str, setting: Setting) -> Numbers:
    with closing(open_store(url)) as store:
        harness = await Harness.open(store.create("loop"), tasks=(BRIEF,))
        root = await harness.root()
        first = await root.commit(lambda tx: tx.entry(_BLOB, "small"))
        await root.value(_SMALL).set(1)
        texts = _texts(setting)
        slices = [texts[at : at + _SLICE] for at in range(0, len(texts), _SLICE)]
        busy: list[list[float]] = []
        clock: list[list[float]] = []
        quiet: list[list[float]] = []
        for slice in slices:
            start = time.perf_counter()
            late = await _watched(_commit_all(root, slice), _read_on(harness, root, first))
            spent = time.perf_counter() - start
            busy.append([one.held for one in late])
            clock.append([one.clock for one in late])
            # What the machine alone does to a loop: the same wakes and reads, nothing committed.
            late = await _watched(asyncio.sleep(spent), _read_on(harness, root, first))
            quiet.append([one.held for one in late])
        await harness.close()
    # Others take the processor away for a while at a time; the middle slice tells what is ours.
    return {
        "p99_ms": statistics.median(_p99(lags) for lags in busy) * 1e3,
        "clock_p99_ms": statistics.median(_p99(lags) for lags in clock) * 1e3,
        "quiet_p99_ms": statistics.median(_p99(lags) for lags in quiet) * 1e3,
        "ticks": sum(map(len, busy)),
    }


def _texts(setting: Setting) -> list[str]:
    random = Random(setting.seed)
    return [cut(random, prose(), _CHARACTERS) for _ in range(setting.blocking)]


async def _commit_all(root: ConversationHandle, texts: list[str]) -> None:
    for text in texts:
        await root.commit(
            lambda tx, text=text: tx.entry(_BLOB, model=[{"role": "user", "content": text}])  # type: ignore[misc]
        )


async def _read_on(harness: Harness, root: ConversationHandle, entry: Seq) -> None:
    """Ask small questions, as whoever shows the session does: they must not wait for commits."""
    while True:
        await harness.get_entry(entry)
        await root.value(_SMALL).get()
        await asyncio.sleep(_TICK * 5)


class _Late(NamedTuple):
    """By how many seconds a tick came late."""

    clock: float
    held: float
    """Without what the thread waited for a processor, which other programs had meanwhile."""


async def _watched(
    work: Coroutine[object, object, None], beside: Coroutine[object, object, None]
) -> list[_Late]:
    """Run work to its end and return by how much each tick came late."""
    working, other = asyncio.create_task(work), asyncio.create_task(beside)
    found: list[_Late] = []
    while not working.done():
        queued = _queued()
        due = time.perf_counter() + _TICK
        await asyncio.sleep(_TICK)
        clock = max(0.0, time.perf_counter() - due)
        found.append(_Late(clock, max(0.0, clock - (_queued() - queued))))
    other.cancel()
    await working
    return found


def _queued() -> float:
    """Return the seconds that this thread was ready to run and had no processor; Linux counts."""
    try:
        with open("/proc/thread-self/schedstat", "rb") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError):
        # Where it is not counted, or came out empty for once.
        return 0.0


def _p99(lags: list[float]) -> float:
    return sorted(lags)[int(len(lags) * 0.99)]
