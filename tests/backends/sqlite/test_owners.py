"""Who holds a session: other processes, dead ones, reused pids, lost handles, forked children."""

from __future__ import annotations

import fcntl
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any, Final

import apsw
import msgspec
import pytest

from pico_sqlite import SqliteStore
from pico_sqlite.storage import SqliteStorage
from pico_store import ownership
from pico_store.address import Seq, SessionAddress
from pico_store.batch import MainBatch
from pico_store.errors import OwnershipLostError, SessionOwnedError
from pico_store.ownership import OwnerRecord, decode_owner, has_ended, is_alive, new_owner
from pico_store.query import EntryQuery, ListQuery
from pico_store.records import Entry
from tests.backends.sqlite.processes import in_child, worker
from tests.backends.sqlite.scene import ROOT, ROOT_BATCH, exported, noting, setting

_SHARED_FIRST: Final = 0x40000002
_SHARED_BYTES: Final = 510
"""Where SQLite locks a file that somebody has open; see os_unix.c."""


def _record(path: str, session: str = "a") -> OwnerRecord:
    """Return what the file says of a session's owner."""
    with closing(apsw.Connection(path)) as db:
        sql = "SELECT owner FROM sessions WHERE name = ?"
        ((text,),) = db.execute(sql, (session,)).fetchall()
        assert isinstance(text, str)
        record = decode_owner(text)
    assert record is not None
    return record


def _put(path: str, record: OwnerRecord) -> None:
    """Let the file say something else."""
    with closing(apsw.Connection(path)) as db:
        db.execute("UPDATE sessions SET owner = ?", (record.encode(),))


def _held(path: str) -> bool:
    """Tell whether an open of the session is refused; it is given back at once."""
    with closing(SqliteStore(path)) as store:
        try:
            store.open("a").close()
        except SessionOwnedError:
            return True
    return False


def test_a_second_handle_is_told_who_has_the_session(path: str, storage: SqliteStorage) -> None:
    told = rf"process {os.getpid()} on {socket.gethostname()} since \d{{4}}-\d\d-\d\d "
    with closing(SqliteStore(path)) as other:
        for act in (other.open, other.delete):
            with pytest.raises(SessionOwnedError, match=told):
                act("a")
        with worker(path) as process:
            assert process.ask("open").startswith("SessionOwnedError")
            assert f"process {os.getpid()} on" in process.ask("open")

    storage.close()
    assert not _held(path)


def test_the_session_of_a_killed_process_is_free(path: str) -> None:
    with worker(path) as process:
        process.ask("create")
        assert process.ask("commit 20") == "21"
        with closing(SqliteStore(path)) as store:
            with pytest.raises(SessionOwnedError, match=f"process {process.pid} on"):
                store.open("a")

            process.process.kill()
            process.process.wait()
            storage = store.open("a")

            assert (storage.epoch, storage.last_seq) == (2, 21)
            storage.commit(noting(storage))


