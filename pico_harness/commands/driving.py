"""What `pico drive` does when it is run."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import traceback
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, TextIO, TypeAlias

from pico_harness.commands.deciding import Decisions, decisions
from pico_harness.commands.inspecting import task_lines
from pico_harness.commands.naming import load_kinds
from pico_harness.errors import SessionFaultedError, TaskParkedError
from pico_harness.faults import FaultReport
from pico_harness.harness import Harness, Inspection
from pico_harness.opening import Options
from pico_harness.registry import Registry
from pico_harness.task_kind import RunnableKind
from pico_store.address import Seq
from pico_store.cli import TRACEBACK_VARIABLE
from pico_store.command import UsageError
from pico_store.commands.opening import existing_store, session
from pico_store.commands.output import plural, print_json, print_line
from pico_store.errors import SessionOwnedError
from pico_store.records import Task
from pico_store.storage import Storage, Store

Outcome: TypeAlias = Literal["idle", "closed", "parked", "fault", "marked"]

DOES_NOT_HOLD = 1
_SHOWN_EVERY = 0.1
"""Seconds between two looks at the progress."""
_ERASE = "\r\x1b[K"


def run(args: Namespace) -> int:
    """Drive a session until it is idle, and close it."""
    chosen = decisions(args.resume, args.abort)
    if args.kinds is None and (args.orphan or chosen.resume or not chosen.abort):
        problem = "drive: --kinds is needed, unless nothing but --abort is asked for"
        raise UsageError(f"{problem}; see pico drive --help")
    kinds = load_kinds(args.kinds) if args.kinds is not None else None
    # What it says is said here, in one line; a traceback is shown where it is asked for.
    logging.getLogger("pico_harness").addHandler(logging.NullHandler())
    with existing_store(args.store) as store, _owned(store, args.session) as storage:
        name = storage.session_id
        drive = _Drive(storage, kinds, chosen, orphan=args.orphan)
        outcome = asyncio.run(drive.run())
        if args.json:
            print_json({"session": name, "outcome": outcome, **drive.as_json()})
        elif outcome != "fault":
            drive.print(name, outcome)
    if drive.report is not None:
        _say_fault(drive.report)
    return 0 if outcome in ("idle", "marked") else DOES_NOT_HOLD


@contextmanager
def _owned(store: Store, name: str | None) -> Iterator[Storage]:
    """Open a session for writing; if somebody has it, say how to look at it meanwhile."""
    try:
        with session(store, name, read_only=False) as storage:
            yield storage
    except SessionOwnedError as error:
        hint = f"meanwhile, this shows its tasks: pico inspect {store.url}"
        raise SessionOwnedError(f"{error}; {hint} {name or ''}".rstrip()) from error


def _say_fault(report: FaultReport) -> None:
    if report.error is not None and os.environ.get(TRACEBACK_VARIABLE):
        traceback.print_exception(report.error)
    print(f"pico: {' '.join(str(report).split())}", file=sys.stderr)


class _Drive:
    """One run of the command."""

    def __init__(
        self,
        storage: Storage,
        kinds: Registry[RunnableKind] | None,
        decisions: Decisions,
        *,
        orphan: bool,
    ) -> None:
        self._storage = storage
        self._kinds = kinds
        """``None``: nothing is driven."""
        self._decisions = decisions
        self._orphan = orphan
        self.report: FaultReport | None = None
        """How a kind broke its contract."""
        self._orphaned: tuple[Task, ...] = ()
        self._left: Inspection | None = None
        """What was live at the end; ``None`` after a fault."""

    async def run(self) -> Outcome:
        """Open, drive, look at what is left, close."""
        options = Options(on_report=self._reported)
        kinds = self._kinds if self._kinds is not None else ()
        harness = await Harness.open(self._storage, tasks=kinds, options=options)
        try:
            seen = await harness.inspect()
            self._decisions.check(seen, harness.task_kinds.names())
            if self._kinds is not None:
                self._orphaned = seen.orphaned
                self._check_orphaned()
            await self._decisions.carry_out(harness)
            outcome: Outcome = "marked"
            if self._kinds is not None:
                with _progress(harness, sys.stderr):
                    outcome = await self._drive(harness)
            if outcome != "fault":
                self._left = await harness.inspect()
        finally:
            # However it ends, Ctrl-C included: what runs is asked to stop, and goes on next time.
            await harness.close()
        return outcome

    async def _drive(self, harness: Harness) -> Outcome:
        try:
            return await harness.drive()
        except TaskParkedError:
            return "parked"
        except SessionFaultedError:
            if self.report is None:
                raise
            return "fault"

    def _reported(self, report: FaultReport) -> None:
        # What is parked is no fault; it is listed at the end.
        if report.method is not None:
            self.report = self.report or report

    def _check_orphaned(self) -> None:
        if not self._orphaned or self._orphan:
            return
        names = ", ".join(sorted({task.kind for task in self._orphaned}))
        ids = ", ".join(str(task.id) for task in self._orphaned[:5])
        more = " ..." if len(self._orphaned) > 5 else ""
        problem = f"tasks {ids}{more} are of kinds that --kinds does not name: {names}"
        raise UsageError(f"{problem}; name them too, or give these tasks up with --orphan")

    def _can_be_resumed(self) -> bool:
        """Tell whether something is parked although its kind is there and can read it."""
        left, kinds = self._left, self._kinds
        assert left is not None
        return kinds is not None and any(
            task.kind in kinds and task.id not in left.unreadable for task in left.parked
        )

    def print(self, name: str, outcome: Outcome) -> None:
        """Say how it ended, and what is left."""
        left = self._left
        assert left is not None
        if self._decisions.resume:
            print_line(f"resumed: {_named(self._decisions.resume)}")
        if self._decisions.abort:
            print_line(f"marked as to be aborted: {_named(self._decisions.abort)}")
        if outcome == "marked":
            print_line("nothing was driven; their aborts run where --kinds names their kinds")
            return
        print_line(f"session {name} is {outcome} at number {left.last_seq:,}")
        if self._orphaned:
            print_line(f"settled as orphaned: {plural(len(self._orphaned), 'task')}")
            for line in task_lines(self._orphaned):
                print_line(line)
        if left.parked:
            print_line(f"parked: {plural(len(left.parked), 'task')}")
            for line in task_lines(left.parked, left.unreadable):
                print_line(line)
            if self._can_be_resumed():
                print_line("--resume TASK lets one go on, --abort TASK lets its abort run")
        going = left.start + left.inflight
        if going:
            print_line(f"still live, to be driven again: {plural(len(going), 'task')}")
            for line in task_lines(going):
                print_line(line)

    def as_json(self) -> dict[str, object]:
        """Return the members that say what is left."""
        left = self._left
        fault = self.report
        return {
            "lastSeq": None if left is None else left.last_seq,
            "resumed": list(self._decisions.resume),
            "aborted": list(self._decisions.abort),
            "orphaned": [task.id for task in self._orphaned],
            "parked": [] if left is None else [task.id for task in left.parked],
            "live": [] if left is None else [t.id for t in left.start + left.inflight],
            "fault": None
            if fault is None
            else {
                "task": fault.task_id,
                "kind": fault.kind,
                "method": fault.method,
                "problem": fault.problem,
            },
        }


def _named(ids: tuple[Seq, ...]) -> str:
    return f"task{'s' if len(ids) > 1 else ''} {', '.join(map(str, ids))}"


@contextmanager
def _progress(harness: Harness, stream: TextIO) -> Iterator[None]:
    """Show on a terminal how much there is to do; nothing anywhere else."""
    if not stream.isatty():
        yield
        return
    showing = asyncio.get_running_loop().create_task(_show(harness, stream))
    try:
        yield
    finally:
        showing.cancel()
        stream.write(_ERASE)
        stream.flush()


async def _show(harness: Harness, stream: TextIO) -> None:
    while True:
        counts = harness.counts()
        text = f"{plural(counts.live, 'live task')}, {counts.running:,} running"
        stream.write(f"{_ERASE}{text}, number {counts.last_seq:,}")
        stream.flush()
        await asyncio.sleep(_SHOWN_EVERY)
