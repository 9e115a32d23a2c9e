"""What a host decides about tasks before it drives: which go on, and which are given up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pico_harness.errors import UnknownTaskError
from pico_harness.harness import Harness, Inspection
from pico_store.address import Seq
from pico_store.command import UsageError
from pico_store.records import Task


@dataclass(frozen=True, slots=True)
class Decisions:
    """Tasks that were named on the command line."""

    resume: tuple[Seq, ...]
    abort: tuple[Seq, ...]

    def __bool__(self) -> bool:
        return bool(self.resume or self.abort)

    def check(self, seen: Inspection, kinds: frozenset[str]) -> None:
        """Refuse what could not be carried out, before anything is.

        Args:
            seen: The session as it was opened.
            kinds: The names of the kinds that can run.

        Raises:
            UsageError: A task is not live, or not parked, or of no use to be resumed.
        """
        live = {task.id: task for task in _all(seen)}
        for id in (*self.resume, *self.abort):
            if id not in live:
                raise UsageError(f"task {id} is not live; pico inspect lists those that are")
        for id in self.resume:
            if id in self.abort:
                raise UsageError(f"task {id} is named by both --resume and --abort; choose one")
            kind = live[id].kind
            if kind not in kinds:
                problem = f"task {id} is of kind {kind!r:.60}, which --kinds does not name"
                raise UsageError(f"{problem}; name it too, for it runs when it is resumed")
            if id not in {task.id for task in seen.parked}:
                problem = f"task {id} is not parked, and goes on when it is driven"
                raise UsageError(f"{problem}; pico inspect lists those that are parked")
            if id in seen.unreadable and not live[id].abort:
                # It is parked for more than its losses, and would stay so.
                problem = f"task {id} cannot be read by its kind: {seen.unreadable[id]}"
                raise UsageError(
                    f"{problem}; name a kind that reads it, or give it up with --abort"
                )

    async def carry_out(self, harness: Harness) -> None:
        """Forget the losses of the tasks, and mark those that are given up."""
        for id in self.resume:
            await harness.resume_task(id)
        for id in self.abort:
            # A count that stays would park the task again, and its abort with it, in whoever
            # drives it: here, or after the next open.
            try:
                await harness.resume_task(id)
            except UnknownTaskError:
                pass
            await harness.abort_task(id)


def decisions(resume: Iterable[Seq], abort: Iterable[Seq]) -> Decisions:
    """Return what was named, each task once."""
    return Decisions(tuple(dict.fromkeys(resume)), tuple(dict.fromkeys(abort)))


def _all(seen: Inspection) -> Iterable[Task]:
    return (*seen.start, *seen.inflight, *seen.orphaned, *seen.parked)
