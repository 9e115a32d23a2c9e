"""How a session ends: close, shutdown, and the last steps after either or a fault."""

from __future__ import annotations

import asyncio
import logging

from pico_harness.call import Call
from pico_harness.driver import Driver
from pico_harness.errors import SessionClosedError, WaitCycleError
from pico_harness.losses import forget_losses, holds_losses
from pico_harness.operations import Step
from pico_harness.scheduler import Action
from pico_store.batch import Batch, MainBatch, PatchTask
from pico_store.errors import PicoError, RetryableError
from pico_store.limits import BATCH_WRITES_MAX

_LOG = logging.getLogger("pico_harness")


class Lifecycle:
    """Ends a session once, however often and by whomever it is asked.

    Source: design §6.4; PROC-1.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._ended: asyncio.Future[None] = driver.loop.create_future()
        self._decided: asyncio.Future[None] = driver.loop.create_future()
        """Done as soon as it is known how a shutdown ends: at a fault, or at the end."""
        self._stopping: asyncio.Task[None] | None = None
        driver.on_fault = self._decide
        driver.on_drained = self._drained

    async def close(self, call: Call) -> None:
        """Stop everything that runs, without a mark on anything, and close the storage.

        What was admitted before is finished first. Asking again waits for the same end; a caller
        that is cancelled gives up waiting and changes nothing else.
        """
        self._check_caller(call, "close")
        if self._driver.scheduler.phase != "closed":
            self._driver.line.check_outside()
        if self._driver.scheduler.phase in ("open", "stopping"):
            self._driver.post(lambda: None, self._close)
        await asyncio.shield(self._ended)

    def _close(self, step: Step[None]) -> None:
        if self._driver.scheduler.phase in ("open", "stopping"):
            step.actions += self._driver.scheduler.close()

    async def shutdown(self, call: Call) -> None:
        """Mark every live task, run their aborts, then close.

        Queued inputs stay as they are. What cannot run here, parked tasks and those of kinds that
        are not registered, keeps its mark for the next open.

        Raises:
            SessionFaultedError: An abort broke its contract; the session is closed none the less.
            SessionClosedError: A close came before the end; what is marked is aborted after the
                next open.
        """
        self._check_caller(call, "shut down")
        self._driver.line.check_outside()
        if self._stopping is None:
            self._driver.admission.check_phase()
            self._stopping = self._driver.loop.create_task(self._stop())
            self._stopping.add_done_callback(self._stop_ended)
        await asyncio.shield(self._stopping)

    def _stop_ended(self, stopping: asyncio.Task[None]) -> None:
        # Whoever asked may be gone; and what did not end the session can be asked for again.
        error = asyncio.CancelledError() if stopping.cancelled() else stopping.exception()
        is_open = self._driver.scheduler.phase in ("open", "stopping")
        # A refused mark has ended nothing; if a close came meanwhile, asking again tells of that.
        if isinstance(error, RetryableError) or (error is not None and is_open):
            self._stopping = None

    async def _stop(self) -> None:
        scheduler = self._driver.scheduler
        step = Step(self._driver, self._marks, self._stopped)
        # One batch marks so many; where nothing marked can run, the first of them ends it all.
        while await self._driver.line.run(step, Call()):
            step = Step(self._driver, self._more_marks, self._stopped)
        await asyncio.shield(self._decided)
        if self._driver.admission.fault is not None:
            raise self._driver.admission.faulted()
        await asyncio.shield(self._ended)
        left = sum(
            not scheduler.parked(scheduler.live[id]) and not scheduler.orphaned(scheduler.live[id])
            for id in scheduler.live.ids()
        )
        if left:
            problem = f"closed with {left} marked tasks that had not ended"
            raise SessionClosedError(f"{problem}; they are aborted when the session is driven next")

    def _more_marks(self) -> Batch | None:
        # The last task may have ended before the line got here, and the session with it.
        return self._marks() if self._driver.scheduler.phase == "stopping" else None

    def _marks(self) -> Batch | None:
        self._driver.admission.check_phase()
        live = self._driver.scheduler.live
        ids = [id for id in live.ids() if not live[id].task.abort][:BATCH_WRITES_MAX]
        return MainBatch(tuple(PatchTask(id, abort=True) for id in ids)) if ids else None

    def _stopped(self, step: Step[bool]) -> bool:
        if self._driver.scheduler.phase == "open":
            step.actions += self._driver.scheduler.stop()
        return step.wrote

    def _check_caller(self, call: Call, verb: str) -> None:
        call = self._driver.mine(call)
        if call.invocation is not None:
            problem = f"task {call.invocation.task_id} would {verb} the session that runs it"
            raise WaitCycleError("TASKS-4", f"{problem}; allowed: from outside its invocation")

    # --- The last steps ---

    def _drained(self) -> None:
        """Go on once nothing runs and nothing will."""
        driver = self._driver
        if driver.scheduler.phase == "stopping":
            actions: list[Action] = driver.scheduler.close()
            driver.dispatch(actions)
            return
        if driver.away is not None:
            try:
                ending = driver.away(self._end_storage)
            except Exception:  # noqa: BLE001 - logged whole
                # Such as: no more threads. What it holds is given back from here.
                _LOG.exception("the storage is closed on the event loop's thread")
            else:
                ending.add_done_callback(lambda done: self._finish(done.exception()))
                return
        try:
            self._end_storage()
        except BaseException as error:
            # Handed to who closes, and to nobody else unless it ends the loop.
            self._finish(error)
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
        else:
            self._finish(None)

    def _end_storage(self) -> None:
        """Note that this end is no crash, not even where a fault led to it; close the storage."""
        driver = self._driver
        try:
            live = driver.scheduler.live
            for id in live.ids():
                # Those that could not run here were not closed in peace: they were not touched.
                known = driver.kinds.has_task_kind(live[id].task.kind)
                if not known or driver.scheduler.parked(live[id]):
                    continue
                if holds_losses(driver.storage, live[id]):
                    driver.storage.commit(forget_losses(live[id]))
        except PicoError:
            # A count too high parks a task a little early, which its host can undo.
            pass
        finally:
            driver.storage.close()

    def _decide(self) -> None:
        if not self._decided.done():
            self._decided.set_result(None)

    def _finish(self, error: BaseException | None) -> None:
        if self._driver.scheduler.phase == "closing":
            self._driver.scheduler.phase = "closed"
        self._driver.on_closed()
        self._decide()
        if self._ended.done():
            return
        if error is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(error)
