"""Finding a backend by URL, and what a backend declares about itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from urllib.parse import parse_qsl

from pico_store.errors import MissingDriverError, StoreUrlError
from pico_store.shown import shown
from pico_store.storage import Durability, Store

ENTRY_POINT_GROUP = "pico.backends"


@dataclass(frozen=True, slots=True)
class Promises:
    """What a backend promises beyond the clauses that all of them keep."""

    durability: tuple[Durability, ...]
    """The levels that can be chosen; empty: nothing outlives the process."""
    many_sessions: bool
    """Whether one store holds more than one session."""
    multi_process: bool
    """Whether several processes may use one store at once."""


@dataclass(frozen=True, slots=True)
class Backend:
    """One way to store sessions. A third party's is one entry point of group `pico.backends`."""

    name: str
    scheme: str
    """What stands before the colon of its URLs."""
    promises: Promises
    options: Mapping[str, str]
    """The options that a URL may carry, each with one line that says what is allowed."""
    open: Callable[[str, Mapping[str, str], bool], Store]
    """Opens the store at a path, with checked option names.

    The third argument says what to do where there is none: True creates an empty store, False
    raises `StoreUnusableError`.
    """


def backends() -> dict[str, Backend | MissingDriverError]:
    """Return every installed backend by scheme; one that cannot be loaded as its error."""
    found: dict[str, Backend | MissingDriverError] = {}
    for point in _points():
        backend = _load(point)
        found[backend.scheme if isinstance(backend, Backend) else point.name] = backend
    return found


def find_backend(scheme: str) -> Backend:
    """Return the backend of a URL scheme; the others are not imported if it is named like it.

    Raises:
        StoreUrlError: No installed backend has it; the message lists those that there are.
        MissingDriverError: Its library is not installed; the message names the extra.
    """
    for point in _points():
        if point.name == scheme:
            backend = _load(point)
            if isinstance(backend, MissingDriverError):
                raise backend
            if backend.scheme == scheme:
                return backend
    known = backends()
    found = known.get(scheme)
    if found is None:
        problem = f"no backend {scheme!r}; installed: {', '.join(sorted(known)) or 'none'}"
        raise StoreUrlError("URL-2", "", problem)
    if isinstance(found, MissingDriverError):
        raise found
    return found


@cache
def _points() -> list[EntryPoint]:
    """Read once: it takes a look at every installed distribution."""
    return sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name)


def _load(point: EntryPoint) -> Backend | MissingDriverError:
    """Return the backend that an entry point names, or why it cannot be used."""
    try:
        backend: Backend = point.load()
    except ModuleNotFoundError as error:
        problem = (
            f"backend {point.name!r} needs the library {error.name!r}, which is not "
            f"installed; install it with: pip install 'pico-store[{point.name}]'"
        )
        return _missing(problem, error)
    except (ImportError, AttributeError) as error:
        problem = f"backend {point.name!r} cannot be loaded: {error}; install its package again"
        return _missing(problem, error)
    return backend


def _missing(problem: str, cause: Exception) -> MissingDriverError:
    missing = MissingDriverError("URL-2", "", problem)
    missing.__cause__ = cause
    return missing


def open_store(url: str, *, create: bool = True) -> Store:
    """Open the store that a URL names; create an empty one where there is none.

    Args:
        url: ``memory:``, ``sqlite:FILE``, ``scheme:///relative`` or ``scheme:////absolute``,
            each with options behind ``?``, as in ``sqlite:a.db?durability=power``. The path is
            taken as it stands; nothing in it is decoded.
        create: False: a store that is not there is an error, and nothing is made.

    Raises:
        StoreUrlError: The URL, its scheme or an option is not known; the message says what is.
        MissingDriverError: The backend's library is not installed.
        StoreUnusableError: The path holds something that cannot be used, or nothing and
            ``create`` is false.
    """
    scheme, path, options = split_url(url)
    backend = find_backend(scheme)
    for name in options:
        if name not in backend.options:
            allowed = ", ".join(sorted(backend.options)) or "none"
            raise StoreUrlError("URL-3", url, f"unknown option {name!r}; allowed: {allowed}")
    return backend.open(path, options, create)


def _may_have_path(scheme: str) -> bool:
    try:
        return bool(find_backend(scheme).promises.durability)
    except MissingDriverError:
        return True


def split_url(url: str) -> tuple[str, str, dict[str, str]]:
    """Return a store URL's scheme, path and options.

    Raises:
        StoreUrlError: There is no scheme, or an option is given twice or without a value.
    """
    if not isinstance(url, str):
        problem = f"{type(url).__name__}; allowed: a str, such as 'sqlite:sessions.db'"
        raise StoreUrlError("URL-1", shown(url), problem)
    try:
        url.encode()
    except UnicodeEncodeError:
        escaped = url.encode("utf-8", "backslashreplace").decode()
        raise StoreUrlError("URL-1", escaped, "not UTF-8; allowed: a path that is") from None
    scheme, colon, rest = url.partition(":")
    if not colon or not scheme.isidentifier():
        path = url if url and not colon else "sessions.db"
        problem = f"no scheme; allowed: SCHEME:PATH, such as sqlite:{path} or memory:"
        raise StoreUrlError("URL-1", url, problem)
    path, _, query = rest.partition("?")
    if path.startswith("///"):
        path = path[3:]
    elif path.startswith("//"):
        # Whoever writes another scheme's URL wants to hear that it is not known at all.
        if not _may_have_path(scheme):
            raise StoreUrlError("URL-1", url, f"a host in the path; allowed: {scheme}: alone")
        problem = f"a host in the path; allowed: {scheme}:PATH, {scheme}:///relative, "
        raise StoreUrlError("URL-1", url, problem + f"{scheme}:////absolute")
    options: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name in options or not value:
            problem = f"option {name!r} {'twice' if name in options else 'without a value'}"
            raise StoreUrlError("URL-3", url, f"{problem}; allowed: once, as {name}=VALUE")
        options[name] = value
    return scheme, path, options
