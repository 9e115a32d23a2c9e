"""`pico verify --salvage`: what is whole of a damaged store arrives in a new one."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from msgspec import Struct

from pico_store.address import Seq, SessionAddress
from pico_store.backends import open_store
from pico_store.batch import MainBatch, ValueSet
from pico_store.digest import digest
from pico_store.errors import StoreFullError
from pico_store.records import BatchRange, Conversation, Entry, JsonObject
from pico_store.remnant import Remnant
from pico_store.salvage import Outcome, salvage
from pico_store.storage import Store
from tests.cli.running import Pico

Fill = Callable[[str], str]
_SCHEMES = ("sqlite", "lmdb", "jsonl")


class LeftOut(Struct):
    session: str | None
    where: str
    what: str


class Saved(Struct):
    session: str
    items: int
    digest: str | None
    whole: bool


class Salvaged(Struct, rename="camel"):
    store: str
    sessions: list[Saved]
    left_out: list[LeftOut]
    altered: list[LeftOut]


def salvaged(told: JsonObject) -> Salvaged:
    return msgspec.convert(told["salvaged"], Salvaged)


@pytest.fixture
def fill(pico: Pico, transcript: str, tmp_path: Path) -> Fill:
    """Make a store of two sessions: ``good``, and ``s`` with a text of its own."""
    other = tmp_path / "other.jsonl"
    other.write_text(Path(transcript).read_text().replace("go right", "turn_me"))

    def filled(scheme: str) -> str:
        url = f"{scheme}:{tmp_path / 'store'}"
        pico.done("import", transcript, url, "--session", "good")
        pico.done("import", str(other), url, "--session", "s")
        return url

    return filled


def flip(store: Path) -> None:
    """Flip a bit of the text that only ``s`` has, wherever the store's files hold it."""
    files = [path for path in [store, *store.parent.glob("store?*")] if path.is_file()]
    files += [path for path in store.rglob("*") if path.is_file()]
    flipped = 0
    for path in files:
        held = path.read_bytes()
        flipped += held.count(b"turn_me")
        # Written in place: the inode stays, as it does when a disk loses a bit.
        with path.open("r+b") as file:
            file.write(held.replace(b"turn_me", b"uurn_me"))
    assert flipped


def bytes_of(store: Path) -> dict[str, bytes]:
    files = [store] if store.is_file() else sorted(store.rglob("*"))
    kept = (path for path in files if path.is_file() and path.name != "lock.mdb")
    return {str(path): path.read_bytes() for path in kept}


@pytest.mark.parametrize("scheme", _SCHEMES)
def test_a_whole_store_arrives_whole(pico: Pico, fill: Fill, tmp_path: Path, scheme: str) -> None:
    url, new = fill(scheme), str(tmp_path / "new")

    told = pico.json("verify", url, "--salvage", new)

    assert told["problems"] == []
    saved = salvaged(told)
    assert saved.store == f"{scheme}:{new}"
    assert saved.left_out == []
    assert [session.whole for session in saved.sessions] == [True, True]
    digests = pico.json("digest", url)
    assert pico.json("digest", f"{scheme}:{new}")["digests"] == digests["digests"]


@pytest.mark.parametrize("scheme", ["sqlite", "lmdb"])
def test_a_damaged_record_alone_is_left_out(
    pico: Pico, fill: Fill, tmp_path: Path, scheme: str
) -> None:
    url, new = fill(scheme), f"jsonl:{tmp_path / 'new'}"
    expected = pico.done("digest", url, "good")
    with closing(open_store(url)) as store, closing(store.open("s", read_only=True)) as storage:
        items = list(storage.export())
    (lost,) = [item for item in items if b"turn_me" in msgspec.json.encode(item)]
    assert isinstance(lost, Entry)
    rest = [item for item in items if item is not lost]
    left = digest(Remnant(lambda: iter(rest), {lost.id}).items(lambda where, what: None))
    flip(tmp_path / "store")
    before = bytes_of(tmp_path / "store")

    ended = pico("verify", url, "--salvage", new, "--json")

    assert ended.code == 1
    saved = salvaged(ended.json())
    (problem,) = saved.left_out
    assert (problem.session, problem.what) == ("s", "its checksum differs")
    assert problem.where in (f"entry {lost.id}", f"record {lost.id}")
    good, bad = saved.sessions
    assert (good.session, good.whole) == ("good", True)
    assert (bad.session, bad.whole, bad.items, bad.digest) == ("s", False, len(rest), left)
    assert pico.done("digest", new, "good") == expected
    assert pico("verify", new).code == 0
    assert bytes_of(tmp_path / "store") == before


