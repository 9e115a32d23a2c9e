"""Histories as a hypothesis strategy, whose shrinking is a second opinion on our own.

Importing this module needs hypothesis; the rest of the package does not.
"""

from __future__ import annotations

from random import Random

from hypothesis import strategies as st

from pico_conformance.histories import Generator
from pico_conformance.model import Accepted, Model
from pico_conformance.operation import (
    ROOT,
    Commit,
    Handle,
    History,
    Labels,
    NewConversation,
    Operation,
)
from pico_conformance.profile import PROFILES
from pico_conformance.replay import realize
from pico_store.address import Seq


@st.composite
def histories(draw: st.DrawFn, *, profiles: tuple[str, ...] = tuple(PROFILES)) -> History:
    """Return histories of the given profiles, some of their operations left out.

    The generator's own chance is behind a seed: drawing its every choice makes examples that
    hypothesis needs minutes to shrink. What it shrinks is which operations remain.
    """
    profile = PROFILES[draw(st.sampled_from(profiles))]
    made = _unrolled(Generator(Random(draw(st.integers(0, 2**32))), profile))
    kept = draw(st.lists(st.booleans(), min_size=len(made), max_size=len(made)))
    # The root is needed by all that follows; without it nothing happens.
    return tuple(
        operation
        for operation, keep in zip(made, kept, strict=True)
        if keep or _creates_root(operation)
    )


def _creates_root(operation: Operation) -> bool:
    return isinstance(operation, Commit) and any(
        isinstance(step, NewConversation) and step.label == ROOT for step in operation.steps
    )


def _unrolled(generator: Generator) -> list[Operation]:
    """Return the operations that a generator makes against the model alone."""
    model, labels = Model(), Labels()
    done: list[Operation] = []
    while (operation := generator.next(model, labels)) is not None:
        done.append(operation)
        if isinstance(operation, Commit):
            trial = Labels(dict(labels.numbers))
            attempt = realize(operation, model.state, trial, Seq(model.last_seq + 1))
            verdict = None if attempt is None else model.judge(*attempt)
            if isinstance(verdict, Accepted):
                model.accept(verdict)
                labels.numbers = trial.numbers
        else:
            assert isinstance(operation, Handle)
    return done
