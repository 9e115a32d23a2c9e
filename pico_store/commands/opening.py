"""Opening what a command line names: stores, sessions, positions."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterator
from contextlib import contextmanager

from pico_store.address import Seq
from pico_store.backends import find_backend, open_store, split_url
from pico_store.command import UsageError
from pico_store.errors import SessionOwnedError, StoreUnusableError, UnknownSessionError
from pico_store.query import EntryQuery
from pico_store.records import At
from pico_store.storage import Storage, Store

_LISTED = 10
# A third party's backend may keep a store in either.
_FOLDERS = ("jsonl", "lmdb")


def add_store(parser: ArgumentParser) -> None:
    """Declare the argument that names a store."""
    parser.add_argument("store", metavar="STORE", help="a store's URL, such as sqlite:sessions.db")


def add_session(parser: ArgumentParser) -> None:
    """Declare the argument that names a session of the store."""
    parser.add_argument(
        "session", metavar="SESSION", nargs="?", help="needed if the store holds several"
    )


def add_conversation(parser: ArgumentParser) -> None:
    """Declare the option that names a conversation."""
    parser.add_argument(
        "--conversation",
        metavar="ID",
        type=number,
        default=Seq(1),
        help="the conversation; the root one, 1, if not given",
    )


def number(text: str) -> Seq:
    """Return the number that a text states, from 1."""
    return _number(text, "1 or more")


def position(text: str) -> At:
    """Return the position that a text states."""
    return "start" if text == "start" else _number(text, "an entry's number from 1, or start")


def _number(text: str, allowed: str) -> Seq:
    # Nobody means a longer number, and the interpreter refuses some.
    if not text.isascii() or not text.isdigit() or len(text) > 20 or not int(text):
        raise ArgumentTypeError(f"{text[:40]!r}; allowed: {allowed}")
    return Seq(int(text))


@contextmanager
def existing_store(url: str) -> Iterator[Store]:
    """Open a store that is there already; never makes one."""
    if not _lasts(url):
        problem = "keeps nothing from one command to the next"
        raise UsageError(f"{url} {problem}; name a store on disk, such as sqlite:sessions.db")
    try:
        store = open_store(url, create=False)
    except StoreUnusableError as error:
        if type(error) is StoreUnusableError and str(error).startswith("no store at"):
            hint = _leads_nowhere(url) or f"make one: pico import FILE {url}"
            raise StoreUnusableError(f"{error}; {hint}") from error
        raise
    try:
        yield store
    finally:
        store.close()


@contextmanager
def new_or_existing_store(url: str) -> Iterator[Store]:
    """Open a store to write into, and say so where nothing of it will last."""
    if not _lasts(url):
        print(f"pico: {url} ends with this command; nothing of it is kept", file=sys.stderr)
    store = _made(url)
    try:
        yield store
    finally:
        store.close()


def _made(url: str) -> Store:
    try:
        return open_store(url)
    except StoreUnusableError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            folder = os.path.dirname(os.path.abspath(split_url(url)[1]))
            hint = _leads_nowhere(url) or ("" if os.path.isdir(folder) else "make the folder first")
            if hint:
                raise StoreUnusableError(f"{error}; {hint}") from error
        raise


def _leads_nowhere(url: str) -> str:
    """Return what to say of a link to nothing, and of a home folder that nobody has filled in."""
    _, path, _ = split_url(url)
    if os.path.islink(path) and not os.path.exists(path):
        return f"it is a link to {os.readlink(path)}, which is not there"
    return "~ is not expanded inside a URL; write $HOME" if path.startswith("~") else ""


def _lasts(url: str) -> bool:
    scheme, path, _ = split_url(url)
    backend = find_backend(scheme)
    if backend.promises.durability and not path:
        what = "file" if scheme == "sqlite" else "folder" if scheme in _FOLDERS else "path"
        raise UsageError(f"{url} names no {what}; write it as {scheme}:{what.upper()}")
    return bool(backend.promises.durability)


@contextmanager
def session(store: Store, name: str | None, *, read_only: bool = True) -> Iterator[Storage]:
    """Open the named session, or the only one of the store."""
    name = only_session(store) if name is None else name
    try:
        storage = store.open(name, read_only=read_only)
    except UnknownSessionError as error:
        problem = f"no session {name!r:.60} in {store.url}"
        raise UsageError(f"{problem}; pico sessions {store.url} lists them") from error
    except SessionOwnedError as error:
        # What the message advises is for programs.
        owned = str(error).rpartition("; close it there")[0] or str(error)
        problem = f"{owned}; wait until it closes the session, or end that process"
        raise SessionOwnedError(problem) from error
    try:
        yield storage
    finally:
        storage.close()


def check_shown(storage: Storage, conversation: Seq, at: At | None) -> None:
    """Refuse a position that is no entry of the conversation.

    Raises:
        UsageError: The conversation does not exist, or does not show the entry.
    """
    if conversation not in storage.get_conversations([conversation]):
        raise UsageError(f"no conversation {conversation}; pico show lists them")
    if at is None or at == "start":
        return
    query = EntryQuery(conversation_id=conversation, from_=at, through=at, limit=1)
    if not storage.scan_entries(query).items:
        problem = f"conversation {conversation} shows no entry {at}"
        raise UsageError(f"{problem}; pico show lists what it shows")


def only_session(store: Store) -> str:
    """Return the id of the only session of a store.

    Raises:
        UsageError: It holds none or several; the message names some.
    """
    ids = [info.id for info in store.sessions()]
    if len(ids) == 1:
        return ids[0]
    if not ids:
        raise UsageError(f"{store.url} holds no session; make one: pico import FILE {store.url}")
    some = ", ".join(ids[:_LISTED])
    more = f" and {len(ids) - _LISTED:,} more" if len(ids) > _LISTED else ""
    raise UsageError(f"{store.url} holds {len(ids):,} sessions; name one of: {some}{more}")
