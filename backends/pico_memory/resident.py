"""A session's state together with the lock that keeps readers and the committer apart."""

from __future__ import annotations

from threading import Lock

from pico_memory.state import SessionState
from pico_memory.view import MemoryView


class Resident:
    """One session in memory, shared by all of its handles.

    Guarantees: Who holds ``lock`` and takes the state from `settled` meets the state after a whole
    batch.
    """

    __slots__ = ("lock", "view")

    def __init__(self, state: SessionState) -> None:
        self.lock = Lock()
        self.view = MemoryView(state)

    def settled(self) -> SessionState:
        """Return the state, after taking back what an interrupted commit may have left."""
        state = self.view.state
        if state.journal:
            state.recover()
        return state

    def replace(self, state: SessionState) -> None:
        """Go on with another state."""
        self.view = MemoryView(state)
