"""The LMDB environment of a folder: opened once a process, its map, and who reads from it.

LMDB allows a file to be opened once in a process, so that all stores on one folder share this. The
map is what limits how far the file can grow; it is made larger when a commit finds no room, while
nothing in this process reads or writes. Other processes notice at their next transaction.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from threading import get_ident
from typing import Final, cast

import lmdb
import msgspec

from pico_lmdb.dictionaries import newest_dictionary
from pico_lmdb.engine import Transaction, Tree
from pico_lmdb.failures import DAMAGE, READERS_MAX, is_full, translate
from pico_lmdb.folder import (
    DATA_FILE,
    Presence,
    WriteTurn,
    check_folder,
    check_headers,
    check_version,
    decode_version,
    is_writable,
    make_files,
    sync_folder,
)
from pico_lmdb.layout import COUNTER, FORMAT, FORMAT_VERSION, TREES
from pico_store.compression import LEVEL, Compression
from pico_store.errors import (
    NotAStoreError,
    StorageClosedError,
    StoreBusyError,
    StoreFullError,
    StoreUnusableError,
)
from pico_store.options import BUSY_MS_DEFAULT
from pico_store.storage import Durability

MAP_BYTES: Final = 256 << 20


class Environment:
    """One open folder.

    Guarantees:
        No read transaction is open while the map changes or the file is replaced. Whoever holds
        ``lock`` is the only one in this process to write.
    """

    def __init__(self, path: str, durability: Durability, map_bytes: int, busy_ms: int) -> None:
        self.path = path
        self.uses = 1
        """Stores that share it."""
        self.synced: Final = durability != "process"
        self.lock = threading.Lock()
        self.presence = Presence(path, busy_ms)
        self._turn = WriteTurn(path)
        self.take_turn_at_once: Callable[[], None] = self._turn.take_at_once
        """Keep other processes from writing; raises `BlockingIOError` while one of them does."""
        self.give_turn_back: Callable[[], None] = self._turn.give_back
        self.ended = ""
        """Why it can no longer be used."""
        self._map_bytes = map_bytes
        self._compression: Compression | None = None
        self._changed = threading.Condition(threading.Lock())
        self._reading: list[int] = []
        """For each read that is under way, its thread."""
        self._paused = False
        try:
            if is_writable(path):
                self.take_turn(busy_ms)
                if self._exists():
                    check_headers(path)
            try:
                self._use(self._open())
                self.trees: list[Tree] = [None]
                """The main tree, which LMDB calls `None`, and those of `layout.TREES`."""
                self._find_trees()
            finally:
                self.give_turn_back()
        except BaseException:
            self._turn.end()
            self.presence.end()
            raise

    # --- Reading ---

    # The casts below: without ``buffers`` py-lmdb gives bytes alone.

    def begin_read(self) -> Transaction:
        """Begin a read transaction, which `end_read` must end.

        Raises:
            StoreBusyError: More reads are under way than the file has places for.
        """
        # A reader counts itself and then looks whether it may; who pauses says so and then
        # counts. One of the two sees the other, without a lock in the way of every read.
        self._reading.append(get_ident())
        if self._paused or self.ended:
            self._leave()
            self._enter()
        try:
            return self.begin_reading()
        except BaseException as error:
            self._leave()
            if not isinstance(error, lmdb.Error):
                raise
            return self._begin_again(error)

    def _begin_again(self, error: lmdb.Error) -> Transaction:
        """Begin a read transaction after what was in the way is mended."""
        if isinstance(error, lmdb.MapResizedError):
            with self.lock:
                self.adopt_map()
            return self.begin_read()
        if not isinstance(error, lmdb.ReadersFullError):
            raise translate(self.path, "read", error) from error
        # Processes that were killed while they read still have their places.
        self._enter()
        try:
            self.engine.reader_check()
            return self.begin_reading()
        except BaseException as again:
            self._leave()
            if isinstance(again, lmdb.Error):
                raise translate(self.path, "read", again) from again
            raise

    def end_read(self, transaction: Transaction) -> None:
        """End a read transaction."""
        try:
            transaction.abort()
        finally:
            self._leave()

    def holds(self, tree: int, key: bytes) -> bool:
        """Tell whether a tree has a key: the least that can be read."""
        transaction = self.begin_read()
        try:
            return transaction.get(key, None, self.trees[tree]) is not None
        finally:
            self.end_read(transaction)

    def _enter(self) -> None:
        """Count one more reader, once reads may begin."""
        with self._changed:
            while self._paused:
                self._changed.wait()
            if self.ended:
                raise StorageClosedError(f"{self.path}: the store is {self.ended}")
            self._reading.append(get_ident())

    def _leave(self) -> None:
        self._reading.remove(get_ident())
        if self._paused:
            with self._changed:
                self._changed.notify_all()

    def pause(self) -> None:
        """Let no read begin, and wait for those under way; the caller holds ``lock``."""
        with self._changed:
            self._paused = True
            # This thread reads nothing now: what it has there, an interrupt kept from ending.
            while (own := get_ident()) in self._reading:
                self._reading.remove(own)
            while self._reading:
                # An interrupt may have kept the last one from waking anybody.
                self._changed.wait(0.05)

    def resume(self) -> None:
        """Let reads begin again."""
        with self._changed:
            self._paused = False
            self._changed.notify_all()

    # --- Writing; the caller holds the lock ---

    def take_turn(self, busy_ms: int) -> None:
        """Keep other processes from writing until `give_turn_back`.

        Raises:
            StoreBusyError: Another process has been writing for all of ``busy_ms``.
        """
        if self.ended:
            self._refuse_turn()
        if not self._turn.take(busy_ms / 1000):
            problem = f"another process has been writing for {busy_ms} ms; try again"
            raise StoreBusyError(f"{self.path}: {problem}")

    def _refuse_turn(self) -> None:
        raise StorageClosedError(f"{self.path}: the store is {self.ended}")

    def _give_up_turns(self) -> None:
        # Commits that come too late must not lock what has the number of the file now.
        self.take_turn_at_once = self._refuse_turn
        self.give_turn_back = _do_nothing
        self._turn.end()

    def begin_write(self) -> Transaction:
        """Begin a write transaction, in this process's turn."""
        if self.ended:
            raise StorageClosedError(f"{self.path}: the store is {self.ended}")
        while True:
            try:
                return self.begin_once()
            except lmdb.MapResizedError:
                self.adopt_map()

    def grow_map(self) -> None:
        """Double the map."""
        self._set_map(2 * int(self.engine.info()["map_size"]))

    def adopt_map(self) -> None:
        """Take over the size that another process gave the map."""
        self._set_map(0)

    def _set_map(self, size: int) -> None:
        self.pause()
        try:
            self.engine.set_mapsize(size)
        except (lmdb.Error, OverflowError, OSError) as error:
            # LMDB has given the old map up by now.
            self._open_again()
            problem = f"{self.path}: the map cannot grow to {size:,} bytes: {error}"
            raise StoreFullError(problem) from error
        finally:
            self.resume()

    def replace_file(self, path: str) -> None:
        """Let another file take the place of the data file.

        The file is not open meanwhile, so that whatever fails or interrupts this, no commit can
        reach one that has no name any more.

        Raises:
            OSError: The file could not be replaced; the one that was there is open again.
        """
        self.pause()
        try:
            self.engine.close()
            try:
                os.rename(path, os.path.join(self.path, DATA_FILE))
            finally:
                self._open_again()
        finally:
            self.resume()

    def reopen(self) -> None:
        """Open the file anew, after an error left LMDB in doubt."""
        self.pause()
        try:
            self._open_again()
        finally:
            self.resume()

    def _open_again(self) -> None:
        try:
            self.engine.close()
            self._use(self._open())
            self._find_trees()
        except BaseException:
            self.ended = "broken: it could not be opened again"
            raise

    # --- Compression ---

    def compression(self, transaction: Transaction | None = None) -> Compression:
        """Return what compresses with the newest dictionary, and reads what any was used for.

        Args:
            transaction: A read transaction of the caller's, who must not begin another.

        Raises:
            MissingDriverError: zstandard is not installed.
        """
        found = self._compression
        if found is None:
            reading = self.begin_read() if transaction is None else transaction
            try:
                newest = newest_dictionary(self.path, reading)
                if newest is None:
                    found = Compression(LEVEL)
                else:
                    found = Compression(LEVEL, newest[0], newest[1].data)
            finally:
                if transaction is None:
                    self.end_read(reading)
            self._compression = found
        return found

    def forget_dictionary(self) -> None:
        """Look for the newest dictionary again when it is needed next."""
        self._compression = None

    # --- Opening and closing ---

    def _use(self, engine: lmdb.Environment) -> None:
        self.engine = engine
        # Made once, for commits that stream.
        begin = partial(engine.begin, None, None, True)
        self.begin_once = cast(Callable[[], Transaction], begin)
        self.begin_reading = cast(Callable[[], Transaction], engine.begin)

    def close(self) -> None:
        """Close the file once no read is under way."""
        with self.lock:
            if self.ended:
                return
            self.pause()
            self.ended = "closed"
            self.engine.close()
            self._give_up_turns()
            self.presence.end()
            self.resume()

    def refuse_after_fork(self) -> None:
        """Refuse every call in a process that inherited this by ``fork``."""
        # Locks may be held by threads that this process does not have.
        self.lock = threading.Lock()
        self._changed = threading.Condition(threading.Lock())
        self._paused = False
        self.ended = "used after os.fork()"
        self._give_up_turns()
        self.presence.end()

    def _open(self) -> lmdb.Environment:
        size = os.stat(os.path.join(self.path, DATA_FILE)).st_size if self._exists() else 0
        writable = is_writable(self.path)
        if writable:
            make_files(self.path)
        map_bytes = self._map_bytes
        while map_bytes < size + size // 4:
            map_bytes *= 2
        try:
            engine = lmdb.open(
                self.path,
                map_size=map_bytes,
                max_dbs=len(TREES),
                max_readers=READERS_MAX,
                readonly=not writable,
                # Places for readers are written down; nobody writes where this process cannot.
                lock=writable,
                sync=self.synced,
                # A commit that must survive a power cut is followed by a sync of its own.
                metasync=False,
                mode=0o600,
                create=False,
            )
        except lmdb.Error as error:
            if "already open" in str(error):
                raise StoreUnusableError(
                    f"{self.path}: was open when this process was forked; close it before "
                    "forking, or start processes afresh (spawn)"
                ) from error
            if isinstance(error, DAMAGE) or is_full(error):
                raise translate(self.path, "open", error) from error
            raise StoreUnusableError(f"{self.path}: cannot be opened: {error}") from error
        if writable:
            engine.reader_check()
        return engine

    def _exists(self) -> bool:
        return os.path.exists(os.path.join(self.path, DATA_FILE))

    def _find_trees(self) -> None:
        """Open the trees; make them in a new file.

        Raises:
            NotAStoreError: The file is that of another program.
            NewerFormatError: The file is of a newer format.
        """
        try:
            if not self._open_trees():
                self._make_trees()
                self._open_trees()
        except lmdb.Error as error:
            self.engine.close()
            raise translate(self.path, "open", error) from error
        except OSError as error:
            self.engine.close()
            problem = f"{self.path}: cannot be made durable: {error.strerror}; check the disk"
            raise StoreUnusableError(problem) from error
        except BaseException:
            self.engine.close()
            raise

    def _open_trees(self) -> bool:
        """Open the trees; say whether there are any."""
        writable = is_writable(self.path)
        # LMDB keeps what is opened in a transaction that is committed; this one writes nothing.
        with self.engine.begin(write=writable) as transaction:
            found = transaction.get(FORMAT)
            if found is None:
                if transaction.stat()["entries"]:
                    raise NotAStoreError(f"{self.path}: an LMDB file of another program")
                return False
            check_version(self.path, decode_version(self.path, found))
            if writable:
                self.trees = self._opened(partial(self.engine.open_db, txn=transaction))
        if not writable:
            self.trees = self._opened(self.engine.open_db)
        return True

    def _opened(self, open_db: Callable[..., Tree]) -> list[Tree]:
        trees: list[Tree] = [None]
        for name in TREES:
            try:
                trees.append(open_db(name, create=False))
            except lmdb.NotFoundError as error:
                raise NotAStoreError(f"{self.path}: has no tree {name.decode()}") from error
        return trees

    def _make_trees(self) -> None:
        with self.engine.begin(write=True) as transaction:
            if transaction.get(FORMAT) is None:
                for name in TREES:
                    self.engine.open_db(name, txn=transaction)
                transaction.put(COUNTER, (1).to_bytes(4, "big"))
                transaction.put(FORMAT, msgspec.msgpack.encode(FORMAT_VERSION))
        self.engine.sync(True)
        # The names are made durable once, so that no later sync is about a file that is gone.
        sync_folder(self.path)
        sync_folder(os.path.dirname(os.path.abspath(self.path)))


