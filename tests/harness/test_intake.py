"""IN-7: what places an input in the commit that accepts it."""

from __future__ import annotations

import pytest

from pico_harness import EntryDraft, EntryKind, InboxItem, Options, Tx, inbox
from pico_store.address import Seq
from tests.harness.scripted import Planned, Script
from tests.harness.worlds import World, on_loop, outcome

NOTE: EntryKind[str] = EntryKind("note", str)
DRAFT = EntryDraft("note", data="hello")


@on_loop
async def test_an_input_is_placed_and_answered_in_the_commit_that_accepts_it(world: World) -> None:
    kind = Script()
    seen: list[tuple[Seq, Seq, InboxItem]] = []

    def intake(tx: Tx, conversation: Seq, input_id: Seq, item: InboxItem) -> None:
        seen.append((conversation, input_id, item))
        inbox.place(tx, conversation, input_id, item)
        tx.task(kind, Planned(), conversation=conversation)

    harness = await world.open(kind, options=Options(intake=intake))
    root = await harness.root()
    batches: list[int] = []
    harness._driver.listeners.append(lambda batch, numbers: batches.append(numbers.first))

    id = await root.accept(DRAFT, request_id="r")

    assert len(batches) == 1
    assert seen == [(root.id, id, InboxItem("followUp", DRAFT, "r"))]
    result = await root.result(id)
    assert result is not None
    assert result.status == "running"
    assert result.placement_entry_id is not None
    entry = await harness.get_entry(result.placement_entry_id)
    assert entry is not None
    assert (entry.kind, entry.data) == ("note", "hello")
    assert harness.counts().live == 1

    assert await root.accept(DRAFT, request_id="r", on_duplicate="return") == id
    assert len(seen) == len(batches) == 1
    assert await root.drive() == "idle"


@pytest.mark.parametrize("error", [ValueError("no"), KeyError()], ids=["value", "key"])
@on_loop
async def test_what_an_intake_raises_refuses_the_accept(world: World, error: Exception) -> None:
    def intake(tx: Tx, conversation: Seq, input_id: Seq, item: InboxItem) -> None:
        inbox.place(tx, conversation, input_id, item)
        raise error

    harness = await world.open(options=Options(intake=intake))
    root = await harness.root()
    before = harness.counts().last_seq

    assert await outcome(root.accept(DRAFT, request_id="r")) is error

    assert harness.counts().last_seq == before
    assert await harness.acceptance("r") is None
    assert await root.commit(lambda tx: tx.entry(NOTE)) == before + 1
