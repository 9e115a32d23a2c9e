"""What LMDB does with the workload when nothing stands between a plain loop and it.

One tree, a row a record, an index where the questions of the interface need one. It checks nothing
and syncs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import Final

import lmdb
import msgspec

from pico_bench.raw import APPEND, ENTRY, PATCH, REMOVE, SET, SETTLE, TASK, RawCommit

_MAP_BYTES: Final = 32 << 30


def lmdb_loop(folder: Path) -> tuple[Callable[[RawCommit], None], Callable[[], None]]:
    """Return a function that commits to a new environment without any sync, and its close."""
    engine = lmdb.open(str(folder), map_size=_MAP_BYTES, sync=False)
    begin, pack = engine.begin, msgspec.msgpack.Encoder().encode
    key, pair, number = Struct(">cQ").pack, Struct(">cQQ").pack, Struct(">Q").pack
    root = number(1)

    def commit(commit: RawCommit) -> None:
        last, task, writes = commit
        with begin(write=True) as transaction:
            put, delete = transaction.put, transaction.delete
            for w in writes:
                code = w[0]
                if task:
                    put(pair(b"s", task, last), pack(w[3]))
                elif code == ENTRY:
                    put(key(b"e", w[1]), pack(w[2:]))
                    put(pair(b"i", 1, w[1]), b"")
                    if w[3]:
                        put(b"k" + root + f"{w[2]}\0{w[3]}".encode(), number(w[1]))
                elif code == TASK:
                    put(key(b"t", w[1]), pack(w[2:]))
                    put(key(b"l", w[1]), b"")
                elif code == PATCH:
                    put(key(b"t", w[3]), pack(w[1:]))
                elif code == SETTLE:
                    put(key(b"t", w[2]), pack(w[1:]))
                    delete(key(b"l", w[2]))
                    prefix = key(b"s", w[2])
                    cursor = transaction.cursor()
                    if cursor.set_range(prefix):
                        while cursor.key().startswith(prefix) and cursor.delete():
                            pass
                elif code == SET:
                    put(b"v" + root + f"{w[1]}\0{w[2]}".encode(), pack(w[3:]))
                elif code == APPEND:
                    put(b"a" + root + w[1].encode() + key(b"\0", w[2]), pack(w[3]))
                elif code == REMOVE:
                    delete(b"a" + root + w[1].encode() + key(b"\0", w[2]))
            put(b"m", number(last))

    return commit, engine.close
