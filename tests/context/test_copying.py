"""A copy is whole, equal and of one state, or there is none."""

from collections.abc import Iterable, Iterator

import pytest

from pico_store.address import Seq
from pico_store.backends import open_store
from pico_store.batch import MainBatch
from pico_store.copying import copy_session
from pico_store.digest import DigestingStream, digest
from pico_store.errors import SessionExistsError
from pico_store.records import Conversation, Entry
from pico_store.snapshot import SnapshotItem
from pico_store.storage import Storage, Store


@pytest.fixture
def source(storage: Storage) -> Storage:
    entries = tuple(
        Entry(id=Seq(number), conversation_id=Seq(1), kind="k") for number in range(2, 6)
    )
    storage.commit(MainBatch((Conversation(id=Seq(1)), *entries)))
    return storage


def test_a_copy_has_the_digest_of_its_source(source: Storage) -> None:
    destination = open_store("memory:")

    report = copy_session(source, destination, "copy")

    assert report.equal
    assert report.source_digest == report.destination_digest == digest(source.export())
    assert (report.session, report.last_seq, report.items) == ("copy", 5, 7)


def test_a_copy_is_of_one_state_while_the_source_goes_on(source: Storage) -> None:
    def commit_meanwhile(items: Iterator[SnapshotItem]) -> Iterable[SnapshotItem]:
        for index, item in enumerate(items):
            if index == 2:
                source.commit(MainBatch((Entry(id=Seq(6), conversation_id=Seq(1), kind="k"),)))
            yield item

    report = copy_session(source, open_store("memory:"), "copy", commit_meanwhile)

    assert source.last_seq == 6
    assert report.equal
    assert report.last_seq == 5


def test_a_copy_that_fails_midway_is_not_there(source: Storage) -> None:
    destination = open_store("memory:")

    def fail(items: Iterator[SnapshotItem]) -> Iterable[SnapshotItem]:
        yield next(items)
        yield next(items)
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        copy_session(source, destination, "copy", fail)

    assert destination.sessions() == []


class _Forgetful:
    """A store that returns one entry less than it was given."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.load = store.load

    def open(self, session_id: str, *, read_only: bool = False) -> "_Forgetful":
        self._storage = self._store.open(session_id, read_only=read_only)
        self.last_seq = self._storage.last_seq
        self.close = self._storage.close
        return self

    def export(self) -> Iterator[SnapshotItem]:
        return (item for item in self._storage.export() if getattr(item, "id", 0) != 3)


def test_a_copy_that_lost_something_is_not_equal(source: Storage) -> None:
    destination = _Forgetful(open_store("memory:"))

    report = copy_session(source, destination, "copy")  # type: ignore[arg-type]

    assert not report.equal
    assert report.source_digest == digest(source.export())


def test_an_existing_session_is_not_touched(source: Storage) -> None:
    destination = open_store("memory:")
    destination.create("copy").close()

    with pytest.raises(SessionExistsError):
        copy_session(source, destination, "copy")

    assert [(info.id, info.last_seq) for info in destination.sessions()] == [("copy", 0)]


def test_a_digesting_stream_passes_everything_on(source: Storage) -> None:
    stream = DigestingStream(source.export())

    assert list(stream) == list(source.export())
    assert stream.hexdigest() == digest(source.export())
    assert stream.count == 7
