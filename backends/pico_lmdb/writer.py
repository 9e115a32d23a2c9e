"""Commits of one environment: transactions, and commits that share a sync.

With ``power`` durability the commits that arrive while another waits for the disk are written
together by whichever thread comes next, in one transaction with one sync: the first of them leads,
the others sleep until it has committed for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeAlias
from zlib import crc32

import lmdb

from pico_lmdb.changes import Changes, lost
from pico_lmdb.engine import Transaction
from pico_lmdb.environment import Environment
from pico_lmdb.failures import is_full, translate
from pico_lmdb.folder import has_room
from pico_lmdb.layout import SCRATCH, WRITE, scratch_row
from pico_lmdb.memo import Memo, frame_head
from pico_lmdb.rows import four
from pico_store.address import Seq
from pico_store.batch import ScratchBatch
from pico_store.errors import (
    CommitUncertainError,
    OwnershipLostError,
    PicoError,
    StoreBusyError,
    StoreFullError,
)
from pico_store.sharing import Request, SharedCommits

LOOK_EVERY: Final = 1_024
"""How many commits may pass before the places of readers that were killed are cleared.

Until then no page that became free since such a reader began is used again.
"""
_IO_ERROR: Final = 5
_AT_ONCE: Final = (False,)
"""How a lock is asked for that is not waited for."""

Change: TypeAlias = Callable[[Transaction], None]
"""What a transaction does; it is run again if the map has to grow in between."""


class _Request(Request):
    """A commit as what it changes."""

    __slots__ = ("changes", "is_main", "stage")

    def __init__(self, changes: Changes, is_main: bool) -> None:  # noqa: FBT001
        super().__init__()
        self.changes = changes
        self.is_main = is_main
        self.stage: Literal["", "committed", "durable"] = ""
        """How far the shared transaction is, in the first of its commits."""


def _nothing() -> None:
    pass


def _is_open(transaction: Transaction) -> bool:
    try:
        transaction.id()
    except lmdb.Error:
        return False
    return True


class Writer:
    """Serializes the commits of one environment in this process."""

    def __init__(self, environment: Environment, busy_ms: int) -> None:
        self._environment = environment
        self.busy_ms = busy_ms
        """How long a commit waits for other threads."""
        self.shared = SharedCommits[_Request](self._alone, self._write_group, self._interrupted)
        self._begun = 0
        self.groups = 0
        """Transactions that ``power`` commits shared; each cost one sync."""

    def update(self, act: str, change: Change, *, sync: bool) -> None:
        """Run a function in a transaction; any error undoes it.

        Args:
            act: What it is, for messages.
            change: Run again if the map has to grow in between.
            sync: Whether it must be durable before this returns.

        Raises:
            RetryableError: Nothing became durable.
            CommitUncertainError: The commit itself failed in a way that may have succeeded.
        """
        held: list[bool] = []
        try:
            self._wait(held)
            self._transact(act, change)
            if sync:
                self._sync()
        finally:
            if held and held[-1]:
                self._environment.lock.release()

    def write_frame(
        self, memo: Memo, epoch: bytes, batch: ScratchBatch, seq: Seq, body: bytes
    ) -> bool:
        """Commit a lone append, which is one row of the main tree.

        Returns:
            False, and nothing is written, where the map has to change first.

        Raises:
            PicoError: As `write`.
        """
        # Stretched out: this runs once for every streamed frame.
        task = batch.task
        namespace = batch.writes[0].address.namespace
        head = memo.frame_heads.get(namespace)
        if head is None:
            head = frame_head(namespace)
            memo.frame_heads.keep(namespace, head)
        memo.bare.discard(task)
        key = scratch_row(SCRATCH, memo.session, task, WRITE, seq)
        row = head + body
        # As `rows.seal` does: the main tree's number is 0.
        row += four(crc32(key + row))
        environment, at_the_end = self._environment, False
        held: list[bool] = []
        try:
            # As `_wait` does, without the call.
            held.extend(map(environment.lock.acquire, _AT_ONCE))
            if not held[0]:
                self._wait(held)
            try:
                environment.take_turn_at_once()
            except BlockingIOError:
                environment.take_turn(self.busy_ms)
            self._count()
            transaction = environment.begin_once()
            try:
                if transaction.get(memo.epoch_key) != epoch:
                    raise lost(epoch)
                transaction.put(key, row)
                at_the_end = True
                transaction.commit()
            except BaseException:
                # Does nothing where the commit has ended it.
                transaction.abort()
                raise
        except (lmdb.MapFullError, lmdb.MapResizedError):
            return False
        except lmdb.Error as error:
            if at_the_end:
                raise self.failed(error) from error
            raise translate(environment.path, "commit", error) from error
        finally:
            try:
                environment.give_turn_back()
            finally:
                if held and held[-1]:
                    environment.lock.release()
        return True

    def write(self, changes: Changes) -> None:
        """Make a batch durable as far as the environment goes by itself.

        Raises:
            OwnershipLostError: Another open took the session over; nothing was written.
            RetryableError: Nothing became durable.
            CommitUncertainError: It may or may not be durable.
        """
        environment = self._environment
        at_the_end = False
        held: list[bool] = []
        try:
            # As `_wait` does, without the call.
            held.extend(map(environment.lock.acquire, _AT_ONCE))
            if not held[0]:
                self._wait(held)
            try:
                environment.take_turn_at_once()
            except BlockingIOError:
                environment.take_turn(self.busy_ms)
            self._count()
            transaction = environment.begin_once()
            try:
                changes.apply(transaction, environment.trees)
                at_the_end = True
                transaction.commit()
            except BaseException:
                # Does nothing where the commit has ended it.
                transaction.abort()
                raise
        except (lmdb.MapFullError, lmdb.MapResizedError):
            self._transact("commit", lambda again: changes.apply(again, environment.trees))
        except lmdb.Error as error:
            if at_the_end:
                raise self.failed(error) from error
            raise translate(environment.path, "commit", error) from error
        finally:
            try:
                environment.give_turn_back()
            finally:
                if held and held[-1]:
                    environment.lock.release()

    def _wait(self, held: list[bool]) -> None:
        """Wait for the lock as long as other threads may hold it up, and note that it is held.

        Both are one call of the interpreter's, so that no interrupt comes in between.
        """
        held.extend(map(self._environment.lock.acquire, (True,), (self.busy_ms / 1000,)))
        if not held[-1]:
            problem = f"another thread has been writing for {self.busy_ms} ms; try again"
            raise StoreBusyError(f"{self._environment.path}: {problem}")

    def _count(self) -> None:
        """Count a transaction that is about to begin, in this process's turn."""
        self._begun += 1
        if not self._begun % LOOK_EVERY:
            self._environment.engine.reader_check()

    def _transact(self, act: str, change: Change, ended: Callable[[], None] = _nothing) -> None:
        """Commit a change; the lock is held.

        Args:
            act: What it is, for messages.
            change: Run again if the map has to grow in between.
            ended: Called once it is committed, even if an interruption follows.
        """
        environment = self._environment
        try:
            environment.take_turn(self.busy_ms)
            self._transact_in_turn(act, change, ended)
        finally:
            environment.give_turn_back()

    def _transact_in_turn(self, act: str, change: Change, ended: Callable[[], None]) -> None:
        environment = self._environment
        while True:
            try:
                self._count()
                transaction = environment.begin_write()
            except lmdb.Error as error:
                raise translate(environment.path, act, error) from error
            try:
                change(transaction)
            except lmdb.MapFullError:
                transaction.abort()
                environment.grow_map()
                continue
            except lmdb.Error as error:
                transaction.abort()
                raise translate(environment.path, act, error) from error
            except BaseException:
                transaction.abort()
                raise
            try:
                transaction.commit()
            except lmdb.MapFullError:
                environment.grow_map()
                continue
            except lmdb.Error as error:
                raise self.failed(error) from error
            except BaseException:
                # The call was interrupted before it began, or when it was through.
                if not _is_open(transaction):
                    ended()
                transaction.abort()
                raise
            ended()
            return

    def failed(self, error: lmdb.Error) -> PicoError:
        """Say what is certain after a failed commit."""
        # The page that makes a transaction count is written last: where there was no room for
        # those before it, nothing happened. LMDB reports a page that was written in part as an
        # I/O error, like one of a sync, after which nothing about the disk is certain: it was the
        # former if nothing was synced, or if there still is no room.
        environment = self._environment
        certain = is_full(error) or (
            error.code == _IO_ERROR and not (environment.synced and has_room(environment.path))
        )
        if certain and self._goes_on():
            problem = "no room left; make room and try again"
            return StoreFullError(f"{environment.path}: commit: {problem}")
        environment.reopen()
        return self._uncertain(error)

    def _goes_on(self) -> bool:
        """Tell whether LMDB begins another transaction: not after its last page failed."""
        try:
            self._environment.begin_write().abort()
        except lmdb.Error:
            return False
        return True

    def _uncertain(self, error: lmdb.Error) -> CommitUncertainError:
        return CommitUncertainError(
            f"{self._environment.path}: commit failed ({error}) and may or may not be durable; "
            "reopen the session and compare last_seq"
        )

    def _sync(self) -> None:
        try:
            self._environment.engine.sync(True)
        except lmdb.Error as error:
            raise self._uncertain(error) from error

    # --- Sharing ---

    def write_together(self, changes: Changes, *, is_main: bool) -> None:
        """Make a batch durable together with those of other threads, in the same way."""
        self.shared.commit(_Request(changes, is_main))

    def _alone(self, act: Callable[[], None]) -> None:
        """Run what no other thread may write beside."""
        held: list[bool] = []
        try:
            self._wait(held)
            act()
        finally:
            if held and held[-1]:
                self._environment.lock.release()

    def _write_group(self, group: tuple[_Request, ...]) -> None:
        trees = self._environment.trees
        first = group[0]

        def apply_all(transaction: Transaction) -> None:
            for request in group:
                request.error = None
                try:
                    request.changes.apply(transaction, trees)
                except OwnershipLostError as error:
                    # Found out before anything of the request was put.
                    request.error = error

        def ended() -> None:
            first.stage = "committed"

        self._transact("commit", apply_all, ended)
        if any(request.is_main and request.error is None for request in group):
            self._sync()
        first.stage = "durable"
        self.groups += 1

    def _interrupted(self, error: BaseException, group: tuple[_Request, ...]) -> PicoError | None:
        """Say what became of the commits whose leader was interrupted; ``None``: they are durable.

        An interruption comes between two calls of the engine: what was committed needs another
        sync at most, and a transaction that did not come to its end was undone.
        """
        stage = group[0].stage if group else ""
        if not stage:
            who = f"{self._environment.path}: the thread that wrote for several was interrupted"
            return StoreBusyError(f"{who} ({error!r}) before anything was durable; try again")
        if stage == "committed":
            try:
                self._sync()
            except CommitUncertainError as uncertain:
                return uncertain
        return None
