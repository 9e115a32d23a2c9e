"""The kinds that a harness knows, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from pico_harness.errors import KindError
from pico_harness.kinds import EntryKind, TaskDeclaration
from pico_store.shown import shown


class Named(Protocol):
    """What a registry holds."""

    @property
    def name(self) -> str:
        """Its name, unique within the registry."""
        ...


K = TypeVar("K", bound=Named)


class Registry(Generic[K]):
    """Kinds by name.

    Source: TASKS-1.
    """

    def __init__(self, noun: str, check: Callable[[K], None]) -> None:
        """Make an empty registry.

        Args:
            noun: What it holds, for messages.
            check: Refuses one that is not well formed.
        """
        self._noun = noun
        self._check = check
        self.check_caller: Callable[[], None] = lambda: None
        """Refuses a change by who may make none, before anything changes."""
        self.in_use: Callable[[str], bool] = lambda name: False
        """Tells whether the kind of a name may not be taken away now."""
        self.check_replaced: Callable[[K], None] = lambda kind: None
        """Refuses a kind that does not understand what the one of its name left."""
        self.on_register: Callable[[str], None] = lambda name: None
        """Told the name of each kind that was added or replaced."""
        self._kinds: dict[str, K] = {}

    def register(self, kind: K) -> None:
        """Add a kind.

        Raises:
            KindError: It is not well formed, or its name is taken.
            NestedOperationError, WrongLoopError: A builder asks, or another thread or event loop
                than that of the session; of `replace` and `remove` too.
        """
        self.check_caller()
        self._check(kind)
        if kind.name in self._kinds:
            problem = f"{self._noun} kind {kind.name!r} is registered"
            raise KindError("TASKS-1", f"{problem}; allowed: replace, or another name")
        self._kinds[kind.name] = kind
        self.on_register(kind.name)

    def replace(self, kind: K) -> None:
        """Put a kind in the place of the one of its name; it must understand what that stored.

        Methods that run go on with the kind that they began with, and write what the new one
        declares.

        Raises:
            KindError: It is not well formed, there is none of its name, or it cannot read one of
                the live tasks of its name.
        """
        self.check_caller()
        self._check(kind)
        if kind.name not in self._kinds:
            raise self._unknown(kind.name, "register")
        self.check_replaced(kind)
        self._kinds[kind.name] = kind
        self.on_register(kind.name)

    def remove(self, name: str) -> None:
        """Take a kind away.

        Raises:
            KindError: There is none of that name, or live tasks of it exist.
        """
        self.check_caller()
        if name not in self:
            raise self._unknown(name, "one that is registered")
        if self.in_use(name):
            problem = f"{self._noun} kind {name!r} has live tasks"
            raise KindError("TASKS-1", f"{problem}; allowed: when they are settled, or replace")
        del self._kinds[name]

    def _unknown(self, name: str, allowed: str) -> KindError:
        known = ", ".join(sorted(self._kinds)) or "none"
        problem = f"no {self._noun} kind {name!r:.80}; registered: {known}"
        return KindError("TASKS-1", f"{problem}; allowed: {allowed}")

    def get(self, name: str) -> K | None:
        """Return the kind of a name, or ``None``."""
        return self._kinds[name] if name in self else None

    def __getitem__(self, name: str) -> K:
        """Return the kind of a name.

        Raises:
            KindError: There is none.
        """
        try:
            return self._kinds[name]
        except (KeyError, TypeError):
            if name in self:
                raise
            raise self._unknown(name, "register it first") from None

    def __contains__(self, name: str) -> bool:
        if type(name) is not str:
            raise KindError("TASKS-1", f"name: {shown(name)}; allowed: the name of a kind")
        return name in self._kinds

    def names(self) -> frozenset[str]:
        """Return the names of its kinds."""
        return frozenset(self._kinds)

    def __iter__(self) -> Iterator[K]:
        return iter(tuple(self._kinds.values()))


class Kinds(Protocol):
    """What a transaction asks about kinds."""

    def task_kind(self, name: str) -> TaskDeclaration:
        """Return the task kind registered under a name.

        Raises:
            KindError: There is none.
        """
        ...

    def has_task_kind(self, name: str) -> bool:
        """Tell whether a task kind of that name is registered."""
        ...


def check_entry_kind(kind: EntryKind[object]) -> None:
    """Refuse an entry kind that is not well formed."""
    if not isinstance(kind, EntryKind):
        raise KindError("TASKS-1", f"{shown(kind)}; allowed: EntryKind('name')")
