"""What is no store of this format is refused with every byte left as it was."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import apsw
import pytest

from pico_sqlite import SqliteStore
from pico_sqlite.schema import APPLICATION_ID, FORMAT_VERSION
from pico_store.errors import (
    NewerFormatError,
    NotAStoreError,
    StoreDamagedError,
    StoreUnusableError,
)
from tests.backends.sqlite.processes import as_nobody
from tests.backends.sqlite.scene import exported, fill, setting


def _hashes(folder: Path) -> dict[str, str]:
    """Return what is in a folder; SQLite's index of the log is made anew and says nothing."""
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.iterdir())
        if file.is_file() and not file.name.endswith("-shm")
    }


def _raw(path: str, *statements: str) -> None:
    with closing(apsw.Connection(path)) as db:
        for statement in statements:
            db.execute(statement).fetchall()


def _left_in_the_log(path: str, *statements: str) -> None:
    """Run statements whose result stays in the log, as a process leaves it that is killed."""
    with closing(apsw.Connection(f"{path}.live")) as db:
        if os.path.exists(path):
            shutil.copy(path, f"{path}.live")
        db.execute("PRAGMA journal_mode = wal").fetchall()
        db.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
        for statement in statements:
            db.execute(statement).fetchall()
        for end in ("", "-wal"):
            shutil.copy(f"{path}.live{end}", f"{path}{end}")
    os.unlink(f"{path}.live")
    assert os.stat(f"{path}-wal").st_size > 0


def _made(path: str) -> None:
    with closing(SqliteStore(path)) as store:
        fill(store.create("a"))


def _write(path: str, data: bytes) -> None:
    Path(path).write_bytes(data)


def _patch(path: str, offset: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


def _newer_in_header(path: str) -> None:
    _made(path)
    _patch(path, 60, (2).to_bytes(4, "big"))


def _newer_in_header_beside_a_log(path: str) -> None:
    _made(path)
    _left_in_the_log(path, "UPDATE sessions SET epoch = 7")
    _patch(path, 60, (2).to_bytes(4, "big"))


def _newer_in_log(path: str) -> None:
    _made(path)
    _left_in_the_log(path, "CREATE TABLE future(x)", "PRAGMA user_version = 2")


NEWER: Final[dict[str, Callable[[str], None]]] = {
    "header": _newer_in_header,
    "header and log": _newer_in_header_beside_a_log,
    "log": _newer_in_log,
}


@pytest.mark.parametrize("name", NEWER)
@pytest.mark.parametrize("create", [True, False])
def test_a_newer_format_is_refused(name: str, path: str, tmp_path: Path, *, create: bool) -> None:
    NEWER[name](path)
    before = _hashes(tmp_path)

    with pytest.raises(NewerFormatError, match="upgrade pico"):
        SqliteStore(path, create=create)

    assert _hashes(tmp_path) == before


def _with_more(*statements: str) -> Callable[[str], None]:
    def make(path: str) -> None:
        _made(path)
        _raw(path, *statements)

    return make


def _truncated(size: int) -> Callable[[str], None]:
    def make(path: str) -> None:
        _made(path)
        os.truncate(path, size)

    return make


STRANGE: Final[dict[str, Callable[[str], None]]] = {
    "a text": lambda path: _write(path, b"a line\n" * 100),
    "a short text": lambda path: _write(path, b"SQLite format 3\0"),
    "a header of zeros": lambda path: _write(path, bytes(4096)),
    "half a header": _truncated(50),
    "a header and nothing else": _truncated(100),
    "another program's": lambda path: _raw(path, "CREATE TABLE t(x)", "INSERT INTO t VALUES(1)"),
    "another program's without tables": lambda path: _raw(path, "CREATE VIEW v AS SELECT 1"),
    "another program's, empty": lambda path: _raw(path, "PRAGMA application_id = 7"),
    "another version's, empty": lambda path: _raw(path, "PRAGMA user_version = 1"),
    # Without a log: the switch to one would be a change.
    "another program's with our mark": lambda path: _raw(
        path,
        "CREATE TABLE t(x)",
        f"PRAGMA application_id = {APPLICATION_ID}",
        f"PRAGMA user_version = {FORMAT_VERSION}",
    ),
    "another program's in its log": lambda path: _left_in_the_log(path, "CREATE TABLE t(x)"),
    "a table more": _with_more("CREATE TABLE more(x)"),
    "a column more": _with_more("ALTER TABLE records ADD COLUMN more"),
    "an index less": _with_more("DROP INDEX entry_head"),
    "an index more": _with_more("CREATE INDEX more ON records(status)"),
    "a trigger": _with_more(
        "CREATE TRIGGER t AFTER INSERT ON records BEGIN DELETE FROM records; END"
    ),
}


@pytest.mark.parametrize("name", STRANGE)
@pytest.mark.parametrize("create", [True, False])
def test_what_is_no_store_is_refused(name: str, path: str, tmp_path: Path, *, create: bool) -> None:
    STRANGE[name](path)
    before = _hashes(tmp_path)

    with pytest.raises(NotAStoreError, match="nothing was changed"):
        SqliteStore(path, create=create)

    assert _hashes(tmp_path) == before


def test_a_table_more_in_the_log_is_refused_and_stays_there(path: str, tmp_path: Path) -> None:
    _made(path)
    _left_in_the_log(path, "CREATE TABLE more(x)")
    before = _hashes(tmp_path)

    with pytest.raises(NotAStoreError, match="more"):
        SqliteStore(path)

    assert _hashes(tmp_path) == before


def test_a_store_that_lost_its_end_is_refused(path: str, tmp_path: Path) -> None:
    _made(path)
    os.truncate(path, 4096)
    before = _hashes(tmp_path)

    with pytest.raises(StoreDamagedError), closing(SqliteStore(path)) as store:
        store.sessions()

    assert _hashes(tmp_path) == before


def test_a_folder_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(NotAStoreError, match="name a file"):
        SqliteStore(str(tmp_path))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NotAStoreError, match="name a file"):
        SqliteStore(str(tmp_path / "pipe"))


