"""Replaying a history into the model and a backend, comparing after every step."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from pico_conformance.acts import Acts
from pico_conformance.bench import Bench
from pico_conformance.difference import (
    DifferenceError,
    Failure,
    compare_exports,
    expect,
    spoil,
    verdict_text,
)
from pico_conformance.mistake import Attempt, wrong_batch, wrong_write
from pico_conformance.model import Accepted, Model, Refused
from pico_conformance.model_state import State
from pico_conformance.operation import Commit, History, Labels, Operation
from pico_conformance.probe import some_reads
from pico_conformance.probe_all import every_read
from pico_conformance.situation import situations
from pico_conformance.subject import Subject
from pico_conformance.tally import Tally
from pico_store.address import Seq
from pico_store.batch import Batch, MainBatch, MainWrite, ScratchBatch
from pico_store.digest import digest
from pico_store.errors import RefusedError


class Source(Protocol):
    """Where operations come from."""

    def next(self, model: Model, labels: Labels) -> Operation | None:
        """Return the next operation, or ``None`` at the end."""
        ...


@dataclass(slots=True)
class Recorded:
    """A history that was made before."""

    history: History
    _position: int = 0

    def next(self, model: Model, labels: Labels) -> Operation | None:
        """Return the next operation, or ``None`` at the end."""
        if self._position == len(self.history):
            return None
        self._position += 1
        return self.history[self._position - 1]


@dataclass(frozen=True, slots=True)
class Care:
    """How much is compared."""

    reads: int = 6
    """Random reads after each operation."""
    every_operation: bool = False
    """All reads after each operation."""
    at_the_end: bool = True
    """All reads at the end of the history."""


@dataclass(slots=True)
class Replay:
    """One history on its way into the model and a backend."""

    bench: Bench
    other: Bench | None
    """Where a session may move to in the middle of its history."""
    tally: Tally = field(default_factory=Tally)
    care: Care = field(default_factory=Care)

    def run(self, source: Source) -> tuple[History, Failure | None]:
        """Replay operations until their end or the first difference.

        Returns:
            The operations that were replayed, and what differed, if anything did.
        """
        done: list[Operation] = []
        model, labels = Model(), Labels()
        progress = _Progress()
        subject: Subject | None = None
        failure: Failure | None = None
        try:
            subject = Subject.create(self.bench, self.other, self.tally)
            while (operation := source.next(model, labels)) is not None:
                done.append(operation)
                self.tally.operations += 1
                if isinstance(operation, Commit):
                    self._commit(operation, model, labels, subject, progress)
                else:
                    Acts(subject, model, self.tally).do(operation)
                    if any(model.state.is_live_task(batch.task or 0) for batch in model.batches):
                        progress.met.add("a reopening with live scratch")
                self._compare(operation.probe, model, subject)
            done_count = len(done)
            self._compare_whole(model, subject, everything=self.care.at_the_end)
        except DifferenceError as error:
            failure = Failure(_located(str(error), subject), len(done))
        except Exception:  # noqa: BLE001 - a third party's backend may raise anything
            failure = Failure(
                _located(f"an unexpected error\n{traceback.format_exc()}", subject), len(done)
            )
        else:
            assert done_count == len(done)
        self.tally.histories += 1
        self.tally.situations.update(progress.met)
        self.tally.types_met.update(progress.types)
        failure = self._leave(subject, failure, len(done))
        return tuple(done), failure

    def _leave(self, subject: Subject | None, failure: Failure | None, at: int) -> Failure | None:
        try:
            if subject is not None:
                subject.close()
        except Exception:  # noqa: BLE001 - as above
            if failure is None:
                failure = Failure(f"an error while closing\n{traceback.format_exc()}", at)
        if failure is not None:
            # What is left there cannot be trusted, not even to close.
            for bench in (self.bench, self.other):
                _try(bench.leave if bench is not None else None)
        return failure

    def _commit(
        self, operation: Commit, model: Model, labels: Labels, subject: Subject, progress: _Progress
    ) -> None:
        first = Seq(model.last_seq + 1)
        trial = Labels(dict(labels.numbers))
        attempt = realize(operation, model.state, trial, first)
        # A second, separate copy: what the backend is given is spoiled afterwards.
        given = realize(operation, model.state, Labels(dict(labels.numbers)), first)
        if attempt is None or given is None:
            return
        self.tally.commits += 1
        verdict = model.judge(*attempt)
        before = model.state
        if isinstance(verdict, Accepted):
            range_ = subject.commit(*given, verdict_text(verdict))
            expect("commit returned another range", verdict.range, range_)
            model.accept(verdict)
            labels.numbers = trial.numbers
            self.tally.writes += len(given[0].writes)
            progress.met.update(situations(before, model.state, attempt[0].writes))
            if progress.refused_at == first:
                progress.met.add("a refusal, then a batch with the same numbers")
            for write in given[0].writes:
                name = type(write).__name__
                progress.types.add(name)
                self.tally.types[name] += 1
                spoil(write)
        else:
            self._refused(given, verdict, subject)
            progress.refused_at = first
            if operation.mistake is not None:
                self.tally.mistakes[operation.mistake.name] += 1
        expect("last_seq after a commit", model.last_seq, subject.storage.last_seq)

    def _refused(self, given: Attempt, verdict: Refused, subject: Subject) -> None:
        expected = verdict_text(verdict)
        try:
            found = subject.storage.commit(given[0], expected_first=given[1])
        except RefusedError as error:
            known = {(fault.clause, fault.error) for fault in verdict.faults}
            if (error.clause, type(error)) not in known:
                raise DifferenceError("a refusal", expected, _error_text(error)) from error
            if verdict.write is not None and not _is_at(error.path, verdict.write):
                raise DifferenceError("a refusal's path", expected, _error_text(error)) from error
            self.tally.refusals[error.clause] += 1
        except Exception as error:
            raise DifferenceError("a refusal", expected, _error_text(error)) from error
        else:
            raise DifferenceError("a refusal", expected, f"accepted as {found!r}")

    def _compare(self, probe: int, model: Model, subject: Subject) -> None:
        if self.care.every_operation:
            self._compare_whole(model, subject, everything=True)
        random = Random(probe)
        for read in some_reads(model, random, self.care.reads):
            subject.compare(model, read, careless=random.random() < 0.3)

    def _compare_whole(self, model: Model, subject: Subject, *, everything: bool) -> None:
        storage = subject.storage
        expect("last_seq", model.last_seq, storage.last_seq)
        ours, theirs = list(model.export()), list(storage.export())
        compare_exports("export", ours, theirs)
        expect("digest", digest(ours), digest(theirs))
        self.tally.exports += 1
        if everything:
            for read in every_read(model):
                subject.compare(model, read)


@dataclass(slots=True)
class _Progress:
    met: set[str] = field(default_factory=set)
    """Rare situations."""
    types: set[str] = field(default_factory=set)
    """Types of accepted writes."""
    refused_at: int = 0
    """The first number of the last refused batch."""


def realize(operation: Commit, state: State, labels: Labels, first: Seq) -> Attempt | None:
    """Return the batch that an operation stands for; ``None`` if nothing is left of it.

    Args:
        operation: A commit.
        state: As the last commit left it.
        labels: The numbers of records so far; those of the batch are added.
        first: The batch's first number.
    """
    mistake = operation.mistake
    writes: list[MainWrite] = []
    for position in range(len(operation.steps) + 1):
        if mistake is not None and mistake.position == position:
            wrong = wrong_write(mistake.name, state, Seq(first + len(writes)), mistake.seed)
            if wrong is not None:
                writes.append(wrong)
        if position < len(operation.steps):
            write = labels.write(operation.steps[position], Seq(first + len(writes)))
            if write is not None:
                writes.append(write)
    if mistake is not None:
        attempt = wrong_batch(mistake.name, state, writes, first, mistake.seed)
        if attempt is not None:
            return attempt
    if not writes:
        return None
    expected = first if operation.expected else None
    if operation.scratch is None:
        return MainBatch(tuple(writes)), expected
    task = labels.numbers.get(operation.scratch)
    if task is None:
        return None
    batch: Batch = ScratchBatch(task, tuple(writes))  # type: ignore[arg-type]
    return batch, expected


def _located(message: str, subject: Subject | None) -> str:
    if subject is None or subject.other is None:
        return message
    return f"{message}\n  the session was on: {subject.here().target.name}"


def _is_at(path: str, write: int) -> bool:
    return path == f"writes[{write}]" or path.startswith(f"writes[{write}].")


def _error_text(error: Exception) -> str:
    if isinstance(error, RefusedError):
        return f"refused by {error.clause} ({type(error).__name__}): {error}"
    return f"{type(error).__name__}: {error}"


def _try(act: Callable[[], None] | None) -> None:
    try:
        if act is not None:
            act()
    except Exception:  # noqa: BLE001 - the failure that led here is the one to report
        return