def _do_nothing() -> None:
    pass


_environments: dict[tuple[int, int], Environment] = {}
_registry = threading.Lock()


def open_environment(
    path: str,
    *,
    create: bool,
    durability: Durability,
    map_bytes: int = MAP_BYTES,
    busy_ms: int = BUSY_MS_DEFAULT,
) -> Environment:
    """Return the environment of a folder, opened or shared; `leave_environment` gives it back.

    Raises:
        StoreUnusableError: The folder cannot be used, or this process has it open with weaker
            durability than asked.
    """
    with _registry:
        check_folder(path, create=create)
        place = _place(path)
        shared = _environments.get(place)
        if shared is None:
            shared = _environments[place] = Environment(path, durability, map_bytes, busy_ms)
        elif durability != "process" and not shared.synced:
            raise StoreUnusableError(
                f"{path}: is open in this process with durability=process, which syncs nothing; "
                f"close it there before it is opened with durability={durability}"
            )
        else:
            shared.uses += 1
        return shared


def leave_environment(shared: Environment) -> None:
    """Give an environment back; the last one closes it."""
    with _registry:
        shared.uses -= 1
        if shared.uses:
            return
        for place, found in list(_environments.items()):
            if found is shared:
                del _environments[place]
        shared.close()


def _place(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino


def _refuse_all_after_fork() -> None:
    global _registry
    _registry = threading.Lock()
    for shared in _environments.values():
        shared.refuse_after_fork()
    _environments.clear()


# LMDB's locks and its places for readers stay with the parent.
os.register_at_fork(after_in_child=_refuse_all_after_fork)
