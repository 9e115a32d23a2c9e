"""A pipeline of durable tasks: count the words of books, chapter by chapter, and add them up.

`python pipeline.py STORE` plans the work, `pico drive STORE --kinds pipeline:kinds` does it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from typing import ClassVar

from pico_harness import (
    EntryKind,
    Harness,
    RunnableKind,
    TaskKind,
    TaskOf,
    TaskRuntime,
    TaskState,
    Tx,
)
from pico_store.address import Seq
from pico_store.backends import open_store
from pico_store.errors import SessionExistsError
from pico_store.records import JsonObject, TaskRole

CHAPTER_MS = 100
STUCK = os.environ.get("PIPELINE_STUCK", "")
"""A chapter that never comes to its end, so that there is a middle to be killed in."""


class Aborted(TaskState, frozen=True):
    """Given up because somebody asked for it."""


# --- One chapter ---


class Planned(TaskState, frozen=True):
    """A chapter that nobody has begun to read."""

    title: str
    text: str


class Counting(TaskState, frozen=True):
    """A chapter that somebody reads, or read when the process ended."""

    title: str
    text: str


class Counted(TaskState, frozen=True):
    """A chapter and its words."""

    title: str
    words: int


ChapterStates = Planned | Counting | Counted | Aborted


class Chapter(TaskKind[ChapterStates]):
    """Counts the words of one chapter."""

    name = "chapter"
    states: ClassVar[Mapping[type[TaskState], TaskRole]] = {
        Planned: "start",
        Counting: "inflight",
        Counted: "terminal",
        Aborted: "terminal",
    }

    async def execute(self, task: TaskOf[ChapterStates], runtime: TaskRuntime) -> None:
        assert isinstance(task.state, Planned)
        counting = Counting(task.state.title, task.state.text)
        # The intent comes first: whoever finds this task after a crash knows that reading began.
        await runtime.commit(lambda tx: tx.patch(task.id, counting))
        await self._count(task.id, counting, runtime)

    async def recover(self, task: TaskOf[ChapterStates], runtime: TaskRuntime) -> None:
        assert isinstance(task.state, Counting)
        # Reading changes nothing outside, so doing it twice does no harm.
        await self._count(task.id, task.state, runtime)

    async def abort(self, task: TaskOf[ChapterStates], runtime: TaskRuntime) -> None:
        await runtime.commit(lambda tx: tx.settle(task.id, Aborted()))

    async def _count(self, id: Seq, chapter: Counting, runtime: TaskRuntime) -> None:
        await runtime.sleep(runtime.now() + CHAPTER_MS)
        if chapter.title == STUCK:
            await asyncio.Event().wait()
        counted = Counted(chapter.title, len(chapter.text.split()))
        await runtime.commit(lambda tx: tx.settle(id, counted))


# --- The sum of what others found ---


class Waiting(TaskState, frozen=True):
    """Nothing to say yet."""

    title: str


class Summed(TaskState, frozen=True):
    """All words together."""

    words: int


SumStates = Waiting | Summed | Aborted
said = EntryKind[dict[str, int]]("count")


class Sum(TaskKind[SumStates]):
    """Adds up what the tasks found that it is after, and writes it into the transcript."""

    name = "sum"
    states: ClassVar[Mapping[type[TaskState], TaskRole]] = {
        Waiting: "start",
        Summed: "terminal",
        Aborted: "terminal",
    }

    async def execute(self, task: TaskOf[SumStates], runtime: TaskRuntime) -> None:
        assert isinstance(task.state, Waiting)
        words = 0
        for part in (await runtime.get_tasks(chapter, task.after)).values():
            match part.state:
                case Counted(words=found):
                    words += found
        for whole in (await runtime.get_tasks(book, task.after)).values():
            match whole.state:
                case Read(words=found):
                    words += found
        title = task.state.title
        message: JsonObject = {"role": "user", "content": f"{title}: {words} words", "timestamp": 0}

        def settle(tx: Tx) -> None:
            tx.entry(said, {"words": words}, model=[message])
            tx.settle(task.id, Summed(words))

        # No effect outside, so no status in between: it is not begun, or it is done.
        await runtime.commit(settle)

    async def recover(self, task: TaskOf[SumStates], runtime: TaskRuntime) -> None:
        raise AssertionError("a kind without a status of role inflight is never recovered")

    async def abort(self, task: TaskOf[SumStates], runtime: TaskRuntime) -> None:
        await runtime.commit(lambda tx: tx.settle(task.id, Aborted()))


# --- A book: a conversation of its own, with a task for each chapter ---


class Shelved(TaskState, frozen=True):
    """A book that nobody has opened."""

    title: str
    chapters: dict[str, str]


class Reading(TaskState, frozen=True):
    """A book whose chapters are being read."""

    child: Seq
    """The conversation that the chapters' tasks are in."""
    sum: Seq


