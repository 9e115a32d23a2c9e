"""Writes the test vectors of the format: `python -m tests.backends.jsonl.make_vectors FOLDER`.

They are part of the format: written once, and read by every later version. Make new ones beside
them when the format changes.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from pico_jsonl import JsonlStore
from pico_store.address import ScratchAddress, Seq, SessionAddress
from pico_store.batch import ListAppend, MainBatch, ScratchBatch, ValueSet
from pico_store.digest import digest
from pico_store.records import JsonValue
from pico_store.storage import Storage
from tests.backends.jsonl.scene import (
    ROOT_BATCH,
    append_line,
    copied,
    entry,
    frame,
    main_of,
    note,
    settling,
    task,
)
from tests.backends.sqlite.scene import HISTORY, LAST, batches

STRINGS = '\x00\x1f"\\/\x7f\u0080\u00e9\u2028\u2029\ufffe\U0001f642'
NUMBERS: JsonValue = [0, -1, 2**53 + 1, -(2**63), 2**64 - 1, 0.1, -0.0, 5e-324, 1e308, 1e22, 1.0]


def make(folder: Path) -> None:
    """Write all vectors and what a reader must find in them."""
    expected: dict[str, dict[str, object]] = {}
    for name, (session, fill) in VECTORS.items():
        with tempfile.TemporaryDirectory() as temporary:
            store = JsonlStore(f"{temporary}/store")
            storage = store.create(session)
            fill(storage, store)
            found = {"session": session, "lastSeq": storage.last_seq}
            expected[name] = {**found, "digest": digest(storage.export())}
            # Not closed: what a crash leaves is a vector too.
            copied(Path(temporary) / "store", folder / name)
            store.close()
    for name, spoil in DAMAGED.items():
        shutil.copytree(folder / "batches", folder / name)
        main = main_of(folder / name)
        main.write_bytes(spoil(main.read_bytes()))
        (folder / name / "a" / "control").unlink()
        expected[name] = {"session": "a", "damaged": True}
    _spell_otherwise(folder, expected)
    text = json.dumps(expected, indent=1, sort_keys=True)
    (folder / "expected.json").write_text(text + "\n")


def _batches(storage: Storage, store: JsonlStore) -> None:
    for batch in HISTORY:
        storage.commit(batch)
    storage.commit(batches(LAST)["scratch"])
    storage.commit(batches(storage.last_seq)["state"])


def _values(storage: Storage, store: JsonlStore) -> None:
    storage.commit(ROOT_BATCH)
    address = SessionAddress(STRINGS, STRINGS)
    storage.commit(MainBatch((ValueSet(address, {STRINGS: NUMBERS, "": [], "e": {}}),)))
    storage.commit(MainBatch((entry(3, data=None), entry(4, data=[True, False, None]))))


def _crashed(storage: Storage, store: JsonlStore) -> None:
    storage.commit(ROOT_BATCH)
    storage.commit(MainBatch((task(2), task(3))))
    for number in range(3):
        storage.commit(frame(number, Seq(2)))
        storage.commit(frame([number], Seq(3)))
    storage.commit(settling(Seq(2)))
    storage.commit(frame("last", Seq(3)))


def _snapshot(storage: Storage, store: JsonlStore) -> None:
    _batches(storage, store)
    store.vacuum()


def _grown_snapshot(storage: Storage, store: JsonlStore) -> None:
    _snapshot(storage, store)
    storage.commit(batches(storage.last_seq)["first scratch"])
    note(storage, "later")  # type: ignore[arg-type]


def _many_items(storage: Storage, store: JsonlStore) -> None:
    storage.commit(MainBatch((*ROOT_BATCH.writes, task(2))))
    address = ScratchAddress(Seq(2), "frames")
    for number in range(60):
        storage.commit(ScratchBatch(Seq(2), (ListAppend(address, "x" * 900),)))
        storage.commit(MainBatch((ValueSet(SessionAddress("n", str(number)), number),)))
    store.vacuum()


_Fill = Callable[[Storage, JsonlStore], None]
VECTORS: dict[str, tuple[str, _Fill]] = {
    "batches": ("a", _batches),
    "values": ("a", _values),
    "crashed": ("A session.", _crashed),
    "snapshot": ("a", _snapshot),
    "grown-snapshot": ("\u00e9" * 512, _grown_snapshot),
    "many-items": ("../a", _many_items),
}


def _flipped(text: bytes) -> bytes:
    at = text.index(b'"value":') + 8
    return text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :]


def _without_a_line(text: bytes) -> bytes:
    lines = text.splitlines(keepends=True)
    return b"".join(lines[:2] + lines[3:])


DAMAGED: dict[str, Callable[[bytes], bytes]] = {
    "flipped": _flipped,
    "without-a-line": _without_a_line,
    "newer": lambda text: text.replace(b'"version":1', b'"version":2', 1),
}


def _spell_otherwise(folder: Path, expected: dict[str, dict[str, object]]) -> None:
    """Write the batches again with blanks, another order of members, and a torn last line."""
    shutil.copytree(folder / "batches", folder / "spelled-otherwise")
    main = main_of(folder / "spelled-otherwise")
    _, *lines = main.read_bytes().splitlines()
    header = main.read_bytes().splitlines(keepends=True)[0]
    main.write_bytes(header)
    for line in lines:
        members = json.loads(line)
        del members["crc32"]
        turned = json.dumps(dict(reversed(members.items())), separators=(" ,\t", ": "))
        append_line(main, turned[:-1].encode() + b" ")
    main.write_bytes(main.read_bytes() + b'{"first":99,"kind":"main","writes":[]')
    expected["spelled-otherwise"] = expected["batches"]


if __name__ == "__main__":
    make(Path(sys.argv[1]))
