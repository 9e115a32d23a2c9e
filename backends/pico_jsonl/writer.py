"""Committing to a session's logs: the line first, then what everybody sees.

A commit writes one line to one file. From just before the write until the state has it, the
attempt is *pending*; whatever is raised in between, it is then settled: either the state has it
and the file keeps the line, or the file is cut back to where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NoReturn, TypeAlias
from zlib import crc32

from pico_jsonl.bodies import (
    LONG_LINE,
    LogBodies,
    first_reference,
    part_references,
)
from pico_jsonl.control import EPOCH, MARK, SCRATCH_SYNCED, SYNCED, Control, busy_word, pack_word
from pico_jsonl.disk import Disk, translate, write_all
from pico_jsonl.lines import SEAL_BYTES, encode, frame_middle, main_start, scratch_start
from pico_jsonl.log import Log, ScratchLogs
from pico_jsonl.opening import End, Loaded, Place
from pico_memory.apply import Frames, append_frame, apply, frames
from pico_memory.resident import Resident
from pico_memory.rows import Body
from pico_memory.state import SessionState
from pico_store.address import Address, Seq
from pico_store.batch import Batch, ListAppend, ScratchBatch, SettleTask
from pico_store.check import CheckedBatch, check_batch
from pico_store.errors import CommitUncertainError, OwnershipLostError, PicoError
from pico_store.limits import SEQ_MAX
from pico_store.records import BatchRange
from pico_store.storage import Durability
from pico_store.strict_json import pack

_SYNC_BYTES: Final = 4 << 20
"""With `ordered`, how much may be written before a commit makes it durable."""


_Pending: TypeAlias = tuple[Log, int, int, Seq]
"""A commit that is being written: where, its file's end and checksum with it, its last number."""
_Last: TypeAlias = tuple[Address, Seq, Log, bytes, Frames]
"""The frame before, as far as the next of its stream is like it: address, task, file, what stands
between number and value, and what it was appended to."""


