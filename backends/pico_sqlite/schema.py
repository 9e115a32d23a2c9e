"""The tables of a SQLite store, their version, and what each column is for."""

from __future__ import annotations

from typing import Final

APPLICATION_ID: Final = 0x7069636F
"""The bytes "pico" at offset 68 of the file."""
FORMAT_VERSION: Final = 1
"""At offset 60 of the file; greater ones are refused."""


# Every record has one integer key that holds both its session and its number (see numbers.py), so
# that the b-trees cluster by session, keys stay short, and a payload sits on a rowid leaf, where
# it may fill a page; in a WITHOUT ROWID table a payload over a quarter of a page spills.
# Columns named conversation, task, owner, parent and at hold such keys; seq, element and through
# hold plain numbers. "key" columns hold '' for no key and ':' + key otherwise.
SCHEMA: Final = (
    """CREATE TABLE sessions(
        session INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, epoch INT NOT NULL,
        owner TEXT, checksum INT NOT NULL)""",
    """CREATE TABLE extents(
        base INTEGER PRIMARY KEY, session INT NOT NULL, high INT NOT NULL,
        checksum INT NOT NULL, UNIQUE(session, high))""",
    """CREATE TABLE kinds(
        kind INTEGER PRIMARY KEY, session INT NOT NULL, name TEXT NOT NULL, entries INT NOT NULL,
        checksum INT NOT NULL, UNIQUE(session, name))""",
    """CREATE TABLE conversations(
        id INTEGER PRIMARY KEY, session INT NOT NULL, parent INT, at INT, owner INT,
        owner_conversation INT, through INT, checksum INT NOT NULL)""",
    "CREATE INDEX conversation_session ON conversations(session)",
    "CREATE INDEX conversation_parent ON conversations(parent) WHERE parent IS NOT NULL",
    "CREATE INDEX conversation_owner ON conversations(owner) WHERE owner IS NOT NULL",
    """CREATE INDEX conversation_owner_conversation ON conversations(owner_conversation)
        WHERE owner_conversation IS NOT NULL""",
    # Entries (role 3), tasks (roles 0 to 2) and, where a batch begins with neither, its boundary
    # (role NULL), all by number: what a commit creates lands on one page at the end of the tree.
    # writes is the size of the batch that begins at the row, coded (see checksum.py); session is
    # set for tasks, and live is the session of those that are not terminal: no patch changes what
    # an index is made of.
    """CREATE TABLE records(
        id INTEGER PRIMARY KEY, writes INT, role INT, conversation INT, kind INT, checksum INT,
        key TEXT, by_task INT, head INT, session INT, status TEXT, live INT, flags INT,
        after BLOB, body BLOB)""",
    # Without a kind its own order serves; with one, the index is read and not the rows.
    "CREATE INDEX entry_conversation ON records(conversation, id, kind) WHERE session IS NULL "
    "AND conversation IS NOT NULL",
    "CREATE INDEX entry_key ON records(conversation, kind, key) WHERE key IS NOT NULL",
    "CREATE INDEX entry_head ON records(conversation) WHERE head IS NOT NULL",
    "CREATE INDEX task_conversation ON records(conversation) WHERE session IS NOT NULL",
    "CREATE INDEX task_live ON records(live, conversation) WHERE live IS NOT NULL",
    # The current value of sticky, session and scratch addresses; body NULL: deleted, kept for its
    # policy. scope is the key of the conversation, the session's own (number 0), or minus the key
    # of the task.
    """CREATE TABLE current_values(
        scope INT, namespace TEXT, key TEXT, seq INT NOT NULL, checksum INT NOT NULL, body BLOB,
        PRIMARY KEY(scope, namespace, key)) WITHOUT ROWID""",
    # Every version of rewindable addresses; body NULL: a tombstone.
    """CREATE TABLE value_versions(
        scope INT, namespace TEXT, key TEXT, seq INT, checksum INT NOT NULL, body BLOB,
        PRIMARY KEY(scope, namespace, key, seq)) WITHOUT ROWID""",
    """CREATE TABLE lists(
        list INTEGER PRIMARY KEY, scope INT NOT NULL, namespace TEXT NOT NULL, key TEXT NOT NULL,
        rewind INT NOT NULL, checksum INT NOT NULL, UNIQUE(scope, namespace, key))""",
    """CREATE TABLE list_elements(
        list INT, seq INT, checksum INT NOT NULL, body BLOB NOT NULL,
        PRIMARY KEY(list, seq)) WITHOUT ROWID""",
    # Removals (element > 0) and clears (element 0) of rewindable lists.
    """CREATE TABLE list_markers(
        list INT, element INT, seq INT, checksum INT NOT NULL,
        PRIMARY KEY(list, element, seq)) WITHOUT ROWID""",
    # One row a scratch write, by its task's stream (see scratch_rows.py). writes is the size of the
    # batch in its first row, else 0; task is set in the stream's first row. body NULL: nothing is
    # left of the write but its number, which the sequence and the boundaries need.
    """CREATE TABLE scratch(
        id INTEGER PRIMARY KEY, writes INT NOT NULL, task INT, namespace TEXT, key TEXT,
        checksum INT, body BLOB)""",
    "CREATE INDEX scratch_task ON scratch(task) WHERE task IS NOT NULL",
)
DICTIONARIES: Final = """CREATE TABLE dictionaries(
        number INTEGER PRIMARY KEY, payloads INT NOT NULL, checksum INT NOT NULL,
        body BLOB NOT NULL)"""
"""What bodies are compressed with (see packing.py); there once a vacuum has trained one.

payloads is how many there were in the file; the checksum covers number and payloads.
"""
