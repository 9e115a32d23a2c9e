"""One bit of a store's files is flipped: that is told, or harmless, and never wrong data."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from random import Random
from typing import Final

import apsw

from fuzz.attack import Attack, Attempt
from fuzz.damage import Damage, commit_all, judge_all, put_damaged
from fuzz.place import FILE_BACKENDS, folder
from fuzz.script import make_script

FLIPS: Final = 60
_BLOCK_BYTES: Final = 2048


def attempt(backend: str, seed: int) -> Attempt:
    """Flip some bits of one store, each by itself: next to one another, or anywhere."""
    random = Random(seed)
    script = make_script(seed, batches_max=random.choice((4, 10, 25)))
    done = Attempt()
    with folder() as where:
        files = commit_all(backend, where, script)
        damages = list(some_flips(files, random, FLIPS))
        for damage, wrong in zip(
            damages, judge_all(backend, where, script, files, damages), strict=True
        ):
            done.tries += 1
            if not wrong:
                continue
            columns = _columns(where, files, damage) if backend == "sqlite" else frozenset()
            done.failures.append(f"{wrong}; {', '.join(sorted(columns))}")
    return done


def some_flips(files: dict[str, bytes], random: Random, count: int) -> Iterator[Damage]:
    """Yield files with one bit flipped, larger files more often."""
    names = [name for name, content in files.items() if content]
    weights = [len(files[name]) for name in names]
    in_a_row = random.random() < 0.5
    name = random.choices(names, weights)[0]
    place = _place(files[name], random)
    for _ in range(count):
        content = files[name]
        changed = bytearray(content)
        changed[place // 8] ^= 1 << place % 8
        yield Damage(name, f"bit {place % 8} of byte {place // 8} of {name}", bytes(changed))
        if in_a_row:
            place = (place + 1) % (8 * len(content))
        else:
            name = random.choices(names, weights)[0]
            place = _place(files[name], random)


def _place(content: bytes, random: Random) -> int:
    """Return a bit of a file: seldom one of those that nothing is in."""
    start = random.randrange(0, len(content), _BLOCK_BYTES)
    used = [at for at, byte in enumerate(content[start : start + _BLOCK_BYTES], start) if byte]
    if not used or random.random() < 0.2:
        return random.randrange(8 * len(content))
    return 8 * random.choice(used) + random.randrange(8)


def _columns(where: str, files: dict[str, bytes], damage: Damage) -> frozenset[str]:
    """Return the columns whose values a damage changed, as far as SQLite still tells them."""
    whole = _values(where, files, damage._replace(content=files[damage.file]))
    return frozenset(
        name for name, values in _values(where, files, damage).items() if whole.get(name) != values
    )


def _values(where: str, files: dict[str, bytes], damage: Damage) -> dict[str, list[object]]:
    put_damaged(where, files, damage)
    found: dict[str, list[object]] = {}
    with closing(apsw.Connection(os.path.join(where, "store"))) as db:
        try:
            tables = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
            for (table,) in tables:
                for _, column, *_ in db.execute(f"PRAGMA table_info({table})").fetchall():
                    sql = f'SELECT typeof("{column}"), CAST("{column}" AS BLOB) FROM {table}'
                    found[f"{table}.{column}"] = list(db.execute(f"{sql} NOT INDEXED"))
        except (apsw.Error, UnicodeDecodeError) as error:
            found[f"unreadable: {error}"] = []
    return found


ATTACK: Final = Attack("flip", FILE_BACKENDS, attempt)