def test_a_path_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    os.symlink(tmp_path / "none.db", tmp_path / "link.db")
    before = sorted(os.listdir(tmp_path))

    for path, create in (("none.db", False), ("link.db", True), ("none/a.db", True)):
        with pytest.raises(StoreUnusableError, match=r"no store at|cannot be created"):
            SqliteStore(str(tmp_path / path), create=create)
    with pytest.raises(StoreUnusableError, match="sqlite:FILE"):
        SqliteStore("")

    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize("end", ["-wal", "-shm", "-journal"])
def test_a_name_that_sqlite_uses_beside_another_store_is_refused(path: str, end: str) -> None:
    with closing(SqliteStore(path)) as store:
        store.create("a")
        for act in (SqliteStore, store.backup):
            with pytest.raises(StoreUnusableError, match="another name"):
                act(str(Path(path).parent / f"b.db{end}"))
    assert sorted(os.listdir(Path(path).parent)) == ["a.db"]


@pytest.mark.parametrize("statements", [(), ("PRAGMA journal_mode = wal",)])
def test_what_a_killed_creator_left_becomes_a_store(path: str, statements: tuple[str, ...]) -> None:
    _write(path, b"")
    _raw(path, *statements)

    _made(path)

    assert len(exported(path)) > 20


# --- Permissions ---


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that anybody may go into, unlike the tests' own."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def _use(path: str) -> Callable[[], str]:
    def use() -> str:
        with closing(SqliteStore(path)) as store:
            store.open("a").commit(setting(1))
        return "used"

    return use


def _look(path: str) -> Callable[[], str]:
    def look() -> str:
        with closing(SqliteStore(path, create=False)) as store:
            found = store.sessions()
            assert len(list(store.open(found[0].id, read_only=True).export())) > 1
            assert store.verify().problems == ()
        return f"{len(found)} session"

    return look


def test_looking_at_what_a_killed_owner_left_changes_no_byte(path: str) -> None:
    _made(path)
    script = (
        "import os, sys; from pico_sqlite import SqliteStore; "
        "from tests.backends.sqlite.scene import setting; "
        "SqliteStore(sys.argv[1]).open('a').commit(setting(1)); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", script, path], check=True)
    folder = Path(path).parent
    before = _hashes(folder)
    assert os.stat(f"{path}-wal").st_size > 0

    assert _look(path)() == "1 session"

    assert _hashes(folder) == before
    assert _use(path)() == "used"
    assert not os.path.exists(f"{path}-wal")