class Read(TaskState, frozen=True):
    """A book and its words."""

    words: int


BookStates = Shelved | Reading | Read | Aborted


class Book(TaskKind[BookStates]):
    """Has the chapters of a book counted in a conversation that it owns."""

    name = "book"
    states: ClassVar[Mapping[type[TaskState], TaskRole]] = {
        Shelved: "start",
        Reading: "inflight",
        Read: "terminal",
        Aborted: "terminal",
    }

    async def execute(self, task: TaskOf[BookStates], runtime: TaskRuntime) -> None:
        assert isinstance(task.state, Shelved)
        shelved = task.state

        def begin(tx: Tx) -> Reading:
            child = tx.create_conversation(owner=task.id)
            chapters = [
                tx.task(chapter, Planned(title, text), conversation=child)
                for title, text in shelved.chapters.items()
            ]
            sum = tx.task(total, Waiting(shelved.title), conversation=child, after=chapters)
            reading = Reading(child, sum)
            tx.patch(task.id, reading)
            return reading

        # One commit: the conversation, its tasks and the book's own status are there together.
        await self._read(task.id, await runtime.commit(begin), runtime)

    async def recover(self, task: TaskOf[BookStates], runtime: TaskRuntime) -> None:
        assert isinstance(task.state, Reading)
        await self._read(task.id, task.state, runtime)

    async def abort(self, task: TaskOf[BookStates], runtime: TaskRuntime) -> None:
        await runtime.commit(lambda tx: tx.settle(task.id, Aborted()))

    async def _read(self, id: Seq, reading: Reading, runtime: TaskRuntime) -> None:
        child = await runtime.conversation(reading.child)
        assert child is not None
        await child.drive()
        found = await runtime.get_task(total, reading.sum)
        words = found.state.words if found and isinstance(found.state, Summed) else 0
        await runtime.commit(lambda tx: tx.settle(id, Read(words)))


chapter, total, book = Chapter(), Sum(), Book()
kinds: list[RunnableKind] = [chapter, total, book]

SHELF = {
    "Tea": {"leaves": "two leaves and a bud", "water": "not quite boiling", "cups": "warm them"},
    "Ink": {"black": "soot and gum", "blue": "woad or indigo and patience"},
}


def plan(tx: Tx) -> None:
    """Plan two books, and the sum of both."""
    books = [tx.task(book, Shelved(title, chapters)) for title, chapters in SHELF.items()]
    tx.task(total, Waiting("all books"), after=books)


async def main(url: str) -> None:
    """Plan the work in a new session of a store; nothing of it runs yet."""
    store = open_store(url)
    async with await Harness.open(store.create("books"), tasks=kinds) as harness:
        root = await harness.root()
        await root.commit(plan)
    store.close()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python pipeline.py STORE, such as sqlite:books.db")
    try:
        asyncio.run(main(sys.argv[1]))
    except SessionExistsError as error:
        sys.exit(f"{sys.argv[1]} has such a plan already: {error}")
