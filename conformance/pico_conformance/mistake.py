"""Mistakes: batches that the contract refuses, made on purpose, by name and clause."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, TypeAlias

from msgspec.structs import replace

from pico_conformance.ground import Ground, WriteMistake, forged
from pico_conformance.mistake_value import VALUE_MISTAKES
from pico_conformance.model_state import State
from pico_store.address import (
    Address,
    ConversationAddress,
    ScratchAddress,
    Seq,
    SessionAddress,
)
from pico_store.batch import (
    Batch,
    DeleteConversation,
    ListAppend,
    ListClear,
    ListRemove,
    MainBatch,
    MainWrite,
    PatchTask,
    ScratchBatch,
    SettleTask,
    ValueDelete,
    ValueSet,
)
from pico_store.records import Conversation, Entry, ForkPoint, Omit, Replace

# --- Heads, edits, forks ---


def _any_entry(ground: Ground) -> Seq | None:
    return ground.pick(list(ground.state.entries))


def _hidden(ground: Ground) -> tuple[Seq, Seq] | None:
    """Return a live conversation and an entry that it does not show."""
    state = ground.state
    return ground.pick(
        [
            (conversation.id, entry)
            for conversation in state.live_conversations()
            for entry in state.entries
            if not state.shows(conversation.id, entry)
        ]
    )


def _head_hidden(ground: Ground) -> object | None:
    found = _hidden(ground)
    if found is None:
        return None
    return forged(ground.entry(), conversation_id=found[0], head=found[1])


def _head_below(ground: Ground) -> object | None:
    state = ground.state
    found = [
        (conversation.id, earlier[0].id)
        for conversation in state.live_conversations()
        if (newest := state.newest_head(conversation.id, 2**60)) is not None
        and (
            earlier := [
                e for e in state.visible_entries(conversation.id) if e.id < (newest.head or 0)
            ]
        )
    ]
    picked = ground.pick(found)
    if picked is None:
        return None
    return forged(ground.entry(), conversation_id=picked[0], head=picked[1])


def _edit(ground: Ground, target: Seq) -> Entry:
    edit = Omit(target) if ground.random.random() < 0.5 else Replace(target, [])
    return replace(ground.entry(), edits=(edit,))


def _edit_hidden(ground: Ground) -> object | None:
    found = _hidden(ground)
    return found and replace(_edit(ground, found[1]), conversation_id=found[0])


def _edit_form(ground: Ground) -> object | None:
    bad = ground.random.choice(
        (
            {"target": 1},
            (1,),
            (forged(Replace(Seq(1), []), messages=({},)),),
            (forged(Replace(Seq(1), []), messages=["x"]),),
        )
    )
    return forged(ground.entry(), edits=bad)


def _fork(ground: Ground, source: Seq | None, at: Seq | None) -> object | None:
    if source is None or at is None:
        return None
    return Conversation(id=ground.seq, parent=ForkPoint(source, at))


def _fork_hidden(ground: Ground) -> object | None:
    found = _hidden(ground)
    return found and _fork(ground, *found)


# --- Addresses and lists ---


def _other_policy(ground: Ground) -> object | None:
    state = ground.state
    found = ground.pick(
        [
            changes[0].write.address
            for where, changes in state.changes.items()
            if where.scope == "conversation" and state.is_live(Seq(where.holder))
        ]
    )
    if not isinstance(found, ConversationAddress):
        return None
    address: Address = replace(found, rewind=not found.rewind)
    spots = {where.shape for where in state.changes if where.holder == found.conversation}
    if "list" in spots and ground.random.random() < 0.5:
        return ground.random.choice((ListAppend(address, 1), ListClear(address)))
    return ground.random.choice((ValueSet(address, 1), ValueDelete(address)))


def _not_an_element(ground: Ground) -> object | None:
    state, random = ground.state, ground.random
    lists = [changes[0].write.address for w, changes in state.changes.items() if w.shape == "list"]
    lists = [address for address in lists if not isinstance(address, ScratchAddress)]
    address = ground.pick(lists) or SessionAddress("a")
    if isinstance(address, ConversationAddress) and random.random() < 0.4:
        # An element of this list that a fork, or another conversation, does not show.
        address = replace(address, conversation=ground.conversation())
    every = [
        change.seq
        for changes in state.changes.values()
        for change in changes
        if isinstance(change.write, ListAppend)
    ]
    element = ground.pick(every) if random.random() < 0.8 else None
    return ListRemove(address, element or ground.nothing())


# --- Tasks and conversations ---


def _patch_form(ground: Ground) -> object | None:
    live = ground.live_task()
    if live is None:
        return None
    return ground.random.choice(
        (
            PatchTask(live),
            PatchTask(live, status="x"),
            PatchTask(live, role="start", abort=True),
            PatchTask(live, state={"status": "x"}),
            PatchTask(live, "x", "start"),
            PatchTask(live, "x", "terminal", {"status": "x"}),
            PatchTask(live, "x", "start", {"status": "y"}),
            PatchTask(live, "x", "start", {}),
            forged(PatchTask(live, "x", "start", {}), state=[]),
            forged(PatchTask(live, "x", None, {"status": "x"}), role="done"),
            SettleTask(live, "x", {"status": "x"}, "start"),
            SettleTask(live, "x", {"status": "X"}),
            forged(SettleTask(live, "x", {}), state=None),
        )
    )


def _dead_task(ground: Ground, task: Seq | None) -> object | None:
    if task is None:
        return None
    return ground.random.choice(
        (
            PatchTask(task, abort=True),
            PatchTask(task, "x", "start", {"status": "x"}),
            SettleTask(task, "x", {"status": "x"}),
        )
    )


def _after(ground: Ground) -> object | None:
    known = ground.pick([id for id in ground.state.tasks if ground.state.task(id)])
    choices: list[object] = [(ground.seq,), (ground.nothing(),), 5, "", None, {}]
    if known is not None:
        choices += [(known, known), (known, ground.nothing()), frozenset({known})]
    return forged(ground.task(), after=ground.random.choice(choices))


def _owner_with_live_tasks(ground: Ground) -> object | None:
    state = ground.state
    found = [
        conversation.id
        for conversation in state.live_conversations()
        if any(
            state.is_live_task(task.id) and task.conversation_id in state.subtree(conversation.id)
            for task in state.tasks.values()
        )
    ]
    picked = ground.pick(found)
    return picked and DeleteConversation(picked)


def _unknown_conversation(ground: Ground, id: Seq | None) -> dict[str, object] | None:
    if id is None:
        return None
    return {
        "ENT-1": replace(ground.entry(), conversation_id=id),
        "TASK-1": replace(ground.task(), conversation_id=id),
        "VAL-1": ValueSet(ConversationAddress(id, "a", rewind=ground.random.random() < 0.5), 1),
        "DEL-1": DeleteConversation(id),
        "FORK-1": _fork(ground, id, _any_entry(ground) or Seq(1)),
    }


def _not_a_root(ground: Ground) -> object | None:
    if ground.seq > 1:
        return None
    return ground.random.choice((ground.entry(), ground.task(), ValueSet(SessionAddress("a"), 1)))


def _at_unknown(clause: str) -> WriteMistake:
    return lambda ground: (_unknown_conversation(ground, ground.nothing()) or {})[clause]


def _at_deleted(clause: str) -> WriteMistake:
    return lambda ground: (_unknown_conversation(ground, ground.deleted()) or {}).get(clause)


# --- Whole batches ---

Attempt: TypeAlias = tuple[Batch, Seq | None]
"""A batch and its ``expected_first``; the batch may be of any type."""
BatchMistake: TypeAlias = Callable[[list[MainWrite], Ground], Attempt | None]


def _as_batch(batch: object, expected: object = None) -> Attempt:
    return batch, expected  # type: ignore[return-value]


def _batch_form(writes: list[MainWrite], ground: Ground) -> Attempt | None:
    bad = forged(MainBatch(()), writes=ground.random.choice(({}, None, "x", iter(writes))))
    return _as_batch(bad)


def _stale(writes: list[MainWrite], ground: Ground) -> Attempt | None:
    wrong = ground.random.choice((ground.seq - 1, ground.seq + 1, ground.seq + 100, 0))
    return MainBatch(tuple(writes)), Seq(wrong)


def _after_an_entry(writes: list[MainWrite], ground: Ground) -> Attempt | None:
    address = ConversationAddress(ground.conversation(), "after", "k", rewind=True)
    late = ground.random.choice((ValueSet(address, 1), ListClear(address), ValueDelete(address)))
    return MainBatch((ground.entry(), late)), None


def _scratch_with(*makers: Callable[[Ground, Seq], object]) -> BatchMistake:
    def make(writes: list[MainWrite], ground: Ground) -> Attempt | None:
        task = ground.live_task()
        if task is None:
            return None
        good: list[object] = [ValueSet(ScratchAddress(task, "a"), 1)]
        good.insert(ground.random.randrange(2), ground.random.choice(makers)(ground, task))
        return _as_batch(forged(ScratchBatch(task, ()), writes=tuple(good)))

    return make


def _scratch_of(find: Callable[[Ground], Seq | None]) -> BatchMistake:
    def make(writes: list[MainWrite], ground: Ground) -> Attempt | None:
        task = find(ground)
        if task is None:
            return None
        return ScratchBatch(task, (ValueSet(ScratchAddress(task, "a"), 1),)), None

    return make


_BATCH_MISTAKES: Final[dict[str, BatchMistake]] = {
    "SEQ-4 no writes": lambda writes, ground: (MainBatch(()), None),
    "SEQ-4 not a tuple": _batch_form,
    "SEQ-7 not a batch": lambda writes, ground: _as_batch(
        ground.random.choice((tuple(writes), None, {"kind": "main"}))
    ),
    "SEQ-7 rewindable after an entry": _after_an_entry,
    "SEQ-8 stale writer": _stale,
    "JSON-5 too many writes": lambda writes, ground: (
        MainBatch((ValueDelete(SessionAddress("a")),) * 10_001),
        None,
    ),
    "SEQ-7 scratch batch with a main address": _scratch_with(
        lambda ground, task: ValueSet(SessionAddress("a"), 1),
        lambda ground, task: ListClear(ConversationAddress(ground.conversation(), "a")),
    ),
    "SEQ-7 scratch batch with another task's address": _scratch_with(
        lambda ground, task: ValueSet(ScratchAddress(Seq(task + 1), "a"), 1),
        lambda ground, task: ListAppend(ScratchAddress(Seq(1), "a"), 1),
    ),
    "SEQ-7 scratch batch with a main write": _scratch_with(
        lambda ground, task: PatchTask(task, abort=True),
        lambda ground, task: SettleTask(task, "x", {"status": "x"}),
        lambda ground, task: ground.entry(),
        lambda ground, task: None,
    ),
    "VAL-5 not an element of scratch": _scratch_with(
        lambda ground, task: ListRemove(ScratchAddress(task, "a"), ground.nothing()),
    ),
    "TASK-4 scratch of a terminal task": _scratch_of(Ground.terminal_task),
    "TASK-4 scratch of an unknown task": _scratch_of(Ground.nothing),
}

_WRITE_MISTAKES: Final[dict[str, WriteMistake]] = {
    **VALUE_MISTAKES,
    "SEQ-3 not a root": _not_a_root,
    "SEQ-3 root with an owner": lambda ground: (
        Conversation(id=ground.seq, owner=Seq(1)) if ground.seq == 1 else None
    ),
    "SEQ-7 not a write": lambda ground: ground.random.choice(("x", {1: 2}, SessionAddress("a"), 1)),
    "SEQ-7 scratch address in a main batch": lambda ground: ValueSet(
        ScratchAddress(ground.live_task() or Seq(1), "a"), 1
    ),
    "ENT-1 unknown conversation": _at_unknown("ENT-1"),
    "ENT-1 deleted conversation": _at_deleted("ENT-1"),
    "ENT-1 unknown task": lambda ground: replace(ground.entry(), by_task_id=ground.nothing()),
    "ENT-1 model of another form": lambda ground: forged(
        ground.entry(), model=ground.random.choice(({}, ["x"], (), "x"))
    ),
    "ENT-2 head that is not there": lambda ground: replace(ground.entry(), head=ground.nothing()),
    "ENT-2 head that is no entry": lambda ground: replace(ground.entry(), head=Seq(1)),
    "ENT-2 head that is hidden": _head_hidden,
    "ENT-2 head below the newest": _head_below,
    "ENT-4 edits itself": lambda ground: _edit(ground, ground.seq),
    "ENT-4 edits nothing": lambda ground: _edit(ground, ground.nothing()),
    "ENT-4 edits what is hidden": _edit_hidden,
    "ENT-4 edits of another form": _edit_form,
    "FORK-1 unknown parent": _at_unknown("FORK-1"),
    "DEL-3 deleted parent": _at_deleted("FORK-1"),
    "FORK-1 at nothing": lambda ground: _fork(ground, ground.conversation(), ground.nothing()),
    "FORK-1 at what is no entry": lambda ground: _fork(ground, ground.conversation(), Seq(1)),
    "FORK-1 at what is hidden": _fork_hidden,
    "FORK-1 parent of another form": lambda ground: forged(
        Conversation(id=ground.seq), parent=ground.random.choice((1, (1, 2), {}))
    ),
    "TASK-1 unknown conversation": _at_unknown("TASK-1"),
    "TASK-1 deleted conversation": _at_deleted("TASK-1"),
    "TASK-1 after": _after,
    "TASK-1 flag of another form": lambda ground: forged(
        ground.task(), **{ground.random.choice(("turn", "background")): 1}
    ),
    "TASK-2 form": _patch_form,
    "TASK-2 created terminal": lambda ground: replace(ground.task(), role="terminal"),
    "TASK-2 other status": lambda ground: replace(ground.task(), status="other"),
    "TASK-2 terminal task": lambda ground: _dead_task(ground, ground.terminal_task()),
    "TASK-2 unknown task": lambda ground: _dead_task(ground, ground.nothing()),
    "TASK-3 created with an abort mark": lambda ground: replace(ground.task(), abort=True),
    "TASK-3 abort of another form": lambda ground: forged(
        PatchTask(ground.live_task() or Seq(1), "x", "start", {"status": "x"}), abort=1
    ),
    "TASK-5 created with owned": lambda ground: replace(ground.task(), owns=(Seq(1),)),
    "TASK-5 unknown owner": lambda ground: Conversation(id=ground.seq, owner=ground.nothing()),
    "VAL-1 unknown conversation": _at_unknown("VAL-1"),
    "VAL-1 deleted conversation": _at_deleted("VAL-1"),
    "VAL-1 other policy": _other_policy,
    "VAL-1 policy of another form": lambda ground: ValueSet(
        forged(ConversationAddress(ground.conversation(), "a"), rewind=1), 1
    ),
    "VAL-1 not an address": lambda ground: forged(
        ValueDelete(SessionAddress("a")), address=ground.random.choice((None, "a", ("a", "k")))
    ),
    "VAL-5 not an element": _not_an_element,
    "DEL-1 root": lambda ground: DeleteConversation(Seq(1)),
    "DEL-1 unknown conversation": _at_unknown("DEL-1"),
    "DEL-1 deleted conversation": _at_deleted("DEL-1"),
    "DEL-1 live tasks": _owner_with_live_tasks,
}

MISTAKES: Final = (*_WRITE_MISTAKES, *_BATCH_MISTAKES)
"""Every name. It starts with the clause that is broken."""


def wrong_write(name: str, state: State, seq: Seq, seed: int) -> MainWrite | None:
    """Return a wrong write of this name, or ``None`` where there can be none."""
    make = _WRITE_MISTAKES.get(name)
    if make is None:
        return None
    return make(Ground(state, seq, Random(seed)))  # type: ignore[return-value]


def wrong_batch(
    name: str, state: State, writes: list[MainWrite], first: Seq, seed: int
) -> Attempt | None:
    """Return a batch that is wrong as a whole, or ``None`` where there can be none."""
    make = _BATCH_MISTAKES.get(name)
    return None if make is None else make(writes, Ground(state, first, Random(seed)))


def is_possible(name: str, state: State, seed: int) -> bool:
    """Tell whether a state allows a mistake at all."""
    seq = Seq(state.last_seq + 1)
    made = wrong_write(name, state, seq, seed) or wrong_batch(name, state, [], seq, seed)
    return made is not None


def _seldom() -> list[str]:
    """Return the mistakes that need more than a root."""
    state = State()
    state.apply(Seq(1), Conversation(id=Seq(1)))
    return [name for name in MISTAKES if not is_possible(name, state, 0)]


SELDOM_MISTAKES: Final = tuple(_seldom())
"""Those that need a state with something in it, such as a deleted conversation."""