def test_a_file_that_may_not_be_written_is_refused_and_nothing_left_beside_it(
    open_folder: Path,
) -> None:
    path = str(open_folder / "a.db")
    _made(path)
    # SQLite would put files here that the owner of the store could not write afterwards.
    open_folder.chmod(0o777)
    before = _hashes(open_folder)

    for mode in (0o000, 0o222):
        os.chmod(path, mode)
        outcome = as_nobody(_use(path))
        assert outcome.startswith("StoreUnusableError"), outcome
        assert "may not be read" in outcome
    os.chmod(path, 0o444)
    assert as_nobody(_use(path)).startswith("StoreIOError")
    assert as_nobody(_look(path)) == "1 session"
    os.chmod(path, 0o600)

    assert sorted(os.listdir(open_folder)) == ["a.db"]
    assert _hashes(open_folder) == before
    assert _use(path)() == "used"


def test_a_folder_that_may_not_be_written_is_refused(open_folder: Path) -> None:
    path = str(open_folder / "a.db")
    _made(path)
    os.chmod(path, 0o666)
    open_folder.chmod(0o555)
    before = _hashes(open_folder)

    assert as_nobody(_use(path)).startswith("StoreIOError")
    assert as_nobody(_look(path)) == "1 session"
    assert as_nobody(_use(str(open_folder / "new.db"))).startswith("StoreUnusableError")

    assert _hashes(open_folder) == before


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_every_file_is_private_from_its_first_byte(path: str, umask: int) -> None:
    seen: dict[str, set[int]] = {}

    def look(*_: object) -> bool:
        folder = os.path.dirname(path)
        for name in os.listdir(folder):
            seen.setdefault(name, set()).add(os.stat(os.path.join(folder, name)).st_mode & 0o777)
        return True

    def watch(db: apsw.Connection) -> None:
        look()
        db.exec_trace = look

    before = os.umask(umask)
    apsw.connection_hooks.append(watch)
    try:
        with closing(SqliteStore(path)) as store:
            fill(store.create("a"))
            store.backup(f"{path}.backup")
            look()
    finally:
        apsw.connection_hooks.remove(watch)
        os.umask(before)

    # The first three while the store works, the others while the backup is written.
    names = ("", "-wal", "-shm", ".backup", ".backup.new-", ".backup.new--wal", ".backup.new--shm")
    plain = {re.sub("(?<=new-)[0-9a-f]{16}", "", name): modes for name, modes in seen.items()}
    assert plain == {f"a.db{end}": {0o600} for end in names}


# --- File systems ---


def test_a_file_system_that_cannot_share_memory_is_refused(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite itself finds out that there can be no log, whatever the probe said."""
    real = apsw.Connection

    def connect(path: str, **arguments: int) -> apsw.Connection:
        return real(path, vfs="unix-dotfile", **arguments)

    monkeypatch.setattr(apsw, "Connection", connect)

    with pytest.raises(StoreUnusableError, match=r"stays in journal mode delete.*local disk"):
        SqliteStore(path)


def test_an_empty_file_is_a_store_only_where_one_may_be_made(path: str) -> None:
    Path(path).touch()

    with pytest.raises(StoreUnusableError, match="empty"):
        SqliteStore(path, create=False)

    assert Path(path).read_bytes() == b""
    SqliteStore(path).close()


def test_a_store_that_a_power_cut_met_in_the_making_is_made_anew(path: str) -> None:
    """The first page was to be written; the journal that undoes it is durable."""
    with closing(apsw.Connection(path)) as db:
        db.execute("PRAGMA cache_size = 1; BEGIN IMMEDIATE; CREATE TABLE a(b)")
        db.execute("INSERT INTO a SELECT zeroblob(20000)")
        journal = Path(f"{path}-journal").read_bytes()
        db.execute("ROLLBACK")
    assert journal
    Path(path).write_bytes(bytes(2048))
    Path(f"{path}-journal").write_bytes(journal)

    with closing(SqliteStore(path)) as store:
        fill(store.create("a"))

    with closing(SqliteStore(path)) as store:
        assert store.verify().problems == ()


def test_a_damaged_schema_is_told(path: str) -> None:
    SqliteStore(path).close()
    whole = Path(path).read_bytes()
    Path(path).write_bytes(whole.replace(b"CREATE TABLE kinds", b"CREATE TABLE k\xcends"))

    with pytest.raises(StoreUnusableError):
        SqliteStore(path)
