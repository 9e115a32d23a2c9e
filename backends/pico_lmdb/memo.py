"""What an open handle remembers of its session, so that a commit asks the file little.

Only what commits ask again and again: the kinds, the end of the batches, the live tasks, and
bounded parts of the conversations and addresses. Nothing of the history. After a commit that failed
all of it is forgotten and read anew.
"""

from __future__ import annotations

from typing import Final, Generic, NamedTuple, TypeVar

from pico_lmdb.layout import (
    EPOCH,
    KIND,
    MAIN,
    SCRATCH,
    TAIL,
    last_number,
    of_record,
    of_session,
)
from pico_lmdb.rows import decode_kind, decode_tail, pack
from pico_lmdb.snapshot import Snapshot
from pico_store.address import Seq
from pico_store.records import Conversation
from pico_store.view import TaskFacts

_KEPT_MAX: Final = 4_096
K = TypeVar("K")
V = TypeVar("V")


class LiveTask(NamedTuple):
    """What a change of a live task needs to know of it."""

    conversation: Seq
    kind: int
    flags: int
    after: tuple[Seq, ...]


class ListName(NamedTuple):
    """A list's number and policy."""

    number: int
    rewind: bool


Name = tuple[int, str, str | None]
"""A conversation, or 0 for the session, with a namespace and a key."""


class Bounded(dict[K, V], Generic[K, V]):
    """A dictionary that empties itself rather than grow past a bound."""

    def keep(self, key: K, value: V) -> None:
        """Set a key."""
        if len(self) >= _KEPT_MAX:
            self.clear()
        self[key] = value


class Memo:
    """What one handle remembers of one session."""

    def __init__(self, session: int, snapshot: Snapshot) -> None:
        """Read the kinds and the end of the batches."""
        self.session = session
        self.epoch_key: Final = of_session(EPOCH, session)
        self.tail_key: Final = of_session(TAIL, session)
        self.kinds: dict[str, tuple[int, bool]] = {}
        self.kind_names: dict[int, str] = {}
        for key, stored in snapshot.under(MAIN, of_session(KIND, session)):
            number = int.from_bytes(key[5:], "big")
            row = decode_kind(snapshot.checked(MAIN, key, stored, "kind", number))
            self.kinds[row.name] = number, row.entries
            self.kind_names[number] = row.name
        self.last_main = 0
        self.tail_first = 0
        self.tail: list[int] = []
        found = snapshot.read(MAIN, self.tail_key, "batch boundaries", "at the end")
        if found is not None:
            tail = decode_tail(found)
            self.last_main, self.tail_first, self.tail = tail.last, tail.first, tail.boundaries
        self.live_tasks: dict[int, LiveTask] = {}
        self.live_facts: dict[int, TaskFacts] = {}
        """What the checks ask of a task at every frame that it streams."""
        self.frame_heads: Bounded[str, bytes] = Bounded()
        """What the row of a lone scratch append begins with, by namespace."""
        self.conversations: Bounded[int, Conversation] = Bounded()
        self.ancestors: Bounded[int, Conversation] = Bounded()
        """Records by id, deleted ones included: the links never change."""
        self.bare: set[int] = set()
        """Live tasks that have no scratch yet."""
        self.policies: Bounded[Name, int] = Bounded()
        """Of values of conversations: the number of a rewindable one, 0 of a sticky one."""
        self.lists: Bounded[Name, ListName] = Bounded()

    def keep_task(self, id: int, task: LiveTask) -> None:
        """Note a live task."""
        self.live_tasks[id] = task
        self.live_facts[id] = TaskFacts(task.conversation, live=True)

    def drop_task(self, id: int) -> LiveTask:
        """Forget a task that is settled; return what was known of it."""
        del self.live_facts[id]
        self.bare.discard(id)
        return self.live_tasks.pop(id)

    def kind_name(self, snapshot: Snapshot, number: int) -> str:
        """Return the name of a kind that may have been used first after this was read."""
        name = self.kind_names.get(number)
        if name is None:
            key = of_session(KIND, self.session) + number.to_bytes(4, "big")
            found = snapshot.read(MAIN, key, "kind", number)
            if found is None:
                raise snapshot.damaged(f"kind {number}")
            name = self.kind_names[number] = decode_kind(found).name
        return name

    def kind_number(self, snapshot: Snapshot, name: str) -> int | None:
        """Return the number of a kind; ``None`` if it was never used.

        A handle that does not own the session looks again for a kind that it does not know.
        """
        known = self.kinds.get(name)
        if known is not None:
            return known[0]
        for key, stored in snapshot.under(MAIN, of_session(KIND, self.session)):
            number = int.from_bytes(key[5:], "big")
            if number not in self.kind_names:
                row = decode_kind(snapshot.checked(MAIN, key, stored, "kind", number))
                if row.name == name:
                    return number
        return None

    def entry_kinds(self, snapshot: Snapshot) -> frozenset[str]:
        """Return every kind that an entry ever had."""
        found = set()
        for key, stored in snapshot.under(MAIN, of_session(KIND, self.session)):
            number = int.from_bytes(key[5:], "big")
            row = decode_kind(snapshot.checked(MAIN, key, stored, "kind", number))
            if row.entries:
                found.add(row.name)
        return frozenset(found)


def last_seq(snapshot: Snapshot, session: int) -> Seq:
    """Return the number of the last committed write: of a main batch or of live scratch."""
    found = snapshot.read(MAIN, of_session(TAIL, session), "batch boundaries", "at the end")
    last = 0 if found is None else decode_tail(found).last
    for _, seq in streams(snapshot, session):
        last = max(last, seq)
    return Seq(last)


def streams(snapshot: Snapshot, session: int) -> list[tuple[Seq, Seq]]:
    """Return the tasks that have scratch, each with the number of its last write.

    Cost: one probe a task, whatever the scratch holds.
    """
    found = []
    start = of_session(SCRATCH, session)
    stop = of_session(SCRATCH, session + 1)
    while (row := snapshot.newest(MAIN, start, stop)) is not None:
        key = row[0]
        task, seq = last_number(key, 5)[0], last_number(key, 14)[0]
        found.append((Seq(task), Seq(seq)))
        stop = of_record(SCRATCH, session, task)
    found.reverse()
    return found


def frame_head(namespace: str) -> bytes:
    """Return what precedes the payload in the row of a batch that is one append, without key."""
    return b"\x94\x01" + pack(namespace) + b"\xc0"
