"""What an open handle remembers of its session, so that a commit asks the file little.

Only what commits ask again and again: the extents, the kinds, the live tasks, and bounded parts
of the conversations and addresses. Nothing of the history. After a commit that was undone all of
it is forgotten and read anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, NamedTuple, TypeVar

import apsw

from pico_sqlite.checksum import Column, checksum
from pico_sqlite.connection import Row
from pico_sqlite.numbers import Numbers
from pico_sqlite.readers import Readers
from pico_store.address import ConversationAddress
from pico_store.errors import StoreDamagedError
from pico_store.records import Conversation
from pico_store.view import TaskFacts

_KEPT_MAX: Final = 4_096
_KINDS: Final = "SELECT kind, name, entries, checksum FROM kinds WHERE session = ?"
_THEN: Final = "run pico verify, restore a backup"
K = TypeVar("K")
V = TypeVar("V")

BACKGROUND: Final = 1
TURN: Final = 2
ABORT: Final = 4
OWNER: Final = 8
"""The task owns a conversation, so that its record needs one more look."""
SHOWN: Final = BACKGROUND | TURN | ABORT
"""The flags that the record shows, and that its checksum covers."""


class LiveTask(TaskFacts, frozen=True):
    """What the checks ask of a live task, and what a change of it needs to know beside."""

    kind: str
    flags: int
    after: bytes | None
    stream: int | None = None
    """Where its scratch is kept; ``None`` if it never wrote any."""
    origin: int = 0
    """What a number's key is added to for the key of its scratch row."""
    has_values: bool = False
    """False only if its scratch surely holds no value, so that settling need not look."""

    def columns(self, status: str, role: int) -> tuple[Column, ...]:
        """Return what the checksum of its row covers between its number and its state."""
        shown = self.flags & SHOWN
        return (self.conversation, self.kind, status, role, shown, self.after)


class ListName(NamedTuple):
    """A list's row."""

    list: int
    rewind: bool


class Bounded(dict[K, V], Generic[K, V]):
    """A dictionary that empties itself rather than grow past a bound."""

    def keep(self, key: K, value: V) -> None:
        """Set a key."""
        if len(self) >= _KEPT_MAX:
            self.clear()
        self[key] = value


class KindNames(dict[int, str]):
    """The names of kinds by number; one that was made by who took the session is looked up."""

    def __init__(self, session: int) -> None:
        super().__init__()
        self._session = session
        self.readers: Readers | None = None

    def __missing__(self, kind: int) -> str:
        if self.readers is not None:
            sql = f"{_KINDS} AND kind = ?"
            with self.readers.snapshot() as snapshot:
                for row in snapshot.rows(sql, (self._session, kind)):
                    self[kind] = _checked_kind(row)
                    return self[kind]
        raise KeyError(kind)


class Memo:
    """What one handle remembers of one session."""

    def __init__(
        self,
        session: int,
        db: apsw.Connection,
        damaged: Callable[[StoreDamagedError], object] | None = None,
    ) -> None:
        """Read the extents and kinds.

        Args:
            session: The session's key.
            db: Where it is.
            damaged: Told of each row that is left out since its checksum differs; without it such
                a row raises.
        """
        self.session = session
        self.numbers = Numbers(_extents(db, session, damaged))
        self.kinds: dict[str, int] = {}
        self.entry_kinds: dict[str, int] = {}
        """Those of them that entries have."""
        self.kind_names = KindNames(session)
        kinds: list[Row] = db.execute(_KINDS, (session,)).fetchall()
        for row in kinds:
            try:
                kind, name = row[0], _checked_kind(row)
            except StoreDamagedError as error:
                if damaged is None:
                    raise
                damaged(error)
                continue
            self.kinds[name] = kind
            if row[2]:
                self.entry_kinds[name] = kind
            self.kind_names[kind] = name
        self.newest_batch = (0, -1)
        """The keys of the first and last number of a main batch that was the newest at a read."""
        self.live_tasks: dict[int, LiveTask] = {}
        self.conversations: Bounded[int, Conversation] = Bounded()
        self.ancestors: Bounded[int, Conversation] = Bounded()
        """Records by id, deleted ones included: the links never change."""
        self.policies: Bounded[tuple[int, str, str | None], bool] = Bounded()
        self.namespaces: Bounded[tuple[int, str], tuple[bool, bool]] = Bounded()
        """Whether a conversation has sticky, and rewindable, values in a namespace."""
        self.lists: Bounded[tuple[int, str, str], ListName] = Bounded()

    def note_policy(self, address: ConversationAddress) -> None:
        """Note that an address holds a value or its tombstone."""
        rewind, place = address.rewind, (address.conversation, address.namespace)
        self.policies.keep((*place, address.key), rewind)
        sticky, rewindable = self.namespaces.get(place, (True, True))
        if not (rewindable if rewind else sticky):
            self.namespaces[place] = (sticky or not rewind, rewindable or rewind)

    def refresh(self, db: apsw.Connection) -> None:
        """Read the extents and kinds that another handle may have added since."""
        for high, base in _extents(db, self.session):
            self.numbers.add(high, base)
        kinds: list[Row] = db.execute(_KINDS, (self.session,)).fetchall()
        for row in kinds:
            self.kind_names[row[0]] = _checked_kind(row)


def _extents(
    db: apsw.Connection,
    session: int,
    damaged: Callable[[StoreDamagedError], object] | None = None,
) -> list[tuple[int, int]]:
    sql = "SELECT high, base, checksum FROM extents WHERE session = ?"
    rows: list[Row] = db.execute(sql, (session,)).fetchall()
    found = []
    for high, base, sums in rows:
        if checksum((base, session, high)) == sums:
            found.append((high, base))
            continue
        error = StoreDamagedError(f"extent {base} is damaged: its checksum differs; {_THEN}")
        if damaged is None:
            raise error
        damaged(error)
    return found


def _checked_kind(row: Row) -> str:
    kind, name, entries, sums = row
    if checksum((name, entries)) != sums:
        raise StoreDamagedError(f"kind {kind} is damaged: its checksum differs; {_THEN}")
    return str(name)
