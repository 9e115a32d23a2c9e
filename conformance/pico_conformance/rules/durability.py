"""DUR: what survives, what a store leaves alone, and what it tells of itself."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pico_conformance.rule import SESSION, Lab, rule
from pico_conformance.rules.everything import assert_same, everything
from pico_conformance.rules.ownership import raised
from pico_conformance.rules.scene import build_scene
from pico_store.address import Seq, SessionAddress
from pico_store.batch import MainBatch, ValueSet
from pico_store.digest import digest
from pico_store.errors import (
    NotAStoreError,
    PicoError,
    RefusedError,
    StoreDamagedError,
    StoreIOError,
    StoreUnusableError,
    UnsupportedError,
)
from pico_store.query import EntryQuery
from pico_store.records import Conversation, Entry
from pico_store.storage import Store

NAME = SessionAddress("s", "name")
MARK = "a text that nothing else contains"


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@contextmanager
def _umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


# --- What survives ---


@rule("DUR-1")
def test_the_promised_levels_are_those_of_the_contract(lab: Lab) -> None:
    levels = lab.target.promises.durability

    assert set(levels) <= {"power", "ordered", "process"}, f"levels: {levels}"
    assert len(set(levels)) == len(levels), f"levels: {levels}"
    assert type(lab.storage.commit_waits) is bool, "commit_waits is no bool"
    assert levels or not lab.storage.commit_waits, "a commit that waits for nothing durable"


@rule("DUR-1", "SEQ-9", "DUR-9", needs=("persistent",))
def test_what_was_acknowledged_is_there_after_reopening(lab: Lab) -> None:
    build_scene(lab)
    for _ in range(3):
        before, mark = everything(lab.storage), digest(lab.storage.export())

        lab.reopen()

        assert_same(before, everything(lab.storage), "closing and opening")
        assert digest(lab.storage.export()) == mark, "the digest changed"
        assert lab.storage.open_report.dropped_bytes == 0, f"dropped: {lab.storage.open_report}"
        lab.set(NAME, lab.next)


# --- Files ---


@rule("DUR-2", needs=("persistent",))
def test_nobody_else_may_read_the_files(lab: Lab) -> None:
    for mask in (0o000, 0o022):
        with _umask(mask):
            place = lab.new_place()
            store = place.open()
            storage = store.create("s")
            storage.commit(MainBatch((Conversation(id=Seq(1)), ValueSet(NAME, MARK))))
            folder = Path(place.path).parent
            # What is there only while the store is open, such as a log, is looked at then.
            _assert_private(folder, mask)
            place.close()
            _assert_private(folder, mask)


def _assert_private(folder: Path, mask: int) -> None:
    for path in (folder, *folder.rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        allowed = 0o700 if path.is_dir() else 0o600
        assert mode & ~allowed == 0, f"umask {mask:03o}: {path.name} has mode {mode:03o}"


@rule("DUR-3", "OWN-6", needs=("many_sessions",))
def test_any_name_is_a_session_of_its_own(lab: Lab) -> None:
    ids = [
        "../../x", "..", ".", "/", "/etc/x", "a/b", "a\\b", "a\x00b", "a\x00", "a", "A", "a ", "a.",
        "a\nb", "%2e", "é", "e\u0301", "🙂", "con", "-", "'", '"', "x" * 300, "x" * 1024, "é" * 512,
    ]  # fmt: skip
    outside = set(Path(lab.place.path).parent.parent.glob("x*"))
    for id in ids:
        storage = lab.store.create(id)
        storage.commit(MainBatch((Conversation(id=Seq(1)), ValueSet(NAME, id))))
        storage.close()
    lab.reopen()

    listed = [info.id for info in lab.store.sessions()]
    assert listed == sorted([*ids, SESSION]), f"listed: {listed}"
    for id in ids:
        found = lab.store.open(id, read_only=True).get_value(NAME)
        assert found is not None, f"session {id!a:.80} is empty"
        assert found.value == id, f"session {id!a:.80} holds what {found.value!a:.80} wrote"
    strays = set(Path(lab.place.path).parent.parent.glob("x*")) - outside
    assert not strays, f"written outside of the store's place: {strays}"


@rule("DUR-3", "JSON-5", "JSON-3")
def test_what_is_no_name_is_no_session(lab: Lab) -> None:
    lab.root()
    refusals = {"": "JSON-5", "x" * 1025: "JSON-5", "é" * 513: "JSON-5", "\ud800": "JSON-3"}
    for id, clause in refusals.items():
        with lab.refused(clause):
            lab.store.create(id)
    for wrong in (None, 1, b"x", ["x"]):
        with lab.refused("JSON-5"):
            lab.store.create(wrong)  # type: ignore[arg-type]

    assert [info.id for info in lab.store.sessions()] == [SESSION], "a refused session is listed"


@rule("DUR-4", needs=("persistent",))
def test_what_is_no_store_is_left_as_it_is(lab: Lab) -> None:
    for content in (b"to do: buy milk\n", b"\x00" * 8192, b"{}", b"\xff" * 100):
        place = lab.new_place()
        path = Path(place.path)
        path.write_bytes(content)

        error = raised(place.open, StoreUnusableError)

        assert isinstance(error, NotAStoreError), f"raised {error!r}"
        assert str(path) in str(error), f"the message does not name the path: {error}"
        left = _files(path.parent)
        assert left == {str(path): content}, f"left behind: {sorted(left)}"


# --- Verify, checksums, backup ---


@rule("DUR-6")
def test_verify_finds_nothing_wrong_in_a_whole_store(lab: Lab) -> None:
    build_scene(lab)
    before = everything(lab.storage)

    report = lab.store.verify()

    assert report.problems == (), f"problems: {report.problems}"
    assert report.records > 0, "nothing was looked at"
    assert_same(before, everything(lab.storage), "verify")


@rule("DUR-8", "DUR-6", "PAGE-4", needs=("persistent",))
def test_a_flipped_bit_is_never_read_as_data(lab: Lab) -> None:
    root = lab.root()
    whole = lab.entry(root, data="whole")
    damaged = lab.entry(root, data=MARK)
    later = lab.entry(root, data="whole as well")
    lab.storage.close()
    lab.store.close()
    flipped = _flip(Path(lab.place.path).parent, MARK.encode())
    assert flipped, "the payload is not found in any file"
    try:
        store = lab.place.open()
    except StoreUnusableError:
        # The whole store is refused; nothing wrong was read.
        return
    problems = store.verify().problems
    assert any(str(damaged) in problem.where for problem in problems), f"verify found {problems}"
    error = raised(lambda: store.open(SESSION).get_entries([damaged]), StoreDamagedError)
    assert str(damaged) in str(error), f"the message does not name entry {damaged}: {error}"
    try:
        store.open(SESSION, read_only=True)
    except StoreDamagedError:
        # A session that is read as a whole, as from a log, is refused as a whole.
        return
    storage = store.open(SESSION, read_only=True)
    others = storage.get_entries([whole, later])
    assert [entry.data for entry in others.values()] == ["whole", "whole as well"], f"{others}"
    beyond = EntryQuery(conversation_id=root, from_=later)
    assert len(storage.scan_entries(beyond).items) == 1, "a page beside the damage"
    every = EntryQuery(conversation_id=root)
    raised(lambda: storage.scan_entries(every), StoreDamagedError)
    raised(lambda: list(storage.export()), StoreDamagedError)


def _flip(folder: Path, text: bytes) -> int:
    """Flip one bit at every place where a file contains the text; return how many there were."""
    count = 0
    for path in folder.rglob("*"):
        if not path.is_file():
            continue
        content = bytearray(path.read_bytes())
        at = content.find(text)
        while at >= 0:
            content[at] ^= 1
            count += 1
            at = content.find(text)
        path.write_bytes(content)
    return count


@rule("DUR-7")
def test_a_backup_is_a_store_or_refused(lab: Lab) -> None:
    build_scene(lab)
    before, mark = everything(lab.storage), digest(lab.storage.export())
    copy = lab.new_place()
    if not lab.target.persistent:
        raised(lambda: lab.store.backup(copy.path), UnsupportedError)
        return
    lab.store.backup(copy.path)
    kept = _files(Path(copy.path).parent)

    raised(lambda: lab.store.backup(copy.path), StoreIOError)

    assert _files(Path(copy.path).parent) == kept, "a backup over a backup changed it"
    assert_same(before, everything(lab.storage), "a backup")
    lab.set(NAME, "later")
    found = copy.open().open(SESSION)
    assert_same(before, everything(found), "the way into the backup")
    assert digest(found.export()) == mark, "the backup has another digest"


@rule("DUR-7")
def test_what_is_no_path_of_a_backup_is_refused(lab: Lab) -> None:
    lab.root()
    paths: tuple[object, ...] = (None, 1, True, b"a", [], "", "a\0b", "\ud800")
    for path in paths:
        with lab.refused("DUR-7"):
            lab.store.backup(path)  # type: ignore[arg-type]


@rule("DUR-7", needs=("persistent",))
def test_a_backup_is_consistent_while_a_writer_works(lab: Lab) -> None:
    root = lab.root()
    done = threading.Event()
    failed: list[BaseException] = []

    def write() -> None:
        try:
            while not done.is_set():
                first = lab.next
                lab.commit(*(Entry(Seq(first + i), root, "note", data=MARK) for i in range(3)))
        except PicoError as error:
            failed.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    places = [lab.new_place() for _ in range(3)]
    try:
        for place in places:
            lab.store.backup(place.path)
    finally:
        done.set()
        writer.join()

    assert not failed, f"the writer failed beside a backup: {failed}"
    for place in places:
        store = place.open()
        storage = store.open(SESSION)
        entries = sum(isinstance(item, Entry) for item in storage.export())
        assert entries == storage.last_seq - 1, f"{entries} entries at {storage.last_seq}"
        assert entries % 3 == 0, f"half a batch: {entries} entries"
        assert store.verify().problems == (), "verify finds something wrong in the backup"


@rule("DUR-5", "SEQ-5", needs=("persistent",))
def test_a_path_that_cannot_be_written_is_refused(lab: Lab) -> None:
    place = lab.new_place()
    blocked = Path(place.path)
    blocked.parent.joinpath("file").write_bytes(b"")
    before = _files(blocked.parent)
    opened: Store | None = None
    error: PicoError | None = None
    try:
        opened = lab.target.open_store(str(blocked.parent / "file" / "store"))
    except PicoError as failure:
        error = failure

    assert opened is None, "a store was opened below a file"
    assert not isinstance(error, RefusedError), f"raised {error!r}, as if the request were wrong"
    assert _files(blocked.parent) == before, "something was left behind"
