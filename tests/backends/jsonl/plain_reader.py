"""A reader that knows no more than docs/reference/format-jsonl.md and the specification.

It uses nothing of the backend: plain `json` and `zlib` read the files. What batches mean is left to
the model of the conformance suite, or to the memory backend where they go on from a snapshot.
"""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec

from pico_conformance.model import Accepted, Model
from pico_store.address import Seq
from pico_store.backends import open_store
from pico_store.batch import Batch
from pico_store.digest import digest
from pico_store.snapshot import SnapshotItem
from pico_store.storage import Storage

PLAIN = b"abcdefghijklmnopqrstuvwxyz0123456789_-"


class DamagedError(Exception):
    """The page says that this is refused."""


def folder_of(store: Path, session: str) -> Path:
    """Return the folder of a session."""
    text = session.encode()
    name = "".join(chr(byte) if byte in PLAIN else f"%{byte:02x}" for byte in text)
    if len(name) > 200:
        name = f"{name[:100]}~{hashlib.sha256(text).hexdigest()}"
    return store / name


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a log's complete lines, without their checksums."""
    found, crc = [], 0
    for line in path.read_bytes().split(b"\n")[:-1]:
        body, seal = line[:-20], line[-20:]
        crc = crc32(body, crc)
        if seal != b',"crc32":"%08x"}' % crc:
            raise DamagedError(f"checksum {seal!r} instead of {crc:08x}")
        found.append(json.loads(body + b"}", object_pairs_hook=_object))
    return found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise DamagedError("a repeated key")
    return dict(pairs)


def read_mark(path: Path) -> int:
    """Return the mark of a control file."""
    text = path.read_bytes() if path.exists() else b""
    if not text.strip(b"\0"):
        return 0
    words: tuple[int, ...] = struct.unpack("<8Q", text)
    if words[0] != int.from_bytes(b"picojsl\x01", "little"):
        raise DamagedError("no control file")
    if any(word // 1024 % 1021 != word % 1024 for word in words[1:5]):
        raise DamagedError("a number of the control file")
    return words[2] // 1024


class PlainReader:
    """A session of a store, read whole."""

    def __init__(self, store: Path, session: str) -> None:
        marker = json.loads((store / "store.json").read_bytes())
        if marker != {"format": "pico-jsonl-store", "version": 1}:
            raise DamagedError(f"{marker}")
        self.session = session
        folder = folder_of(store, session)
        lines = self._checked(folder / "main.jsonl", None)
        mark = read_mark(folder / "control")
        self.batches: list[tuple[int, Batch]] = []
        self.items: list[dict[str, Any]] = []
        self.folded = 0
        if lines and "snapshot" in lines[0]:
            lines = self._take_snapshot(lines)
        live: set[int] = {
            item["id"]
            for item in self.items
            if item["type"] == "task" and item["role"] != "terminal"
        }
        last = self.folded
        for line in lines:
            last = self._take_batch(line, last)
            number = line["first"]
            for write in line["writes"]:
                if write["type"] == "task":
                    live.add(number)
                elif write["type"] == "settle":
                    live.discard(write["id"])
                number += 1
        for task in live:
            path = folder / f"scratch-{task}.jsonl"
            if path.exists():
                before = 0
                for line in self._checked(path, task):
                    before = self._take_batch(line, before)
        self.last_seq = max(mark, self.folded, *(first + _size(b) - 1 for first, b in self.batches))

    def _checked(self, path: Path, task: int | None) -> list[dict[str, Any]]:
        header, *lines = read_lines(path)
        expected: dict[str, Any] = {"format": "pico-jsonl", "version": 1, "session": self.session}
        if task is not None:
            expected["task"] = task
        if header != expected:
            raise DamagedError(f"{path}: {header}")
        return lines

    def _take_batch(self, line: dict[str, Any], last: int) -> int:
        first = line.pop("first")
        if first <= last:
            raise DamagedError(f"{first} after {last}")
        batch: Batch = msgspec.convert(line, Batch)
        until = int(first) + _size(batch) - 1
        if until > self.folded:
            self.batches.append((first, batch))
        line["first"] = first
        return until

    def _take_snapshot(self, lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        header, ranges, position = lines[0]["snapshot"], [], 0
        for index, line in enumerate(lines[1:], 1):
            if "items" in line:
                self.items += line["items"]
            elif "batches" in line:
                numbers = iter(line["batches"])
                for skipped, count in zip(numbers, numbers, strict=True):
                    first, position = position + skipped + 1, position + skipped + count
                    ranges.append({"type": "batch", "first": first, "last": position})
            elif "end" in line:
                if line["end"] != {"lastSeq": header["lastSeq"], "items": len(self.items)}:
                    raise DamagedError(f"{line['end']}")
                self.folded = header["lastSeq"]
                self.items = [header, *_in_order([*self.items, *ranges])]
                return lines[index + 1 :]
        raise DamagedError("a snapshot without an end")

    def digest(self) -> str:
        """Return the digest of the session."""
        batches = sorted(self.batches, key=lambda pair: pair[0])
        if not self.items:
            return self._digest_of_model(batches)
        storage = _loaded([_item(item) for item in self.items])
        for first, batch in batches:
            storage.commit(batch, expected_first=Seq(first))
        return digest(storage.export())

    def _digest_of_model(self, batches: list[tuple[int, Batch]]) -> str:
        model = Model()
        for first, batch in batches:
            _pass_over(model, first - 1)
            verdict = model.judge(batch)
            if not isinstance(verdict, Accepted):
                raise DamagedError(f"{first}: {verdict}")
            model.accept(verdict)
        _pass_over(model, self.last_seq)
        return digest(model.export())


def _pass_over(model: Model, seq: int) -> None:
    """Go on behind numbers that scratch used which is not there any more."""
    state = model.state.copy()
    state.last_seq = Seq(seq)
    model.state = state


def _loaded(items: list[SnapshotItem]) -> Storage:
    store = open_store("memory:")
    store.load("loaded", items)
    return store.open("loaded")


SECTIONS = ("createConversation", "entry", "task", "policy", "value", "element", "marker", "batch")


def _in_order(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the items of a snapshot in canonical order, with the policies that it leaves out."""
    told = {_policy_key(item) for item in items if item["type"] == "policy"}
    gone = {item["conversation"]["id"] for item in items if item["type"] == "deleted"}
    for item in list(items):
        address = item.get("address", {})
        if item["type"] in ("value", "element", "marker") and "conversation" in address:
            shape = "value" if item["type"] == "value" else "list"
            policy = {"type": "policy", "address": address, "shape": shape}
            if address["conversation"] not in gone and _policy_key(policy) not in told:
                told.add(_policy_key(policy))
                items.append(policy)
    return sorted(items, key=_order)


def _policy_key(policy: dict[str, Any]) -> tuple[Any, ...]:
    address, key = policy["address"], policy["address"].get("key")
    where = (address["conversation"], policy["shape"], address["namespace"])
    return (*where, key is not None, key or "")


def _order(item: dict[str, Any]) -> tuple[int, tuple[Any, ...]]:
    kind = item["type"]
    if kind == "deleted":
        return 0, (item["conversation"]["id"],)
    if kind == "policy":
        return SECTIONS.index(kind), _policy_key(item)
    return SECTIONS.index(kind), (item.get("id", item.get("seq", item.get("first"))),)


def _size(batch: Batch) -> int:
    return len(batch.writes)


def _item(item: dict[str, Any]) -> SnapshotItem:
    found: SnapshotItem = msgspec.convert(item, SnapshotItem)
    return found
