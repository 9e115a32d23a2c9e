"""Reading the scratch files of live tasks, and putting their batches into a session's state."""

from __future__ import annotations

import os
from bisect import bisect_left
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, NamedTuple

import msgspec

from pico_jsonl import lines
from pico_jsonl.lines import (
    BadLineError,
    check_seal,
    claimed_first,
    claimed_seal,
    is_as_written,
    parse_batch,
    scratch_start,
)
from pico_jsonl.replay import check_header
from pico_memory.apply import apply
from pico_memory.state import SessionState
from pico_memory.view import MemoryView
from pico_store.address import Seq
from pico_store.batch import MainBatch, ScratchBatch
from pico_store.check import check_batch
from pico_store.errors import NewerFormatError, RefusedError, StoreUnusableError

SCRATCH_START: Final = "scratch-"
NEW_START: Final = "new-"
"""A main log that is being written, to take the place of another."""
_END: Final = ".jsonl"
_decode: Final = msgspec.json.Decoder(lines.ScratchLine).decode


class ScratchLine(NamedTuple):
    """A batch as it was read, and where it ends in its file."""

    first: Seq
    last: Seq
    batch: ScratchBatch | MainBatch
    end: int
    crc: int
    """The checksum that the next line goes on from."""


@dataclass(slots=True)
class ScratchLog:
    """What a scratch file holds, up to the first line that is not as it should be."""

    task: Seq
    path: str
    size: int = 0
    """Bytes that were read, those of a torn or bad end included."""
    header_end: int = 0
    header_crc: int = 0
    lines: list[ScratchLine] = field(default_factory=list)
    bad: str = ""
    """What is wrong with the complete line at ``end``; empty: nothing."""
    later_first: int | None = None
    """The number of a whole line that stands behind the bad one."""
    torn_first: int | None = None
    """The number that an unfinished last line begins with, as far as it says one."""
    _claimed: int = 0
    """The checksum that the line before this one says it has."""

    @property
    def end(self) -> int:
        """The offset behind the last good line."""
        return self.lines[-1].end if self.lines else self.header_end

    @property
    def crc(self) -> int:
        """The checksum that the next line goes on from."""
        return self.lines[-1].crc if self.lines else self.header_crc


def scratch_path(folder: str, task: Seq) -> str:
    """Return where a task's scratch is."""
    return os.path.join(folder, f"{SCRATCH_START}{task}{_END}")


def scratch_tasks(folder: str) -> list[Seq]:
    """Return the tasks that a folder has scratch files of, live or not, ascending."""
    found = []
    for name in os.listdir(folder):
        number = name[len(SCRATCH_START) : -len(_END)]
        # A copy named 02 is not the file of task 2.
        if not number.isascii() or not number.isdigit() or number.startswith("0"):
            continue
        if name == f"{SCRATCH_START}{number}{_END}":
            found.append(Seq(int(number)))
    return sorted(found)


def leftovers(folder: str) -> list[str]:
    """Return the names of files that mean nothing: halves of a new log."""
    return [name for name in os.listdir(folder) if name.startswith(NEW_START)]


def read_scratch(folder: str, session: str, task: Seq) -> ScratchLog | None:
    """Return what a task's scratch file holds; ``None`` if there is none.

    Raises:
        NewerFormatError: A newer pico wrote it.
    """
    log = ScratchLog(task, scratch_path(folder, task))
    try:
        with open(log.path, "rb") as file:
            for line in file:
                if not _take(log, session, line):
                    break
    except FileNotFoundError:
        return None
    return log


def _take(log: ScratchLog, session: str, line: bytes) -> bool:
    """Take a line; tell whether it is worth to go on."""
    start, log.size = log.size, log.size + len(line)
    if line[-1] != 0x0A:
        log.torn_first = claimed_first(line)
        return False
    if log.bad:
        _look_behind(log, line)
        return log.later_first is None
    try:
        if start == 0:
            _take_header(log, session, line)
        else:
            _take_batch(log, line)
    except BadLineError as error:
        log.bad = str(error)
        log._claimed = claimed_seal(line) or 0
    return True


def _look_behind(log: ScratchLog, line: bytes) -> None:
    """Note a line behind a bad one that fits to the checksum which that one claims to have."""
    try:
        log._claimed = check_seal(line, log._claimed)
    except BadLineError:
        log._claimed = claimed_seal(line) or 0
    else:
        log.later_first = claimed_first(line)


def _take_header(log: ScratchLog, session: str, line: bytes) -> None:
    try:
        check_header(line, log.path, session, log.task)
    except NewerFormatError:
        raise
    except StoreUnusableError as error:
        raise BadLineError(str(error)) from error
    log.header_crc = check_seal(line, 0)
    log.header_end = len(line)


def _take_batch(log: ScratchLog, line: bytes) -> None:
    crc = check_seal(line, log.crc)
    first, batch = _as_written(line, log.task) or parse_batch(line, log.task)
    before = log.lines[-1].last if log.lines else log.task
    last = Seq(first + len(batch.writes) - 1)
    if first <= before or last < first:
        raise BadLineError(f"numbers {first} to {last} after {before}")
    log.lines.append(ScratchLine(first, last, batch, log.size, crc))


def _as_written(line: bytes, task: Seq) -> tuple[Seq, ScratchBatch] | None:
    """Return what a line holds that is exactly as this writes it; ``None``: look closer."""
    try:
        found = _decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if found.task != task or not is_as_written(
        line, scratch_start(found.first, task), found.writes
    ):
        return None
    return found.first, ScratchBatch(task, found.writes)


def apply_scratch(state: SessionState, log: ScratchLog, after: Seq, through: int) -> None:
    """Put the batches of a task's scratch into the state; one that does not fit ends the log.

    Leaves ``last_seq`` anywhere; the caller sets it to the greatest number of all.

    Args:
        state: What the main log led to.
        log: The task's.
        after: What the main log's snapshot holds already.
        through: Later batches are left out.
    """
    view = MemoryView(state)
    for index, line in enumerate(log.lines):
        try:
            if line.last > after and line.last <= through:
                _apply(state, view, line)
        except BadLineError as error:
            log.bad = str(error)
            del log.lines[index:]
            return


def _apply(state: SessionState, view: MemoryView, line: ScratchLine) -> None:
    found = bisect_left(state.batches, line.last + 1, key=attrgetter("first"))
    if found and state.batches[found - 1].last >= line.first:
        raise BadLineError(f"numbers {line.first} to {line.last}, which the main log uses")
    state.last_seq = Seq(line.first - 1)
    try:
        apply(state, check_batch(line.batch, view))
    except RefusedError as error:
        raise BadLineError(str(error)) from error
