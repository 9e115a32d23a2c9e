"""Saving what is whole of a damaged store: record by record, into a store that was empty."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Protocol, runtime_checkable

from pico_store.digest import DigestingStream, digest
from pico_store.errors import MissingDriverError, PicoError, StoreDamagedError
from pico_store.remnant import Remnant
from pico_store.snapshot import SnapshotItem
from pico_store.snapshot_check import check_snapshot
from pico_store.storage import Problem, Store


@dataclass(frozen=True, slots=True)
class Readable:
    """What can be read of one session."""

    session: str
    items: Callable[[], Iterator[SnapshotItem]] | None
    """Yields the same items at each call, in canonical order; ``None``: nothing is whole."""
    left_out: tuple[Problem, ...] = ()
    """What the items lack, and why."""
    lost: Container[int] | None = None
    """The numbers of records that the items lack, so that they may not fit together as they are;
    `pico_store.remnant` makes them do so. ``None``: they fit."""


@runtime_checkable
class Salvaging(Protocol):
    """A store that can tell apart what is whole within a damaged session; optional."""

    def salvage(self) -> Iterator[Readable]:
        """Yield every session in an order that is always the same; changes nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one session."""

    session: str
    items: int
    """How many were saved; 0: nothing of it."""
    digest: str
    """Of what was saved; empty where nothing was."""
    left_out: tuple[Problem, ...]
    altered: tuple[Problem, ...] = ()
    """What was changed, or left out beside, since it refers to what was."""


def salvage(
    source: Store, destination: Store, begin: Callable[[str], object], start: int = 0
) -> Iterator[Outcome]:
    """Save session after session; one that cannot be read does not keep the others from it.

    Each is read to its end and checked before anything of it is written.

    Args:
        source: The damaged store; it is not changed.
        destination: Where what is whole goes.
        begin: Told of each session before it is read.
        start: How many sessions to pass over.

    Raises:
        PicoError: The sessions cannot be listed, or the destination cannot be written.
    """
    found = source.salvage() if isinstance(source, Salvaging) else _sessions(source)
    for readable in islice(found, start, None):
        begin(readable.session)
        yield _save(readable, destination)


def _sessions(source: Store) -> Iterator[Readable]:
    for info in source.sessions():
        yield Readable(info.id, partial(_export, source, info.id))


def _export(source: Store, session: str) -> Iterator[SnapshotItem]:
    storage = source.open(session, read_only=True)
    try:
        yield from storage.export()
    finally:
        storage.close()


def _save(readable: Readable, destination: Store) -> Outcome:
    session, items, left_out = readable.session, readable.items, readable.left_out
    if items is None:
        return Outcome(session, 0, "", left_out)
    altered: list[Problem] = []

    def tell(where: str, what: str) -> None:
        altered.append(Problem(session, where, what))

    try:
        if readable.lost is not None:
            remnant = Remnant(items, readable.lost)
            if remnant.is_empty:
                raise StoreDamagedError("nothing of it can be read")
            stream = DigestingStream(check_snapshot(remnant.items(tell)))
            items = partial(remnant.items, _tell_nobody)
        else:
            stream = DigestingStream(check_snapshot(items()))
        for _ in stream:
            pass
    except MissingDriverError:
        raise
    except (PicoError, LookupError, ValueError, TypeError) as error:
        # Whatever decoding damaged rows may raise.
        return Outcome(session, 0, "", (*left_out, Problem(session, "session", str(error))))
    destination.load(session, items())
    copy = destination.open(session, read_only=True)
    try:
        found = digest(copy.export())
    finally:
        copy.close()
    if found != stream.hexdigest():
        what = f"changed while it was read: digest {stream.hexdigest()}, saved {found}"
        left_out = (*left_out, Problem(session, "session", what))
    return Outcome(session, stream.count, found, left_out, tuple(altered))


def _tell_nobody(where: str, what: str) -> None:
    """Say again what was said at the first reading."""
