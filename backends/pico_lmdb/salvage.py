"""What is whole of each session of a damaged folder, row by row.

To be used in a process of its own: a damaged map can end the one that reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pico_lmdb.environment import Environment
from pico_lmdb.layout import (
    MAIN,
    NAME,
    SESSION,
)
from pico_lmdb.names import KEY_BYTES_MAX
from pico_lmdb.rows import (
    decode_session,
    unseal,
)
from pico_lmdb.salvage_rows import WholeRows
from pico_lmdb.snapshot import Snapshot
from pico_store.errors import MissingDriverError, PicoError
from pico_store.names import check_name
from pico_store.remnant import EVERY_NUMBER
from pico_store.salvage import Readable
from pico_store.snapshot import (
    SnapshotItem,
)
from pico_store.storage import Counters, Problem

Export = Callable[[str], Iterator[SnapshotItem]]


def salvage_folder(environment: Environment) -> Iterator[Readable]:
    """Yield the sessions by their numbers; change nothing.

    Each is read once to find out what of it is damaged.
    """
    named: dict[int, str] = {}
    found: list[tuple[int, str, str]] = []
    with Snapshot(environment, Counters(), "", is_careful=False) as snapshot:
        for key, stored in snapshot.under(MAIN, NAME):
            if len(key) < KEY_BYTES_MAX:
                named[int.from_bytes(stored, "big")] = key[1:].decode(errors="replace")
        for key, stored in snapshot.under(MAIN, SESSION):
            number = int.from_bytes(key[1:], "big")
            row = unseal(MAIN, key, stored)
            if row is not None:
                found.append((number, decode_session(row).name, ""))
            else:
                name = named.get(number, f"session {number}")
                found.append((number, name, "its checksum differs; the name is what leads to it"))
    for number, name, problem in found:
        yield _readable(environment, number, name, problem)


def _readable(environment: Environment, session: int, name: str, problem: str) -> Readable:
    left_out = [Problem(name, f"session {session}", problem)] if problem else []

    def rows(snapshot: Snapshot) -> WholeRows:
        return WholeRows(snapshot, session)

    def items() -> Iterator[SnapshotItem]:
        with Snapshot(environment, Counters(), name, is_careful=False) as snapshot:
            yield from rows(snapshot).items()

    try:
        check_name(name, "sessionId")
        with Snapshot(environment, Counters(), name, is_careful=False) as snapshot:
            read = rows(snapshot)
            for _ in read.items():
                pass
    except MissingDriverError:
        raise
    except PicoError as error:
        return Readable(name, None, (*left_out, Problem(name, "session", str(error))))
    left_out += (Problem(name, *found) for found in read.problems.items())
    lost = read.lost if read.is_lost_known else EVERY_NUMBER
    return Readable(name, items, tuple(left_out), lost)
