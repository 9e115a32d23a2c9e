"""URL: how a store is named. These hold for all backends at once; the target is not asked."""

from __future__ import annotations

from pathlib import Path

from pico_conformance.rule import Lab, rule
from pico_conformance.rules.ownership import raised
from pico_store.backends import backends, find_backend, open_store, split_url
from pico_store.errors import MissingDriverError, StoreUnusableError, StoreUrlError


@rule("URL-1")
def test_a_url_is_a_scheme_a_path_and_options(lab: Lab) -> None:
    for url, expected in (
        ("memory:", ("memory", "", {})),
        ("sqlite:a.db", ("sqlite", "a.db", {})),
        ("sqlite:/tmp/a.db", ("sqlite", "/tmp/a.db", {})),
        ("sqlite:///a.db", ("sqlite", "a.db", {})),
        ("sqlite:////tmp/a.db", ("sqlite", "/tmp/a.db", {})),
        ("sqlite:a b%20c#d.db", ("sqlite", "a b%20c#d.db", {})),
        ("sqlite:é:b.db", ("sqlite", "é:b.db", {})),
        ("x:p?a=1&b=2", ("x", "p", {"a": "1", "b": "2"})),
    ):
        assert split_url(url) == expected, f"{url} is split into {split_url(url)}"
    for url in ("", "sessions.db", ":", ":a", "/tmp/a.db", "a-b:c", "sqlite://host/a.db"):
        error = raised(lambda url=url: open_store(url), StoreUrlError)  # type: ignore[misc]
        assert "URL-1" in str(error), f"{url!r}: {error}"
        assert "allowed" in str(error), f"{url!r}: the message shows no form that is: {error}"
    error = raised(lambda: open_store(Path("a.db")), StoreUrlError)  # type: ignore[arg-type]
    assert "allowed: a str" in str(error), f"{error}"


@rule("URL-2")
def test_a_scheme_names_an_installed_backend(lab: Lab) -> None:
    known = backends()
    assert "memory" in known, f"installed: {sorted(known)}"
    for scheme, backend in known.items():
        if isinstance(backend, MissingDriverError):
            assert "install" in str(backend), f"the message does not say what to do: {backend}"
        else:
            assert find_backend(scheme).scheme == scheme, f"{scheme} finds another"

    error = raised(lambda: open_store("nothing:a"), StoreUrlError)

    assert "URL-2" in str(error), f"{error}"
    for scheme in known:
        assert scheme in str(error), f"the message does not list {scheme}: {error}"


@rule("URL-3")
def test_an_option_is_known_given_once_and_has_a_value(lab: Lab) -> None:
    for url in ("memory:?a=1", "memory:?a", "memory:?a=", "memory:?a=1&a=1", "memory:?=1"):
        error = raised(lambda url=url: open_store(url), StoreUrlError)  # type: ignore[misc]
        assert "URL-3" in str(error), f"{url}: {error}"
    for backend in backends().values():
        if isinstance(backend, MissingDriverError):
            continue
        url = f"{backend.scheme}:?no_such_option=1"
        error = raised(lambda url=url: open_store(url), StoreUrlError)  # type: ignore[misc]
        for option in backend.options:
            assert option in str(error), f"the message does not name {option}: {error}"
        assert all(backend.options.values()), f"an option of {backend.name} is not explained"


@rule("URL-1", "URL-2")
def test_a_store_that_must_exist_is_not_made(lab: Lab) -> None:
    place = lab.new_place()
    for backend in backends().values():
        if isinstance(backend, MissingDriverError) or not backend.promises.durability:
            continue
        url = f"{backend.scheme}:{place.path}"
        raised(lambda url=url: open_store(url, create=False), StoreUnusableError)  # type: ignore[misc]
        raised(lambda url=url: open_store(url, create=False), StoreUnusableError)  # type: ignore[misc]
        made = open_store(url)
        assert split_url(made.url)[:2] == split_url(url)[:2], f"{url} calls itself {made.url}"
        made.close()
        open_store(made.url, create=False).close()
        break
