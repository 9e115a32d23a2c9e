"""An interruption at each line that a commit executes: the session is as before or after it."""

from __future__ import annotations

import linecache
import os
import sys
from functools import cache
from random import Random
from types import FrameType
from typing import Any, Final

from fuzz.attack import Attack, Attempt
from fuzz.place import folder, open_session, store_at
from fuzz.recovery import check_prefix
from fuzz.script import Script, make_script
from pico_store.backends import open_store
from pico_store.digest import digest
from pico_store.errors import PicoError, StorageFaultedError
from pico_store.storage import Durability, Storage, Store

TRIES: Final = 40
_LEVELS: Final[tuple[Durability, ...]] = ("power", "ordered")
_OURS: Final = tuple(
    f"{os.sep}pico_{name}{os.sep}" for name in ("sqlite", "jsonl", "lmdb", "memory")
)


class _Interrupter:
    """Counts the lines of backends that run below a commit, and interrupts one of them."""

    def __init__(self, at: int = 0) -> None:
        self._at = at
        self.count = 0
        self.where = ""

    def commit(self, storage: Storage, script: Script, index: int) -> BaseException | None:
        """Commit a batch; return what came of it instead."""
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            storage.commit(script.batches[index])
        except (KeyboardInterrupt, PicoError) as error:
            return error
        finally:
            sys.settrace(before)
        return None

    # The interpreter hands over anything here, and takes whatever is returned.
    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        file = frame.f_code.co_filename
        if event == "call" and not any(part in file for part in _OURS):
            return None
        if event == "line" and _can_interrupt(file, frame.f_lineno):
            self.count += 1
            if self.count == self._at:
                self.where = f"{os.path.basename(file)}:{frame.f_lineno}"
                raise KeyboardInterrupt
        return self._trace


@cache
def _can_interrupt(file: str, number: int) -> bool:
    """Tell whether the interpreter could be interrupted at a line.

    It delivers signals at calls and jumps. Only a tracer can raise at the line of a ``with``
    that is told again when its lock is about to be given back, or at a bare ``try``.
    """
    return not linecache.getline(file, number).strip().startswith(("with ", "try:"))


def attempt(backend: str, seed: int) -> Attempt:
    """Interrupt commits of one history again and again, at lines all over."""
    random = Random(seed)
    script = make_script(seed)
    level = random.choice(_LEVELS)
    done = Attempt()
    with folder() as where:
        path = os.path.join(where, "store")
        store = _open(backend, path, level)
        storage = open_session(store)
        index = lines = 0
        while index < len(script.batches) and done.tries < TRIES:
            # The number of lines is not known before; that of the last commit is a guess.
            at = random.randint(1, max(20, lines + lines // 4))
            interrupter = _Interrupter(at)
            error = interrupter.commit(storage, script, index)
            lines = max(interrupter.count, lines // 2)
            if error is None:
                index += 1
                continue
            done.tries += 1
            there, wrong = _shown(storage, script, index)
            if wrong == _FAULTED and backend != "memory":
                store.close()
                store = _open(backend, path, level)
                there, wrong = check_prefix(store, script, index, index + 1, go_on=False)
                storage = open_session(store)
            if wrong:
                what = f"{type(error).__name__} at {interrupter.where} in batch {index}"
                done.failures.append(f"{wrong} ({what}, level {level})")
                return done
            index = there
        done.failures += _at_the_end(backend, store, path, script, index)
    return done


_FAULTED: Final = "faulted"


def _open(backend: str, path: str, level: Durability) -> Store:
    return open_store("memory:") if backend == "memory" else store_at(backend, path, level)


def _shown(storage: Storage, script: Script, index: int) -> tuple[int, str]:
    """Return how many batches a handle shows after an interruption, and what is wrong."""
    try:
        found = digest(storage.export())
    except StorageFaultedError:
        return index, _FAULTED
    if found not in script.digests[index : index + 2]:
        return index, f"half: neither the state before nor after (last {storage.last_seq})"
    return script.digests.index(found), ""


def _at_the_end(backend: str, store: Store, path: str, script: Script, index: int) -> list[str]:
    """Compare what the files hold with what was shown."""
    if backend == "memory":
        store.close()
        return []
    store.close()
    again = store_at(backend, path)
    try:
        wrong = check_prefix(again, script, index, index)[1]
    finally:
        again.close()
    return [f"{wrong} (after closing)"] if wrong else []


ATTACK: Final = Attack("lines", ("memory", "sqlite", "jsonl", "lmdb"), attempt)
