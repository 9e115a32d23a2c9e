"""The session under test: where it is, and how its answers are compared."""

from __future__ import annotations

from dataclasses import dataclass

from pico_conformance.bench import Bench, Home
from pico_conformance.difference import DifferenceError, spoil
from pico_conformance.model import Model
from pico_conformance.probe import Answer, Read, ask, names_unknown
from pico_conformance.tally import Tally
from pico_store.address import Seq
from pico_store.batch import Batch
from pico_store.errors import InvalidQueryError, UnknownConversationError
from pico_store.records import BatchRange
from pico_store.storage import Storage


@dataclass(slots=True)
class Subject:
    """An open session, whichever store it is in by now."""

    bench: Bench
    other: Bench | None
    tally: Tally
    home: Home
    session: str
    storage: Storage
    away: bool = False
    """Whether it is on the other target."""

    @classmethod
    def create(cls, bench: Bench, other: Bench | None, tally: Tally) -> Subject:
        """Create an empty session."""
        home = bench.home()
        session = home.new_session()
        return cls(bench, other, tally, home, session, home.store.create(session))

    def here(self) -> Bench:
        """Return the bench of the target that holds the session now."""
        return self.other if self.away and self.other is not None else self.bench

    def commit(self, batch: Batch, expected_first: Seq | None, verdict: str) -> BatchRange:
        """Commit what is allowed."""
        try:
            return self.storage.commit(batch, expected_first=expected_first)
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
            raise DifferenceError("a commit", verdict, found) from error

    def compare(
        self, model: Model, read: Read, *, storage: Storage | None = None, careless: bool = False
    ) -> None:
        """Put a question to the model and to the session, and compare the answers.

        Args:
            model: Knows the right answer.
            read: The question.
            storage: Another handle of the session.
            careless: Change what was returned afterwards, which must change nothing stored.
        """
        expected = ask(model, read)
        found = ask(self.storage if storage is None else storage, read)
        self.tally.reads += 1
        self.tally.methods[read.method] += 1
        if not found.fits(expected) and not _is_doubtful(model, read, expected, found):
            raise DifferenceError(str(read), expected, found)
        if careless:
            spoil(found.value)

    def move(self, home: Home, session: str, *, away: bool) -> None:
        """Go on with the same session where it was loaded to."""
        self.storage.close()
        self.home, self.session, self.away = home, session, away
        self.storage = home.store.open(session)

    def close(self) -> None:
        """Close the session."""
        self.storage.close()


def _is_doubtful(model: Model, read: Read, expected: Answer, found: Answer) -> bool:
    """Tell whether a read is refused for another of two good reasons."""
    return (
        expected.value is InvalidQueryError
        and found.value is UnknownConversationError
        and names_unknown(model.state, read)
    )
