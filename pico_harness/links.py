"""The links from conversations with live tasks to those above them, read together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from pico_harness.live import LiveIndex
from pico_store.address import Seq
from pico_store.limits import PAGE_ITEMS_MAX
from pico_store.records import Task
from pico_store.storage import Storage

R = TypeVar("R")


def read_links(storage: Storage, live: LiveIndex) -> dict[Seq, Seq | None]:
    """Return the conversation above each that a live task is in, and above these, to the top.

    Above a conversation is that of the task which owns it; ``None``: nobody does.

    Cost: nothing for what a live task owns, since tasks say so themselves. For the rest two reads a
    level, one of conversations and one of owners that ended, however many there are on it; a level
    can be named only by the one below.
    """
    wanted = set(live.conversations())
    links: dict[Seq, Seq | None] = {}
    for id in live.ids():
        task = live[id].task
        for owned in task.owns:
            if owned in wanted:
                links[owned] = task.conversation_id
    wanted -= links.keys()
    while wanted:
        found = _in_parts(storage.get_conversations, sorted(wanted))
        owners = {id: one.owner for id, one in found.items() if one.owner is not None}
        homes = _homes(storage, live, owners.values())
        for id in wanted:
            links[id] = homes.get(owners[id]) if id in owners else None
        wanted = {above for above in homes.values() if above not in links}
    return links


def _homes(storage: Storage, live: LiveIndex, owners: Iterable[Seq]) -> dict[Seq, Seq]:
    """Return the conversations of tasks."""
    tasks: dict[Seq, Task] = {}
    ended: list[Seq] = []
    for id in sorted(set(owners)):
        task = live.get(id)
        if task is None:
            ended.append(id)
        else:
            tasks[id] = task.task
    tasks |= _in_parts(storage.get_tasks, ended)
    return {id: task.conversation_id for id, task in tasks.items()}


def _in_parts(read: Callable[[Iterable[Seq]], dict[Seq, R]], ids: list[Seq]) -> dict[Seq, R]:
    found: dict[Seq, R] = {}
    for start in range(0, len(ids), PAGE_ITEMS_MAX):
        found |= read(ids[start : start + PAGE_ITEMS_MAX])
    return found
