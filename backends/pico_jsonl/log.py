"""A log file that is appended to."""

from __future__ import annotations

import os
from typing import Final, TypeAlias

from pico_jsonl.disk import Disk, create_file
from pico_jsonl.lines import header_body, seal
from pico_jsonl.scratch import SCRATCH_START
from pico_memory.apply import Frames
from pico_store.address import Address, Seq

_OPEN_MAX: Final = 64

Stream: TypeAlias = tuple[Address, bytes, Frames]
"""A list of a task's scratch: its address, what stands between number and value in the line of an
append, and what is appended to in the state."""


class Log:
    """One file, the offset where it goes on, and the checksum that it goes on from."""

    __slots__ = ("crc", "end", "fd", "is_old", "path", "stream", "synced")

    def __init__(self, path: str, fd: int, end: int, crc: int) -> None:
        self.path = path
        self.fd = fd
        """Negative: not open."""
        self.end = end
        self.crc = crc
        self.synced = 0
        """How much of it is known to be on the disk."""
        self.is_old = False
        """Whether it was there when the session was opened."""
        self.stream: Stream | None = None
        """What was appended to last, if it was a list."""


class ScratchLogs:
    """The scratch files of a session's live tasks.

    At most 64 stay open, so that any number of live tasks needs few descriptors. One retired file
    stays where it is, which means nothing, until the next task takes it: renaming one file costs a
    sixth of removing one and creating another.
    """

    __slots__ = ("_disk", "_header", "_open", "_spare", "_spare_path", "_start", "logs")

    def __init__(self, session: str, folder: str, disk: Disk) -> None:
        self._disk = disk
        self._header = header_body(session, None)
        self._open = 0
        self._spare = -1
        self._spare_path = ""
        self._start = os.path.join(folder, SCRATCH_START)
        self.logs: dict[Seq, Log] = {}
        """By task."""

    def add(self, task: Seq, end: int, crc: int) -> None:
        """Note a file that is there."""
        log = Log(f"{self._start}{task}.jsonl", -1, end, crc)
        log.is_old = True
        self.logs[task] = log

    def ready(self, task: Seq) -> Log:
        """Return the file of a task, ready to be appended to; it is created if need be.

        Raises:
            OSError: It cannot be opened.
        """
        log = self.logs.get(task)
        if log is None:
            log = Log(f"{self._start}{task}.jsonl", -1, 0, 0)
        if log.fd < 0:
            if self._open >= _OPEN_MAX:
                self._close_others()
            log.fd = self._open_file(log)
            self._open += 1
            self.logs[task] = log
        return log

    def _open_file(self, log: Log) -> int:
        if log.end:
            return os.open(log.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        if self._spare >= 0:
            fd, self._spare = self._spare, -1
            try:
                os.ftruncate(fd, 0)
                os.rename(self._spare_path, log.path)
            except BaseException:
                os.close(fd)
                raise
            return fd
        try:
            return create_file(log.path, os.O_APPEND)
        except FileExistsError:
            # Left empty by a first append that failed.
            return os.open(log.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_TRUNC)

    def _close_others(self) -> None:
        for log in self.logs.values():
            # Forgotten before it is closed, so that an interrupt cannot have it closed twice.
            fd, log.fd = log.fd, -1
            if fd >= 0:
                os.close(fd)
        self._open = 0

    def beginning(self, task: Seq) -> tuple[bytes, int]:
        """Return the first line of a task's file, and the checksum behind it."""
        return seal(b'%b,"task":%d' % (self._header, task), 0)

    def retire(self, task: Seq) -> None:
        """Take the file of a settled task away; where that fails, the next opening does it."""
        log = self.logs.pop(task, None)
        if log is None:
            return
        fd, log.fd = log.fd, -1
        if fd >= 0:
            self._open -= 1
        try:
            # A power cut may leave what a file held under the next task's name. That of this
            # opening is known not to have been durable; older lines would look like damage.
            if fd >= 0 and self._spare < 0 and not log.is_old:
                self._spare, self._spare_path, fd = fd, log.path, -1
            else:
                os.unlink(log.path)
        except OSError:
            pass
        finally:
            if fd >= 0:
                os.close(fd)

    def sync(self) -> None:
        """Make all files durable.

        Raises:
            OSError: One cannot be.
        """
        for task, log in list(self.logs.items()):
            if log.synced < log.end:
                self.ready(task)
                self._disk.sync(log.fd)
                log.synced = log.end

    def remove(self) -> None:
        """Take all files away: what they hold is in the main log."""
        for task in list(self.logs):
            self.retire(task)
        self._remove_spare()

    def close(self) -> None:
        """Close all files, and remove the spare one."""
        self._remove_spare()
        self._close_others()

    def _remove_spare(self) -> None:
        fd, self._spare = self._spare, -1
        if fd >= 0:
            os.close(fd)
            try:
                os.unlink(self._spare_path)
            except OSError:
                pass