def test_a_zombie_holds_nothing(path: str) -> None:
    """A killed process whose parent has not asked for it yet still has its pid."""
    with worker(path) as process:
        process.ask("create")
        assert is_alive(_record(path))

        os.kill(process.pid, signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

        assert not _held(path)
        os.kill(process.pid, 0)


def test_a_stopped_owner_is_fenced_when_it_goes_on(path: str) -> None:
    with worker(path) as process, closing(SqliteStore(path)) as store:
        process.ask("create")
        process.ask("commit 1")
        os.kill(process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        assert _held(path)

        storage = store.open("a", take_over=True)
        storage.commit(noting(storage))
        # What it was asked for while it was stopped, it does before it knows.
        process.send("commit 1")
        os.kill(process.pid, signal.SIGCONT)

        assert process.hear().startswith("OwnershipLostError")
        assert process.ask("commit 1").startswith("OwnershipLostError")
        assert storage.last_seq == 3
        storage.commit(noting(storage))
    assert exported(path)[0].last_seq == 4  # type: ignore[union-attr]


def test_a_fenced_handle_reads_and_gives_nothing_back(path: str, store: SqliteStore) -> None:
    fenced = store.create("a")
    fenced.commit(ROOT_BATCH)
    with closing(SqliteStore(path)) as other:
        owner = other.open("a", take_over=True)
        owner.commit(noting(owner))

        with pytest.raises(OwnershipLostError, match="epoch 1 is over"):
            fenced.commit(setting(1))
        assert len(fenced.scan_entries(EntryQuery(conversation_id=ROOT)).items) == 1
        assert fenced.get_value(SessionAddress("s")) is None

        fenced.close()
        assert _record(path).token == owner.owner.token  # type: ignore[union-attr]
        owner.commit(noting(owner))


def test_a_fenced_handle_reads_what_its_successor_wrote(path: str, store: SqliteStore) -> None:
    """Kinds that it never met, before and after it knows that it is fenced."""
    fenced = store.create("a")
    fenced.commit(ROOT_BATCH)
    with closing(SqliteStore(path)) as other:
        owner = other.open("a", take_over=True)
        query = EntryQuery(conversation_id=ROOT)
        for kind in ("one", "two"):
            entry = Entry(id=Seq(owner.last_seq + 1), conversation_id=ROOT, kind=kind)
            owner.commit(MainBatch((entry,)))

            assert fenced.scan_entries(query).items == owner.scan_entries(query).items
            assert list(fenced.export())[1:] == list(owner.export())[1:]
            with pytest.raises(OwnershipLostError):
                fenced.commit(setting(1))


# --- Records of owners that cannot be asked ---


def _started_otherwise(record: OwnerRecord) -> OwnerRecord:
    return msgspec.structs.replace(record, started=record.started + 1)


RECORDS: Final[dict[str, tuple[Callable[[OwnerRecord], OwnerRecord], bool]]] = {
    "as it is": (lambda record: record, True),
    "a pid that is used again": (_started_otherwise, False),
    "our own pid, used again": (
        lambda record: msgspec.structs.replace(_started_otherwise(record), pid=os.getpid()),
        False,
    ),
    "our own pid, but a handle that is gone": (
        lambda record: msgspec.structs.replace(
            record, pid=os.getpid(), started=_own_start(), token="0" * 16
        ),
        False,
    ),
    "a pid that nobody has": (
        lambda record: msgspec.structs.replace(record, pid=_free_pid()),
        False,
    ),
    "an earlier boot": (
        lambda record: msgspec.structs.replace(record, boot=f"x{record.boot}"),
        False,
    ),
    # Both may be at work beside us; only a take-over can say that they are not.
    "another host": (lambda record: msgspec.structs.replace(record, host="elsewhere"), True),
    "another container": (lambda record: msgspec.structs.replace(record, boot=_container()), True),
}


def _own_start() -> int:
    with open("/proc/self/stat") as file:
        return int(file.read().rpartition(")")[2].split()[19])


def _free_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def _container() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return f"{file.read().strip()}/pid:[1]"


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_holds_a_session_while_its_owner_may_live(name: str, path: str) -> None:
    change, holds = RECORDS[name]
    with worker(path) as process:
        process.ask("create")
        record = _record(path)
        assert record.pid == process.pid
        assert record.started > 0
        assert record.boot
        _put(path, change(record))

        assert _held(path) is holds


def test_a_record_of_another_host_can_be_taken_over(path: str, store: SqliteStore) -> None:
    store.create("a").close()
    with closing(SqliteStore(path)) as other:
        held = other.open("a")
        _put(path, msgspec.structs.replace(_record(path), host="elsewhere"))
        with pytest.raises(SessionOwnedError, match="on elsewhere since"):
            store.open("a")

        taken = store.open("a", take_over=True)

        taken.commit(ROOT_BATCH)
        with pytest.raises(OwnershipLostError):
            held.commit(ROOT_BATCH)


def test_a_handle_that_nobody_closed_holds_nothing_once_it_is_gone(
    path: str, store: SqliteStore
) -> None:
    storage = store.create("a")
    storage.commit(ROOT_BATCH)
    epoch = storage.epoch

    del storage
    gc.collect()

    again = store.open("a")
    assert again.epoch == epoch + 1
    again.commit(noting(again))


def test_a_store_that_nobody_closed_holds_nothing_once_it_is_gone(path: str) -> None:
    store = SqliteStore(path)
    storage = store.create("a")
    storage.commit(ROOT_BATCH)

    del store, storage
    gc.collect()

    assert not _held(path)


def test_a_process_that_ends_without_closing_ends_at_once_and_holds_nothing(path: str) -> None:
    script = (
        "import sys; from pico_sqlite import SqliteStore;"
        "from tests.backends.sqlite.scene import ROOT_BATCH;"
        f"storage = SqliteStore({path!r}).create('a'); storage.commit(ROOT_BATCH);"
        "items = storage.export(); next(items)"
    )
    process = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )

    assert (process.returncode, process.stderr) == (0, "")
    assert not _held(path)


# --- Forked children ---


def test_a_forked_child_is_refused_and_the_parent_goes_on(
    path: str, store: SqliteStore, storage: SqliteStorage
) -> None:
    items = storage.export()
    calls: tuple[Callable[[], object], ...] = (
        lambda: storage.commit(setting(1)),
        lambda: storage.last_seq,
        lambda: storage.get_entries([Seq(1)]),
        lambda: storage.read_list(SessionAddress("s"), ListQuery()),
        lambda: list(items),
        lambda: storage.export(),
        lambda: store.sessions(),
        lambda: store.open("a"),
        lambda: store.create("b"),
        lambda: store.verify(),
        lambda: store.vacuum(),
        lambda: store.backup(f"{path}.backup"),
    )

    for call in calls:
        outcome = in_child(call)
        assert outcome.startswith("StorageClosedError"), outcome
        assert "os.fork()" in outcome
    # In the child these do nothing, and above all nothing to the parent.
    assert in_child(storage.close) == in_child(store.close) == "None"

    storage.commit(setting(2))
    assert _held(path)
    assert [session.id for session in store.sessions()] == ["a"]
    assert len(list(items)) > 1


def test_a_child_forked_while_threads_commit_is_refused(path: str, store: SqliteStore) -> None:
    """Whatever a lock's state was when the process was forked."""
    storages = [store.create(name) for name in "ab"]
    done = threading.Event()

    def commit(storage: SqliteStorage) -> None:
        storage.commit(ROOT_BATCH)
        while not done.is_set():
            storage.commit(setting(1))

    threads = [threading.Thread(target=commit, args=(storage,)) for storage in storages]
    for thread in threads:
        thread.start()
    try:
        outcomes = {in_child(lambda: storages[0].commit(setting(1)))[:18] for _ in range(30)}
    finally:
        done.set()
        for thread in threads:
            thread.join()

    assert outcomes == {"StorageClosedError"}
    assert store.verify().problems == ()


def test_a_forked_child_may_not_open_what_its_parent_has_open(
    path: str, store: SqliteStore, storage: SqliteStorage
) -> None:
    def commit_elsewhere() -> object:
        with closing(SqliteStore(path)) as own:
            other = own.create("b")
            other.commit(ROOT_BATCH)
            return other.last_seq

    outcome = in_child(commit_elsewhere)

    assert outcome.startswith("StoreUnusableError"), outcome
    assert "spawn" in outcome
    # Any other file is free, and this one is too once the parent has closed it.
    other_path = f"{path}.other"
    assert in_child(lambda: SqliteStore(other_path).create("b").commit(ROOT_BATCH).last) == "1"
    store.close()
    assert in_child(commit_elsewhere) == "1"


def _is_locked(path: str) -> bool:
    """Tell whether the process that holds the file open holds SQLite's lock on it."""

    def lock() -> str:
        with open(path, "r+b") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, _SHARED_BYTES, _SHARED_FIRST)
            except BlockingIOError:
                return "locked"
        return "free"

    return in_child(lock) == "locked"


