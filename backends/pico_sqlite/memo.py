"""What an open handle remembers of its session, so that a commit asks the file little.

Only what commits ask again and again: the extents, the kinds, the live tasks, and bounded parts
of the conversations and addresses. Nothing of the history. After a commit that was undone all of
it is forgotten and read anew.
"""

from __future__ import annotations

from typing import Final, Generic, NamedTuple, TypeVar

import apsw

from pico_sqlite.connection import Row
from pico_sqlite.numbers import Numbers
from pico_sqlite.readers import Readers
from pico_store.address import Seq
from pico_store.records import Conversation
from pico_store.view import TaskFacts

_KEPT_MAX: Final = 4_096
K = TypeVar("K")
V = TypeVar("V")

BACKGROUND: Final = 1
TURN: Final = 2
ABORT: Final = 4
OWNER: Final = 8
"""The task owns a conversation, so that its record needs one more look."""
SHOWN: Final = BACKGROUND | TURN | ABORT
"""The flags that the record shows, and that its checksum covers."""


class LiveTask(NamedTuple):
    """What a change of a live task needs to know of it."""

    conversation: int
    kind: str
    flags: int
    after: bytes | None
    stream: int | None
    """Where its scratch is kept; ``None`` if it never wrote any."""
    origin: int
    """What a number's key is added to for the key of its scratch row."""
    has_values: bool
    """False only if its scratch surely holds no value, so that settling need not look."""


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
            sql = "SELECT name FROM kinds WHERE kind = ? AND session = ?"
            with self.readers.snapshot() as snapshot:
                for (name,) in snapshot.rows(sql, (kind, self._session)):
                    self[kind] = name
                    return str(name)
        raise KeyError(kind)


class Memo:
    """What one handle remembers of one session."""

    def __init__(self, session: int, db: apsw.Connection) -> None:
        """Read the extents and kinds."""
        self.session = session
        extents: list[Row] = db.execute(
            "SELECT high, base FROM extents WHERE session = ?", (session,)
        ).fetchall()
        self.numbers = Numbers([(high, base) for high, base in extents])
        self.kinds: dict[str, tuple[int, bool]] = {}
        self.kind_names = KindNames(session)
        for kind, name, entries in db.execute(
            "SELECT kind, name, entries FROM kinds WHERE session = ?", (session,)
        ):
            self.kinds[name] = kind, bool(entries)
            self.kind_names[kind] = name
        self.live_tasks: dict[int, LiveTask] = {}
        self.live_facts: dict[int, TaskFacts] = {}
        """What the checks ask of a task at every frame that it streams."""
        self.conversations: Bounded[int, Conversation] = Bounded()
        self.ancestors: Bounded[int, Conversation] = Bounded()
        """Records by id, deleted ones included: the links never change."""
        self.policies: Bounded[tuple[int, str, str | None], bool] = Bounded()
        self.namespaces: Bounded[tuple[int, str], tuple[bool, bool]] = Bounded()
        """Whether a conversation has sticky, and rewindable, values in a namespace."""
        self.lists: Bounded[tuple[int, str, str], ListName] = Bounded()

    def keep_task(self, id: int, task: LiveTask) -> None:
        """Note a live task."""
        self.live_tasks[id] = task
        self.live_facts[id] = TaskFacts(Seq(task.conversation), live=True)

    def drop_task(self, id: int) -> LiveTask:
        """Forget a task that is settled; return what was known of it."""
        del self.live_facts[id]
        return self.live_tasks.pop(id)

    def refresh(self, db: apsw.Connection) -> None:
        """Read the extents and kinds that another handle may have added since."""
        for high, base in db.execute(
            "SELECT high, base FROM extents WHERE session = ?", (self.session,)
        ):
            self.numbers.add(high, base)
        for kind, name in db.execute(
            "SELECT kind, name FROM kinds WHERE session = ?", (self.session,)
        ):
            self.kind_names[kind] = name
