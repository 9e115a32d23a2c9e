"""The warm context equals what storage derives, after every commit of any history (CTX-2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pico_conformance.model import Accepted, Model
from pico_conformance.operation import Commit, History, Labels
from pico_conformance.replay import realize
from pico_conformance.strategies import histories
from pico_harness.context import ContextCache
from pico_store.address import Seq
from pico_store.backends import open_store
from pico_store.batch import DeleteConversation, MainBatch, MainWrite
from pico_store.context import Context, derive_context
from pico_store.errors import InvalidQueryError
from pico_store.query import ConversationQuery, EntryQuery
from pico_store.records import (
    At,
    ContextEdit,
    Conversation,
    Entry,
    ForkPoint,
    Omit,
    Replace,
)
from pico_store.storage import Storage, Store
from tests.harness.written import NAMES, ROOT, rooted, said


@pytest.fixture(params=["memory:", "sqlite:{folder}/context.db"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    store = open_store(str(request.param).format(folder=tmp_path))
    yield store
    store.close()


Step: TypeAlias = tuple[str, int, int, bool]
STEPS = st.tuples(
    st.sampled_from(["entry", "entry", "head", "omit", "replace", "fork", "delete", "batch"]),
    st.integers(0, 9),
    st.integers(0, 30),
    st.booleans(),
)


@dataclass(slots=True)
class Watched:
    """A session with a cache for each conversation, some of them asked seldom."""

    storage: Storage
    caches: dict[Seq, ContextCache] = field(default_factory=dict)

    def check(self, *, older: bool) -> None:
        """Compare every context that there is with what storage derives."""
        shown = self.storage.scan_conversations(ConversationQuery(limit=1_000)).items
        for conversation in shown:
            cache = self.caches.setdefault(
                conversation.id, ContextCache(self.storage, conversation.id)
            )
            positions: list[At | None] = [None]
            if older:
                positions += ["start", *map(Seq, range(1, self.storage.last_seq + 2)), None]
            for at in positions:
                assert outcome(cache, at) == derived(self.storage, conversation.id, at)


def outcome(cache: ContextCache, at: At | None) -> Context | str:
    try:
        return cache.context(at)
    except InvalidQueryError as error:
        return type(error).__name__


def derived(storage: Storage, conversation: Seq, at: At | None) -> Context | str:
    try:
        return derive_context(storage, conversation, at)
    except InvalidQueryError as error:
        return type(error).__name__


def writes(storage: Storage, step: Step) -> list[MainWrite]:
    """Return what a step stands for here, always something that storage accepts."""
    what, which, target, flag = step
    live = storage.scan_conversations(ConversationQuery(limit=1_000)).items
    conversation = live[which % len(live)].id
    visible = storage.scan_entries(EntryQuery(conversation_id=conversation, limit=1_000)).items
    aim = visible[target % len(visible)].id if visible else None
    number = Seq(storage.last_seq + 1)
    entry = Entry(id=number, conversation_id=conversation, kind="k", model=[said(number)])
    match what:
        case "head" if aim is not None:
            newest = storage.newest_head(conversation, storage.last_seq)
            least = newest.head if newest is not None and newest.head is not None else 0
            edits: tuple[ContextEdit, ...] | None = (Omit(aim),) if flag else None
            return [with_marks(entry, Seq(max(aim, least)), edits)]
        case "omit" if aim is not None:
            return [with_marks(entry, number if flag else None, (Omit(aim),))]
        case "replace" if aim is not None:
            other = visible[which % len(visible)].id
            messages = [said("r")] * (target % 3)
            return [with_marks(entry, None, (Replace(aim, messages), Omit(other)))]
        case "fork":
            parent = ForkPoint(conversation, aim) if aim is not None else None
            return [Conversation(id=number, parent=parent)]
        case "delete" if conversation != ROOT:
            return [DeleteConversation(conversation)]
        case "batch":
            second = Seq(number + 1)
            later = Entry(id=second, conversation_id=conversation, kind="k", model=[said(second)])
            return [entry, with_marks(later, number if flag else None, (Omit(number),))]
        case _:
            return [entry]


def with_marks(entry: Entry, head: Seq | None, edits: tuple[ContextEdit, ...] | None) -> Entry:
    return Entry(
        entry.id, entry.conversation_id, entry.kind, model=entry.model, head=head, edits=edits
    )


_MANY = settings(max_examples=120, suppress_health_check=list(HealthCheck))


@_MANY
@given(steps=st.lists(STEPS, max_size=40), seldom=st.integers(1, 4))
def test_the_cache_equals_storage_after_every_commit(
    store: Store, steps: list[Step], seldom: int
) -> None:
    watched = Watched(rooted(store))
    for index, step in enumerate(steps):
        watched.storage.commit(MainBatch(tuple(writes(watched.storage, step))))
        if index % seldom == 0:
            watched.check(older=index % 10 == 0)
    watched.check(older=True)
    watched.storage.close()


@_MANY
@given(history=histories(profiles=("tiny", "fork-deep", "delete", "mixed")))
def test_the_cache_equals_storage_in_the_suites_own_histories(
    store: Store, history: History
) -> None:
    storage = store.create(f"s{next(NAMES)}")
    watched, model, labels = Watched(storage), Model(), Labels()
    for operation in history:
        if not isinstance(operation, Commit):
            continue
        trial = Labels(dict(labels.numbers))
        attempt = realize(operation, model.state, trial, Seq(model.last_seq + 1))
        verdict = None if attempt is None else model.judge(*attempt)
        if attempt is None or not isinstance(verdict, Accepted):
            continue
        model.accept(verdict)
        labels.numbers = trial.numbers
        storage.commit(attempt[0])
        watched.check(older=False)
    if storage.last_seq:
        watched.check(older=True)
    storage.close()