def test_a_second_store_leaves_the_locks_of_the_first(
    path: str, store: SqliteStore, storage: SqliteStorage
) -> None:
    """Without them another process may take the log away, and commits that follow with it."""
    assert _is_locked(path)

    with closing(SqliteStore(path)) as other:
        assert _is_locked(path)
        other.sessions()
    assert _is_locked(path)
    other = SqliteStore(path, create=False)
    other.backup(f"{path}.backup")
    store.verify()
    del other
    gc.collect()

    assert _is_locked(path)
    store.close()
    assert not _is_locked(path)


def _gone() -> OwnerRecord:
    """Return a record of a process of this host that has ended."""
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    return msgspec.structs.replace(new_owner(), pid=process.pid)


def test_a_process_that_ended_here_is_known_to_have_ended() -> None:
    assert has_ended(_gone())
    assert _gone().public().ended


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"host": "elsewhere"},
        {"boot": ""},
        {"boot": "00000000-0000-0000-0000-000000000000/pid:[4026531836]"},
        {"boot": new_owner().boot.split("/")[0] + "/pid:[1]"},
        {"pid": os.getpid(), "started": 1},
        {"pid": os.getppid(), "started": ownership._started(os.getppid())},
    ],
    ids=["host", "no boot", "boot", "container", "this process", "alive"],
)
def test_what_cannot_be_seen_is_not_said_to_have_ended(elsewhere: dict[str, Any]) -> None:
    assert not has_ended(msgspec.structs.replace(_gone(), **elsewhere))
