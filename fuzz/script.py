"""A seeded history as batches, and the digest of the session after each of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from random import Random
from typing import Final

from pico_conformance.histories import Generator
from pico_conformance.model import Accepted, Model
from pico_conformance.operation import Commit, Labels
from pico_conformance.profile import PROFILES, Profile
from pico_conformance.replay import realize
from pico_store.address import Seq
from pico_store.batch import Batch, ScratchBatch
from pico_store.digest import digest
from pico_store.records import BatchRange
from pico_store.snapshot import SnapshotHeader, SnapshotItem

SESSION: Final = "a session"
_NAMES: Final = ("scratch", "values", "list-heavy", "delete", "mixed", "fork-deep", "scratch")


@dataclass(frozen=True, slots=True)
class Script:
    """What is committed, in order, and what must come of it."""

    seed: int
    batches: tuple[Batch, ...]
    ranges: tuple[BatchRange, ...]
    digests: tuple[str, ...]
    """One more than there are batches: ``digests[k]`` is that after ``k`` of them."""

    def model(self, kept: Collection[int] | None = None) -> Model:
        """Return the model after the batches whose indexes are kept, all of them if ``None``.

        The numbers of those that are not kept stay unused.
        """
        model = Model()
        for index, batch in enumerate(self.batches):
            if kept is None or index in kept:
                verdict = model.judge(batch)
                assert isinstance(verdict, Accepted), f"batch {index} of seed {self.seed}"
                model.accept(verdict)
            else:
                state = model.state.copy()
                state.last_seq = self.ranges[index].last
                model.state = state
        return model

    def is_scratch(self, index: int) -> bool:
        """Tell whether a batch is one of scratch."""
        return isinstance(self.batches[index], ScratchBatch)


@lru_cache(maxsize=64)
def make_script(seed: int, *, batches_max: int = 60) -> Script:
    """Return the history of a seed; every batch of it is accepted."""
    random = Random(seed)
    profile = _profile(random)
    model, labels = Model(), Labels()
    generator = Generator(random, profile)
    batches: list[Batch] = []
    ranges: list[BatchRange] = []
    digests = [digest(model.export())]
    while len(batches) < batches_max:
        operation = generator.next(model, labels)
        if operation is None:
            break
        assert isinstance(operation, Commit)
        trial = Labels(dict(labels.numbers))
        attempt = realize(operation, model.state, trial, Seq(model.last_seq + 1))
        if attempt is None:
            continue
        verdict = model.judge(*attempt)
        if not isinstance(verdict, Accepted):
            # Now and then a history begins with what is refused.
            continue
        model.accept(verdict)
        labels.numbers = trial.numbers
        batches.append(attempt[0])
        ranges.append(verdict.range)
        digests.append(digest(model.export()))
    return Script(seed, tuple(batches), tuple(ranges), tuple(digests))


def _profile(random: Random) -> Profile:
    found = PROFILES[random.choice(_NAMES)]
    return replace(found, mistakes=0.0, handles=0.0)


def without_last(items: Iterable[SnapshotItem]) -> list[SnapshotItem]:
    """Return an export whose header does not say where the sequence ends."""
    found = list(items)
    assert isinstance(found[0], SnapshotHeader)
    found[0] = SnapshotHeader(Seq(0), found[0].entry_kinds)
    return found