class Writer:
    """Writes one session's batches for whoever owns it; one thread at a time may use it.

    Attributes:
        fault: The uncertain commit after which nothing can be committed.
        lost: How the session was taken over from elsewhere, if it was.
    """

    def __init__(
        self,
        place: Place,
        loaded: Loaded,
        resident: Resident,
        control: Control,
        epoch: int,
        durability: Durability,
        disk: Disk,
    ) -> None:
        self._place = place
        self._resident = resident
        self._publishing = resident.lock
        self._control = control
        self._words = control.words
        self._power = durability == "power"
        self._syncs = durability != "process"
        self._disk = disk
        self._write: Callable[[int, bytes], int] = disk.write
        self._main = Log(place.main, loaded.bodies.fd, *loaded.main)
        self._main.synced = control.get(SYNCED)
        self._scratch = ScratchLogs(place.session, place.folder, disk)
        for task, end in loaded.scratch.items():
            self._scratch.add(task, *end)
        self._pending: _Pending | None = None
        self._last: _Last | None = None
        self._epoch_word = self._busy = 0
        # What the control file has by now may be the epoch of somebody who took the session over.
        self.use_epoch(epoch)
        self.fault: PicoError | None = None
        self.lost = ""

    def commit(self, batch: Batch, expected_first: Seq | None) -> BatchRange:
        """Check a batch, make it as durable as was asked for, and publish it.

        Raises:
            RefusedError: It breaks a clause; nothing was written.
            RetryableError: Nothing became durable; the same commit may succeed later.
            OwnershipLostError: Another open took the session over.
            CommitUncertainError: It may or may not be durable; `fault` is set.
        """
        words, busy = self._words, self._busy
        if words[EPOCH] != self._epoch_word:
            # Three owners later the word is another's, and not to be cleared here.
            self._lose()
        try:
            words[busy] = 1
            if words[EPOCH] != self._epoch_word:
                self._lose()
            if self._pending is not None:
                self._settle()
            view = self._resident.view
            state = view.state
            if state.journal:
                with self._publishing:
                    self._resident.settled()
            if type(batch) is ScratchBatch and expected_first is None:
                done = self._commit_again(state, batch)
                if done is not None:
                    return done
            self._last = None
            checked = check_batch(batch, view, expected_first)
            if checked.task is None:
                return self._commit_main(checked)
            return self._commit_scratch(checked, checked.task)
        finally:
            words[busy] = 0

    def _commit_main(self, checked: CheckedBatch) -> BatchRange:
        log, writes = self._main, checked.writes
        text = main_start(checked.first) + encode(writes)
        if len(text) < LONG_LINE - SEAL_BYTES:
            place = first_reference(log.end)
            references: Sequence[int] = range(place, place + 2 * len(writes), 2)
        else:
            start = log.end + len(text) - len(encode(writes)) + 1
            references = list(part_references(start, list(map(encode, writes))))
        bodies: Sequence[Body | None] = references
        if None in checked.bodies:
            bodies = list(map(_unless_none, references, checked.bodies))
        crc = crc32(text, log.crc)
        line = text + b',"crc32":"%08x"}\n' % crc
        done = self._append(log, line, crc, checked, bodies)
        if self._scratch.logs:
            for write in writes:
                if type(write) is SettleTask:
                    self._scratch.retire(write.id)
        return done

    def _commit_scratch(self, checked: CheckedBatch, task: Seq) -> BatchRange:
        log, header, crc = self._ready(task)
        writes, first = checked.writes, checked.first
        log.stream = stream = None
        write = writes[-1]
        if type(write) is ListAppend:
            address = write.address
            middle = frame_middle(task, address)
            stream = (address, middle, frames(self._resident.view.state, task, address))
        text = scratch_start(first, task) + encode(writes)
        crc = crc32(text, crc)
        line = b'%b%b,"crc32":"%08x"}\n' % (header, text, crc)
        done = self._append(log, line, crc, checked, None)
        log.stream = stream
        return done

    def _ready(self, task: Seq) -> tuple[Log, bytes, int]:
        """Return a task's file, what is to stand before the next batch, and the checksum there."""
        try:
            log = self._scratch.ready(task)
        except OSError as error:
            raise translate(self._place.folder, "commit", error) from error
        if log.end:
            return log, b"", log.crc
        return log, *self._scratch.beginning(task)

    def _commit_again(self, state: SessionState, batch: ScratchBatch) -> BatchRange | None:
        """Commit one more append to the list that a task appended to last.

        A task that streams commits little else: what the rules found right of the address the time
        before is right. ``None``: the batch is something else, nothing was done.
        """
        writes, task, last = batch.writes, batch.task, self._last
        if type(writes) is not tuple or len(writes) != 1 or type(writes[0]) is not ListAppend:
            return None
        write = writes[0]
        if last is not None and write.address is last[0] and task is last[1]:
            # The very objects of the commit before, which was right.
            address, _, log, middle, appended = last
        else:
            found = self._scratch.logs.get(task) if type(task) is int else None
            if found is None or found.stream is None:
                return None
            log, address = found, write.address
            known, middle, appended = found.stream
            facts = state.facts.get(task)
            if address is not known and not _is_same(address, known):
                return None
            if log.fd < 0 or facts is None or not facts.live:
                return None
            self._last = (address, task, log, middle, appended)
        if state.last_seq >= SEQ_MAX:
            return None
        body = pack(write.value, "writes[0].value")
        seq: Seq = state.last_seq + 1  # type: ignore[assignment]
        text = b'{"first":%d,%b%b}]' % (seq, middle, encode(write.value))
        crc = crc32(text, log.crc)
        # Joining costs less than a format that takes the text in.
        line = text + b',"crc32":"%08x"}\n' % crc
        size = len(line)
        end = log.end + size
        self._pending = (log, end, crc, seq)
        try:
            done = self._write(log.fd, line)
            if done != size:
                write_all(self._disk, log.fd, line, done)
            self._words[MARK] = seq << 10 | seq % 1021
            with self._publishing:
                committed = append_frame(appended, task, seq, body)
            log.end = end
            log.crc = crc
            self._pending = None
        except BaseException as error:
            self._after_failure(log, error)
            raise
        return committed

    def _append(
        self,
        log: Log,
        line: bytes,
        crc: int,
        checked: CheckedBatch,
        bodies: Sequence[Body | None] | None,
    ) -> BatchRange:
        size, last = len(line), checked.last
        end = log.end + size
        self._pending = (log, end, crc, last)
        try:
            done = self._write(log.fd, line)
            if done != size:
                write_all(self._disk, log.fd, line, done)
            if bodies is None:
                self._words[MARK] = last << 10 | last % 1021
            elif self._syncs and (self._power or end - log.synced >= _SYNC_BYTES):
                self._sync_main(end)
            with self._publishing:
                committed = apply(self._resident.view.state, checked, bodies)
            log.end, log.crc = end, crc
            self._pending = None
        except BaseException as error:
            self._after_failure(log, error)
            raise
        return committed

    def _sync_main(self, end: int) -> None:
        try:
            self._disk.sync(self._main.fd)
        except OSError as error:
            # The system may have forgotten what it could not write; asking again proves nothing.
            problem = f"{self._main.path}: could not be made durable ({error.strerror}); "
            problem += "reopen the session and compare last_seq"
            self.fault = CommitUncertainError(problem)
            raise self.fault from error
        self._main.synced = end
        self._words[SYNCED] = pack_word(end)

    def _after_failure(self, log: Log, error: BaseException) -> None:
        self._last = None
        if self.fault is not None:
            self._pending = None
            return
        self._settle()
        if isinstance(error, OSError):
            raise translate(log.path, "commit", error) from error

    def _settle(self) -> None:
        """Make file and state agree about the pending commit; may be called again.

        Raises:
            CommitUncertainError: The file cannot be cut back.
        """
        pending = self._pending
        assert pending is not None
        log, end, crc, last = pending
        with self._publishing:
            state = self._resident.settled()
        if state.last_seq >= last:
            log.end, log.crc = end, crc
        else:
            if log is self._main and log.synced > log.end:
                log.synced = log.end
                self._control.set(SYNCED, log.end)
            try:
                self._disk.cut(log.fd, log.end)
            except OSError as error:
                problem = f"{log.path}: an append failed and could not be cut off "
                problem += f"({error.strerror}); reopen the session and compare last_seq"
                self.fault = CommitUncertainError(problem)
                raise self.fault from error
            if self._control.get(MARK) > state.last_seq:
                self._control.set(MARK, state.last_seq)
        self._pending = None

    @contextmanager
    def holding(self) -> Iterator[Control]:
        """Keep everybody from taking the session over; nothing is pending meanwhile.

        Raises:
            OwnershipLostError: Another open took the session over.
        """
        words, busy = self._words, self._busy
        if words[EPOCH] != self._epoch_word:
            self._lose()
        try:
            words[busy] = 1
            if words[EPOCH] != self._epoch_word:
                self._lose()
            if self._pending is not None:
                self._settle()
            self._last = None
            yield self._control
        finally:
            words[busy] = 0

    def use_epoch(self, epoch: int) -> None:
        """Commit as the owner with this epoch from here on."""
        self._epoch_word, self._busy = pack_word(epoch), busy_word(epoch)

    def go_on_in(self, bodies: LogBodies, main: End) -> None:
        """Write to another main log from here on; it holds what was scratch until now."""
        self._main = Log(self._place.main, bodies.fd, *main)
        self._main.synced = main.end
        self._scratch.remove()

    def close(self) -> None:
        """Make everything durable that was to be, and close the files.

        What fails here was acknowledged before it was durable, as `ordered` says.
        """
        try:
            if self.fault is None and not self.lost:
                self._finish()
        except (OSError, PicoError):
            # The next opening reads what is there.
            pass
        finally:
            self._scratch.close()

    def _finish(self) -> None:
        with self.holding() as control:
            if self._syncs:
                if self._main.synced < self._main.end:
                    self._sync_main(self._main.end)
                self._scratch.sync()
                control.set(SCRATCH_SYNCED, self._resident.view.state.last_seq)

    def _lose(self) -> NoReturn:
        self.lost = f"session {self._place.session!r:.60} was taken over by another open; reopen it"
        raise OwnershipLostError(self.lost)


def _is_same(address: Address, known: Address) -> bool:
    """Tell whether an address equals one that passed the rules, in its parts' types too."""
    return (
        address == known
        and type(address.namespace) is str
        and (address.key is None or type(address.key) is str)
        and type(address.task) is int  # type: ignore[union-attr]
    )


def _unless_none(place: Body | None, body: bytes | None) -> Body | None:
    return None if body is None else place
