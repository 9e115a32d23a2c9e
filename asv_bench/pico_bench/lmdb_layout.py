"""Compares ways to lay LMDB's trees out: `python -m pico_bench.lmdb_layout` prints a table.

This is the evidence of docs/adr/0010: the layout that the LMDB backend uses beside those that it
does not. The workload "turns" is made into rows beforehand, so that what is timed is LMDB.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from struct import Struct
from typing import Any, Final, NamedTuple

import lmdb
import msgspec

from pico_bench.raw import (
    APPEND,
    ENTRY,
    PATCH,
    REMOVE,
    SET,
    SETTLE,
    TASK,
    RawCommit,
    RawWrite,
    raw_commits,
)
from pico_bench.turns import COMMITS_A_TURN, Turns, Weight

_MAP_BYTES: Final = 8 << 30
_MANY: Final = 8
_pack = msgspec.msgpack.Encoder().encode
_pair = Struct(">IQ").pack
_triple = Struct(">IQQ").pack
_native = Struct("=Q").pack

LIVE: Final = frozenset("sml")
"""What commits that stream touch: frames, the last number, live tasks."""
KINDS: Final = "eitxkvabsml"


class Layout(NamedTuple):
    """Which tree each kind of row is in, and how it is put."""

    name: str
    trees: dict[str, str]
    """By kind; the others are in the main tree, behind a byte that says what they are."""
    appends: str = ""
    """Kinds that are put as appends where they are."""
    integers: str = ""
    """Kinds whose keys are LMDB's own integers: 53 bits of number leave 11 for the session."""
    packed: bool = False
    """What a main batch makes for ever, an entry or a terminal task, is one row together."""


class Row(NamedTuple):
    """One change."""

    kind: str
    session: int
    key: bytes
    value: bytes | None
    """``None``: deleted; for a frame, all of its task."""


APART: Final = {kind: kind for kind in KINDS}
HISTORY: Final = {kind: kind for kind in KINDS if kind not in LIVE}
LAYOUTS: Final = (
    Layout("one tree", {}),
    Layout("a tree for each kind", APART),
    Layout("history in trees, live in the main one", HISTORY),
    Layout("the same, entries appended", HISTORY, appends="e"),
    Layout("the same, integer keys", HISTORY, appends="et", integers="et"),
    Layout("entries and tasks in one tree, appended", HISTORY | {"t": "e"}, appends="et"),
    Layout("the same, packed by batch", HISTORY | {"t": "e"}, appends="b", packed=True),
)


def _rows(commit: RawCommit, session: int, layout: Layout) -> Iterator[Row]:
    last, task, writes = commit
    if task:
        yield Row("s", session, _triple(session, task, last), _pack(writes[0][3]))
        return
    kept: list[RawWrite] = []
    for w in writes:
        if layout.packed and w[0] in (ENTRY, SETTLE):
            kept.append(w)
        for row in _rows_of(w, session):
            if not (layout.packed and row.kind in "et"):
                yield row
    if kept:
        yield Row("b", session, _pair(session, last), _pack(kept))
    yield Row("m", session, _pair(session, 0), _pack(last))


def _rows_of(w: RawWrite, session: int) -> Iterator[Row]:
    code = w[0]
    if code == ENTRY:
        yield Row("e", session, _pair(session, w[1]), _pack(w[2:]))
        yield Row("i", session, _triple(session, 1, w[1]), b"\1")
        if w[3]:
            name = f"{w[2]}\0{w[3]}".encode()
            yield Row("k", session, _pair(session, 1) + name, _pack(w[1]))
    elif code == TASK:
        yield Row("l", session, _pair(session, w[1]), _pack(w[2:]))
    elif code == PATCH:
        yield Row("l", session, _pair(session, w[3]), _pack(w[1:]))
    elif code == SETTLE:
        yield Row("l", session, _pair(session, w[2]), None)
        yield Row("t", session, _pair(session, w[2]), _pack(w[1:]))
        yield Row("x", session, _triple(session, 1, w[2]), b"")
        yield Row("s", session, _pair(session, w[2]), None)
    elif code == SET:
        name = f"{w[1]}\0{w[2]}".encode()
        yield Row("v", session, _pair(session, 1) + name, _pack(w[3:]))
    elif code in (APPEND, REMOVE):
        key = _pair(session, 1) + f"{w[1]}\0".encode() + w[2].to_bytes(8, "big")
        yield Row("a", session, key, _pack(w[3]) if code == APPEND else None)


