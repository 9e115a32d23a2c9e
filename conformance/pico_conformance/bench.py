"""Where histories are replayed: a store of the target, used for many sessions one after another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from pico_conformance.elsewhere import Elsewhere, start_elsewhere
from pico_conformance.sample import ODD_NAMES
from pico_conformance.target import Place, Target
from pico_store.storage import Store

SESSIONS_A_PLACE = 40
"""After so many a store is left for a fresh one."""


@dataclass(slots=True)
class Home:
    """A place, its open store and the ids that were used there."""

    place: Place
    store: Store
    _stack: ExitStack
    used: int = 0

    def new_session(self) -> str:
        """Return an id that was not used here; an awkward one at times."""
        self.used += 1
        odd = ODD_NAMES[self.used % len(ODD_NAMES)]
        return odd[:1000] if self.used <= 7 and len(odd.encode()) < 900 else f"session {self.used}"

    def reopen(self) -> None:
        """Close the store and open it again, where that is possible."""
        if self.place.persistent:
            self.store.close()
            self.store = self.place.open()

    def close(self) -> None:
        """Close the store and remove the place."""
        self._stack.close()


@dataclass(slots=True)
class Bench:
    """Gives homes on one target, and the other process."""

    target: Target
    _stack: ExitStack
    _home: Home | None = None
    _elsewhere: Elsewhere | None = field(default=None)

    def home(self) -> Home:
        """Return a home that has room for another session."""
        if self._home is None or self._home.used >= self._sessions_a_place():
            self.leave()
            self._home = self.new_home()
        return self._home

    def new_home(self) -> Home:
        """Return an empty home, which the caller closes."""
        stack = ExitStack()
        place = stack.enter_context(self.target.place())
        try:
            store = place.open()
        except BaseException:
            stack.close()
            raise
        return Home(place, store, stack)

    def leave(self) -> None:
        """Close the current home; the next history gets a fresh one."""
        if self._home is not None:
            home, self._home = self._home, None
            home.close()

    def elsewhere(self) -> Elsewhere | None:
        """Return the other process, or ``None`` where no other process could open the store."""
        if not (self.target.named and self.target.persistent):
            return None
        if self._elsewhere is None:
            self._elsewhere = self._stack.enter_context(start_elsewhere())
        return self._elsewhere

    def _sessions_a_place(self) -> int:
        return SESSIONS_A_PLACE if self.target.promises.many_sessions else 1


@contextmanager
def open_bench(target: Target) -> Iterator[Bench]:
    """Give a bench; close everything that it opened at the end."""
    with ExitStack() as stack:
        bench = Bench(target, stack)
        stack.callback(bench.leave)
        yield bench
