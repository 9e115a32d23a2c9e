"""A log file that is appended to."""

from __future__ import annotations

import os
from typing import Final

from pico_jsonl.disk import Disk, create_file
from pico_jsonl.lines import header_body, seal
from pico_store.address import Seq

_OPEN_MAX: Final = 64


class Log:
    """One file, the offset where it goes on, and the checksum that it goes on from."""

    __slots__ = ("crc", "end", "fd", "path", "synced")

    def __init__(self, path: str, fd: int, end: int, crc: int) -> None:
        self.path = path
        self.fd = fd
        """Negative: not open."""
        self.end = end
        self.crc = crc
        self.synced = 0
        """How much of it is known to be on the disk."""


class ScratchLogs:
    """The scratch files of a session's live tasks.

    At most 64 stay open, so that any number of live tasks needs few descriptors.
    """

    __slots__ = ("_disk", "_session", "logs")

    def __init__(self, session: str, disk: Disk) -> None:
        self._session = session
        self._disk = disk
        self.logs: dict[Seq, Log] = {}
        """By task; the least recently opened first."""

    def add(self, task: Seq, path: str, end: int, crc: int) -> None:
        """Note a file that is there."""
        self.logs[task] = Log(path, -1, end, crc)

    def opened(self, task: Seq, path: str) -> Log:
        """Return the file of a task, ready to be appended to; it is created if need be.

        Raises:
            OSError: It cannot be opened.
        """
        log = self.logs.pop(task, None)
        if log is None:
            log = Log(path, -1, 0, 0)
        try:
            if log.fd < 0:
                self._make_room()
                log.fd = self._open(log)
        finally:
            if log.fd >= 0 or log.end:
                self.logs[task] = log
        return log

    def _open(self, log: Log) -> int:
        if log.end:
            return os.open(log.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        try:
            return create_file(log.path, os.O_APPEND)
        except FileExistsError:
            # Left empty by a first append that failed.
            return os.open(log.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_TRUNC)

    def _make_room(self) -> None:
        open_logs = [log for log in self.logs.values() if log.fd >= 0]
        for log in open_logs[: max(len(open_logs) - _OPEN_MAX + 1, 0)]:
            os.close(log.fd)
            log.fd = -1

    def beginning(self, log: Log, task: Seq) -> tuple[bytes, int]:
        """Return what has to be written before a batch, and the checksum behind it."""
        if log.end:
            return b"", log.crc
        return seal(header_body(self._session, task), 0)

    def retire(self, task: Seq) -> None:
        """Remove the file of a settled task; one that cannot be removed is left to an opening."""
        log = self.logs.pop(task, None)
        if log is not None:
            if log.fd >= 0:
                os.close(log.fd)
                log.fd = -1
            try:
                os.unlink(log.path)
            except OSError:
                pass

    def sync(self) -> None:
        """Make all files durable.

        Raises:
            OSError: One cannot be.
        """
        for task, log in list(self.logs.items()):
            if log.synced < log.end:
                self.opened(task, log.path)
                self._disk.sync(log.fd)
                log.synced = log.end

    def close(self) -> None:
        """Close all files."""
        for log in self.logs.values():
            if log.fd >= 0:
                os.close(log.fd)
                log.fd = -1
