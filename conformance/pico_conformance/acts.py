"""What is done to a session as a whole in the middle of a history: none of it may show."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Final

from pico_conformance.bench import Bench, Home
from pico_conformance.difference import DifferenceError, compare_exports, expect
from pico_conformance.model import Accepted, Model
from pico_conformance.model_rules import SEQ_MAX
from pico_conformance.operation import Act, Handle
from pico_conformance.probe import some_reads
from pico_conformance.subject import Subject
from pico_conformance.tally import Tally
from pico_store.address import Seq, SessionAddress
from pico_store.batch import MainBatch, ValueDelete
from pico_store.digest import digest
from pico_store.errors import (
    OwnershipLostError,
    PicoError,
    SessionOwnedError,
    StorageClosedError,
    UnsupportedError,
)
from pico_store.records import BatchRange
from pico_store.snapshot import SnapshotHeader, SnapshotItem
from pico_store.storage import Storage, Store

_TOUCH: Final = MainBatch((ValueDelete(SessionAddress("touched")),))
_ANOTHER_PROCESS = 0.15
"""How often the dear act is what it says; else it is a reopening."""


@dataclass(slots=True)
class Acts:
    """Does one act to the session under test."""

    subject: Subject
    model: Model
    tally: Tally

    def do(self, handle: Handle) -> None:
        """Do an act; one that the target does not offer is left out."""
        random = Random(handle.probe)
        acts: dict[Act, Callable[[Random], str | None]] = {
            "reopen": self._reopen,
            "another process": self._another_process,
            "read only": self._read_only,
            "second owner": self._second_owner,
            "take over": self._take_over,
            "load": self._load,
            "move": self._move,
            "vacuum": self._vacuum,
            "verify": self._verify,
            "backup": self._backup,
            "near the end": self._near_the_end,
        }
        self.tally.acts[acts[handle.act](random) or handle.act] += 1

    # --- Opening and owning ---

    def _reopen(self, random: Random) -> None:
        subject = self.subject
        old = subject.storage
        epoch = old.epoch
        old.close()
        old.close()
        self._is_closed(old, random)
        if random.random() < 0.5:
            subject.home.reopen()
        self._open_again(epoch)

    def _open_again(self, epoch: int) -> None:
        subject = self.subject
        subject.storage = subject.home.store.open(subject.session)
        expect("last_seq after opening", self.model.last_seq, subject.storage.last_seq)
        self._is_newer(subject.storage.epoch, epoch)

    def _is_newer(self, epoch: int, than: int) -> None:
        if epoch <= than:
            raise DifferenceError("the epoch of a later owner", f"more than {than}", epoch)

    def _is_closed(self, storage: Storage, random: Random) -> None:
        read = next(some_reads(self.model, random, 1))
        method: Callable[..., object] = getattr(storage, read.method)
        self._raises(f"{read} after close", StorageClosedError, lambda: method(*read.args))
        self._raises("commit after close", StorageClosedError, lambda: _touch(storage))
        self._raises("export after close", StorageClosedError, lambda: list(storage.export()))

    def _another_process(self, random: Random) -> str | None:
        subject = self.subject
        elsewhere = None
        if random.random() < _ANOTHER_PROCESS:
            elsewhere = subject.here().elsewhere()
        if elsewhere is None:
            self._reopen(random)
            return "reopen"
        epoch = subject.storage.epoch
        target, place = subject.here().target, subject.home.place
        shared = target.promises.multi_process
        if shared:
            reply = elsewhere.open(target.name, place.path, subject.session)
            expect("opening in another process while owned", "SessionOwnedError", reply.error)
        subject.storage.close()
        if not shared:
            subject.home.store.close()
        reply = elsewhere.open(target.name, place.path, subject.session)
        expect("an error in another process", "", f"{reply.error}{reply.message}")
        expect("last_seq in another process", self.model.last_seq, reply.last_seq)
        expect("digest in another process", digest(self.model.export()), reply.digest)
        self._is_newer(reply.epoch, epoch)
        if not shared:
            subject.home.store = place.open()
        self._open_again(reply.epoch)
        return None

    def _read_only(self, random: Random) -> None:
        subject = self.subject
        with _second_store(subject, random) as store:
            reader = store.open(subject.session, read_only=True)
            expect("read_only", True, reader.read_only)
            expect("last_seq of a reader", self.model.last_seq, reader.last_seq)
            for read in some_reads(self.model, random, 4):
                subject.compare(self.model, read, storage=reader)
            self._raises("commit of a reader", UnsupportedError, lambda: _touch(reader))
            reader.close()

    def _second_owner(self, random: Random) -> None:
        subject = self.subject
        with _second_store(subject, random) as store:
            message = self._raises(
                "a second owner", SessionOwnedError, lambda: store.open(subject.session)
            )
            if str(os.getpid()) not in message:
                raise DifferenceError("a second owner", f"a message with {os.getpid()}", message)
            self._raises(
                "deleting what is owned", SessionOwnedError, lambda: store.delete(subject.session)
            )

    def _take_over(self, random: Random) -> None:
        subject = self.subject
        old = subject.storage
        new = subject.home.store.open(subject.session, take_over=True)
        subject.storage = new
        self._is_newer(new.epoch, old.epoch)
        for _ in range(2):
            # Where the batch is wrong as well, the contract does not say which of the two it is.
            if isinstance(self.model.judge(_TOUCH), Accepted):
                self._raises("commit of a fenced handle", OwnershipLostError, lambda: _touch(old))
            for read in some_reads(self.model, random, 2):
                subject.compare(self.model, read, storage=old)
        old.close()
        self._raises(
            "a second owner once the fenced handle is closed",
            SessionOwnedError,
            lambda: subject.home.store.open(subject.session),
        )

    def _raises(self, what: str, wanted: type[PicoError], act: Callable[[], object]) -> str:
        try:
            found = act()
        except wanted as error:
            return str(error)
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            raise DifferenceError(what, wanted.__name__, text) from error
        raise DifferenceError(what, wanted.__name__, f"no error: {found!r}")

    # --- Moving ---

    def _load(self, random: Random) -> None:
        subject = self.subject
        self._go_to(subject.here(), subject.home, away=subject.away, items=self._export())

    def _move(self, random: Random) -> str | None:
        subject = self.subject
        if subject.other is None:
            self._load(random)
            return "load"
        bench = subject.bench if subject.away else subject.other
        self._go_to(bench, bench.home(), away=not subject.away, items=self._export())
        return None

    def _export(self) -> list[SnapshotItem]:
        return list(self.subject.storage.export())

    def _go_to(self, bench: Bench, home: Home, *, away: bool, items: list[SnapshotItem]) -> None:
        subject = self.subject
        if not bench.target.promises.many_sessions:
            bench.leave()
            home = bench.home()
        session = home.new_session()
        home.store.load(session, items)
        old_home, old_session = subject.home, subject.session
        subject.move(home, session, away=away)
        if old_home.place.target.promises.many_sessions:
            old_home.store.delete(old_session)
        compare_exports("export after load", self.model.export(), subject.storage.export())
        self.tally.exports += 1

    def _near_the_end(self, random: Random) -> str | None:
        """Skip nearly all numbers, as if scratch that is retired by now had used them."""
        subject, model = self.subject, self.model
        if model.last_seq > 2**52 or not model.state.conversations:
            self._load(random)
            return "load"
        target = Seq(SEQ_MAX - random.randrange(2, 30))
        items = self._export()
        header, *rest = items
        assert isinstance(header, SnapshotHeader)
        items = [SnapshotHeader(target, header.entry_kinds), *rest, BatchRange(target, target)]
        model.skip_to(target)
        self._go_to(subject.here(), subject.home, away=subject.away, items=items)
        return None

    # --- Keeping ---

    def _vacuum(self, random: Random) -> None:
        self.subject.home.store.vacuum()
        self._same_export("export after vacuum", self.subject.storage)

    def _verify(self, random: Random) -> None:
        report = self.subject.home.store.verify()
        expect("problems that verify found", (), report.problems)

    def _backup(self, random: Random) -> None:
        subject = self.subject
        place = subject.home.place
        path = f"{place.path}-backup-{subject.home.used}-{random.getrandbits(40)}"
        if not place.persistent:
            self._raises(
                "backup of what has no file",
                UnsupportedError,
                lambda: subject.home.store.backup(path),
            )
            return
        subject.home.store.backup(path)
        store = place.target.open_store(path)
        try:
            reader = store.open(subject.session, read_only=True)
            self._same_export("export of a backup", reader)
            reader.close()
        finally:
            store.close()

    def _same_export(self, what: str, storage: Storage) -> None:
        compare_exports(what, self.model.export(), storage.export())
        self.tally.exports += 1


def _touch(storage: Storage) -> None:
    storage.commit(_TOUCH)


@contextmanager
def _second_store(subject: Subject, random: Random) -> Iterator[Store]:
    """Give the session's store, at times through a second handle of the same place."""
    place = subject.home.place
    if not place.target.promises.multi_process or random.random() < 0.5:
        yield subject.home.store
        return
    store = place.target.open_store(place.path)
    try:
        yield store
    finally:
        store.close()
