"""A seeded generator of histories.

It looks at a model while it goes, so that nearly everything it makes is allowed and meets
something: deep forks, lists that are cleared on both sides of a cut, deletions of what others
inherit. What comes out are operations over labels, which replay without it.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, get_args

from msgspec import UNSET

from pico_conformance import sample
from pico_conformance.mistake import MISTAKES, SELDOM_MISTAKES, is_possible
from pico_conformance.model import Model
from pico_conformance.model_state import Spot, State
from pico_conformance.operation import (
    ROOT,
    Act,
    Append,
    Clear,
    Commit,
    Delete,
    Handle,
    Label,
    Labels,
    Mistake,
    NewConversation,
    NewEntry,
    NewTask,
    Operation,
    Patch,
    Remove,
    Set,
    Settle,
    Step,
    Unset,
    Where,
)
from pico_conformance.profile import WEIGHTS, Profile
from pico_store.address import Seq, Shape
from pico_store.batch import ValueSet
from pico_store.records import JsonObject

_FIRST_MISTAKES: Final = [name for name in MISTAKES if name.startswith("SEQ-3")]
_ACTS: Final[tuple[Act, ...]] = get_args(Act)


class Generator:
    """Makes one history, operation by operation."""

    def __init__(self, random: Random, profile: Profile) -> None:
        self._random = random
        self._profile = profile
        self._label = ROOT
        self._left = random.randint(*profile.operations)
        self._rooted = False
        self._namespaces = [sample.name(random, profile.oddness) for _ in range(2)]
        self._keys = [sample.key(random, profile.oddness) for _ in range(4)]
        if random.random() < profile.oddness:
            self._keys[:2] = random.choice(sample.TWINS)
        weights = {**WEIGHTS, **profile.weights}
        self._names = list(weights)
        self._weights = list(weights.values())

    def next(self, model: Model, labels: Labels) -> Operation | None:
        """Return the next operation, or ``None`` when the history is long enough.

        Args:
            model: What the operations so far came to.
            labels: The numbers that their records got.
        """
        random = self._random
        if self._left == 0:
            return None
        self._left -= 1
        probe = random.getrandbits(32)
        if not model.state.conversations:
            return self._first(probe)
        if random.random() < self._profile.handles:
            # The end of the sequence is a place that no history comes back from.
            rare = random.random() < (0.3 if self._profile.name == "invalid" else 0.02)
            return Handle("near the end" if rare else random.choice(_ACTS[:-1]), probe)
        plan = _Plan(model.state.copy(), labels, random, self._name, self._key, self._new_label)
        tasks = [id for id in model.state.tasks if model.state.is_live_task(id)]
        scratch: Label | None = None
        if tasks and random.random() < self._profile.scratch:
            task = random.choice(tasks)
            scratch = plan.label(task)
        if scratch is not None:
            steps = self._steps(lambda: plan.scratch_step(scratch))
        else:
            steps = self._steps(lambda: plan.step(self._pick_name()))
        mistake = None
        if random.random() < self._profile.mistakes:
            seed = probe % 9973
            name = _mistake(random, model.state, seed)
            mistake = Mistake(name, random.randint(0, len(steps)), seed)
        return Commit(tuple(steps), scratch, mistake, random.random() < 0.2, probe)

    def _first(self, probe: int) -> Commit:
        random = self._random
        if random.random() < 0.15:
            # Before there is a root, everything else is a mistake.
            name = random.choice((random.choice(MISTAKES), *_FIRST_MISTAKES))
            return Commit((), None, Mistake(name, 0, probe % 9973), False, probe)
        return Commit((NewConversation(ROOT),), None, None, False, probe)

    def _steps(self, make: Callable[[], list[Step]]) -> list[Step]:
        steps: list[Step] = []
        count = self._random.randint(*self._profile.steps)
        for _ in range(3 * count):
            if len(steps) >= count:
                break
            steps += make()
        return steps

    def _pick_name(self) -> str:
        return self._random.choices(self._names, self._weights)[0]

    def _name(self) -> str:
        if self._random.random() < 0.05:
            return sample.name(self._random, self._profile.oddness)
        return self._random.choice(self._namespaces)

    def _key(self) -> str | None:
        if self._random.random() < 0.1:
            return sample.key(self._random, self._profile.oddness)
        return self._random.choice(self._keys)

    def _new_label(self) -> Label:
        self._label += 1
        return self._label


def _mistake(random: Random, state: State, seed: int) -> str:
    """Return the name of a mistake, more often one that few states allow if this one does."""
    if random.random() < 0.4:
        for name in random.choices(SELDOM_MISTAKES, k=4):
            if is_possible(name, state, seed):
                return name
    return random.choice(MISTAKES)


class _Plan:
    """Makes the steps of one batch, each meeting what the earlier ones did."""

    def __init__(
        self,
        state: State,
        labels: Labels,
        random: Random,
        name: Callable[[], str],
        key: Callable[[], str | None],
        new_label: Callable[[], Label],
    ) -> None:
        self._state = state
        self._labels = Labels(dict(labels.numbers))
        self._by_number = {number: label for label, number in labels.numbers.items()}
        self._random = random
        self._name = name
        self._key = key
        self._new_label = new_label
        self._saw_entry = False

    def label(self, number: Seq) -> Label | None:
        """Return the label of a record, if it has one."""
        return self._by_number.get(number)

    def step(self, name: str) -> list[Step]:
        """Return a step of this kind and what must come before it; nothing where it cannot be."""
        make: Callable[[], list[Step | None]] = getattr(self, f"_{name}")
        return self._took(make())

    def scratch_step(self, task: Label) -> list[Step]:
        """Return a state write of a task's scratch."""
        where = Where("scratch", task, self._name(), self._key())
        spot = Spot("scratch", self._labels.numbers[task], "list", where.namespace, where.key)
        choice = self._random.random()
        if choice < 0.3:
            return self._took([Set(where, sample.value(self._random))])
        if choice < 0.4:
            return self._took([Unset(where)])
        if choice < 0.75:
            return self._took([Append(self._new_label(), where, sample.value(self._random))])
        if choice < 0.85:
            return self._took([Clear(where)])
        return self._took([self._removal(where, spot, rewind=False)])

    def _took(self, steps: list[Step | None]) -> list[Step]:
        """Apply the steps to the plan's state."""
        taken: list[Step] = []
        for step in steps:
            if step is None:
                continue
            seq = Seq(self._state.last_seq + 1)
            write = self._labels.write(step, seq)
            if write is None:
                continue
            if isinstance(step, NewConversation | NewEntry | NewTask | Append):
                self._by_number[seq] = step.label
            self._saw_entry = self._saw_entry or isinstance(step, NewEntry)
            self._state.apply(seq, write)
            taken.append(step)
        return taken

    # --- Conversations and entries ---

    def _conversation(self) -> Seq:
        """Return a live conversation, more often a late one."""
        live = self._state.live_conversations()
        if self._random.random() < 0.5:
            live = live[-3:]
        return self._random.choice(live).id

    def _entry(self) -> list[Step | None]:
        random, state = self._random, self._state
        conversation = self._conversation()
        visible = state.visible_entries(conversation)
        label = self._new_label()
        head: Label | None = None
        if random.random() < 0.2:
            newest = state.newest_head(conversation, 2**60)
            low = 0 if newest is None else (newest.head or 0)
            heads = [self.label(entry.id) for entry in visible if entry.id >= low]
            head = random.choice([label, *heads])
        edits: tuple[tuple[Label, list[JsonObject] | None], ...] = ()
        if visible and random.random() < 0.15:
            targets = [self.label(random.choice(visible).id) for _ in range(random.randint(1, 2))]
            edits = tuple((t, self._replacement()) for t in targets if t is not None)
        tasks = [id for id in state.tasks if state.task(id)]
        by = self.label(random.choice(tasks)) if tasks and random.random() < 0.2 else None
        step = NewEntry(
            label,
            self._by_number.get(conversation, -1),
            sample.kind(random),
            random.choice((None, None, "", "k", "K", random.choice(sample.ODD_STRINGS))),
            sample.value(random) if random.random() < 0.5 else UNSET,
            self._messages() if random.random() < 0.4 else None,
            head,
            edits,
            by,
        )
        return [step]

    def _messages(self) -> list[JsonObject]:
        return [sample.json_object(self._random) for _ in range(self._random.randrange(3))]

    def _replacement(self) -> list[JsonObject] | None:
        return self._messages() if self._random.random() < 0.5 else None

    def _fork(self) -> list[Step | None]:
        random, state = self._random, self._state
        source = self._conversation()
        visible = state.visible_entries(source)
        if not visible:
            return []
        if random.random() < 0.3:
            visible = [e for e in visible if e.head is not None] or visible
        if random.random() < 0.3:
            visible = visible[-2:]
        at = self.label(random.choice(visible).id)
        parent = self.label(source)
        if at is None or parent is None:
            return []
        return [NewConversation(self._new_label(), parent, at, self._owner(0.2))]

    def _fresh(self) -> list[Step | None]:
        return [NewConversation(self._new_label(), owner=self._owner(0.8))]

    def _owner(self, chance: float) -> Label | None:
        state = self._state
        tasks = [task for id, task in state.tasks.items() if state.task(id)]
        if not tasks or self._random.random() >= chance:
            return None
        # Owners that are owned themselves make the deletions that go deep.
        owned = [t for t in tasks if state.conversations[t.conversation_id].owner is not None]
        return self.label(self._random.choice(owned or tasks).id)

    def _delete(self) -> list[Step | None]:
        random, state = self._random, self._state
        doomed = [c.id for c in state.live_conversations() if c.id != 1]
        if not doomed:
            return []
        target = random.choice(doomed)
        if random.random() < 0.4:
            target = max(doomed, key=lambda id: len(state.subtree(id)))
        taken = state.subtree(target)
        if 1 in taken:
            return []
        inside = [
            task.id
            for task in state.tasks.values()
            if task.conversation_id in taken and state.is_live_task(task.id)
        ]
        if inside and random.random() < 0.4:
            return []
        steps: list[Step | None] = [self._settlement(task) for task in inside]
        label = self.label(target)
        return [] if label is None else [*steps, Delete(label)]

    # --- Tasks ---

    def _task(self) -> list[Step | None]:
        random, state = self._random, self._state
        known = [id for id in state.tasks if state.task(id)]
        count = min(len(known), random.choice((0, 0, 1, 2)))
        after = [self.label(id) for id in random.sample(known, count)]
        status = random.choice(sample.STATUSES)
        step = NewTask(
            self._new_label(),
            self._by_number.get(self._conversation(), -1),
            sample.kind(random),
            random.choice(("start", "inflight")),
            sample.state(random, status),
            tuple(label for label in after if label is not None),
            random.random() < 0.3,
            random.random() < 0.3,
        )
        return [step]

    def _live_task(self) -> Seq | None:
        live = [id for id in self._state.tasks if self._state.is_live_task(id)]
        return self._random.choice(live) if live else None

    def _patch(self) -> list[Step | None]:
        task, random = self._live_task(), self._random
        label = None if task is None else self.label(task)
        if label is None:
            return []
        abort = random.random() < 0.3
        if abort and random.random() < 0.5:
            return [Patch(label, abort=True)]
        state = sample.state(random, random.choice(sample.STATUSES))
        return [Patch(label, random.choice(("start", "inflight")), state, abort)]

    def _settle(self) -> list[Step | None]:
        task = self._live_task()
        return [] if task is None else [self._settlement(task)]

    def _settlement(self, task: Seq) -> Step | None:
        label = self.label(task)
        if label is None:
            return None
        return Settle(label, sample.state(self._random, self._random.choice(("done", "failed"))))

    # --- Values and lists ---

    def _set(self) -> list[Step | None]:
        where, spot = self._where("value")
        if self._random.random() < 0.1:
            there = self._state.value(spot, rewind=where.rewind)
            if there is not None and isinstance(there.write, ValueSet):
                return [Set(where, there.write.value)]
        return [Set(where, sample.value(self._random))]

    def _unset(self) -> list[Step | None]:
        return [Unset(self._where("value")[0])]

    def _append(self) -> list[Step | None]:
        where, _ = self._where("list")
        return [Append(self._new_label(), where, sample.value(self._random))]

    def _clear(self) -> list[Step | None]:
        where, spot = self._where("list")
        for _ in range(3):
            # What shows nothing is not worth a clear as often.
            if self._state.elements(spot, rewind=where.rewind):
                break
            where, spot = self._where("list")
        return [Clear(where)]

    def _remove(self) -> list[Step | None]:
        for _ in range(3):
            where, spot = self._where("list")
            removal = self._removal(where, spot, rewind=where.rewind)
            if removal is not None:
                return [removal]
        return []

    def _removal(self, where: Where, spot: Spot, *, rewind: bool) -> Step | None:
        shown = list(self._state.elements(spot, rewind=rewind))
        element = self.label(self._random.choice(shown)) if shown else None
        return None if element is None else Remove(where, element)

    def _where(self, shape: Shape) -> tuple[Where, Spot]:
        """Return an address: often one that was written here or in an ancestor."""
        random, state = self._random, self._state
        namespace, key = self._name(), self._key()
        if random.random() < 0.2:
            return Where("session", ROOT, namespace, key), Spot("session", 0, shape, namespace, key)
        conversation = self._conversation()
        sources = {source for source, _ in state.chain(conversation)}
        near = [s for s in state.changes if s.scope == "conversation" and s.shape == shape]
        near = [s for s in near if s.holder in sources]
        likely = 0.7
        if near and random.random() < 0.6:
            inherited = [s for s in near if s.holder != conversation and state.policy(s)]
            if inherited and random.random() < 0.6:
                near, likely = inherited, 0.9
            namespace, key = random.choice(near)[3:]
        spot = Spot("conversation", conversation, shape, namespace, key)
        policy = state.policy(spot)
        rewind = random.random() < likely if policy is None else policy
        if rewind and self._saw_entry:
            return self._where(shape)
        label = self._by_number.get(conversation, -1)
        return Where("conversation", label, namespace, key, rewind), spot