def test_a_log_with_a_damaged_snapshot_is_saved_up_to_the_bad_line(
    pico: Pico, fill: Fill, tmp_path: Path
) -> None:
    url, new = fill("jsonl"), f"sqlite:{tmp_path / 'new'}"
    log = tmp_path / "store" / "s" / "main.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    with closing(open_store(url)) as store, closing(store.open("s", read_only=True)) as storage:
        items = list(storage.export())
    # The boundaries of the batches stand behind all else.
    last = next(index for index, line in enumerate(lines) if line.startswith(b'{"batches":'))
    lines[last] = lines[last].replace(b"[", b"[1", 1)
    log.write_bytes(b"".join(lines))
    before = bytes_of(tmp_path / "store")

    ended = pico("verify", url, "--salvage", new, "--json")

    assert ended.code == 1
    saved = salvaged(ended.json())
    (problem,) = saved.left_out
    assert problem.where == str(log)
    assert "damaged within its first part: checksum " in problem.what
    assert [change.session for change in saved.altered] == ["s"]
    assert "its boundaries are lost" in saved.altered[0].what
    with closing(open_store(new)) as store, closing(store.open("s", read_only=True)) as storage:
        found = list(storage.export())
    records = [item for item in items if not isinstance(item, BatchRange)]
    assert [item for item in found if not isinstance(item, BatchRange)] == records
    assert bytes_of(tmp_path / "store") == before


def test_what_points_at_the_lost_is_told(pico: Pico, tmp_path: Path) -> None:
    url, new = f"sqlite:{tmp_path / 'store'}", str(tmp_path / "new")
    with closing(open_store(url)) as store, closing(store.create("s")) as storage:
        entries = [
            Entry(id=Seq(id), conversation_id=Seq(1), kind="k", data=data, head=head)
            for id, data, head in ((2, "turn_me", None), (3, None, None), (4, None, Seq(2)))
        ]
        storage.commit(MainBatch((Conversation(id=Seq(1)), *entries)))
    flip(tmp_path / "store")

    ended = pico("verify", url, "--salvage", new)

    assert ended.code == 1
    assert "left out: session s, entry 2: its checksum differs\n" in ended.out
    assert "altered: session s, entry 4: its head, 2, is lost; it is 3 now\n" in ended.out
    assert "5 items, saved in part\n" in ended.out


