"""A process that commits is killed, at any instant or at a system call; the store is opened anew.

Killed again and again, a history is committed to its end. Every batch that was acknowledged must be
there, and at most the one that was under way besides.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

from fuzz.attack import Attack, Attempt
from fuzz.place import FILE_BACKENDS, LEVELS, folder, open_session, store_at
from fuzz.recovery import check_prefix, is_there
from fuzz.script import Script, make_script
from fuzz.tracing import can_trace, let_go_on, wait_to_be_traced
from pico_store.errors import PicoError
from pico_store.storage import Durability, Store

_ACK: Final = b"."
_FAILED: Final = b"!"


class _Kill(NamedTuple):
    """When a child is killed."""

    after: int
    """How many acknowledgements are waited for; the first one is for the opened session."""
    stops: int
    """At which stop at a system call after that; 0: at some instant."""
    spin_us: int
    """How long to wait before."""


class _Child(NamedTuple):
    """What a child does."""

    backend: str
    path: str
    level: Durability
    script: Script
    start: int
    """How many batches are there already."""
    seed: int
    open: Callable[[str, str, Durability], Store]


def _open(backend: str, path: str, level: Durability) -> Store:
    return store_at(backend, path, level)


def attempt(
    backend: str,
    seed: int,
    open_store: Callable[[str, str, Durability], Store] = _open,
) -> Attempt:
    """Commit one history, with a kill every few batches."""
    random = Random(seed)
    script = make_script(seed)
    level = random.choice(LEVELS)
    done = Attempt()
    with folder() as where:
        path = os.path.join(where, "store")
        there = 0
        exists = False
        while there < len(script.batches):
            child = _Child(backend, path, level, script, there, random.randrange(2**32), open_store)
            kill = _some_kill(random, len(script.batches) - there)
            acknowledged, ended, failed = _run(child, kill)
            done.tries += 1
            exists = exists or acknowledged > 0
            where_killed = f"level {level}, {kill}, from batch {there}"
            if failed:
                done.failures.append(f"the child failed: {failed} ({where_killed})")
                return done
            there += max(acknowledged - 1, 0)
            count, wrong = _check(child, there, random, exists=exists)
            if wrong:
                done.failures.append(f"{wrong} ({where_killed}, {there} acknowledged)")
                return done
            exists = exists or count > 0
            there = count
            if ended and there < len(script.batches):
                done.failures.append(f"the child ended early ({where_killed})")
                return done
    return done


def _some_kill(random: Random, left: int) -> _Kill:
    after = random.choice((0, 0, 1, 2, random.randint(0, min(left, 12))))
    if can_trace() and random.random() < 0.5:
        return _Kill(after, random.randint(1, random.choice((10, 40, 150))), 0)
    return _Kill(after, 0, random.choice((0, 50, 200, 500, 1_000, 3_000)))


def _run(child: _Child, kill: _Kill) -> tuple[int, bool, str]:
    """Run a child until it is killed; return its acknowledgements, whether it ended, and why."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _commit_all(child, kill, writing)
    os.close(writing)
    try:
        heard = b""
        if kill.stops:
            alive = let_go_on(pid, kill.stops)
        else:
            while len(heard) < kill.after and (more := os.read(reading, 1)):
                heard += more
            deadline = time.perf_counter() + kill.spin_us / 1e6
            while time.perf_counter() < deadline:
                pass
            alive = True
        ended = not alive
        if alive:
            os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            ended = not os.WIFSIGNALED(status)
        while more := os.read(reading, 65_536):
            heard += more
    finally:
        os.close(reading)
    acknowledged, _, failed = heard.partition(_FAILED)
    return len(acknowledged), ended, failed.decode(errors="replace")


def _commit_all(child: _Child, kill: _Kill, writing: int) -> None:
    """Be the child."""
    try:
        random = Random(child.seed)
        acknowledged = 0

        def acknowledge() -> None:
            nonlocal acknowledged
            os.write(writing, _ACK)
            acknowledged += 1
            if kill.stops and acknowledged == kill.after:
                wait_to_be_traced()

        if kill.stops and kill.after == 0:
            wait_to_be_traced()
        store = child.open(child.backend, child.path, child.level)
        storage = open_session(store)
        acknowledge()
        for batch in child.script.batches[child.start :]:
            if random.random() < 0.03:
                store.vacuum()
            storage.commit(batch)
            acknowledge()
        if kill.stops and kill.after > acknowledged:
            wait_to_be_traced()
        store.close()
    except BaseException as error:  # noqa: BLE001 - told to the parent
        os.write(writing, _FAILED + f"{type(error).__name__}: {error}".encode()[:2_000])
    finally:
        os._exit(0)


def _check(child: _Child, there: int, random: Random, *, exists: bool) -> tuple[int, str]:
    """Open what a kill left; return how many batches are there, and what is wrong."""
    try:
        store = store_at(child.backend, child.path, child.level)
    except PicoError as error:
        return 0, f"the store does not open: {type(error).__name__}: {error}"
    try:
        if not exists and not is_there(store):
            return 0, ""
        # Proving an LMDB environment whole takes a process of its own.
        if random.random() < (0.02 if child.backend == "lmdb" else 0.2):
            problems = store.verify().problems
            if problems:
                return 0, f"verify: {problems[0]}"
        at_most = min(there + 1, len(child.script.batches))
        return check_prefix(store, child.script, there, at_most, go_on=random.random() < 0.5)
    except PicoError as error:
        return 0, f"{type(error).__name__}: {error}"
    finally:
        store.close()


ATTACK: Final = Attack("crash", FILE_BACKENDS, attempt)
