"""Where everything is in an LMDB environment: its trees, and the keys of each.

All numbers in keys are big-endian, so that LMDB's byte order is the order of the numbers. A session
is a number of four bytes, everything of it begins with that, and ids have eight.

Commits that stream touch the main tree alone, which holds only what is live: sessions, live tasks,
scratch. History is in trees of its own, one for each order in which it is read, and grows at their
ends.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

FORMAT_VERSION: Final = 1
"""Greater ones are refused."""

MAIN: Final = 0
RECORDS: Final = 1
"""Entries and terminal tasks: session, id."""
TRANSCRIPTS: Final = 2
"""A conversation's own entries: session, conversation, id; holds the number of the kind."""
TASKS: Final = 3
"""A conversation's terminal tasks: session, conversation, id; holds nothing."""
HEADS: Final = 4
"""A conversation's own entries that have a head: session, conversation, id; holds nothing."""
KEYS: Final = 5
"""Entries by key: session, conversation, digest of kind and key, id; holds nothing."""
CONVERSATIONS: Final = 6
"""Conversations and their links: a tag, session, the id that is looked for, id."""
ADDRESSES: Final = 7
"""What is at an address: session, conversation or 0, then as `pico_lmdb.names` says."""
VERSIONS: Final = 8
"""Versions of rewindable values: session, number of the address, seq."""
LISTS: Final = 9
"""Lists: session, number of the list, 0 and a marker or 1 and an element."""
BATCHES: Final = 10
"""Boundaries of main batches, some in one row: session, first number."""

TREES: Final = (
    *(b"records", b"transcripts", b"tasks", b"heads", b"keys", b"conversations", b"addresses"),
    *(b"versions", b"lists", b"batches"),
)
"""The names of the trees from `RECORDS` on; the main tree has none."""

# --- The main tree: a tag, and what identifies the row ---

COUNTER: Final = b"!sessions"
"""The number of the next session."""
FORMAT: Final = b"!format"
DICTIONARY: Final = b"!dictionary"
"""Followed by its number, a dictionary that payloads were compressed with."""

_tagged = Struct(">cI").pack
task_row: Final = Struct(">cIQ").pack
"""A tag, a session and a task: the key of a row, or what keys begin with."""
_link = Struct(">cIQQ").pack

pair: Final = Struct(">IQ").pack
"""A session and a number."""
triple: Final = Struct(">IQQ").pack
"""A session and two numbers."""
last_number: Final = Struct(">Q").unpack_from
"""The number at an offset of a key."""
_keyed = Struct(">IQ8sQ").pack
list_row: Final = Struct(">IQcQ").pack
"""A session, the number of a list, `ELEMENT` and an id."""
scratch_row: Final = Struct(">cIQcQ").pack
"""`SCRATCH`, a session, a task, `WRITE` and a number, as `scratch_write` puts them."""
_marker = Struct(">IQcQQ").pack

SESSION: Final = b"S"
NAME: Final = b"N"
EPOCH: Final = b"E"
TAIL: Final = b"B"
"""The last main number and the newest batch boundaries."""
KIND: Final = b"K"
LIVE: Final = b"L"
DOOMED: Final = b"G"
"""A session that is being made or deleted, and that nobody sees."""
SCRATCH: Final = b"X"
"""Scratch by task: values by address, then every write by number."""
# In this order the last row of a task is its last write.
_VALUE: Final = b"\0"
WRITE: Final = b"\1"

_SEALED: Final = frozenset(SESSION + TAIL + KIND + LIVE + SCRATCH)


def is_sealed(tree: int, key: bytes) -> bool:
    """Tell whether the row of a key ends with a checksum: all but a few of the main tree."""
    return tree != MAIN or key[0] in _SEALED or key.startswith(DICTIONARY)


RECORD: Final = b"r"
"""Tags of `CONVERSATIONS`: the record; by parent; by owner; by the owner's conversation."""
BY_PARENT: Final = b"p"
BY_OWNER: Final = b"o"
BY_OWNER_CONVERSATION: Final = b"c"

_MARKER = b"\0"
ELEMENT: Final = b"\1"


def scratch_write(session: int, task: int, seq: int) -> bytes:
    """Return the key of a scratch write."""
    return scratch_row(SCRATCH, session, task, WRITE, seq)


def scratch_writes(session: int, task: int) -> bytes:
    """Return what the keys of a task's scratch writes begin with."""
    return task_row(SCRATCH, session, task) + WRITE


def scratch_values(session: int, task: int) -> bytes:
    """Return what the keys of a task's scratch values begin with."""
    return task_row(SCRATCH, session, task) + _VALUE


def dictionary_key(number: int) -> bytes:
    """Return the key of a dictionary."""
    return DICTIONARY + number.to_bytes(4, "big")


def of_session(tag: bytes, session: int) -> bytes:
    """Return the key of the one row of a tag that a session has, or what its rows begin with."""
    return _tagged(tag, session)


def of_record(tag: bytes, session: int, id: int) -> bytes:
    """Return the key of a record's row of a tag, or what its rows begin with."""
    return task_row(tag, session, id)


def link(tag: bytes, session: int, source: int, id: int) -> bytes:
    """Return the key of a row that leads from one record to another."""
    return _link(tag, session, source, id)


def keyed(session: int, conversation: int, digest: bytes, id: int) -> bytes:
    """Return the key of an entry in `KEYS`."""
    return _keyed(session, conversation, digest, id)


def element(session: int, number: int, id: int) -> bytes:
    """Return the key of a list element."""
    return list_row(session, number, ELEMENT, id)


def elements(session: int, number: int) -> bytes:
    """Return what the keys of a list's elements begin with."""
    return pair(session, number) + ELEMENT


def marker(session: int, number: int, hidden: int, seq: int) -> bytes:
    """Return the key of a removal in a rewindable list or, with ``hidden`` 0, of a clear."""
    return _marker(session, number, _MARKER, hidden, seq)


def after_prefix(prefix: bytes) -> bytes:
    """Return the least key that is greater than every key with a prefix."""
    number = int.from_bytes(prefix, "big") + 1
    return number.to_bytes(len(prefix) + (number >> 8 * len(prefix) > 0), "big")
