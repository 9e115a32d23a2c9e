"""What pico does, in a minute: import, fork, contexts, copies, tasks that are killed, and proofs.

Everything happens in a temporary folder. Ends with 1 if anything that it claims does not hold.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from interrupted import show_interrupted
from pico_store.address import Seq
from pico_store.backends import open_store
from pico_store.context import derive_context
from pico_store.copying import copy_session
from pico_store.digest import digest
from pico_store.storage import Store
from showing import DemoError, expect, heading, run

HERE = Path(__file__).resolve().parent
SMALL = HERE / "session.jsonl"
REAL = HERE.parents[1] / "shared" / "data" / "coding-session.jsonl"
CONFORMANCE_SECONDS = 5


def main() -> int:
    """Run every part; 0 if all of it held."""
    began = time.monotonic()
    proved: list[str] = []
    try:
        with tempfile.TemporaryDirectory(prefix="pico-demo-") as folder:
            url = f"sqlite:{folder}/sessions.db"
            proved += show_sessions(url)
            proved += move_between_backends(url, folder)
            proved += show_interrupted(folder)
        for backend in ("memory", "sqlite"):
            proved.append(prove(backend))
    except DemoError as error:
        print(f"\nTHE DEMO FAILED: {error}", file=sys.stderr)
        return 1
    print(f"\nIn {time.monotonic() - began:.0f} s this showed:")
    for sentence in proved:
        print(f"  - {sentence}")
    return 0


def show_sessions(url: str) -> list[str]:
    """Import, show, fork and compare contexts."""
    heading("A session of a coding agent becomes one of a store")
    run("import", str(SMALL), url, "--session", "tea")
    proved = ["a recorded session with branches, parallel tool calls and a summary was imported"]
    if REAL.exists():
        run("import", str(REAL), url, "--session", "real")
        proved.append("a real session of 1,019 lines was imported, nothing left out")
    run("sessions", url)
    heading("Where people went back and on differently, there is a fork")
    run("show", url, "tea", "--limit", "6")
    heading("A fork at any entry shares the history and copies nothing")
    fork = run("fork", url, "tea", "--at", "17").strip()
    heading("The summary cut the context of the conversation; the fork left before it")
    run("context", url, "tea")
    run("context", url, "tea", "--conversation", fork)
    proved.append(check_contexts(url, Seq(int(fork))))
    return proved


def check_contexts(url: str, fork: Seq) -> str:
    """Compare the two contexts, read through the library."""
    store = open_store(url, create=False)
    tea = store.open("tea", read_only=True)
    root, forked = derive_context(tea, Seq(1)), derive_context(tea, fork)
    store.close()
    expect(root.head is not None, "the conversation's context begins with its summary")
    expect(forked.head is None, "the fork's context knows no summary that came later")
    expect(forked.ids[-1] == 17, "the fork's context ends where it left")
    return "the fork sees what was there at its entry, and not the summary that came later"


def move_between_backends(url: str, folder: str) -> list[str]:
    """Copy to memory and back, compare digests, verify."""
    heading("From SQLite to memory and back into another file: the digests are equal")
    back_url = f"sqlite:{folder}/back.db"
    source, memory, back = (
        open_store(url, create=False),
        open_store("memory:"),
        open_store(back_url),
    )
    for info in source.sessions():
        for origin, target in ((source, memory), (memory, back)):
            copy(origin, target, info.id)
        texts = {session_digest(store, info.id) for store in (source, memory, back)}
        print(f"{info.id:>6}  {'  '.join(sorted(texts))}")
        expect(len(texts) == 1, f"the digests of {info.id} are equal")
    for store in (source, memory, back):
        store.close()
    run("verify", url)
    run("verify", back_url)
    run("backup", url, f"{folder}/backup.db")
    expect(
        run("digest", url) == run("digest", f"sqlite:{folder}/backup.db"), "a backup is equal too"
    )
    return [
        "sessions went from SQLite to memory and back, and into a backup, with equal digests",
        "every checksum on disk holds",
    ]


def copy(source: Store, destination: Store, session: str) -> None:
    """Copy one session."""
    storage = source.open(session, read_only=True)
    report = copy_session(storage, destination, session)
    storage.close()
    expect(report.equal, f"the copy of {session} is equal")


def session_digest(store: Store, session: str) -> str:
    """Return the digest of one session."""
    storage = store.open(session, read_only=True)
    text = digest(storage.export())
    storage.close()
    return text


def prove(backend: str) -> str:
    """Run the conformance suite on a backend for some seconds."""
    heading(
        f"A test of every rule, and {CONFORMANCE_SECONDS} seconds of random histories, "
        f"prove the {backend} backend"
    )
    seconds = str(CONFORMANCE_SECONDS)
    with tempfile.TemporaryDirectory(prefix="pico-demo-") as folder:
        failure = f"{folder}/failure.py"
        output = run("conformance", backend, "--seconds", seconds, "--failure", failure, shown=0)
    lines = output.splitlines()
    verdict = next((line for line in lines if line.startswith(f"{backend}:")), lines[-1])
    print(verdict)
    return f"conformance of {verdict}"


if __name__ == "__main__":
    sys.exit(main())
