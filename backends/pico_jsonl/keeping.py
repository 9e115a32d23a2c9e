"""Giving room back and copying: a session's log written anew from its state."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterable

from pico_jsonl.bodies import LogBodies
from pico_jsonl.control import EPOCH, SYNCED, Control
from pico_jsonl.disk import Disk, create_folder, remove_file, sync_folder, translate
from pico_jsonl.folder import make_session, prepare_folder, write_main
from pico_jsonl.opening import End, Place, load_for_owner, size_of
from pico_jsonl.replay import MainReplay
from pico_jsonl.scratch import NEW_START, scratch_path, scratch_tasks
from pico_jsonl.session import Session, claim_session, noticing_loss, open_control
from pico_jsonl.snapshot_lines import SnapshotWriter
from pico_memory.snapshot import Snapshot, snapshot
from pico_memory.state import SessionState
from pico_memory.weight import weigh
from pico_store.errors import (
    CommitUncertainError,
    OwnershipLostError,
    RetryableError,
    StoreIOError,
)
from pico_store.snapshot import SnapshotItem
from pico_store.storage import Durability, VacuumReport


def vacuum_owned(session: Session) -> VacuumReport:
    """Write the log of a session anew that this store has open for writing.

    Commits wait; reads go on, those of older states too.

    Raises:
        OwnershipLostError: Somebody took it over.
        RetryableError: There was no room, and nothing has changed.
        CommitUncertainError: The new log's name could not be made durable.
    """
    place, writer = session.place, session.writer
    with session.lock, writer.holding() as control:
        with session.resident.lock:
            old = session.resident.settled()
            found = snapshot(old)
        before = _weight(place)
        made = _write_anew(place, found, session.disk, sync=session.syncs)
        try:
            _lower_watermark(control, made.end, sync=session.syncs)
            os.rename(made.path, place.main)
            with session.resident.lock:
                session.resident.replace(made.state)
            writer.go_on_in(made.bodies, End(made.end, made.crc))
        except BaseException as error:
            if os.path.exists(made.path):
                remove_file(made.path)
                if isinstance(error, OSError):
                    raise translate(place.main, "vacuum", error) from error
            else:
                # The name leads to the new log by now; the old one must not be written to.
                problem = f"{place.main}: a vacuum was interrupted; reopen the session"
                writer.fault = CommitUncertainError(problem)
            raise
        if session.syncs:
            try:
                sync_folder(place.folder)
            except OSError as error:
                # Until the name is durable, the old log may come back, without what is appended.
                problem = f"{place.main}: a vacuum could not be made durable ({error.strerror}); "
                writer.fault = CommitUncertainError(problem + "reopen the session")
                raise writer.fault from error
        control.set(SYNCED, made.end if session.syncs else 0)
    return _report(place, before, old, made.state)


def vacuum_free(place: Place, since_ms: int, durability: Durability, disk: Disk) -> VacuumReport:
    """Write the log of a session anew that nobody has open for writing.

    Raises:
        SessionOwnedError: Somebody has.
        OwnershipLostError: Somebody took it over meanwhile; nothing was changed.
        StoreUnusableError: It is damaged; nothing was changed.
        RetryableError: There was no room, and nothing has changed.
    """
    control = open_control(place)
    try:
        claim = claim_session(place, control, since_ms, take_over=False)
        try:
            sync = durability != "process"
            with noticing_loss(place, control, claim):
                loaded = load_for_owner(place, control.numbers(), durability)
                before = _weight(place)
                made = _write_anew(place, snapshot(loaded.state), disk, sync=sync)
            # Whoever takes the session over does so before, and is noticed, or afterwards.
            control.acquire()
            try:
                _put_in_place(place, control, claim.epoch, made, sync=sync)
            finally:
                control.release()
        finally:
            claim.release()
    except OSError as error:
        raise translate(place.main, "vacuum", error) from error
    finally:
        control.close()
    return _report(place, before, loaded.state, made.state)


def _put_in_place(place: Place, control: Control, epoch: int, made: _Made, *, sync: bool) -> None:
    """Let a new log take the place of one that nobody has open for writing.

    Raises:
        OwnershipLostError: Somebody has by now.
    """
    if control.get(EPOCH) > epoch:
        remove_file(made.path)
        raise OwnershipLostError(f"{place.folder}: taken over meanwhile; vacuum it there")
    _lower_watermark(control, made.end, sync=sync)
    os.rename(made.path, place.main)
    for task in scratch_tasks(place.folder):
        remove_file(scratch_path(place.folder, task))
    if sync:
        sync_folder(place.folder)
    control.set(SYNCED, made.end if sync else 0)


def _lower_watermark(control: Control, end: int, *, sync: bool) -> None:
    """Let the watermark be true of a log that ends at ``end``, before that takes the name.

    A power cut could leave the new log with an older control file, whose watermark would make
    damage of what was appended to the log and never synced.
    """
    if control.get(SYNCED) > end:
        control.set(SYNCED, end)
        if sync:
            control.sync()


class _Made:
    """A new log, not in its place yet, and the state that it holds."""

    def __init__(self, path: str, place: Place) -> None:
        self.path = path
        self.bodies = LogBodies(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC), place.main)
        replay = MainReplay(self.bodies, place.main, place.session)
        replay.run()
        assert replay.is_whole
        self.state = replay.state
        self.end = replay.end
        self.crc = replay.crc


def _write_anew(place: Place, found: Snapshot, disk: Disk, *, sync: bool) -> _Made:
    path = os.path.join(place.folder, f"{NEW_START}{secrets.token_hex(8)}.jsonl")
    try:
        fill = _filling(found.items())
        write_main(path, place.session, fill, disk, sync=sync)
        return _Made(path, place)
    except BaseException as error:
        remove_file(path)
        if isinstance(error, OSError):
            raise translate(path, "vacuum", error) from error
        raise


def _filling(
    items: Iterable[SnapshotItem],
) -> Callable[[Callable[[bytes], object], int], None]:
    def fill(write: Callable[[bytes], object], crc: int) -> None:
        writer = SnapshotWriter(write, crc)
        for item in items:
            writer.add(item)
        writer.finish()

    return fill


def _weight(place: Place) -> int:
    paths = [scratch_path(place.folder, task) for task in scratch_tasks(place.folder)]
    return sum(map(size_of, [place.main, *paths]))


def _report(place: Place, before: int, old: SessionState, new: SessionState) -> VacuumReport:
    return VacuumReport(before, _weight(place), weigh(old)[0] - weigh(new)[0])


def backup_store(
    path: str, sessions: Iterable[tuple[str, int, Iterable[SnapshotItem]]], disk: Disk
) -> None:
    """Write sessions, each with its epoch and state, into a new store.

    Raises:
        StoreIOError: The path exists or cannot be written; nothing is left there.
    """
    if os.path.lexists(path):
        raise StoreIOError(f"{path}: exists; name a new folder")
    temporary = f"{path}.new-{secrets.token_hex(8)}"
    try:
        try:
            create_folder(temporary)
            prepare_folder(temporary, create=True)
            for session_id, epoch, items in sessions:
                make_session(
                    temporary, session_id, epoch=epoch, fill=_filling(items), disk=disk, sync=True
                )
            os.rename(temporary, path)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        try:
            sync_folder(os.path.dirname(os.path.abspath(path)))
        except OSError:
            shutil.rmtree(path, ignore_errors=True)
            raise
    except OSError as error:
        # The name that it has meanwhile is gone again; whoever reads this knows the other one.
        if isinstance(error.filename, str) and error.filename.startswith(temporary):
            error.filename = path + error.filename[len(temporary) :]
        raise translate(path, "backup", error) from error
    except RetryableError as error:
        raise type(error)(str(error).replace(temporary, path)) from error
