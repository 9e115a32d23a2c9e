"""What the text behind `pico conformance` may name."""

from __future__ import annotations

from pathlib import Path

import pytest

from pico_conformance.target import NOTHING_PROMISED, resolve_target
from pico_memory import backend as memory_backend
from pico_store.errors import StoreUrlError
from pico_store.storage import Store

opened: list[str] = []
not_callable = 5


def make_store(path: str) -> Store:
    opened.append(path)
    return memory_backend.open("", {}, True)


def test_a_name_stands_for_its_backend() -> None:
    target = resolve_target("memory")

    assert target.promises == memory_backend.promises
    assert target.named


def test_a_url_keeps_its_options_and_gets_a_path_of_its_own() -> None:
    target = resolve_target("sqlite:never-there.db?durability=power")

    with target.place() as place:
        store = place.open()
        url = store.url
    assert "durability=power" in url
    assert place.path in url
    assert not Path("never-there.db").exists()


def test_an_attribute_may_be_a_backend() -> None:
    target = resolve_target("pico_memory:backend")

    with target.place() as place:
        assert place.open().sessions() == []


def test_an_attribute_may_be_a_callable_from_a_path() -> None:
    target = resolve_target(f"{__name__}:make_store")

    with target.place() as place:
        place.open()
    assert target.promises == NOTHING_PROMISED
    assert place.path in opened


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nothing", "installed: "),
        ("nothing:here", "neither a backend nor a module"),
        ("pico_memory:nothing", "has no 'nothing'"),
        (f"{__name__}:not_callable", "allowed: a Backend"),
        ("sqlite:x?colour=red", "unknown option 'colour'"),
    ],
)
def test_anything_else_is_refused_with_what_there_is(text: str, said: str) -> None:
    with pytest.raises(StoreUrlError, match=said):
        resolve_target(text)


def test_a_place_leaves_nothing_behind() -> None:
    with resolve_target("sqlite").place() as place:
        place.open().create("one").close()
        folder = Path(place.path).parent
        assert any(folder.iterdir())

    assert not folder.exists()


def test_a_persistent_place_finds_what_was_written() -> None:
    with resolve_target("sqlite").place() as place:
        place.open().create("one").close()
        place.close()

        assert [session.id for session in place.open().sessions()] == ["one"]


def test_another_place_keeps_its_only_store() -> None:
    with resolve_target("memory").place() as place:
        assert not place.persistent
        assert place.open() is place.open()
