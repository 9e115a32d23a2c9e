"""Another process that opens the same store: `python -m pico_conformance.elsewhere` serves it.

The server never opens a store itself; each request is served by a child of its own, so that
every one of them is a new process to the backend.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

import msgspec

from pico_conformance.target import resolve_target
from pico_store.digest import digest
from pico_store.errors import PicoError


class Request(msgspec.Struct, frozen=True):
    """Which session to open."""

    target: str
    path: str
    session: str


class Reply(msgspec.Struct, frozen=True):
    """What another process found there."""

    digest: str = ""
    last_seq: int = 0
    epoch: int = 0
    error: str = ""
    """The class of the error that opening raised, if it did."""
    message: str = ""


@dataclass(slots=True)
class Elsewhere:
    """The other process, seen from here."""

    _server: subprocess.Popen[bytes]

    def open(self, target: str, path: str, session: str) -> Reply:
        """Open a session for writing in a new process, read all of it and close it."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(msgspec.json.encode(Request(target, path, session)) + b"\n")
        self._server.stdin.flush()
        line = self._server.stdout.readline()
        if not line:
            return Reply(error="EOFError", message="the other process ended")
        return msgspec.json.decode(line, type=Reply)


@contextmanager
def start_elsewhere() -> Iterator[Elsewhere]:
    """Start the server; it ends with the block."""
    command = [sys.executable, "-m", "pico_conformance.elsewhere"]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield Elsewhere(server)
    finally:
        server.communicate()


def serve(requests: IO[bytes], replies: IO[bytes]) -> None:
    """Answer requests, one a line, until there are no more."""
    for line in requests:
        request = msgspec.json.decode(line, type=Request)
        # Loaded here, so that the children need not; a backend opens nothing when it is imported.
        resolve_target(request.target)
        child = os.fork()
        if child == 0:
            try:
                replies.write(msgspec.json.encode(_answer(request)) + b"\n")
                replies.flush()
            finally:
                os._exit(0)
        os.waitpid(child, 0)


def _answer(request: Request) -> Reply:
    try:
        store = resolve_target(request.target).open_store(request.path)
        try:
            storage = store.open(request.session)
            found = Reply(digest(storage.export()), storage.last_seq, storage.epoch)
            storage.close()
        finally:
            store.close()
    except PicoError as error:
        return Reply(error=type(error).__name__, message=str(error))
    except Exception as error:  # noqa: BLE001 - a third party's backend may raise anything
        return Reply(error=type(error).__name__, message=f"{error!s:.1000}")
    return found


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
