"""What the scans and point reads find: rows and ids, undecoded, in the order that was asked for."""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from pico_memory.rows import TaskRow
from pico_memory.state import SessionState
from pico_memory.transcript import Transcript
from pico_store.address import ConversationAddress, Seq, Shape
from pico_store.forks import Segment, segments
from pico_store.query import ConversationQuery, EntryQuery, TaskQuery
from pico_store.query_check import Window
from pico_store.records import BatchRange, Conversation

_NOTHING = Transcript()


# --- Conversations ---


def find_conversations(
    state: SessionState, query: ConversationQuery, window: Window
) -> Iterator[Conversation]:
    """Yield the live conversations that a query asks for, from its most telling index."""
    if query.owner is not None:
        ids = state.owned.get(query.owner, [])
    elif query.owner_conversation is not None:
        ids = state.owned_from.get(query.owner_conversation, [])
    elif query.parent is not None:
        ids = [fork.id for fork in state.forks.get(query.parent, ())]
    else:
        ids = state.conversation_ids
    for id in between(ids, window):
        found = state.conversations.get(id)
        if found is not None and _matches(state, found, query):
            yield found


def _matches(state: SessionState, found: Conversation, query: ConversationQuery) -> bool:
    if query.parent is not None and (
        found.parent is None or found.parent.conversation_id != query.parent
    ):
        return False
    if query.owner_conversation is not None:
        facts = None if found.owner is None else state.facts.get(found.owner)
        return facts is not None and facts.conversation == query.owner_conversation
    return True


# --- Entries ---


def entry_segments(state: SessionState, conversation: Seq, window: Window) -> list[Segment]:
    """Return the stretches of history that a window of a transcript can touch, in its order."""
    reader = state.conversations[conversation]
    found = segments(reader, window.last, state.conversation)
    if not window.newest_first:
        found.reverse()
    return found


def find_entries(
    state: SessionState, query: EntryQuery, found: Iterable[Segment], window: Window
) -> Iterator[Seq]:
    """Yield the ids of the entries that a query asks for."""
    for segment in found:
        transcript = state.transcripts.get(segment.conversation)
        if transcript is not None:
            ids = transcript.named(query.kind, query.key)
            yield from between(ids, window.narrowed(1, segment.through))


def newest_head(state: SessionState, conversation: Seq, at: int) -> tuple[Seq | None, int]:
    """Return the newest visible entry with a head at or before ``at``, and the levels looked at."""
    reader, through, levels = conversation, at, 1
    while True:
        heads = state.transcripts.get(reader, _NOTHING).heads
        index = bisect_right(heads, through)
        if index:
            return heads[index - 1], levels
        parent = state.conversation(reader).parent
        if parent is None:
            return None, levels
        reader, through, levels = parent.conversation_id, min(through, parent.at), levels + 1


# --- Tasks ---


def find_tasks(
    state: SessionState, query: TaskQuery, window: Window
) -> Iterator[tuple[Seq, TaskRow]]:
    """Yield the tasks that a query asks for; terminal ones are not touched where none can match."""
    live = query.live is True or query.role in ("start", "inflight")
    if query.conversation_ids is None:
        ids = between(state.live if live else state.task_ids, window)
    else:
        by_conversation = state.live_of if live else state.tasks_of
        ids = heapq.merge(
            *(between(by_conversation.get(id, []), window) for id in set(query.conversation_ids)),
            reverse=window.newest_first,
        )
    for id in ids:
        row = state.tasks.get(id)
        if row is not None and _task_matches(row, query):
            yield id, row


def _task_matches(row: TaskRow, query: TaskQuery) -> bool:
    _, kind, _, role, _, background, turn, abort, _ = row
    return (
        (query.live is None or query.live is (role != "terminal"))
        and query.role in (None, role)
        and query.kind in (None, kind)
        and query.abort in (None, abort)
        and query.background in (None, background)
        and query.turn in (None, turn)
    )


# --- Batches ---


def find_batches(state: SessionState, window: Window) -> Iterator[BatchRange]:
    """Yield the boundaries of main batches and of live tasks' scratch batches."""
    sources = [state.batches, *(scratch.batches for scratch in state.scratch.values())]
    return heapq.merge(
        *(_batches_between(batches, window) for batches in sources),
        key=_first,
        reverse=window.newest_first,
    )


def _batches_between(batches: list[BatchRange], window: Window) -> Iterator[BatchRange]:
    start = bisect_left(batches, window.first, key=_first)
    stop = max(start, bisect_right(batches, window.last, key=_first))
    indexes = range(stop - 1, start - 1, -1) if window.newest_first else range(start, stop)
    return map(batches.__getitem__, indexes)


def _first(batch: BatchRange) -> Seq:
    return batch.first


# --- Policies ---


def rewind_policy(state: SessionState, address: ConversationAddress, shape: Shape) -> bool | None:
    """Return whether an address of a live conversation rewinds; ``None`` if it is unwritten."""
    conversation = address.conversation
    scope = state.scopes.get(conversation)
    if scope is None or conversation not in state.conversations:
        return None
    if shape == "value":
        cell = scope.cell(address.namespace, address.key)
        return None if cell is None else type(cell) is list
    found = scope.lists.get((address.namespace, address.key))
    return None if found is None else type(found) is not list


# --- Paging ---


def between(ids: list[Seq], window: Window) -> Iterator[Seq]:
    """Yield the ids of an ascending list that lie in a window, in its direction."""
    start = bisect_left(ids, window.first)
    stop = max(start, bisect_right(ids, window.last))
    indexes = range(stop - 1, start - 1, -1) if window.newest_first else range(start, stop)
    return map(ids.__getitem__, indexes)
