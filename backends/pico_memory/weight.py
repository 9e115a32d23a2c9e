"""How much a session's state holds, reachable or not."""

from __future__ import annotations

from collections.abc import Iterator

from pico_memory.rows import Body
from pico_memory.scope import RewindList, Scope
from pico_memory.state import SessionState


def weigh(state: SessionState) -> tuple[int, int]:
    """Return the number of records that a state holds, and the bytes of the payloads in it."""
    sizes = [_size(row[-1]) for row in state.entries.values()]
    sizes += [_size(row[-1]) for row in state.tasks.values()]
    sizes += [0] * (len(state.conversations) + len(state.deleted))
    scratch = (held.scope for held in state.scratch.values())
    for scope in (state.session, *state.scopes.values(), *scratch):
        sizes += _scope_sizes(scope)
    return len(sizes), sum(sizes)


def _scope_sizes(scope: Scope) -> Iterator[int]:
    for space in scope.values.values():
        for cell in space.cells.values():
            for _, body in cell if isinstance(cell, list) else [cell]:
                yield _size(body)
    for found in scope.lists.values():
        if isinstance(found, RewindList):
            yield from (0 for _ in (*found.removed, *found.clears))
        items = found.items if isinstance(found, RewindList) else found
        yield from (_size(body) for _, body in items)


def _size(body: Body | None) -> int:
    return len(body) if type(body) is bytes else 0
