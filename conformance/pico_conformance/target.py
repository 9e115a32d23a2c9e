"""What is under test: a backend, and places in a temporary folder for stores of it."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pico_store.backends import Backend, Promises, backends, find_backend, open_store, split_url
from pico_store.errors import MissingDriverError, StoreUrlError
from pico_store.storage import Store

NOTHING_PROMISED = Promises(durability=(), many_sessions=False, multi_process=False)
"""What is assumed of a callable that has no ``promises`` of its own."""


@dataclass(frozen=True, slots=True)
class Target:
    """A backend under test. Make one by hand, or let `resolve_target` find it."""

    name: str
    """What reports call it; `resolve_target` reads it back where ``named`` is true."""
    promises: Promises
    open_store: Callable[[str], Store]
    """Opens the store at a path; creates it where there is none."""
    named: bool = False
    """Whether another process finds the same target by ``name``."""

    @property
    def persistent(self) -> bool:
        """Whether a store can be closed and opened again."""
        return bool(self.promises.durability)

    @contextmanager
    def place(self) -> Iterator[Place]:
        """Give a place for one store; close its stores and remove its folder at the end."""
        folder = tempfile.mkdtemp(prefix="pico-conformance-")
        place = Place(self, os.path.join(folder, "store"))
        try:
            yield place
        finally:
            try:
                place.close()
            finally:
                shutil.rmtree(folder, ignore_errors=True)


@dataclass(slots=True)
class Place:
    """Where one store is kept."""

    target: Target
    path: str
    _stores: list[Store] = field(default_factory=list)

    @property
    def persistent(self) -> bool:
        """Whether ``open`` after ``close`` finds what was written before."""
        return self.target.persistent

    def open(self) -> Store:
        """Open the store that is kept here; create it at the first time.

        A persistent place gives a new handle each time. Another one keeps its only store, which
        every call returns until ``close``, and "to reopen" means to open the session again.
        """
        if self._stores and not self.persistent:
            return self._stores[0]
        store = self.target.open_store(self.path)
        self._stores.append(store)
        return store

    def close(self) -> None:
        """Close every store that was opened here."""
        while self._stores:
            self._stores.pop().close()


def resolve_target(text: str) -> Target:
    """Return the target that a text names.

    Args:
        text: A backend's name (``sqlite``), a store URL whose scheme and options are used and
            whose path is replaced (``sqlite:x.db?durability=power``), or ``module:attribute``: a
            `Backend`, or a callable that opens the store at a path. What a callable promises is
            read from its attribute ``promises``, if it has one.

    Raises:
        StoreUrlError: The text names nothing of these; the message says what there is.
        MissingDriverError: The backend's library is not installed.
    """
    head, colon, rest = text.partition(":")
    known = backends()
    if not colon:
        for backend in known.values():
            if isinstance(backend, Backend) and backend.name == head:
                return _from_url(text, backend.scheme, "")
        if head not in known:
            problem = f"no backend {head!r}; installed: {', '.join(sorted(known)) or 'none'}; "
            problem += f"one of your own is named module:attribute, such as {head}:backend"
            raise StoreUrlError("URL-2", "", problem)
        return _from_url(text, head, "")
    if head in known or not _is_dotted(head) or not _is_dotted(rest):
        scheme, _, options = split_url(text)
        backend = find_backend(scheme)
        for name in options:
            if name not in backend.options:
                allowed = ", ".join(sorted(backend.options)) or "none"
                problem = f"unknown option {name!r}; allowed: {allowed}"
                raise StoreUrlError("URL-3", text, problem)
        return _from_url(text, scheme, text.partition("?")[2])
    return _from_attribute(text, head, rest)


def check_opens(target: Target) -> None:
    """Make sure that the target opens stores, so that not every test has to say that it does not.

    Raises:
        StoreUrlError: Opening an empty place fails, or gives something else than a store.
    """
    problem = None
    try:
        with target.place() as place:
            store = place.open()
            if not callable(getattr(store, "create", None)):
                problem = f"gives {type(store).__name__}, which is not a store"
    except Exception as error:  # noqa: BLE001 - a third party's backend may raise anything
        problem = problem or f"opening an empty place raises {type(error).__name__}: {error}"
    if problem is not None:
        problem += "; needed: a Backend, or a callable from a path to a Store"
        raise StoreUrlError("URL-2", target.name, problem)


def _from_url(text: str, scheme: str, options: str) -> Target:
    backend = find_backend(scheme)
    suffix = f"?{options}" if options else ""

    def open_at(path: str) -> Store:
        # A store that outlives nothing has no use for a path, and may refuse one.
        where = path if backend.promises.durability else ""
        return open_store(f"{scheme}:{where}{suffix}")

    return Target(text, backend.promises, open_at, named=True)


def _from_attribute(text: str, module: str, attribute: str) -> Target:
    try:
        found: object = _load(module, text)
        for part in attribute.split("."):
            found = getattr(found, part)
    except AttributeError as error:
        problem = f"module {module!r} has no {attribute!r}; allowed: a Backend or a callable in it"
        raise StoreUrlError("URL-2", text, problem) from error
    if isinstance(found, Backend):
        return Target(text, found.promises, _opener(found), named=True)
    if not callable(found):
        problem = (
            f"{type(found).__name__}; allowed: a Backend, or a callable from a path to a Store"
        )
        raise StoreUrlError("URL-2", text, problem)
    promises = getattr(found, "promises", NOTHING_PROMISED)
    return Target(text, promises, found, named=True)


def _opener(backend: Backend) -> Callable[[str], Store]:
    """Return what opens a store at a path, or nowhere if it outlives nothing."""
    where = bool(backend.promises.durability)
    return lambda path: backend.open(path if where else "", {}, True)


def _load(module: str, text: str) -> object:
    # A backend that is being written is often a file in the current folder, which an installed
    # command does not search.
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and not f"{module}.".startswith(f"{error.name}."):
            problem = f"{module!r} needs the library {error.name!r}, which is not installed"
            raise MissingDriverError("URL-2", text, problem) from error
        names = ", ".join(sorted(backends()))
        problem = f"neither a backend nor a module; backends installed: {names}"
        raise StoreUrlError("URL-2", text, problem) from error


def _is_dotted(text: str) -> bool:
    return all(part.isidentifier() for part in text.split("."))
