"""Reading a session from its files: for its owner, who mends their ends, or for others."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from pico_jsonl.bodies import LogBodies
from pico_jsonl.control import MARK, SCRATCH_SYNCED, SYNCED, read_control
from pico_jsonl.lines import BadLineError
from pico_jsonl.replay import MainReplay
from pico_jsonl.scratch import (
    ScratchLog,
    apply_scratch,
    leftovers,
    read_scratch,
    scratch_path,
    scratch_tasks,
)
from pico_memory.state import SessionState
from pico_store.address import Seq
from pico_store.errors import (
    StoreBusyError,
    StoreDamagedError,
    StoreUnusableError,
    UnknownSessionError,
)
from pico_store.limits import SEQ_MAX
from pico_store.storage import Durability, OpenReport

_MAIN: Final = "main.jsonl"
_CONTROL: Final = "control"
_TRIES: Final = 1_000
_ADVICE: Final = "nothing was changed; run pico verify, restore a backup"


class DamagedLineError(StoreDamagedError):
    """A line that is not what was written.

    Attributes:
        path: Its file.
        offset: Where it begins.
        where: All that is known of which line it is.
        what: What is wrong with it.
        lines: How many lines were read before it.
    """

    def __init__(self, path: str, offset: int, which: str, what: str, lines: int = 0) -> None:
        self.path = path
        self.offset = offset
        self.where = f"{path}: {which}"
        self.what = what
        self.lines = lines
        super().__init__(f"{self.where}: {what}; {_ADVICE}")

    def __reduce__(self) -> tuple[object, ...]:
        return StoreDamagedError, self.args


class Place(NamedTuple):
    """Where a session is."""

    session: str
    folder: str

    @property
    def main(self) -> str:
        """The main log."""
        return os.path.join(self.folder, _MAIN)

    @property
    def control(self) -> str:
        """The control file."""
        return os.path.join(self.folder, _CONTROL)


class End(NamedTuple):
    """Where a log goes on."""

    end: int
    crc: int


class Cut(NamedTuple):
    """A tail that does not count and has to go before anything is appended."""

    path: str
    end: int
    length: int
    why: str


@dataclass(slots=True)
class Loaded:
    """A session as its files have it."""

    state: SessionState
    bodies: LogBodies
    main: End
    scratch: dict[Seq, End] = field(default_factory=dict)
    cuts: list[Cut] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)
    """Scratch files of tasks that are not live, and what an interrupted process left."""
    notes: list[str] = field(default_factory=list)
    lines: int = 0
    """How many were read."""
    missing: str = ""
    """What is gone of a log that had been made durable, if anything is."""

    def report(self) -> OpenReport:
        """Return what opening found."""
        notes = [f"{cut.path}: {cut.why}" for cut in self.cuts] + self.notes
        if not self.cuts:
            return OpenReport(notes=tuple(notes))
        dropped = sum(cut.length for cut in self.cuts)
        return OpenReport(dropped, self.cuts[0].end, tuple(notes))


def open_main(place: Place, flags: int) -> LogBodies:
    """Open a session's main log.

    Raises:
        StoreUnusableError: It cannot be opened.
    """
    try:
        return LogBodies(os.open(place.main, flags | os.O_CLOEXEC), place.main)
    except FileNotFoundError as error:
        problem = f"session {place.session!r:.60} is not there; create it, or choose another id"
        raise UnknownSessionError("OWN-6", "sessionId", problem) from error
    except OSError as error:
        raise StoreUnusableError(f"{place.main}: cannot be opened: {error.strerror}") from error


def load_for_owner(place: Place, control: dict[int, int], durability: Durability) -> Loaded:
    """Read a session that nobody else is writing; changes nothing yet.

    Args:
        place: Where it is.
        control: The numbers of its control file.
        durability: What a line may be damaged by without any fault of the disk's.

    Raises:
        StoreUnusableError: It is damaged, of another format, or cannot be read.
    """
    bodies = open_main(place, os.O_RDWR | os.O_APPEND)
    replay = MainReplay(bodies, place.main, place.session)
    bad = _run(replay)
    size = os.fstat(bodies.fd).st_size
    if bad is not None:
        _judge_main(replay, place, bad, control[SYNCED], durability)
    if not replay.is_whole:
        raise StoreDamagedError(f"{place.main}: ends at offset {size} within its first part")
    loaded = Loaded(replay.state, bodies, End(replay.end, replay.crc))
    if size > replay.end:
        why = f"dropped {size - replay.end} bytes at offset {replay.end}, "
        why += "an unfinished line" if bad is None else f"damaged by a power cut ({bad})"
        loaded.cuts.append(Cut(place.main, replay.end, size - replay.end, why))
    _note_missing(loaded, place, control[SYNCED])
    logs = _read_logs(replay.state, place, loaded.strays)
    _apply_logs(replay, logs, SEQ_MAX, control[MARK], loaded.notes)
    for log in logs:
        _judge_scratch(log, control[SCRATCH_SYNCED], durability)
        _note_torn(loaded, log, control[SCRATCH_SYNCED])
        loaded.scratch[log.task] = End(log.end, log.crc)
        if log.size > log.end:
            length = log.size - log.end
            why = f"dropped {length} bytes at offset {log.end}, "
            why += f"damaged by a power cut ({log.bad})" if log.bad else "an unfinished line"
            loaded.cuts.append(Cut(log.path, log.end, length, why))
    return loaded


def _note_missing(loaded: Loaded, place: Place, synced: int) -> None:
    """Tell that something was durable and is not there: nothing that a crash explains."""
    if loaded.main.end < synced:
        end = loaded.main.end
        loaded.missing = f"{place.main}: ends at offset {end}; {synced} bytes were durable"
        loaded.notes.append(f"{loaded.missing}; restore a backup")


def _note_torn(loaded: Loaded, log: ScratchLog, synced: int) -> None:
    """Tell of a last line of scratch without its end that was durable as a whole."""
    if log.torn_first is not None and log.torn_first <= synced:
        loaded.missing = f"{log.path}: no end at offset {log.end}, where a whole line was durable"
        loaded.notes.append(f"{loaded.missing}; restore a backup")


def _run(replay: MainReplay) -> str | None:
    """Take all lines; return what is wrong with the one that could not be taken."""
    try:
        replay.run()
    except BadLineError as error:
        return str(error)
    return None


def _judge_main(
    replay: MainReplay, place: Place, bad: str, synced: int, durability: Durability
) -> None:
    """Refuse a damaged log, unless a power cut explains the damage.

    What was not yet made durable may be anything after one: with ``ordered`` from the watermark
    on, with ``power`` the last line, which no commit was acknowledged for.
    """
    line, is_last = _line_at(place.main, replay.end)
    explained = durability == "ordered" or (durability == "power" and is_last)
    if explained and replay.is_whole and replay.end >= synced:
        return
    which = f"line {replay.count + 1} at offset {replay.end}, {replay.next_number(line)}"
    raise DamagedLineError(place.main, replay.end, which, bad, replay.count)


def _line_at(path: str, offset: int) -> tuple[bytes, bool]:
    """Return the line at an offset, and whether no other complete one follows."""
    with open(path, "rb") as file:
        file.seek(offset)
        line = file.readline()
        following = file.readline()
    return line, not following.endswith(b"\n")


def _judge_scratch(log: ScratchLog, synced: int, durability: Durability) -> None:
    """Refuse a damaged scratch file, unless a power cut explains the damage."""
    known = log.later_first is not None and log.later_first <= synced
    if log.bad and (known or durability == "process"):
        after = log.lines[-1].last if log.lines else log.task
        which = f"the line at offset {log.end}, after number {after}"
        raise DamagedLineError(log.path, log.end, which, log.bad, len(log.lines))


def _read_logs(state: SessionState, place: Place, strays: list[str]) -> list[ScratchLog]:
    """Read the scratch of live tasks; what else there is are strays, whatever is in them."""
    logs: list[ScratchLog] = []
    strays += [os.path.join(place.folder, name) for name in leftovers(place.folder)]
    for task in scratch_tasks(place.folder):
        facts = state.facts.get(task)
        if facts is None or not facts.live:
            strays.append(scratch_path(place.folder, task))
            continue
        log = read_scratch(place.folder, place.session, task)
        if log is not None:
            logs.append(log)
    return logs


def _apply_logs(
    replay: MainReplay, logs: list[ScratchLog], through: int, mark: int, notes: list[str]
) -> None:
    """Put scratch into the state, and set the last number that was ever given.

    Raises:
        StoreDamagedError: Two files hold the same number.
    """
    state = replay.state
    last = state.last_seq
    for log in logs:
        apply_scratch(state, log, replay.folded, through)
    found = sorted(
        (line.first, line.last, log.path)
        for log in logs
        for line in log.lines
        if replay.folded < line.last <= through
    )
    for before, after in pairwise(found):
        if after[0] <= before[1]:
            problem = f"{after[2]}: number {after[0]} is in {before[2]} as well; {_ADVICE}"
            raise StoreDamagedError(problem)
    if found:
        last = max(last, found[-1][1])
    if mark > last:
        notes.append(
            f"scratch that used the numbers {last + 1} to {mark} is not there any more; "
            "its task is live and can begin anew"
        )
    state.last_seq = Seq(max(last, mark))


def load_for_reader(place: Place, durability: Durability, *, strict: bool = False) -> Loaded:
    """Read a session that somebody may be writing; changes nothing.

    It is as it was after some batch, at the earliest the last one that was acknowledged before.

    Args:
        place: Where it is.
        durability: What a line may be damaged by without any fault of the disk's.
        strict: Parse and check every line as if a stranger had written it.

    Raises:
        StoreUnusableError: It is damaged, of another format, or cannot be read.
    """
    for _ in range(_TRIES):
        loaded = _try_to_load(place, durability, strict=strict)
        if loaded is not None and _is_there(place, loaded.bodies):
            return loaded
    raise StoreBusyError(f"{place.main}: changes faster than it can be read; try again")


def _try_to_load(place: Place, durability: Durability, *, strict: bool) -> Loaded | None:
    """Read a session once; ``None``: a task was settled before its scratch was read."""
    control = read_control(place.control)
    bodies = open_main(place, os.O_RDONLY)
    replay = MainReplay(bodies, place.main, place.session, strict=strict)
    for _ in range(_TRIES):
        bad = _run(replay)
        if bad is not None:
            # What its owner's next opening will cut does not count.
            _judge_main(replay, place, bad, control[SYNCED], durability)
        if not replay.is_whole:
            raise StoreDamagedError(f"{place.main}: ends within its first part; {_ADVICE}")
        logs = _read_logs(replay.state, place, [])
        # Behind a bad line nothing counts, and nothing changes by looking again.
        lines = replay.peek() if bad is None else []
        if _settles(lines, replay.state):
            continue
        loaded = Loaded(replay.state, bodies, End(replay.end, replay.crc))
        _note_missing(loaded, place, min(control[SYNCED], read_control(place.control)[SYNCED]))
        is_quiet = not lines and all(size_of(log.path) == log.size for log in logs)
        through = SEQ_MAX if is_quiet else _unbroken(replay.state.last_seq, logs)
        if bad is not None:
            loaded.notes.append(f"{place.main}: nothing counts from offset {replay.end}: {bad}")
        elif replay.torn:
            why = f"{replay.torn} bytes at offset {replay.end} do not count, an unfinished line"
            loaded.notes.append(f"{place.main}: {why}")
        _apply_logs(replay, logs, through, control[MARK], loaded.notes)
        for log in logs:
            _judge_scratch(log, control[SCRATCH_SYNCED], durability)
            _note_torn(loaded, log, control[SCRATCH_SYNCED])
        loaded.lines = replay.count + sum(len(log.lines) + 1 for log in logs)
        return loaded
    return None


def load_what_is_whole(place: Place) -> tuple[Loaded, list[tuple[str, str]]]:
    """Read a damaged session up to the batch before its first bad line; changes nothing.

    What follows a bad line is never taken: it may build on what the line said. Scratch counts as
    far as its own file is whole, and never beyond where the main log was cut.

    Returns:
        The session, and what it lacks: each a place and what is wrong there.

    Raises:
        StoreUnusableError: Not even its beginning is whole.
    """
    bodies = open_main(place, os.O_RDONLY)
    replay = MainReplay(bodies, place.main, place.session, strict=True)
    lost: list[tuple[str, str]] = []
    bad = _run(replay)
    if not replay.is_whole:
        problem = f"{place.main}: damaged within its first part"
        raise StoreDamagedError(f"{problem}: {bad}" if bad else problem)
    control = read_control(place.control)
    loaded = Loaded(replay.state, bodies, End(replay.end, replay.crc))
    if bad is not None:
        line, _ = _line_at(place.main, replay.end)
        which = f"{place.main}: line {replay.count + 1} at offset {replay.end}"
        lost.append((which, f"{replay.next_number(line)}: {bad}"))
        behind = os.fstat(bodies.fd).st_size - replay.end - len(line)
        if behind:
            where = f"{place.main}: {behind} bytes from offset {replay.end + len(line)} on"
            lost.append((where, "they follow the damaged line and may build on it"))
    through = SEQ_MAX if bad is None else replay.state.last_seq
    logs = _read_logs(replay.state, place, [])
    _apply_logs(replay, logs, through, control[MARK] if bad is None else 0, loaded.notes)
    for log in logs:
        if log.bad:
            where = f"{log.path}: from offset {log.end} on"
            lost.append((where, f"scratch of task {log.task}: {log.bad}"))
        _note_torn(loaded, log, control[SCRATCH_SYNCED])
    _note_missing(loaded, place, control[SYNCED])
    if loaded.missing and bad is None:
        lost.append((place.folder, loaded.missing))
    return loaded, lost


def _is_there(place: Place, bodies: LogBodies) -> bool:
    """Tell whether a log that was read is still the session's, not one that a vacuum replaced."""
    try:
        return os.path.samestat(os.stat(place.main), os.fstat(bodies.fd))
    except FileNotFoundError:
        return False


def size_of(path: str) -> int:
    """Return the size of a file; 0 if it is gone."""
    try:
        return os.path.getsize(path)
    except FileNotFoundError:
        return 0


def _settles(lines: list[bytes], state: SessionState) -> bool:
    """Tell whether lines, not taken yet, end a task whose scratch may be gone already."""
    if not state.live:
        return False
    return any(b'"settle"' in line for line in lines)


def _unbroken(last: Seq, logs: list[ScratchLog]) -> int:
    """Return the number up to which nothing that others wrote meanwhile is missing.

    The files are read one after another. Numbers are given without gaps, so the first one behind
    the main log's last that no file shows was written after its file was read.
    """
    numbers = sorted(
        (line.first, line.last) for log in logs for line in log.lines if line.first > last
    )
    through: int = last
    for first, until in numbers:
        if first != through + 1:
            break
        through = until
    return through
