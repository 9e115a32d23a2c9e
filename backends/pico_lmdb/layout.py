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

_tagged = Struct(">cI").pack
_tagged_pair = Struct(">cIQ").pack
_tagged_triple = Struct(">cIQQ").pack

pair: Final = Struct(">IQ").pack
"""A session and a number."""
triple: Final = Struct(">IQQ").pack
"""A session and two numbers."""
last_number: Final = Struct(">Q").unpack_from
"""The number at an offset of a key."""
scratch_key: Final = _tagged_triple
"""`SCRATCH`, a session, a task and the number of a scratch write."""
_keyed = Struct(">IQ8sQ").pack
_element = Struct(">IQcQ").pack
_marker = Struct(">IQcQQ").pack

SESSION: Final = b"S"
NAME: Final = b"N"
EPOCH: Final = b"E"
TAIL: Final = b"B"
"""The last main number and the newest batch boundaries."""
KIND: Final = b"K"
LIVE: Final = b"L"
LIVE_OF: Final = b"C"
"""Live tasks by conversation."""
DOOMED: Final = b"G"
"""A session that is being made or deleted, and that nobody sees."""
SCRATCH: Final = b"X"
SCRATCH_VALUE: Final = b"W"

RECORD: Final = b"r"
"""Tags of `CONVERSATIONS`: the record; by parent; by owner; by the owner's conversation."""
BY_PARENT: Final = b"p"
BY_OWNER: Final = b"o"
BY_OWNER_CONVERSATION: Final = b"c"

_MARKER = b"\0"
_ELEMENT = b"\1"


def of_session(tag: bytes, session: int) -> bytes:
    """Return the key of the one row of a tag that a session has, or what its rows begin with."""
    return _tagged(tag, session)


def of_record(tag: bytes, session: int, id: int) -> bytes:
    """Return the key of a record's row of a tag, or what its rows begin with."""
    return _tagged_pair(tag, session, id)


def link(tag: bytes, session: int, source: int, id: int) -> bytes:
    """Return the key of a row that leads from one record to another."""
    return _tagged_triple(tag, session, source, id)


def keyed(session: int, conversation: int, digest: bytes, id: int) -> bytes:
    """Return the key of an entry in `KEYS`."""
    return _keyed(session, conversation, digest, id)


def element(session: int, number: int, id: int) -> bytes:
    """Return the key of a list element."""
    return _element(session, number, _ELEMENT, id)


def elements(session: int, number: int) -> bytes:
    """Return what the keys of a list's elements begin with."""
    return pair(session, number) + _ELEMENT


def marker(session: int, number: int, hidden: int, seq: int) -> bytes:
    """Return the key of a removal in a rewindable list or, with ``hidden`` 0, of a clear."""
    return _marker(session, number, _MARKER, hidden, seq)


def after_prefix(prefix: bytes) -> bytes:
    """Return the least key that is greater than every key with a prefix."""
    number = int.from_bytes(prefix, "big") + 1
    return number.to_bytes(len(prefix) + (number >> 8 * len(prefix) > 0), "big")
