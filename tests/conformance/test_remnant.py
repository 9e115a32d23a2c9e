"""Whatever is lost of a session, what is left is a snapshot with all that the loss leaves alone."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from contextlib import closing
from functools import cache
from pathlib import Path
from random import Random
from typing import Final

import pytest

from pico_conformance.campaign import generator
from pico_conformance.model import Accepted, Model
from pico_conformance.operation import Commit, Labels
from pico_conformance.replay import realize
from pico_store.address import ConversationAddress, ScratchAddress, Seq, SessionAddress
from pico_store.backends import open_store
from pico_store.batch import Batch
from pico_store.digest import digest
from pico_store.query import EntryQuery
from pico_store.records import BatchRange, Conversation, Entry, ForkPoint, Omit, Task
from pico_store.remnant import EVERY_NUMBER, Remnant
from pico_store.salvage import salvage
from pico_store.snapshot import (
    AddressPolicy,
    DeletedConversation,
    ListItem,
    ListMarker,
    SnapshotHeader,
    SnapshotItem,
    ValueVersion,
)
from pico_store.snapshot_check import check_snapshot
from pico_store.storage import Storage

ROOT: Final = Seq(1)
_SEEDS: Final = range(150)
_RATES: Final = (0.02, 0.1, 0.4, 0.9)


@cache
def history(seed: int) -> tuple[SnapshotItem, ...]:
    """Return the export of a random session."""
    return tuple(made(seed, lambda batch: None).export())


def made(seed: int, commit: Callable[[Batch], object]) -> Model:
    """Make a random session; each batch that is allowed is committed too."""
    source, model, labels = generator(7, seed), Model(), Labels()
    while (operation := source.next(model, labels)) is not None:
        if isinstance(operation, Commit):
            trial = Labels(dict(labels.numbers))
            attempt = realize(operation, model.state, trial, Seq(model.last_seq + 1))
            if attempt is not None:
                verdict = model.judge(*attempt)
                if isinstance(verdict, Accepted):
                    commit(attempt[0])
                    model.accept(verdict)
                    labels.numbers = trial.numbers
    return model


def mended(
    items: Iterable[SnapshotItem], lost: Container[int] = ()
) -> tuple[list[SnapshotItem], list[str]]:
    """Return a checked snapshot of what was read, and what was told of it."""
    read, told = tuple(items), list[str]()
    remnant = Remnant(lambda: iter(read), lost)
    found = list(check_snapshot(remnant.items(lambda where, what: told.append(f"{where}: {what}"))))
    return found, told


def number_of(item: SnapshotItem) -> Seq | None:
    """Return the number of a record that others name."""
    match item:
        case Conversation(id=id) | Entry(id=id) | Task(id=id) | ListItem(id=id):
            return id
        case DeletedConversation():
            return item.conversation.id
    return None


class Loss:
    """What a loss concerns, told from the records as they were: more than it has to."""

    def __init__(self, whole: Iterable[SnapshotItem], lost: set[int]) -> None:
        whole = list(whole)
        self._gone = {id(item) for index, item in enumerate(whole) if index in lost}
        missing = [item for index, item in enumerate(whole) if index in lost]
        self.numbers = {number for item in missing if (number := number_of(item)) is not None}
        self._homes = {item.id: item.conversation_id for item in whole if isinstance(item, Entry)}
        self._tasks = {item.id: item.conversation_id for item in whole if isinstance(item, Task)}
        self._records = {
            record.id: record for item in whole if (record := _record(item)) is not None
        }
        self._elements = {
            item.id: item.address.conversation
            for item in whole
            if isinstance(item, ListItem) and isinstance(item.address, ConversationAddress)
        }
        self._writes = [item for item in whole if isinstance(item, _WRITES)]

    def spares(self, item: SnapshotItem) -> bool:
        """Tell whether a record that is there refers to nothing that is not."""
        if id(item) in self._gone:
            return False
        match item:
            case Conversation():
                return not self._moved(item.id) and not self._ended(item.owner)
            case DeletedConversation():
                return not self._moved(item.conversation.id) and not any(
                    item.conversation.id in self._chain(id) and self._moved(id)
                    for id in self._records
                )
            case Entry():
                return self._spares_entry(item)
            case Task():
                return not self._lacks(item.conversation_id) and not any(
                    map(self._ended, item.after)
                )
            case AddressPolicy(address=address):
                writes = [write for write in self._writes if _place(write) == _place(item)]
                return not self._lacks(address.conversation) and (
                    not address.rewind or all(map(self.spares, writes))
                )
            case BatchRange():
                return not self._ended(item.task)
            case ValueVersion() | ListItem() | ListMarker():
                return self._spares_state(item)
        return True

    def _spares_entry(self, item: Entry) -> bool:
        reader = item.conversation_id
        named = [edit.target for edit in item.edits or ()]
        named += [item.head] if item.head is not None else []
        own_alone = not self._moved(reader) or all(self._homes[id] == reader for id in named)
        return (
            not self._reaches_less(reader)
            and own_alone
            and not self.numbers.intersection(named)
            and not any(self._lacks(self._homes[id]) for id in named if self._homes[id] != reader)
            and not self._ended(item.by_task_id)
        )

    def _spares_state(self, item: ValueVersion | ListItem | ListMarker) -> bool:
        address = item.address
        if isinstance(address, ScratchAddress):
            return not self._ended(address.task)
        if isinstance(address, SessionAddress):
            return True
        reader = address.conversation
        if self._reaches_less(reader):
            return False
        if not isinstance(item, ListMarker) or item.element is None:
            return True
        home = self._elements[item.element]
        own_alone = home == reader or not self._moved(reader)
        return item.element not in self.numbers and own_alone

    def _reaches_less(self, conversation: Seq) -> bool:
        if self._lacks(conversation):
            return True
        # Of a deleted one, what no fork shows any more goes; of a live one nothing.
        return any(
            conversation in self._chain(id) and self._moved(id)
            for id in self._records
            if id != conversation
        )

    def _lacks(self, conversation: Seq) -> bool:
        return conversation != ROOT and conversation in self.numbers

    def _moved(self, conversation: Seq) -> bool:
        return any(
            self._lacks(id) or ((cut := self._records[id].parent) and cut.at in self.numbers)
            for id in self._chain(conversation)
        )

    def _chain(self, conversation: Seq) -> list[Seq]:
        chain = [conversation]
        while (parent := self._records[chain[-1]].parent) is not None:
            chain.append(parent.conversation_id)
        return chain

    def _ended(self, task: Seq | None) -> bool:
        if task is None:
            return False
        return task in self.numbers or (task in self._tasks and self._lacks(self._tasks[task]))


_WRITES: Final = (ValueVersion, ListItem, ListMarker)


def _record(item: SnapshotItem) -> Conversation | None:
    if isinstance(item, DeletedConversation):
        return item.conversation
    return item if isinstance(item, Conversation) else None


def _place(item: SnapshotItem) -> object:
    assert isinstance(item, (AddressPolicy, *_WRITES))
    shape = "value" if isinstance(item, ValueVersion) else "list"
    return (item.shape if isinstance(item, AddressPolicy) else shape, item.address)


def assert_sound(storage: Storage, items: list[SnapshotItem]) -> None:
    """Compare with what the rules of a commit would have allowed."""
    live = {item.id: item for item in items if isinstance(item, Conversation)}
    shown = {
        id: storage.scan_entries(EntryQuery(conversation_id=id, limit=10_000)).items for id in live
    }
    for id, record in live.items():
        if record.parent is not None and record.parent.conversation_id in live:
            assert record.parent.at in [entry.id for entry in shown[record.parent.conversation_id]]
        seen: set[Seq] = set()
        least = 0
        for entry in shown[id]:
            assert {edit.target for edit in entry.edits or ()} <= seen
            seen.add(entry.id)
            if entry.head is not None:
                assert entry.head in seen
                assert entry.head >= least
                least = entry.head


@pytest.mark.parametrize("rate", _RATES)
def test_what_a_loss_leaves_alone_stays_and_the_rest_fits(rate: float) -> None:
    spared = told_of = 0
    for seed in _SEEDS:
        whole, random = history(seed), Random(f"{seed} {rate}")
        gone = {index for index in range(len(whole)) if random.random() < rate}
        loss = Loss(whole, gone)

        found, told = mended(
            (item for index, item in enumerate(whole) if index not in gone), loss.numbers
        )

        assert found[0] == whole[0] or 0 in gone, seed
        kept = set(map(repr, found))
        for item in whole[1:]:
            if loss.spares(item):
                assert repr(item) in kept, (seed, item, told)
                spared += 1
        with closing(open_store("memory:")) as store:
            store.load("s", found)
            storage = store.open("s")
            assert list(storage.export()) == found, seed
            assert_sound(storage, found)
        assert mended(found) == (found, []), seed
        told_of += bool(told)
    assert spared
    assert told_of > len(_SEEDS) / 2


def test_one_record_is_all_that_its_loss_takes() -> None:
    for seed in _SEEDS[:40]:
        whole = history(seed)
        for index in range(1, len(whole)):
            loss = Loss(whole, {index})

            found, told = mended(whole[:index] + whole[index + 1 :], loss.numbers)

            missing = [item for item in whole if item not in found]
            assert len(missing) <= 1 or told, (seed, whole[index])
            assert not any(map(loss.spares, missing)), (seed, whole[index])


def test_nothing_lost_is_nothing_changed() -> None:
    for seed in _SEEDS:
        assert mended(history(seed), EVERY_NUMBER)[0][1:] != []
        assert mended(history(seed)) == (list(history(seed)), [])


def test_any_beginning_of_a_snapshot_is_enough() -> None:
    for seed in _SEEDS[:60]:
        whole = history(seed)
        for length in range(1, len(whole)):
            found, _ = mended(whole[:length], EVERY_NUMBER)

            assert found[0] == whole[0]
            tasks = {item.id for item in found if isinstance(item, Task)}
            named = {item.by_task_id for item in found if isinstance(item, Entry)} - {None}
            assert named <= tasks


def entry(id: int, conversation: int = 1, **fields: object) -> Entry:
    return Entry(id=Seq(id), conversation_id=Seq(conversation), kind="k", **fields)  # type: ignore[arg-type]


def around(*items: SnapshotItem, last: int = 9) -> list[SnapshotItem]:
    header = SnapshotHeader(last_seq=Seq(last), entry_kinds=("k",))
    return [header, Conversation(id=ROOT), *items, BatchRange(ROOT, Seq(last))]


def test_a_head_moves_on_and_edits_of_the_lost_are_dropped() -> None:
    edits = (Omit(Seq(3)), Omit(Seq(2)))

    found, told = mended(around(entry(2), entry(4), entry(5, head=3, edits=edits)), {3})

    assert found == around(entry(2), entry(4), entry(5, head=4, edits=edits[1:]))
    assert told == [
        "entry 5: its head, 3, is lost; it is 4 now",
        "entry 5: its edits of 3, which is lost, are dropped",
    ]


def test_a_fork_at_a_lost_entry_leaves_earlier() -> None:
    first = Conversation(id=Seq(5), parent=ForkPoint(ROOT, Seq(4)), owner=Seq(8))
    second = Conversation(id=Seq(6), parent=ForkPoint(ROOT, Seq(2)))

    found, told = mended(around(first, second, entry(3)), {2, 4, 8})

    moved = Conversation(id=Seq(5), parent=ForkPoint(ROOT, Seq(3)))
    assert found == around(moved, Conversation(id=Seq(6)), entry(3))
    assert told == [
        "conversation 5: left 1 at 4; now at 3",
        "conversation 5: its owner, task 8, is lost; it has none",
        "conversation 6: left 1 at 2; has no parent",
    ]


def test_a_lost_conversation_stays_as_far_as_forks_show_it() -> None:
    fork = Conversation(id=Seq(6), parent=ForkPoint(Seq(3), Seq(4)))

    found, told = mended(around(fork, entry(2), entry(4, 3), entry(5, 3), entry(7, 6)), {3})

    rebuilt = DeletedConversation(Conversation(id=Seq(3)), Seq(4))
    assert found == around(rebuilt, fork, entry(2), entry(4, 3), entry(7, 6))
    assert told == [
        "conversation 3: lost; its forks inherit from it what it wrote itself, and nothing else",
        "conversation 3: 1 entries left out with it",
    ]


def test_a_head_on_a_lost_inherited_entry_stays_an_inherited_one() -> None:
    fork = Conversation(id=Seq(5), parent=ForkPoint(ROOT, Seq(4)))

    found, told = mended(around(fork, entry(3), entry(4), entry(6, 5), entry(7, 5, head=2)), {2})

    assert found == around(fork, entry(3), entry(4), entry(6, 5), entry(7, 5, head=3))
    assert told == ["entry 7: its head, 2, is lost; it is 3 now"]


def test_a_removal_of_what_is_inherited_no_more_is_left_out() -> None:
    fork = Conversation(id=Seq(5), parent=ForkPoint(ROOT, Seq(4)))
    moved = Conversation(id=Seq(5), parent=ForkPoint(ROOT, Seq(2)))
    there, here = (ConversationAddress(id, "n", rewind=True) for id in (ROOT, Seq(5)))
    policy, element = AddressPolicy(there, "list"), ListItem(Seq(3), there, "x")
    state = (policy, AddressPolicy(here, "list"), element, ListMarker(Seq(6), here, Seq(3)))

    found, told = mended(around(fork, entry(2), *state), {4})

    assert found == around(moved, entry(2), policy, element)
    assert told == [
        "conversation 5: left 1 at 4; now at 2",
        "list 'n' None of conversation 5: no write of it is left; the address is free",
        "list marker 6: the element that it removes, 3, is not shown; left out",
    ]


def test_a_task_goes_with_its_conversation_and_is_named_no_more() -> None:
    task = Task(
        id=Seq(4),
        conversation_id=Seq(3),
        kind="k",
        status="s",
        role="start",
        state={"status": "s"},
    )

    found, told = mended(around(entry(5, by_task_id=4), entry(6, by_task_id=7), task), {3})

    assert found == around(entry(5), entry(6, by_task_id=7))
    assert told == [
        "entry 5: the task that wrote it, 4, is lost; it names none",
        "conversation 3: 1 tasks left out with it",
    ]


def test_the_root_is_made_anew() -> None:
    whole = around(entry(2))

    found, told = mended([whole[0], *whole[2:]], {1})

    assert found == whole
    assert told == ["conversation 1: made anew: a root says nothing but that it is one"]


def test_lost_boundaries_are_made_anew() -> None:
    whole = around(entry(2), entry(3), last=4)
    kept = [BatchRange(ROOT, Seq(1)), BatchRange(Seq(3), Seq(3))]

    found, told = mended([*whole[:-1], *reversed(kept)])

    made = [BatchRange(Seq(2), Seq(2)), BatchRange(Seq(4), Seq(4))]
    assert found == [*whole[:-1], kept[0], made[0], kept[1], made[1]]
    assert told == [
        "batch 2: its boundaries are lost; made anew up to 2",
        "batch 4: its boundaries are lost; made anew up to 4",
    ]


@pytest.mark.parametrize("scheme", ["sqlite", "lmdb", "jsonl"])
def test_a_whole_store_is_saved_whole(tmp_path: Path, scheme: str) -> None:
    expected = {}
    with (
        closing(open_store(f"{scheme}:{tmp_path / 'store'}?durability=process")) as store,
        closing(open_store("memory:")) as new,
    ):
        for seed in _SEEDS[:48]:
            with closing(store.create(f"{seed}")) as storage:
                expected[f"{seed}"] = digest(made(seed, storage.commit).export())

        outcomes = list(salvage(store, new, lambda name: None))

    assert {one.session: one.digest for one in outcomes} == expected
    assert not any(one.left_out or one.altered for one in outcomes)
