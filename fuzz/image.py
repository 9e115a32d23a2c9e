"""What a disk may hold after a power cut, given what was asked of it.

What was synced is there. Of what was not, each write may be there or not, in sectors of 512 bytes;
each cut may be there or not; a file may have grown without its bytes. The names of a folder are as
they were after some number of changes since its last sync.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple

from fuzz.recording import TOP, Ack, Cut, Drop, Move, Node, Op, Put, Sync, Write

SECTOR_BYTES: Final = 512


class Image(NamedTuple):
    """One thing that a disk may hold."""

    at: int
    """After how many operations the power went."""
    acknowledged: int
    """How often the program had been told by then that something is done."""
    files: dict[str, bytes]
    folders: list[str]


@dataclass(slots=True)
class _File:
    durable: bytearray = field(default_factory=bytearray)
    pending: list[Write | Cut] = field(default_factory=list)


@dataclass(slots=True)
class _Folder:
    durable: dict[str, Node] = field(default_factory=dict)
    pending: list[Put | Drop | Move] = field(default_factory=list)


@dataclass(slots=True)
class _Disk:
    files: dict[Node, _File] = field(default_factory=dict)
    folders: dict[Node, _Folder] = field(default_factory=lambda: {TOP: _Folder()})

    def take(self, op: Op) -> None:
        """Do what was asked."""
        match op:
            case Put():
                if op.is_folder:
                    self.folders.setdefault(op.node, _Folder())
                else:
                    self.files.setdefault(op.node, _File())
                self.folders[op.folder].pending.append(op)
            case Drop() | Move():
                self.folders[op.folder].pending.append(op)
            case Write() | Cut():
                self.files[op.file].pending.append(op)
            case Sync():
                self._sync(op.node)
            case Ack():
                pass

    def _sync(self, node: Node) -> None:
        if node in self.folders:
            folder = self.folders[node]
            for change in folder.pending:
                _rename(folder.durable, change)
            folder.pending.clear()
        else:
            file = self.files[node]
            for op in file.pending:
                _write(file.durable, op)
            file.pending.clear()


def images(ops: list[Op], random: Random, count: int, *, from_op: int = 0) -> Iterator[Image]:
    """Yield what the disk may hold when the power goes at random moments, in order of these.

    Args:
        ops: All that was asked.
        random: Chooses.
        count: How many to yield.
        from_op: The first operation that the power may go at.
    """
    moments = sorted(random.randint(from_op, len(ops)) for _ in range(count))
    disk = _Disk()
    done = acknowledged = 0
    for moment in moments:
        for op in ops[done:moment]:
            disk.take(op)
            if isinstance(op, Ack):
                acknowledged = op.number
        done = moment
        files: dict[str, bytes] = {}
        folders: list[str] = []
        _collect(disk, TOP, "", random, files, folders)
        yield Image(moment, acknowledged, files, folders)


def _collect(
    disk: _Disk,
    node: Node,
    path: str,
    random: Random,
    files: dict[str, bytes],
    folders: list[str],
) -> None:
    folder = disk.folders[node]
    names = dict(folder.durable)
    for change in folder.pending[: _some(random, len(folder.pending))]:
        _rename(names, change)
    for name, child in names.items():
        place = f"{path}/{name}" if path else name
        if child in disk.folders:
            folders.append(place)
            _collect(disk, child, place, random, files, folders)
        else:
            files[place] = _content(disk.files[child], random)


def _some(random: Random, count: int) -> int:
    return random.choice((0, count, random.randint(0, count)))


def _rename(names: dict[str, Node], change: Put | Drop | Move) -> None:
    match change:
        case Put():
            names[change.name] = change.node
        case Drop():
            names.pop(change.name, None)
        case Move():
            node = names.pop(change.name, None)
            if node is not None:
                names[change.new] = node


def _content(file: _File, random: Random) -> bytes:
    content = bytearray(file.durable)
    pending = file.pending
    if not pending:
        return bytes(content)
    way = random.random()
    if way < 0.15:
        pass  # Nothing of it.
    elif way < 0.3:
        for op in pending:
            _write(content, op)
    elif way < 0.5:
        # In order, the last of them torn.
        kept = random.randint(0, len(pending) - 1)
        for op in pending[:kept]:
            _write(content, op)
        _write_some(content, pending[kept], random, 0.5)
    else:
        share = random.choice((0.1, 0.5, 0.9))
        for op in pending:
            _write_some(content, op, random, share)
    if random.random() < 0.2:
        size = max(op.offset + len(op.data) if isinstance(op, Write) else 0 for op in pending)
        content.extend(bytes(max(0, size - len(content))))
    return bytes(content)


def _write(content: bytearray, op: Write | Cut) -> None:
    if isinstance(op, Cut):
        del content[op.size :]
        content.extend(bytes(op.size - len(content)))
        return
    if len(content) < op.offset:
        content.extend(bytes(op.offset - len(content)))
    content[op.offset : op.offset + len(op.data)] = op.data


def _write_some(content: bytearray, op: Write | Cut, random: Random, share: float) -> None:
    """Do a part of what was asked: some sectors of a write, all or nothing of a cut."""
    if isinstance(op, Cut):
        if random.random() < share:
            _write(content, op)
        return
    start, end = op.offset, op.offset + len(op.data)
    while start < end:
        stop = min(end, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
        if random.random() < share:
            data = op.data[start - op.offset : stop - op.offset]
            _write(content, Write(op.file, start, data))
        start = stop
