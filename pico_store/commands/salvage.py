"""`pico verify --salvage`: what is whole of a store, in a new one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import msgspec
from msgspec import Struct

from pico_store.backends import backends, find_backend, open_store, split_url
from pico_store.command import UsageError
from pico_store.commands.opening import existing_store, new_or_existing_store
from pico_store.errors import PicoError, StoreDamagedError, StoreUnusableError
from pico_store.salvage import Outcome, salvage
from pico_store.storage import Problem


class _Told(Struct, omit_defaults=True):
    """What the process that reads the store tells the one that waits for it."""

    begun: str | None = None
    outcome: Outcome | None = None
    damage: str = ""
    error: str = ""


def new_store_url(text: str, source: str) -> str:
    """Return the URL of the store to make; a path alone is of the source's backend.

    Raises:
        UsageError: Something is there, nothing would last, or it lies within the source.
    """
    scheme, colon, _ = text.partition(":")
    url = text if colon and scheme in backends() else f"{split_url(source)[0]}:{text}"
    scheme, path, _ = split_url(url)
    if not find_backend(scheme).promises.durability:
        raise UsageError(f"{url} would end with this command; name a store on disk")
    if not path:
        raise UsageError(f"--salvage {text!r} names no place; write a path or a store's URL")
    if os.path.lexists(path):
        raise UsageError(f"{path} exists; --salvage writes into a new store alone")
    inside = os.path.realpath(split_url(source)[1])
    if os.path.realpath(path).startswith(inside + os.sep):
        raise UsageError(f"{path} is within the store itself; name a place outside of it")
    return url


def salvage_all(source: str, new: str) -> tuple[list[Outcome], list[Problem]]:
    """Save all sessions; return what became of each, and what keeps the others from being found.

    The damaged store is read in a process of its own, which the reading may end; then the next
    one goes on with the session behind.

    Raises:
        StoreUnusableError: The new store cannot be made or written.
    """
    try:
        with new_or_existing_store(new):
            pass
        return _salvage_all(source, new)
    except BaseException:
        # What was saved by then may be all that can be had, so that it is not removed.
        if os.path.lexists(split_url(new)[1]):
            print(f"pico: {new} is not complete; remove it before the next try", file=sys.stderr)
        raise


def _salvage_all(source: str, new: str) -> tuple[list[Outcome], list[Problem]]:
    outcomes: list[Outcome] = []
    while True:
        begun: str | None = None
        reading = _Reading(source, new, len(outcomes))
        for told in reading:
            if told.error:
                raise StoreUnusableError(told.error)
            if told.damage:
                return outcomes, [Problem(None, "store", told.damage)]
            if told.begun is not None:
                begun = told.begun
            if told.outcome is not None:
                outcomes.append(told.outcome)
                begun = None
        if not reading.signal:
            return outcomes, []
        what = f"reading it ended a process with signal {reading.signal}"
        if begun is None:
            return outcomes, [Problem(None, "store", what)]
        outcomes.append(Outcome(begun, 0, "", (Problem(begun, "session", what),)))


class _Reading:
    """Salvages in a process of its own; iterating yields what that tells, ``signal`` its end."""

    def __init__(self, source: str, new: str, start: int) -> None:
        self._arguments = (source, new, start)
        self.signal = 0

    def __iter__(self) -> Iterator[_Told]:
        sys.stdout.flush()
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(reading)
                _tell(writing, *self._arguments)
            finally:
                os._exit(0)
        os.close(writing)
        try:
            with open(reading, "rb") as lines:
                for line in lines:
                    if line.endswith(b"\n"):
                        yield msgspec.json.decode(line, type=_Told)
        finally:
            _, status = os.waitpid(pid, 0)
            self.signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def _tell(fd: int, source: str, new: str, start: int) -> None:
    def tell(told: _Told) -> None:
        os.write(fd, msgspec.json.encode(told) + b"\n")

    try:
        destination = open_store(new)
        try:
            with existing_store(source) as store:
                found = salvage(store, destination, lambda name: tell(_Told(begun=name)), start)
                for outcome in found:
                    tell(_Told(outcome=outcome))
        finally:
            destination.close()
    except StoreDamagedError as error:
        tell(_Told(damage=str(error)))
    except (PicoError, OSError) as error:
        tell(_Told(error=str(error)))
    except Exception as error:  # noqa: BLE001 - the waiting process has to hear of its end
        tell(_Told(error=f"a fault of pico itself: {type(error).__name__}: {error}"))
