"""What was asked of a disk: calls as they were made, put into terms of files and folders."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

Node: TypeAlias = int
"""A file or folder, whatever it is called by now."""

TOP: Final[Node] = 0
"""The folder below which everything is."""


class Put(NamedTuple):
    """A name in a folder leads to a node, which may be new."""

    folder: Node
    name: str
    node: Node
    is_folder: bool = False


class Drop(NamedTuple):
    """A name is removed."""

    folder: Node
    name: str


class Move(NamedTuple):
    """A name becomes another one, in place of what had that."""

    folder: Node
    name: str
    new: str


class Write(NamedTuple):
    """Bytes are put into a file."""

    file: Node
    offset: int
    data: bytes


class Cut(NamedTuple):
    """A file gets another size."""

    file: Node
    size: int


class Sync(NamedTuple):
    """A file or a folder's names are made durable."""

    node: Node


class Ack(NamedTuple):
    """The program was told that something is done; by their number."""

    number: int


Op: TypeAlias = Put | Drop | Move | Write | Cut | Sync | Ack


@dataclass(slots=True)
class _Descriptor:
    node: Node
    position: int
    appends: bool
    syncs: bool


@dataclass(slots=True)
class Recording:
    """Takes calls and keeps what they did below a folder."""

    root: str
    ops: list[Op] = field(default_factory=list)
    mapped: set[str] = field(default_factory=set)
    """Names of files that change through memory, which no call tells of."""
    _nodes: dict[str, Node] = field(default_factory=dict)
    _sizes: dict[Node, int] = field(default_factory=dict)
    _seen: dict[Node, bytes] = field(default_factory=dict)
    _open: dict[int, _Descriptor] = field(default_factory=dict)
    _next: Node = 1

    def __post_init__(self) -> None:
        self._nodes[self.root] = TOP

    # --- Calls ---

    def opened(self, fd: int, path: str, flags: int) -> None:
        """A file or folder was opened, and made if it was not there and the flags say so."""
        node = self._nodes.get(path)
        if node is None:
            if not flags & os.O_CREAT or os.path.dirname(path) not in self._nodes:
                return
            node = self._new(path)
        elif flags & os.O_TRUNC:
            self.ops.append(Cut(node, 0))
            self._sizes[node] = 0
        appends, syncs = bool(flags & os.O_APPEND), bool(flags & os.O_DSYNC)
        self._open[fd] = _Descriptor(node, 0, appends, syncs)

    def closed(self, fd: int) -> None:
        """A descriptor was closed."""
        self._open.pop(fd, None)

    def wrote(self, fd: int, data: bytes, offset: int | None = None) -> None:
        """Bytes were written where the descriptor is, or at an offset."""
        self._look()
        found = self._open.get(fd)
        if found is None or not data:
            return
        node = found.node
        if offset is None:
            offset = self._sizes[node] if found.appends else found.position
            found.position = offset + len(data)
        self.ops.append(Write(node, offset, data))
        self._sizes[node] = max(self._sizes[node], offset + len(data))
        if found.syncs:
            self.ops.append(Sync(node))

    def moved(self, fd: int, position: int) -> None:
        """The next write of a descriptor goes elsewhere."""
        found = self._open.get(fd)
        if found is not None:
            found.position = position

    def cut(self, fd: int, size: int) -> None:
        """A file was given another size."""
        found = self._open.get(fd)
        if found is not None:
            self.ops.append(Cut(found.node, size))
            self._sizes[found.node] = size

    def synced(self, fd: int) -> None:
        """A file or folder was made durable."""
        self._look()
        found = self._open.get(fd)
        if found is not None:
            self.ops.append(Sync(found.node))

    def synced_folder_of(self, path: str) -> None:
        """The names beside a path were made durable."""
        self.ops.append(Sync(self._nodes[os.path.dirname(path)]))

    def made_folder(self, path: str) -> None:
        """A folder was made."""
        if os.path.dirname(path) in self._nodes:
            self._new(path, is_folder=True)

    def linked(self, path: str, new: str) -> None:
        """A file got a second name."""
        node = self._nodes.get(path)
        if node is not None:
            self._nodes[new] = node
            self.ops.append(Put(*self._place(new), node))

    def removed(self, path: str) -> None:
        """A name was removed."""
        if self._nodes.pop(path, None) is not None:
            self.ops.append(Drop(*self._place(path)))

    def renamed(self, path: str, new: str) -> None:
        """A name became another one of the same folder."""
        if path not in self._nodes:
            return
        assert os.path.dirname(path) == os.path.dirname(new), f"{path} to another folder: {new}"
        folder, name = self._place(path)
        self.ops.append(Move(folder, name, os.path.basename(new)))
        for known in list(self._nodes):
            if known == path or known.startswith(f"{path}/"):
                self._nodes[new + known[len(path) :]] = self._nodes.pop(known)

    def acknowledged(self, count: int) -> None:
        """The program was told something."""
        self._look()
        self.ops.append(Ack(count))

    # --- Keeping ---

    def _new(self, path: str, *, is_folder: bool = False) -> Node:
        node = self._next
        self._next += 1
        self._nodes[path] = node
        self._sizes[node] = 0
        self.ops.append(Put(*self._place(path), node, is_folder))
        return node

    def _place(self, path: str) -> tuple[Node, str]:
        return self._nodes[os.path.dirname(path)], os.path.basename(path)

    def _look(self) -> None:
        """Take notice of what changed through memory."""
        if not self.mapped:
            return
        for path, node in self._nodes.items():
            if os.path.basename(path) in self.mapped:
                try:
                    with open(path, "rb") as file:
                        content = file.read()
                except FileNotFoundError:
                    continue
                if self._seen.get(node) != content:
                    self._seen[node] = content
                    self.ops.append(Write(node, 0, content))
