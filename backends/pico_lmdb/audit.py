"""Reading everything in an environment: every checksum, and how the rows fit together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

import msgspec

from pico_lmdb.environment import Environment, leave_environment, open_environment
from pico_lmdb.export import export_session
from pico_lmdb.layout import (
    ADDRESSES,
    BATCHES,
    BY_OWNER,
    BY_OWNER_CONVERSATION,
    BY_PARENT,
    CONVERSATIONS,
    COUNTER,
    DICTIONARY,
    DOOMED,
    EPOCH,
    FORMAT,
    HEADS,
    KEYS,
    KIND,
    LISTS,
    LIVE,
    MAIN,
    NAME,
    RECORD,
    RECORDS,
    SCRATCH,
    SESSION,
    TAIL,
    TASKS,
    TRANSCRIPTS,
    TREES,
    VERSIONS,
    is_sealed,
    keyed,
    last_number,
    of_record,
    of_session,
    triple,
)
from pico_lmdb.memo import Memo
from pico_lmdb.names import entry_key, fit
from pico_lmdb.record_reads import RecordReads
from pico_lmdb.rows import (
    EntryRow,
    decode_address,
    decode_boundaries,
    decode_conversation,
    decode_dictionary,
    decode_kind,
    decode_record,
    decode_scratch,
    decode_session,
    decode_tail,
    decode_task,
    packed_kind,
    seal,
    seal_key,
    unseal,
)
from pico_lmdb.snapshot import Snapshot
from pico_lmdb.state_reads import StateReads
from pico_lmdb.task_reads import TaskReads
from pico_store.errors import PicoError
from pico_store.snapshot_check import check_snapshot
from pico_store.storage import Counters, Problem, VerifyReport
from pico_store.strict_json import unpack

T = TypeVar("T")
_PROBLEMS_MAX: Final = 1_000
_OF_SESSIONS: Final = (SESSION, EPOCH, TAIL, KIND, LIVE, DOOMED, SCRATCH)
"""Tags of the main tree that a session's number follows."""
_KNOWN: Final = (*_OF_SESSIONS, NAME, COUNTER, FORMAT, DICTIONARY)
"""What keys of the main tree begin with; the names of the other trees stand there too."""
Check = tuple[int, bytes, str, Callable[[bytes], object]]
"""A tree, what the keys begin with, what the rows are, and what decodes one."""


def audit_folder(path: str) -> VerifyReport:
    """Read everything in one state of a folder's environment; change nothing."""
    try:
        environment = open_environment(path, create=False, durability="process")
    except PicoError as error:
        return VerifyReport(0, (Problem(None, "file", str(error)),))
    auditor = _Auditor(environment)
    try:
        auditor.run()
    except PicoError as error:
        auditor.problems.append(Problem(None, "file", str(error)))
    finally:
        leave_environment(environment)
    return VerifyReport(auditor.records, tuple(auditor.problems[:_PROBLEMS_MAX]))


class _Auditor:
    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self.records = 0
        self.problems: list[Problem] = []
        self._damaged: dict[tuple[int, bytes], None] = {}
        """Rows that were found damaged and are not named yet."""

    def run(self) -> None:
        with self._snapshot("") as snapshot:
            known = {
                int.from_bytes(key[1:], "big")
                for tag in (SESSION, DOOMED)
                for key, _ in snapshot.under(MAIN, tag)
            }
            for tree, tree_name in enumerate((b"main", *TREES)):
                problem = self._disorder(snapshot, tree, known)
                if problem:
                    self.problems.append(Problem(None, f"tree {tree_name.decode()}", problem))
            for key, stored in snapshot.under(MAIN, DICTIONARY):
                where = f"dictionary {int.from_bytes(key[len(DICTIONARY) :], 'big')}"
                self._row(None, MAIN, key, stored, where, decode_dictionary)
            sessions: list[tuple[int, str]] = []
            for key, stored in snapshot.under(MAIN, SESSION):
                number = int.from_bytes(key[1:], "big")
                row = self._row(None, MAIN, key, stored, f"session {number}", decode_session)
                if row is not None:
                    sessions.append((number, row.name))
        for number, name in sorted(sessions, key=lambda found: found[1]):
            with self._snapshot(name) as snapshot:
                if snapshot.get(MAIN, fit(NAME + name.encode())) != number.to_bytes(4, "big"):
                    what = "its name does not lead to it"
                    self.problems.append(Problem(name, f"session {number}", what))
                self._session(snapshot, number, name)
        # Those that belong to no session any more, or that only lead to others.
        for tree, key in self._damaged:
            where = f"row {key!r} of {(b'main', *TREES)[tree].decode()}"
            self.problems.append(Problem(None, where, "its checksum differs"))

    def _snapshot(self, name: str) -> Snapshot:
        # Careful reads would end at the first damaged row; every one is looked at here.
        return Snapshot(self._environment, Counters(), name, is_careful=False)

    def _session(self, snapshot: Snapshot, session: int, name: str) -> None:
        before = len(self.problems)
        # Every row by itself first, so that all damaged ones are named, then the whole.
        for tree, prefix, what, decode in _checks(session):
            for key, stored in snapshot.under(tree, prefix):
                if tree == LISTS and key[12] == 0:
                    where = f"list marker {last_number(key, 21)[0]}"
                    self._row(name, tree, key, stored, where, bytes)
                    continue
                where = f"{what} {_named(tree, key)}"
                if tree == LISTS and key[12] == 0:
                    where = f"list marker {_named(tree, key)}"
                    self._row(name, tree, key, stored, where, bytes)
                    continue
                if key.startswith(SCRATCH) and tree == MAIN and key[13] == 0:
                    where = f"scratch value {key[14:]!r}"
                    self._row(name, tree, key, stored, where, decode_address)
                    continue
                self._row(name, tree, key, stored, where, decode)
        if len(self.problems) > before:
            return
        try:
            for where, what in _misfits(snapshot, session):
                self.problems.append(Problem(name, where, what))
            memo, counters = Memo(session, snapshot), Counters()
            records = RecordReads(memo, counters)
            tasks = TaskReads(memo, counters, records)
            state = StateReads(memo, counters, records)
            for _ in check_snapshot(export_session(snapshot, memo, records, tasks, state)):
                pass
        except (PicoError, KeyError, ValueError, AssertionError) as error:
            self.problems.append(Problem(name, "session", str(error)))

    def _row(
        self,
        name: str | None,
        tree: int,
        key: bytes,
        stored: bytes,
        where: str,
        decode: Callable[[bytes], T],
    ) -> T | None:
        self.records += 1
        row = unseal(tree, key, stored)
        if row is None:
            self._damaged.pop((tree, key), None)
            self.problems.append(Problem(name, where, "its checksum differs"))
            return None
        try:
            return decode(row)
        except (msgspec.MsgspecError, ValueError) as error:
            self.problems.append(Problem(name, where, str(error)))
            return None

    def _disorder(self, snapshot: Snapshot, tree: int, known: set[int]) -> str:
        """Say what is wrong with the order or number of a tree's rows, if anything is.

        A flipped bit in a page that leads to others hides them without a trace; one in a key makes
        a row that nobody finds, or one of a session or a kind that is not there.

        Args:
            snapshot: What to read.
            tree: Its number.
            known: The numbers of all sessions, of those too that are being made or deleted.
        """
        count, previous = 0, b""
        for key, stored in snapshot.every_row(tree):
            if key <= previous:
                return f"key {key!r} after {previous!r}"
            if not snapshot.finds(tree, key):
                return f"key {key!r} is not found where it is looked for"
            if tree == MAIN and not key.startswith(_KNOWN) and key not in TREES:
                return f"key {key!r} is of no kind that this version writes"
            session = _session_of(tree, key)
            if session is not None and session not in known:
                return f"key {key!r} is of session {session}, which is not there"
            if is_sealed(tree, key) and unseal(tree, key, stored) is None:
                self._damaged[tree, key] = None
            count, previous = count + 1, key
        expected = snapshot.count(tree)
        return "" if count == expected else f"{count} rows; it says that it has {expected}"


