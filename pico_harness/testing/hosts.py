"""What hosts do to a session while it works: drive, wait, cancel, abort, accept, end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from pico_harness.call import Call
from pico_harness.conversation import ConversationHandle
from pico_harness.errors import (
    BuilderError,
    CallCancelledError,
    HarnessError,
    SessionClosedError,
    SessionFaultedError,
    SessionStoppingError,
    TaskParkedError,
    UnknownTaskError,
)
from pico_harness.harness import Harness
from pico_harness.inbox import EntryDraft
from pico_harness.testing.ledger import Fact
from pico_harness.testing.properties import Monitor
from pico_harness.testing.scenario import Act, Life
from pico_harness.testing.scripted import Stage
from pico_store.address import Seq
from pico_store.errors import (
    CommitUncertainError,
    RefusedError,
    RetryableError,
    StorageFaultedError,
    UnknownConversationError,
)

ROOT = Seq(1)


class Hosts:
    """The hosts of one life."""

    def __init__(self, stage: Stage, monitor: Monitor, life: Life, harness: Harness) -> None:
        self._stage = stage
        self._ledger = stage.ledger
        self._monitor = monitor
        self._life = life
        self._harness = harness
        self._ending = False
        self._closing = False
        self._stopping = False
        self._groups = iter(stage.scenario.groups)
        self._inputs: list[Seq] = []

    async def live(self) -> None:
        """Do everything, then close what is still open."""
        root = await self._harness.root()
        loop = asyncio.get_running_loop()
        acts = [loop.create_task(self._act(act, root), name=act.op) for act in self._life.acts]
        if acts:
            await asyncio.wait(acts, timeout=self._life.end_ms / 1000)
        # A shutdown ends by itself; what would keep it from that must not be hidden by a close.
        if self._stopping and not self._closing:
            await asyncio.wait(acts)
        await self._guard("close", self._close)
        for act in acts:
            await act

    async def _act(self, act: Act, root: ConversationHandle) -> None:
        await asyncio.sleep(act.at_ms / 1000)
        call = Call()
        work = self._work(act, root, call)
        if act.cancel == "never":
            await self._guard(act.op, work)
        else:
            task = asyncio.get_running_loop().create_task(self._guard(act.op, work))
            await asyncio.wait([task], timeout=act.cancel_ms / 1000)
            if act.cancel == "task":
                task.cancel()
                await asyncio.wait([task])
            else:
                call.cancellation.cancel("the host gave up")
                await task
        if call.cancellation._callbacks:
            self._monitor.tell(f"{act.op} left listeners on its call")

    def _work(
        self, act: Act, root: ConversationHandle, call: Call
    ) -> Callable[[], Awaitable[object]]:
        harness = self._harness
        match act.op:
            case "create":
                keys = next(self._groups, ())
                return lambda: root.commit(lambda tx: self._stage.create(tx, keys, ROOT), call=call)
            case "drive_root":
                return lambda: self._drive(root.drive, call)
            case "drive_all":
                return lambda: self._drive(harness.drive, call)
            case "drive_some":
                return lambda: self._drive_some(act.pick, call)
            case "wait":
                return lambda: self._wait(act, call)
            case "abort_task":
                return lambda: self._abort(act.pick, call)
            case "abort_root":
                return lambda: root.abort(call=call)
            case "fork":
                return lambda: root.fork("start", abort=True, call=call)
            case "accept":
                return lambda: self._accept(act, root, call)
            case "withdraw":
                return lambda: self._withdraw(act.pick, root, call)
            case "inspect":
                return lambda: harness.inspect(call=call)
            case "resume":
                return lambda: self._resume(act.pick, call)
            case "delete":
                return lambda: self._delete(act.pick, call)
            case "close":
                return self._close
            case "shutdown":
                return self._shutdown

    async def _guard(self, name: str, work: Callable[[], Awaitable[object]]) -> None:
        """Do something; only what the circumstances excuse may be raised."""
        try:
            await work()
        except (SessionFaultedError, StorageFaultedError) as error:
            if not self._monitor.faulted:
                self._monitor.tell(f"{name}: {error}, and nothing was wrong")
        except (SessionClosedError, SessionStoppingError) as error:
            if not self._ending:
                self._monitor.tell(f"{name}: {error}, and nobody ended it")
        except (UnknownTaskError, UnknownConversationError, TaskParkedError, CallCancelledError):
            pass
        except (RetryableError, CommitUncertainError) as error:
            if not self._life.faults:
                self._monitor.tell(f"{name}: {error}, and the storage is whole")
        except HarnessError as error:
            self._monitor.tell(f"{name} raised {type(error).__name__}: {error}")

    # --- Single acts ---

    async def _drive(self, drive: Callable[..., Awaitable[object]], call: Call) -> None:
        self._monitor.driven = True
        outcome = await drive(call=call)
        if outcome == "closed" and not self._ending:
            self._monitor.tell("a drive ended closed, and nobody ended the session")

    async def _drive_some(self, pick: float, call: Call) -> None:
        known = list(self._ledger.owners)
        handle = await self._harness.conversation(known[int(pick * len(known))], call=call)
        if handle is not None:
            await self._drive(handle.drive, call)

    async def _wait(self, act: Act, call: Call) -> None:
        id = self._pick(act.pick)
        if id is None:
            return
        terminal = await self._harness.wait_for_task(id, act.budget_ms, call=call)
        if terminal and id in self._ledger.live:
            self._monitor.tell(f"task {id} was waited for, and is live")
        if not terminal and act.budget_ms is None:
            self._monitor.tell(f"a wait without a budget for task {id} ended without it")

    def _pick(self, pick: float) -> Seq | None:
        known = list(self._ledger.tasks)
        return known[int(pick * len(known))] if known else None

    async def _abort(self, pick: float, call: Call) -> None:
        id = self._pick(pick)
        if id is not None:
            await self._harness.abort_task(id, call=call)
            if not self._ledger.tasks[id].abort:
                self._monitor.tell(f"task {id} was aborted and carries no mark")

    async def _accept(self, act: Act, root: ConversationHandle, call: Call) -> None:
        name = f"request {int(act.pick * 4)}"
        draft = EntryDraft("simulated.input", data=name)
        id = await root.accept(draft, request_id=name, on_duplicate="return", call=call)
        self._inputs.append(id)
        receipt = await self._harness.acceptance(name, call=call)
        if receipt is None or receipt.input_id != id:
            self._monitor.tell(f"{name} was accepted as {id}; its receipt is {receipt}")

    async def _withdraw(self, pick: float, root: ConversationHandle, call: Call) -> None:
        if self._inputs:
            id = self._inputs[int(pick * len(self._inputs))]
            await root.cancel_queued(id, call=call)

    async def _delete(self, pick: float, call: Call) -> None:
        owned = [id for id, owner in self._ledger.owners.items() if owner is not None]
        if not owned:
            return
        id = owned[int(pick * len(owned))]
        try:
            await self._harness.delete_conversation(id, call=call)
        except (BuilderError, RefusedError):
            return
        below = [task for task, fact in self._ledger.live.items() if self._within(fact, id)]
        if below:
            self._monitor.tell(f"conversation {id} was deleted with live tasks {below}")

    def _within(self, fact: Fact, conversation: Seq) -> bool:
        at: Seq | None = fact.conversation
        while at is not None and at != conversation:
            at = self._ledger.above(at)
        return at is not None

    async def _resume(self, pick: float, call: Call) -> None:
        parked = (await self._harness.inspect(call=call)).parked
        if parked:
            await resume(self._harness, self._monitor, parked[int(pick * len(parked))].id)

    async def _close(self) -> None:
        self._ending = self._closing = True
        await self._harness.close()

    async def _shutdown(self) -> None:
        self._ending = self._stopping = True
        while True:
            try:
                await self._harness.shutdown()
            except RetryableError:
                await asyncio.sleep(0)
                continue
            except SessionClosedError as error:
                if not self._closing:
                    self._monitor.tell(f"a shutdown ended early: {error}")
                return
            break
        for id, fact in self._ledger.live.items():
            if not self._monitor.kept(fact):
                self._monitor.tell(f"task {id} is live after a shutdown")


async def resume(harness: Harness, monitor: Monitor, id: Seq) -> None:
    """Let a parked task go on."""
    with monitor.resuming(id):
        await harness.resume_task(id)
