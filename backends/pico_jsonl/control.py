"""A session's control file: numbers that outlive the process without a system call for each.

It is mapped into memory: what is stored there survives the process's death, as anything that was
written to a file does. It holds the owner epoch, the greatest number given to a scratch write, and
how much of the main log is known to be on the disk.

Who takes a session, gives it back or removes it holds the file's lock. A commit does not take it,
which would cost as much as its write: it says that it is busy, then looks whether its epoch is
still the session's, and only then writes. Who takes a session over raises the epoch first and then
waits until the owner before is not busy; what that one does later, it does not do any more.

Source: docs/reference/format-jsonl.md.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import time
from collections.abc import Callable
from typing import Final

from pico_jsonl.disk import FILE_MODE
from pico_store.errors import StoreBusyError, StoreDamagedError, StoreUnusableError

CONTROL_BYTES: Final = 64
EPOCH: Final = 1
"""How often the session was opened for writing."""
MARK: Final = 2
"""The greatest number that a scratch write was given, so that no lost file lowers it."""
SYNCED: Final = 3
"""How many bytes of the main log were made durable."""
SCRATCH_SYNCED: Final = 4
"""The number up to which scratch was made durable."""
BUSY: Final = 5
"""The first of the words that say whether an owner is within a commit; by epoch."""
BUSY_WORDS: Final = 3
NUMBERS: Final = (EPOCH, MARK, SYNCED, SCRATCH_SYNCED)

_MAGIC: Final = int.from_bytes(b"picojsl\x01", "little")
# Greater than any possible value's residue and prime, so that a flipped bit changes it.
_PRIME: Final = 1021
_WAIT_S: Final = 10.0
_SEEN_S: Final = 0.002


def pack_word(value: int) -> int:
    """Return a number with its check, as it is stored."""
    return value << 10 | value % _PRIME


def busy_word(epoch: int) -> int:
    """Return the word in which the owner with an epoch says that it is within a commit.

    Owners that follow one another have different ones, so that none clears another's.
    """
    return BUSY + epoch % BUSY_WORDS


class Control:
    """An open control file.

    Attributes:
        words: The file's words; those of a file that cannot be written must not be assigned.
        fd: What is locked.
    """

    __slots__ = ("_map", "_path", "fd", "words")

    def __init__(self, path: str, *, writable: bool) -> None:
        """Open the file; make it if it is not there and may be written.

        Raises:
            StoreDamagedError: It holds something else.
            OSError: It cannot be opened.
        """
        self._path = path
        self.fd = -1
        flags = os.O_RDWR | os.O_CREAT if writable else os.O_RDONLY
        self.fd = os.open(path, flags | os.O_CLOEXEC, FILE_MODE)
        try:
            if writable:
                self._prepare()
            access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
            if os.fstat(self.fd).st_size != CONTROL_BYTES:
                raise StoreDamagedError(f"{path}: not {CONTROL_BYTES} bytes; {_ADVICE}")
            self._map = mmap.mmap(self.fd, CONTROL_BYTES, access=access)
        except BaseException:
            self._close_file()
            raise
        self.words = memoryview(self._map).cast("Q")
        if self.words[0] != _MAGIC:
            self.close()
            raise StoreDamagedError(f"{path}: does not begin as a control file; {_ADVICE}")

    def _prepare(self) -> None:
        """Fill a file that is new, or that a power cut left empty or zeroed."""
        if self._is_blank():
            self.acquire()
            try:
                if self._is_blank():
                    os.fchmod(self.fd, FILE_MODE)
                    os.pwrite(self.fd, _MAGIC.to_bytes(8, "little").ljust(CONTROL_BYTES, b"\0"), 0)
            finally:
                self.release()

    def _is_blank(self) -> bool:
        return not os.pread(self.fd, CONTROL_BYTES + 1, 0).strip(b"\0")

    def get(self, word: int) -> int:
        """Return a number.

        Raises:
            StoreDamagedError: Its check does not fit.
        """
        stored = self.words[word]
        value = stored >> 10
        if value % _PRIME != stored & 1023:
            raise StoreDamagedError(f"{self._path}: word {word} is damaged; {_ADVICE}")
        return value

    def numbers(self) -> dict[int, int]:
        """Return all numbers.

        Raises:
            StoreDamagedError: A check does not fit.
        """
        return {word: self.get(word) for word in NUMBERS}

    def set(self, word: int, value: int) -> None:
        """Store a number, at once for every process."""
        self.words[word] = pack_word(value)

    def sync(self) -> None:
        """Make all numbers durable.

        Raises:
            OSError: They cannot be.
        """
        self._map.flush()
        os.fsync(self.fd)

    def await_idle(self, epoch: int, is_live: Callable[[], bool]) -> None:
        """Wait until the owner with an epoch, which is not the session's any more, is not busy.

        Args:
            epoch: That of the owner before.
            is_live: Whether its process is there yet; one that died is not busy.

        Raises:
            StoreBusyError: It did not come to an end.
        """
        # Longer by far than a store of another processor takes to be seen here.
        time.sleep(_SEEN_S)
        deadline = time.monotonic() + _WAIT_S
        while self.words[busy_word(epoch)] and is_live():
            if time.monotonic() >= deadline:
                problem = f"{self._path}: the session's owner does not end a commit; try again"
                raise StoreBusyError(problem)
            time.sleep(_SEEN_S)

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            StoreBusyError: Somebody else held it for too long.
        """
        deadline = time.monotonic() + _WAIT_S
        pause = 0.0005
        while True:
            try:
                fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    problem = f"{self._path}: another process holds the session's lock; try again"
                    raise StoreBusyError(problem) from None
                time.sleep(pause)
                pause = min(pause * 2, 0.05)
            else:
                return

    def release(self) -> None:
        """Give the lock back."""
        fcntl.flock(self.fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file, which also gives the lock back; a second time does nothing."""
        if self.fd >= 0:
            self.words.release()
            self._map.close()
            self._close_file()

    def _close_file(self) -> None:
        # Forgotten before it is closed: an interrupt that arrives with the end of the call must
        # not have it closed a second time, when the number may be another file's.
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self._close_file()


_ADVICE: Final = "restore a backup, or remove that file alone if the log beside it is whole"


def read_control(path: str) -> dict[int, int]:
    """Return all numbers of a control file; zeros where there is none.

    Raises:
        StoreDamagedError: It is not one, or damaged.
        StoreUnusableError: It cannot be read.
    """
    try:
        with open(path, "rb") as file:
            blank = not file.read(CONTROL_BYTES + 1).strip(b"\0")
        control = None if blank else Control(path, writable=False)
    except FileNotFoundError:
        control = None
    except OSError as error:
        raise StoreUnusableError(f"{path}: cannot be read: {error.strerror}") from error
    if control is None:
        return dict.fromkeys(NUMBERS, 0)
    try:
        return control.numbers()
    finally:
        control.close()
