"""The conversations that a tree of messages makes: a path each, forks where it parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pico_store.importing.errors import TranscriptError
from pico_store.importing.transcript import Node


@dataclass(frozen=True, slots=True)
class Branch:
    """One conversation of a transcript."""

    follows: int | None
    """The node that it forks at; ``None``: it inherits nothing."""
    path: list[int]
    """Its own nodes, in order; at least one."""


def branches(nodes: Sequence[Node]) -> list[Branch]:
    """Return the conversations, the main one first and each fork behind its parent.

    The main one is the path to the message that stands last in the file, sidechains aside. Where
    a path parts, it goes on with the part that was written to last; the others are forks.

    Raises:
        TranscriptError: Messages follow one another in a circle.
    """
    children: dict[int | None, list[int]] = {}
    for index, node in enumerate(nodes):
        children.setdefault(node.parent, []).append(index)
    roots = children.get(None, [])
    order = _reachable(roots, children)
    if len(order) < len(nodes):
        lost = min(set(range(len(nodes))) - set(order))
        raise TranscriptError("follows itself, by its parents", nodes[lost].line)
    latest = [node.last_line for node in nodes]
    for index in reversed(order):
        parent = nodes[index].parent
        if parent is not None:
            latest[parent] = max(latest[parent], latest[index])
    # A file of a sidechain alone has nothing else to be the main one.
    main = max(roots, key=lambda root: (not nodes[root].side, latest[root]))
    found: list[Branch] = []
    waiting = [(root, None) for root in reversed(roots) if root != main]
    open_paths: list[tuple[int, int | None]] = [*waiting, (main, None)]
    while open_paths:
        start, follows = open_paths.pop()
        path = [start]
        parted: list[tuple[int, int | None]] = []
        while below := children.get(path[-1]):
            onward = max(below, key=lambda child: latest[child])
            parted += [(child, path[-1]) for child in below if child != onward]
            path.append(onward)
        found.append(Branch(follows, path))
        open_paths += reversed(parted)
    return found


def _reachable(roots: list[int], children: dict[int | None, list[int]]) -> list[int]:
    """Return every node below the roots, parents before their children."""
    order = list(roots)
    for index in order:
        order += children.get(index, ())
    return order
