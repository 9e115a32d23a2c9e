"""The model against examples worked out by hand: it is what everything else is compared to."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pico_conformance.campaign import generator
from pico_conformance.mistake import MISTAKES
from pico_conformance.model import Accepted, Model, Refused
from pico_conformance.model_json import faults
from pico_conformance.operation import Commit, Labels
from pico_conformance.probe_all import every_read
from pico_conformance.replay import realize
from pico_store.address import ConversationAddress, ScratchAddress, Seq, SessionAddress
from pico_store.batch import (
    DeleteConversation,
    ListAppend,
    ListClear,
    ListRemove,
    MainBatch,
    MainWrite,
    ScratchBatch,
    SettleTask,
    StateWrite,
    ValueDelete,
    ValueSet,
)
from pico_store.errors import InvalidQueryError, UnknownConversationError
from pico_store.query import BatchQuery, ConversationQuery, EntryQuery, ListQuery, ValueQuery
from pico_store.records import At, BatchRange, Conversation, Entry, ForkPoint, Task
from pico_store.snapshot import DeletedConversation

ROOT = Seq(1)
PLAN = ConversationAddress(ROOT, "plan", rewind=True)
MOVES = ConversationAddress(ROOT, "moves", rewind=True)


@pytest.fixture
def model() -> Model:
    model = Model()
    write(model, Conversation(id=ROOT))
    return model


def write(model: Model, *writes: MainWrite) -> Seq:
    verdict = model.judge(MainBatch(writes))
    assert isinstance(verdict, Accepted), verdict
    model.accept(verdict)
    return verdict.range.first


def scratch(model: Model, task: Seq, *writes: StateWrite) -> Seq:
    verdict = model.judge(ScratchBatch(task, writes))
    assert isinstance(verdict, Accepted), verdict
    model.accept(verdict)
    return verdict.range.first


def entry(model: Model, conversation: Seq = ROOT, **fields: object) -> Seq:
    record = Entry(id=Seq(model.last_seq + 1), conversation_id=conversation, kind="note")
    return write(model, replace(record, **fields))


def fork(model: Model, parent: Seq, at: Seq, owner: Seq | None = None) -> Seq:
    id = Seq(model.last_seq + 1)
    return write(model, Conversation(id=id, parent=ForkPoint(parent, at), owner=owner))


def task(model: Model, conversation: Seq = ROOT) -> Seq:
    id = Seq(model.last_seq + 1)
    return write(model, Task(id, conversation, "work", "ready", "start", {"status": "ready"}))


def settle(model: Model, id: Seq) -> Seq:
    return write(model, SettleTask(id, "done", {"status": "done"}))


def shown(model: Model, conversation: Seq) -> list[int]:
    return [e.id for e in model.scan_entries(EntryQuery(conversation_id=conversation)).items]


def elements(model: Model, address: ConversationAddress, at: At | None = None) -> list[object]:
    return [item.value for item in model.read_list(address, ListQuery(at=at)).items]


def clauses(model: Model, *writes: MainWrite) -> set[str]:
    verdict = model.judge(MainBatch(writes))
    assert isinstance(verdict, Refused)
    return {fault.clause for fault in verdict.faults}


def test_the_contracts_example_of_a_list(model: Model) -> None:
    entry(model)  # 2
    write(model, ListAppend(MOVES, "A"))
    entry(model)  # 4
    write(model, ListAppend(MOVES, "B"))
    entry(model)  # 6
    write(model, ListClear(MOVES))
    entry(model)  # 8
    write(model, ListAppend(MOVES, "C"))
    entry(model)  # 10

    positions: list[At] = ["start", Seq(2), Seq(4), Seq(6), Seq(8), Seq(10)]
    found = [elements(model, MOVES, at) for at in positions]

    assert found == [[], [], ["A"], ["A", "B"], [], ["C"]]
    assert elements(model, MOVES) == ["C"]


def test_the_contracts_example_of_a_fork(model: Model) -> None:
    entry(model)  # 2
    write(model, ValueSet(PLAN, "v3"))
    entry(model)  # 4
    fork(model, ROOT, Seq(4))  # 5
    entry(model, Seq(5))  # 6
    write(model, ValueSet(PLAN, "v7"))
    entry(model)  # 8
    entry(model, Seq(5))  # 9

    assert shown(model, ROOT) == [2, 4, 8]
    assert shown(model, Seq(5)) == [2, 4, 6, 9]
    inherited = model.get_value(replace(PLAN, conversation=Seq(5)))
    assert inherited is not None
    assert inherited.value == "v3"


def test_the_least_cut_on_the_way_counts(model: Model) -> None:
    early, late = entry(model), entry(model)
    middle = fork(model, ROOT, late)
    leaf = fork(model, middle, early)

    assert shown(model, middle) == [early, late]
    assert shown(model, leaf) == [early]


def test_a_tombstone_ends_the_search(model: Model) -> None:
    write(model, ValueSet(PLAN, 1))
    cut = entry(model)
    child = fork(model, ROOT, cut)
    inherited = replace(PLAN, conversation=child)
    assert model.get_value(inherited) is not None

    write(model, ValueDelete(inherited))

    assert model.get_value(inherited) is None
    assert model.get_value(PLAN) is not None


def test_what_an_ancestor_keeps_sticky_is_looked_past(model: Model) -> None:
    write(model, ValueSet(replace(PLAN, key="k"), 1))
    middle = fork(model, ROOT, entry(model))
    write(model, ValueSet(ConversationAddress(middle, "plan", "k"), 2))
    leaf = fork(model, middle, entry(model, middle))

    own = model.scan_values(ValueQuery(scope=ConversationAddress(middle, "plan")))
    below = model.scan_values(ValueQuery(scope=ConversationAddress(leaf, "plan")))

    assert [item.value for item in own.items] == [2]
    assert [item.value for item in below.items] == [1]


def test_a_fork_removes_for_itself(model: Model) -> None:
    element = write(model, ListAppend(MOVES, "A"))
    child = fork(model, ROOT, entry(model))
    inherited = replace(MOVES, conversation=child)

    write(model, ListRemove(inherited, element))

    assert elements(model, inherited) == []
    assert elements(model, MOVES) == ["A"]
    assert clauses(model, ListRemove(inherited, element)) == {"VAL-5"}


def test_the_reach_of_a_deleted_conversation_shrinks(model: Model) -> None:
    middle = fork(model, ROOT, entry(model))
    first, second, third = entry(model, middle), entry(model, middle), entry(model, middle)
    near, far = fork(model, middle, first), fork(model, middle, second)

    write(model, DeleteConversation(middle))
    assert set(model.get_entries((first, second, third))) == {first, second}
    assert [item for item in model.export() if isinstance(item, DeletedConversation)] == [
        DeletedConversation(Conversation(id=middle, parent=ForkPoint(ROOT, Seq(2))), second)
    ]
    write(model, DeleteConversation(far))
    assert set(model.get_entries((first, second, third))) == {first}
    write(model, DeleteConversation(near))
    assert model.get_entries((first, second, third)) == {}
    assert not any(isinstance(item, DeletedConversation) for item in model.export())


def test_deletion_follows_owners_and_not_parents(model: Model) -> None:
    cut = entry(model)
    middle = fork(model, ROOT, cut)
    owner = task(model, middle)
    owned = fork(model, ROOT, cut, owner)
    inner = task(model, owned)
    below = fork(model, ROOT, cut, inner)
    free = fork(model, middle, cut)
    assert clauses(model, DeleteConversation(middle)) == {"DEL-1"}
    settle(model, owner)
    settle(model, inner)

    write(model, DeleteConversation(middle))

    live = [c.id for c in model.scan_conversations(ConversationQuery()).items]
    assert live == [ROOT, free]
    assert model.get_tasks((owner, inner)) == {}
    assert {middle, owned, below} == set(model.state.deleted)


def test_scratch_goes_with_its_task(model: Model) -> None:
    id = task(model)
    address = ScratchAddress(id, "partial")
    scratch(model, id, ListAppend(address, "x"), ValueSet(address, "y"))
    assert model.get_value(address) is not None

    settle(model, id)

    assert model.get_value(address) is None
    assert model.read_list(address, ListQuery()).items == []
    ranges = model.scan_batches(BatchQuery()).items
    assert ranges == [BatchRange(Seq(1), Seq(1)), BatchRange(id, id), BatchRange(Seq(5), Seq(5))]


def test_a_refused_batch_leaves_the_model_as_it_was(model: Model) -> None:
    before = list(model.export())

    assert clauses(model, ValueSet(PLAN, 1), Conversation(id=Seq(9))) == {"SEQ-1"}

    assert list(model.export()) == before
    assert model.last_seq == 1


def test_every_clause_that_a_write_breaks_is_named(model: Model) -> None:
    bad = Entry(id=Seq(5), conversation_id=Seq(9), kind="", data=float("nan"))

    assert clauses(model, bad) == {"SEQ-1", "ENT-1", "JSON-5", "JSON-2"}


def test_reads_refuse_what_the_contract_says(model: Model) -> None:
    write(model, ValueSet(PLAN, 1))

    with pytest.raises(InvalidQueryError, match="VAL-1"):
        model.get_value(replace(PLAN, rewind=False))
    with pytest.raises(InvalidQueryError, match="VAL-7"):
        model.get_value(PLAN, Seq(1))
    with pytest.raises(InvalidQueryError, match="VAL-7"):
        model.get_value(SessionAddress("plan"), "start")
    with pytest.raises(UnknownConversationError):
        model.scan_entries(EntryQuery(conversation_id=Seq(2)))
    with pytest.raises(InvalidQueryError, match="PAGE-3"):
        model.scan_entries(EntryQuery(conversation_id=ROOT, limit=0))


@pytest.mark.parametrize(
    ("before", "after", "ids", "following"),
    [
        (None, None, [2, 3], 3),
        (None, 3, [5, 7], 7),
        (8, None, [7, 5], 5),
        (8, 2, [3, 5], 5),
        (4, None, [3, 2], None),
    ],
)
def test_the_contracts_examples_of_pages(
    model: Model, before: Seq | None, after: Seq | None, ids: list[int], following: int | None
) -> None:
    entry(model)  # 2
    entry(model)  # 3
    task(model)
    entry(model)  # 5
    task(model)
    entry(model)  # 7
    entry(model)  # 8

    query = EntryQuery(conversation_id=ROOT, before=before, after=after, limit=2)
    page = model.scan_entries(query)

    assert [item.id for item in page.items] == ids
    assert page.next == following


@pytest.mark.parametrize(
    ("value", "broken"),
    [
        ({"a": [1, 1.5, None, True, "x"]}, set()),
        ((), {"JSON-1"}),
        ({1: 2}, {"JSON-1"}),
        ([float("nan"), b""], {"JSON-2", "JSON-1"}),
        (2**64, {"JSON-2"}),
        (2**64 - 1, set()),
        (-(2**63), set()),
        ({"\ud800": "\udfff"}, {"JSON-3"}),
    ],
)
def test_strict_json_as_the_model_sees_it(value: object, broken: set[str]) -> None:
    assert set(faults(value)) == broken


@pytest.mark.parametrize(("levels", "broken"), [(200, set()), (201, {"JSON-4"})])
def test_depth_as_the_model_sees_it(levels: int, broken: set[str]) -> None:
    value: object = 1
    for _ in range(levels):
        value = [value]

    assert set(faults(value)) == broken


def test_every_mistake_is_refused_by_the_clause_that_it_is_named_after() -> None:
    seen: set[str] = set()
    for number in range(600):
        model, labels = Model(), Labels()
        made = generator(7, number, ("invalid", "delete"))
        while (operation := made.next(model, labels)) is not None:
            if not isinstance(operation, Commit):
                continue
            trial = Labels(dict(labels.numbers))
            attempt = realize(operation, model.state, trial, Seq(model.last_seq + 1))
            verdict = None if attempt is None else model.judge(*attempt)
            if isinstance(verdict, Accepted):
                model.accept(verdict)
                labels.numbers = trial.numbers
            elif isinstance(verdict, Refused) and operation.mistake is not None:
                name = operation.mistake.name
                if name.split()[0] in {fault.clause for fault in verdict.faults}:
                    seen.add(name)
        if len(seen) == len(MISTAKES):
            break

    assert seen == set(MISTAKES)


def test_reading_everything_covers_every_read(model: Model) -> None:
    write(model, ValueSet(PLAN, 1), ListAppend(MOVES, 1))
    entry(model)
    task(model)

    methods = {read.method for read in every_read(model)}

    reads = {name for name in dir(model) if name.startswith(("get_", "scan_", "read_"))}
    assert methods == reads | {"entry_kinds", "newest_head", "rewind_policy"}
