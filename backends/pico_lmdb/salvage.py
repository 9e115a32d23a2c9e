"""What is whole of each session of a damaged folder, row by row.

To be used in a process of its own: a damaged map can end the one that reads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from pico_lmdb.environment import Environment
from pico_lmdb.layout import (
    DOOMED,
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


def salvage_folder(environment: Environment) -> Iterator[Readable]:
    """Yield the sessions by their numbers; change nothing.

    Each is read once to find out what of it is damaged.
    """
    named: dict[int, str] = {}
    found: dict[int, tuple[str, str]] = {}
    doomed: set[int] = set()
    with Snapshot(environment, Counters(), "", is_careful=False) as snapshot:
        # The main tree is gone through as it lies: any key may be damaged.
        for key, stored in snapshot.every_row(MAIN):
            number = int.from_bytes(key[1:], "big")
            if key.startswith(NAME) and len(key) < KEY_BYTES_MAX:
                named[int.from_bytes(stored, "big")] = key[1:].decode(errors="replace")
            elif key.startswith(DOOMED):
                doomed.add(number)
            elif key.startswith(SESSION) and (row := unseal(MAIN, key, stored)) is not None:
                found[number] = decode_session(row).name, ""
    names = {name for name, _ in found.values()}
    for number, name in named.items():
        if number not in found and number not in doomed and name not in names:
            found[number] = name, "its checksum differs, or it is not there; a name leads to it"
    for number, (name, problem) in sorted(found.items()):
        yield _readable(environment, number, name, problem)


def _readable(environment: Environment, session: int, name: str, problem: str) -> Readable:
    left_out = [Problem(name, f"session {session}", problem)] if problem else []

    def rows() -> WholeRows:
        counters = Counters()
        return WholeRows(partial(Snapshot, environment, counters, name, is_careful=False), session)

    def items() -> Iterator[SnapshotItem]:
        return rows().items()

    read = rows()
    try:
        check_name(name, "sessionId")
        for _ in read.items():
            pass
    except MissingDriverError:
        raise
    except PicoError as error:
        return Readable(name, None, (*left_out, Problem(name, "session", str(error))))
    left_out += (Problem(name, *found) for found in read.problems.items())
    lost = read.lost if read.is_lost_known else EVERY_NUMBER
    return Readable(name, items, tuple(left_out), lost)
