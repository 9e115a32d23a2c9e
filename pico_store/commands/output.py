"""What commands print: JSON for programs, lines for people, a counter on a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO, TypeVar

import msgspec

T = TypeVar("T")
_COUNT_EVERY = 1_000
_ERASE = "\r\x1b[K"


def print_json(value: object) -> None:
    """Print one JSON value on one line; records take their stored names."""
    builtin = msgspec.to_builtins(value)
    # A stream that cannot hold every character gets escapes, which mean the same.
    ascii_only = (sys.stdout.encoding or "ascii").lower().replace("-", "") != "utf8"
    print(json.dumps(builtin, ensure_ascii=ascii_only))


def print_line(text: str = "") -> None:
    """Print a line; what a terminal would obey rather than show is escaped."""
    print(visible(text))


def visible(text: str) -> str:
    """Return a text with its control characters, line ends included, as escapes.

    A transcript holds whatever tools printed; shown as it is, it could move the cursor, change
    the window's title, or reorder what stands beside it.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escape(c) for c in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")


def shorten(text: str, width: int) -> str:
    """Return a text on one line, its white space joined, cut to a width."""
    # Only what can be shown is looked at: a text may be megabytes long.
    line = " ".join(text[: width * 4].split())
    return line if len(line) <= width else line[: width - 1] + "…"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun, which takes an s, or ies for y, unless there is one."""
    many = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else many}"


def table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield rows as lines with their columns aligned."""
    shown = [tuple(visible(cell) for cell in row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def counted(items: Iterable[T], what: str, stream: TextIO) -> Iterator[T]:
    """Yield the items and show their count on a terminal; quiet on anything else."""
    if not stream.isatty():
        yield from items
        return
    try:
        for count, item in enumerate(items, 1):
            if count % _COUNT_EVERY == 0:
                stream.write(f"\r{what}: {count:,}")
                stream.flush()
            yield item
    finally:
        stream.write(_ERASE)
        stream.flush()
