"""Opening to look disturbs nobody and changes nothing."""

from pathlib import Path

import pytest

from pico_store.address import Seq
from pico_store.backends import open_store
from pico_store.batch import MainBatch
from pico_store.records import Entry
from tests.cli.running import Pico

LOOKING = [
    ["sessions"],
    ["show"],
    ["context"],
    ["digest"],
    ["verify"],
    ["inspect"],
    ["inspect", "--kinds", "tests.cli.scripted_kinds:step"],
    ["show", "--json"],
    ["verify", "--json"],
]


@pytest.mark.parametrize("command", LOOKING)
def test_looking_leaves_the_file_as_it_is(pico: Pico, url: str, command: list[str]) -> None:
    file = Path(url.removeprefix("sqlite:"))
    before = file.read_bytes()

    pico.done(command[0], url, *command[1:])

    assert file.read_bytes() == before
    assert [path.name for path in file.parent.glob("store.db*")] == ["store.db"]


@pytest.mark.parametrize("command", LOOKING)
def test_looking_disturbs_no_writer(pico: Pico, url: str, command: list[str]) -> None:
    store = open_store(url)
    storage = store.open("s")

    pico.done(command[0], url, *command[1:])

    storage.commit(MainBatch((Entry(id=Seq(11), conversation_id=Seq(1), kind="k"),)))
    store.close()


def test_a_copy_is_made_while_a_writer_holds_the_session(
    pico: Pico, url: str, tmp_path: Path
) -> None:
    store = open_store(url)
    writer = store.open("s")

    found = pico.json("copy", url, f"sqlite:{tmp_path / 'other.db'}")

    writer.close()
    store.close()
    assert isinstance(found["copies"], list)


def test_a_fork_waits_for_no_writer_and_says_who_it_is(pico: Pico, url: str) -> None:
    store = open_store(url)
    writer = store.open("s")

    ended = pico("fork", url, "--at", "4")

    writer.close()
    store.close()
    assert ended.code == 3
    assert ended.err.count("\n") == 1
    assert "process" in ended.err or "pid" in ended.err