class _Writer:
    """Puts rows as a layout has them."""

    def __init__(self, folder: str, layout: Layout) -> None:
        self.engine = lmdb.open(folder, map_size=_MAP_BYTES, max_dbs=len(KINDS), sync=False)
        self._layout = layout
        names = {
            kind: self.engine.open_db(name.encode(), integerkey=kind in layout.integers)
            for kind, name in layout.trees.items()
        }
        self._trees: dict[str, Any] = {kind: names.get(kind) for kind in KINDS}

    def placed(self, rows: Iterator[Row]) -> list[tuple[Any, bytes, bytes | None, bool, bool]]:
        """Return rows as tree, key, value, whether they are frames and whether to append."""
        layout = self._layout
        found = []
        for kind, session, key, value in rows:
            if kind in layout.integers:
                key = _native(session << 53 | int.from_bytes(key[4:], "big"))
            elif kind not in layout.trees:
                key = kind.encode() + key
            found.append((self._trees[kind], key, value, kind == "s", kind in layout.appends))
        if layout.appends:
            # Within a commit, what is older goes first.
            found.sort(key=lambda row: (row[4], row[1] if row[4] else b""))
        return found

    def commit(self, rows: list[tuple[Any, bytes, bytes | None, bool, bool]]) -> None:
        """Commit rows that were placed."""
        with self.engine.begin(write=True) as transaction:
            put = transaction.put
            for tree, key, value, is_frame, append in rows:
                if value is not None:
                    if not append or not put(key, value, append=True, db=tree):
                        put(key, value, db=tree)
                elif not is_frame:
                    transaction.delete(key, db=tree)
                else:
                    cursor = transaction.cursor(tree)
                    if cursor.set_range(key):
                        while bytes(cursor.key()).startswith(key) and cursor.delete():
                            pass


def measure(layout: Layout, folder: str, turns: int, sessions: int) -> tuple[float, float]:
    """Return the CPU microseconds a commit and the bytes of file for a byte that must survive."""
    writer = _Writer(folder, layout)
    loads = [Turns(seed) for seed in range(1, sessions + 1)]
    weight = Weight()
    spent = 0.0
    for turn in range(turns):
        number = turn % sessions
        first = loads[number].last + 1
        batches = loads[number].turn()
        if number == 0:
            weight.add(first, batches)
        commits = [
            writer.placed(_rows(one, number + 1, layout)) for one in raw_commits(first, batches)
        ]
        start = time.process_time()
        for commit in commits:
            writer.commit(commit)
        spent += time.process_time() - start
    writer.engine.close()
    size = os.stat(os.path.join(folder, "data.mdb")).st_size
    # The sessions differ in their texts alone.
    return spent / turns / COMMITS_A_TURN * 1e6, size / (weight.surviving * sessions)


def main(turns: int = 1_600) -> None:
    """Print what each layout took, with one session and with several that take turns."""
    heads = ("us a commit", "bytes a byte", f"{_MANY} sessions", "bytes a byte")
    print(f"{'':42}" + "".join(f"{head:>14}" for head in heads))
    for layout in LAYOUTS:
        line = f"{layout.name:42}"
        for sessions in (1, _MANY):
            with tempfile.TemporaryDirectory() as folder:
                cpu, size = measure(layout, folder, turns, sessions)
            line += f"{cpu:14.1f}{size:14.2f}"
        print(line)


if __name__ == "__main__":
    main()
