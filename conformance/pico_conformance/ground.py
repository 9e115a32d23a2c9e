"""What a mistake is made from: the state that it meets, and chance."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple, TypeAlias, TypeVar

from msgspec.structs import replace

from pico_conformance.model_state import State
from pico_store.address import Seq
from pico_store.records import Entry, Task

T = TypeVar("T")


class Ground(NamedTuple):
    """What a mistake can be made from."""

    state: State
    """As the last commit left it."""
    seq: Seq
    """The number that the wrong write gets."""
    random: Random

    def conversation(self) -> Seq:
        """Return a live conversation, or the root's number in an empty session."""
        live = self.state.live_conversations()
        return self.random.choice(live).id if live else Seq(1)

    def pick(self, found: list[T]) -> T | None:
        """Return one of what was found, if anything was."""
        return self.random.choice(found) if found else None

    def entry(self) -> Entry:
        """Return an entry that may be written here."""
        return Entry(id=self.seq, conversation_id=self.conversation(), kind="note")

    def task(self) -> Task:
        """Return a task that may be written here."""
        return Task(
            id=self.seq,
            conversation_id=self.conversation(),
            kind="work",
            status="ready",
            role="start",
            state={"status": "ready"},
        )

    def live_task(self) -> Seq | None:
        """Return a task that may be patched."""
        return self.pick([id for id in self.state.tasks if self.state.is_live_task(id)])

    def terminal_task(self) -> Seq | None:
        """Return a terminal task of a live conversation."""
        state = self.state
        return self.pick(
            [id for id in state.tasks if state.task(id) and not state.is_live_task(id)]
        )

    def deleted(self) -> Seq | None:
        """Return a deleted conversation."""
        return self.pick(list(self.state.deleted))

    def nothing(self) -> Seq:
        """Return a number that names no record."""
        return Seq(self.random.choice((self.seq + 1, self.seq + 1000, 2**53 - 1)))


def forged(record: T, **fields: object) -> T:
    """Return a record with fields that its type would not allow."""
    made: T = replace(record, **fields)  # type: ignore[type-var]
    return made


WriteMistake: TypeAlias = Callable[[Ground], object | None]
"""Makes a wrong write, or none where the state does not allow that mistake."""