def _session_of(tree: int, key: bytes) -> int | None:
    """Return the session whose row a key is of; ``None``: the row is of the whole store."""
    if tree == MAIN and not key.startswith(_OF_SESSIONS):
        return None
    start = 1 if tree in (MAIN, CONVERSATIONS) else 0
    return int.from_bytes(key[start : start + 4], "big")


def _checks(session: int) -> tuple[Check, ...]:
    number = session.to_bytes(4, "big")
    return (
        (MAIN, of_session(KIND, session), "kind", decode_kind),
        (MAIN, of_session(TAIL, session), "batch boundaries", decode_tail),
        (MAIN, of_session(LIVE, session), "task", decode_task),
        (MAIN, of_session(SCRATCH, session), "scratch of", decode_scratch),
        (RECORDS, number, "record", decode_record),
        (CONVERSATIONS, of_session(RECORD, session), "conversation", decode_conversation),
        (ADDRESSES, number, "address", decode_address),
        (VERSIONS, number, "value of write", lambda row: unpack(row) if row else None),
        (LISTS, number, "list element", unpack),
        (BATCHES, number, "batch boundaries", decode_boundaries),
    )


def _named(tree: int, key: bytes) -> str:
    """Return how a row is called by what its key ends with."""
    if tree == ADDRESSES:
        return repr(key)
    return str(int.from_bytes(key[-8:], "big"))


def _misfits(snapshot: Snapshot, session: int) -> Iterator[tuple[str, str]]:
    """Yield what an index lacks of the records, or has beside them."""
    memo = Memo(session, snapshot)
    expected: Counter[int] = Counter()
    number = session.to_bytes(4, "big")
    for key, stored in snapshot.under(RECORDS, number):
        id = last_number(key, 4)[0]
        row = decode_record(stored[:-4])
        place = triple(session, row.conversation, id)
        indexes: list[tuple[int, bytes, bytes]] = []
        if isinstance(row, EntryRow):
            kind = packed_kind(row.kind)
            indexes.append((TRANSCRIPTS, place, seal(TRANSCRIPTS, place, kind)))
            if row.head is not None:
                indexes.append((HEADS, place, seal_key(HEADS, place)))
            if row.key is not None:
                digest = entry_key(memo.kind_name(snapshot, row.kind), row.key)
                place = keyed(session, row.conversation, digest, id)
                indexes.append((KEYS, place, seal_key(KEYS, place)))
        else:
            indexes.append((TASKS, place, seal_key(TASKS, place)))
        for tree, index, value in indexes:
            expected[tree] += 1
            if snapshot.get(tree, index) != value:
                yield f"record {id}", f"is missing in {TREES[tree - 1].decode()}"
    for tag in (BY_PARENT, BY_OWNER, BY_OWNER_CONVERSATION):
        for key, _ in snapshot.under(CONVERSATIONS, of_session(tag, session)):
            id = last_number(key, 13)[0]
            if snapshot.get(CONVERSATIONS, of_record(RECORD, session, id)) is None:
                yield f"conversation {id}", "is missing; a link leads to it"
    for tree in (TRANSCRIPTS, HEADS, KEYS, TASKS):
        found = sum(1 for _ in snapshot.under(tree, number))
        if found != expected[tree]:
            yield TREES[tree - 1].decode(), f"{found} rows for {expected[tree]} records"
