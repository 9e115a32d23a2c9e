"""Rule tests: plain functions, each naming the clauses that it proves, and what they work with."""

from __future__ import annotations

import importlib
import pkgutil
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Literal, TypeAlias, TypeVar

from pico_conformance.target import Place, Target
from pico_store.address import Address, Seq
from pico_store.batch import (
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
from pico_store.errors import RefusedError
from pico_store.records import (
    BatchRange,
    Conversation,
    Entry,
    ForkPoint,
    JsonObject,
    JsonValue,
    Task,
    TaskRole,
)
from pico_store.storage import Storage, Store

SESSION = "session"
"""The id of a lab's session."""

Need: TypeAlias = Literal[
    "persistent", "many_sessions", "multi_process", "power", "ordered", "process"
]
"""A promise that a rule is about; a target without it is not tested for the rule."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A registered rule test."""

    name: str
    """The function's name, which says the rule."""
    clauses: tuple[str, ...]
    test: Callable[[Lab], None]
    needs: tuple[Need, ...] = ()

    def missing(self, target: Target) -> tuple[Need, ...]:
        """Return the promises that the rule needs and the target does not give."""
        promises = target.promises
        given: set[str] = set(promises.durability)
        given |= {"persistent"} if target.persistent else set()
        given |= {"many_sessions"} if promises.many_sessions else set()
        # Another process can only be shown a target that it finds by name.
        given |= {"multi_process"} if promises.multi_process and target.named else set()
        return tuple(need for need in self.needs if need not in given)


@dataclass(frozen=True, slots=True)
class RuleResult:
    """What came of running one rule on one target."""

    rule: Rule
    verdict: Literal["passed", "failed", "not promised"]
    detail: str = ""
    """The traceback of a failure, or the promises that are missing."""


_RULES: dict[tuple[str, str], Rule] = {}

_Test = TypeVar("_Test", bound=Callable[["Lab"], None])


def rule(*clauses: str, needs: tuple[Need, ...] = ()) -> Callable[[_Test], _Test]:
    """Register a function ``test_*(lab)`` as the proof of some clauses of SPEC.md.

    Args:
        clauses: At least one, such as ``"SEQ-1"``.
        needs: The promises that the rule is about.
    """
    assert clauses, "a rule test names at least one clause"

    def register(test: _Test) -> _Test:
        assert test.__name__.startswith("test_"), test.__name__
        key = (test.__module__, test.__name__)
        _RULES[key] = Rule(test.__name__, clauses, test, needs)
        return test

    return register


def load_rules() -> list[Rule]:
    """Import every module of `pico_conformance.rules` and return their rules in a fixed order."""
    package: ModuleType = importlib.import_module("pico_conformance.rules")
    for module in pkgutil.iter_modules(package.__path__, "pico_conformance.rules."):
        importlib.import_module(module.name)
    found = sorted(_RULES.items(), key=lambda item: item[0][0])
    return [rule for (module, _), rule in found if module.startswith("pico_conformance.rules.")]


def run_rule(rule: Rule, target: Target) -> RuleResult:
    """Run one rule on a fresh place of the target; a rule's own failure never leaves here."""
    if missing := rule.missing(target):
        return RuleResult(rule, "not promised", ", ".join(missing))
    try:
        with open_lab(target) as lab:
            rule.test(lab)
    except Exception:  # noqa: BLE001 - a third party's backend may raise anything
        return RuleResult(rule, "failed", traceback.format_exc())
    return RuleResult(rule, "passed")


@contextmanager
def open_lab(target: Target) -> Iterator[Lab]:
    """Give a lab on a fresh place; close and remove everything at the end."""
    with ExitStack() as stack:
        place = stack.enter_context(target.place())
        store = place.open()
        yield Lab(target, place, store, store.create(SESSION), stack)


@dataclass(slots=True)
class Lab:
    """A fresh session of the target, and short ways to write to it.

    The builders commit one batch each and return the number of its (first) write, so that a test
    reads as the history that it is about.
    """

    target: Target
    place: Place
    store: Store
    storage: Storage
    """Created and open for writing; it has no root yet."""
    _stack: ExitStack = field(default_factory=ExitStack)

    def reopen(self) -> Storage:
        """Close the session (and the store, where it is persistent) and open it again."""
        self.storage.close()
        if self.place.persistent:
            self.store.close()
            self.store = self.place.open()
        self.storage = self.store.open(SESSION)
        return self.storage

    def new_place(self) -> Place:
        """Return another empty place of the same target, cleaned up with the lab."""
        return self._stack.enter_context(self.target.place())

    @property
    def next(self) -> Seq:
        """The number that the next write gets."""
        return Seq(self.storage.last_seq + 1)

    @contextmanager
    def refused(self, clause: str) -> Iterator[None]:
        """Assert that the block is refused by the clause, and that no number was consumed."""
        before = self.storage.last_seq
        refusal: RefusedError | None = None
        try:
            yield
        except RefusedError as error:
            refusal = error
        assert refusal is not None, f"accepted; {clause} refuses it"
        assert refusal.clause == clause, f"refused by {refusal.clause}, not {clause}: {refusal}"
        assert self.storage.last_seq == before, "a refusal consumed a number"

    # --- Commits ---

    def commit(self, *writes: MainWrite) -> BatchRange:
        """Commit a main batch."""
        return self.storage.commit(MainBatch(writes))

    def scratch(self, task: Seq, *writes: StateWrite) -> BatchRange:
        """Commit a scratch batch."""
        return self.storage.commit(ScratchBatch(task, writes))

    def root(self) -> Seq:
        """Create the root conversation."""
        return self.commit(Conversation(id=Seq(1))).first

    def conversation(self, *, owner: Seq | None = None) -> Seq:
        """Create a conversation without a parent."""
        return self.commit(Conversation(id=self.next, owner=owner)).first

    def fork(self, parent: Seq, at: Seq, *, owner: Seq | None = None) -> Seq:
        """Fork a conversation at one of its entries."""
        point = ForkPoint(conversation_id=parent, at=at)
        return self.commit(Conversation(id=self.next, parent=point, owner=owner)).first

    def entry(
        self,
        conversation: Seq,
        *,
        kind: str = "note",
        key: str | None = None,
        data: JsonValue = None,
        head: Seq | Literal["self"] | None = None,
    ) -> Seq:
        """Append an entry; ``head="self"`` makes it a head on itself."""
        id = self.next
        entry = Entry(
            id=id,
            conversation_id=conversation,
            kind=kind,
            key=key,
            data=data,
            head=id if head == "self" else head,
        )
        return self.commit(entry).first

    def task(
        self,
        conversation: Seq,
        *,
        kind: str = "work",
        status: str = "ready",
        role: TaskRole = "start",
        after: tuple[Seq, ...] = (),
    ) -> Seq:
        """Create a task whose state holds its status and nothing else."""
        state: JsonObject = {"status": status}
        task = Task(
            id=self.next,
            conversation_id=conversation,
            kind=kind,
            status=status,
            role=role,
            state=state,
            after=after,
        )
        return self.commit(task).first

    def settle(self, task: Seq, status: str = "done") -> Seq:
        """End a task."""
        return self.commit(SettleTask(id=task, status=status, state={"status": status})).first

    def set(self, address: Address, value: JsonValue) -> Seq:
        """Set a session or conversation value."""
        return self.commit(ValueSet(address, value)).first

    def unset(self, address: Address) -> Seq:
        """Delete a session or conversation value."""
        return self.commit(ValueDelete(address)).first

    def append(self, address: Address, value: JsonValue) -> Seq:
        """Append to a session's or conversation's list; the number is the element's id."""
        return self.commit(ListAppend(address, value)).first

    def remove(self, address: Address, element: Seq) -> Seq:
        """Remove an element of a session's or conversation's list."""
        return self.commit(ListRemove(address, element)).first

    def clear(self, address: Address) -> Seq:
        """Clear a session's or conversation's list."""
        return self.commit(ListClear(address)).first