def test_a_store_that_cannot_be_completed_is_named(
    pico: Pico, fill: Fill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, new = fill("sqlite"), f"sqlite:{tmp_path / 'new'}"

    def full(*_: object) -> Iterator[Outcome]:
        raise StoreFullError("no room left")
        yield

    monkeypatch.setattr("pico_store.commands.salvage.salvage", full)

    ended = pico("verify", url, "--salvage", new)

    assert ended.code not in (0, 1)
    assert f"pico: {new} is not complete; remove it before the next try\n" in ended.err
    assert "no room left" in ended.err


def test_a_log_is_saved_up_to_the_batch_before_its_bad_line(pico: Pico, tmp_path: Path) -> None:
    url, new = f"jsonl:{tmp_path / 'store'}", f"sqlite:{tmp_path / 'new'}"
    log = tmp_path / "store" / "s" / "main.jsonl"
    digests = []
    store = open_store(url)
    with closing(store), closing(store.create("s")) as storage:
        storage.commit(MainBatch((Conversation(id=Seq(1)),)))
        for value in range(4):
            storage.commit(MainBatch((ValueSet(SessionAddress("n", "k"), value),)))
            digests.append(digest(storage.export()))
    lines = log.read_bytes().splitlines(keepends=True)
    assert len(lines) == 6
    lines[4] = lines[4].replace(b'"value":2', b'"value":9')
    log.write_bytes(b"".join(lines))
    before = bytes_of(tmp_path / "store")

    ended = pico("verify", url, "--salvage", new, "--json")

    assert ended.code == 1
    saved = salvaged(ended.json())
    bad, behind = saved.left_out
    offset = sum(map(len, lines[:4]))
    assert bad.where == f"{log}: line 5 at offset {offset}"
    assert bad.what.startswith("the batch of number 4: checksum ")
    end = offset + len(lines[4])
    assert behind.where == f"{log}: {len(lines[5])} bytes from offset {end} on"
    (session,) = saved.sessions
    assert (session.whole, session.digest) == (False, digests[1])
    assert pico.done("digest", new).split()[0] == digests[1]
    assert pico("verify", new).code == 0
    assert bytes_of(tmp_path / "store") == before


def test_a_log_without_a_whole_beginning_is_left_out(
    pico: Pico, fill: Fill, tmp_path: Path
) -> None:
    url, new = fill("jsonl"), f"jsonl:{tmp_path / 'new'}"
    (tmp_path / "store" / "s" / "main.jsonl").write_bytes(b"")

    ended = pico("verify", url, "--salvage", new)

    assert ended.code == 1
    assert "left out: session s, " in ended.out
    assert ended.out.endswith(f"1 of 2 sessions saved in {new}\n")


@pytest.mark.parametrize("scheme", _SCHEMES)
def test_nothing_is_overwritten(pico: Pico, fill: Fill, tmp_path: Path, scheme: str) -> None:
    url = fill(scheme)
    (tmp_path / "there").write_text("mine")

    ended = pico("verify", url, "--salvage", f"{scheme}:{tmp_path / 'there'}")

    assert ended.code == 2
    assert ended.err == f"pico: {tmp_path}/there exists; --salvage writes into a new store alone\n"
    assert (tmp_path / "there").read_text() == "mine"


def test_a_new_store_within_the_damaged_one_is_refused(
    pico: Pico, fill: Fill, tmp_path: Path
) -> None:
    ended = pico("verify", fill("jsonl"), "--salvage", f"sqlite:{tmp_path}/store/new.db")

    assert ended.code == 2
    assert "is within the store itself" in ended.err


def test_memory_is_refused(pico: Pico, url: str, tmp_path: Path) -> None:
    there = pico("verify", url, "--salvage", "memory:")
    here = pico("verify", "memory:", "--salvage", str(tmp_path / "new"))

    assert (there.code, here.code) == (2, 2)
    assert "would end with this command" in there.err
    assert not (tmp_path / "new").exists()


def test_it_goes_on_behind_a_session_that_ended_its_reader(
    pico: Pico, fill: Fill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, new = fill("sqlite"), str(tmp_path / "new")
    monkeypatch.setattr("pico_store.commands.salvage.salvage", dying_at("good"))

    ended = pico("verify", url, "--salvage", new)

    assert ended.code == 1
    assert "left out: session good, session: reading it ended a process with signal 9" in ended.out
    assert ended.out.endswith(f"1 of 2 sessions saved in sqlite:{new}\n")


def dying_at(session: str) -> object:
    """Return a salvage that ends its process as it reads one session."""

    def dying(
        source: Store, destination: Store, begin: Callable[[str], object], start: int
    ) -> Iterator[Outcome]:
        def told(name: str) -> None:
            begin(name)
            if name == session:
                os.kill(os.getpid(), signal.SIGKILL)

        return salvage(source, destination, told, start)

    return dying
