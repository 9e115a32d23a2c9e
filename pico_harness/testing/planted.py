"""Faults that a simulation has to find, and changes that it must not mind."""

from __future__ import annotations

from typing import Final

from pico_harness.testing.planting import Edit, Planted

_METHOD = "scheduler:Scheduler._method"
_RESERVE = "scheduler:Scheduler._reserve"
_COMMITTED = "scheduler:Scheduler.committed"


def _fault(name: str, target: str, old: str, new: str) -> Planted:
    return Planted(name, (Edit(target, old, new),))


_WRITING: Final = (
    _fault(
        "a mark is not looked at when something is written",
        "admission:Admission.admit",
        'if live.task.abort and invocation.method != "abort":',
        "if False:",
    ),
    _fault(
        "scratch is accepted after the mark",
        "driver:Driver.scratch",
        "self.admission.admit(call, bound)",
        "self.admission.check_phase()",
    ),
    _fault(
        "two commits are under way at once",
        "line:Line._advance",
        "while self._queue and not self._busy and not self._inside:",
        "while self._queue and not self._inside:",
    ),
    _fault(
        "an operation whose caller left is run",
        "line:Line._advance",
        "if waiting.dropped:",
        "if False:",
    ),
    _fault(
        "a lost commit does not fault the session",
        "line:Line._failed",
        "if not isinstance(error, (RefusedError, RetryableError)):",
        "if False:",
    ),
    _fault(
        "a commit that can be retried faults the session",
        "line:Line._failed",
        "(RefusedError, RetryableError)",
        "RefusedError",
    ),
    _fault(
        "a running input can be withdrawn",
        "inbox:withdraw",
        'if result.status != "queued":',
        'if result.status not in ("queued", "running"):',
    ),
    _fault(
        "a placed input stays in the queue",
        "inbox:place",
        "tx.list(INBOX, conversation=conversation).remove(input_id)",
        "pass",
    ),
)

_INDEXES: Final = (
    _fault(
        "a patch clears the mark",
        "live:LiveIndex._patch",
        "abort = task.abort or write.abort",
        "abort = write.abort",
    ),
    _fault(
        "epochs fall back when a status returns",
        "live:LiveIndex._patch",
        "live.epoch += 1",
        "live.epoch ^= 1",
    ),
    _fault(
        "the foreground count misses settlements",
        "live:LiveIndex._settle",
        "_count_down(self._foreground, task.conversation_id)",
        "pass",
    ),
    Planted(
        "background work makes a conversation busy",
        (
            Edit("live:LiveIndex._add_links", "if not task.background:", "if True:"),
            Edit("live:LiveIndex._settle", "if not task.background:", "if True:"),
        ),
    ),
    _fault(
        "an aborted dependency frees nobody",
        "live:LiveIndex._settle",
        "for id in live.dependents:",
        "for id in () if task.abort else live.dependents:",
    ),
    _fault(
        "new conversations are not noted with their owner",
        "live:LiveIndex.apply",
        "self._own(write)",
        "pass",
    ),
    Planted(
        "an invocation does not hold its ancestry",
        (
            Edit(_RESERVE, "self.ancestry.hold(task.conversation_id)", "pass"),
            Edit(
                "scheduler:Scheduler.finished",
                "self.ancestry.release(invocation.conversation_id)",
                "pass",
            ),
        ),
    ),
    _fault(
        "an end of an invocation keeps its ancestry",
        "scheduler:Scheduler.finished",
        "self.ancestry.release(invocation.conversation_id)",
        "pass",
    ),
    _fault(
        "serving does not reach what is there already",
        "ancestry:Ancestry.attach",
        "stack += node.below",
        "pass",
    ),
    _fault(
        "serving does not reach what tasks own",
        "ancestry:Ancestry.hold",
        "node.served = above.served",
        "pass",
    ),
)

_DECIDING: Final = (
    _fault(
        "a slot is released when the task is marked",
        _COMMITTED,
        'actions.append(Signal(invocation, "the task was aborted"))',
        'actions.append(Signal(self.running.pop(id), "the task was aborted"))',
    ),
    _fault(
        "an abort starts while the method runs",
        _RESERVE,
        "if live is None or id in self.running:",
        "if live is None or (id in self.running and not live.task.abort):",
    ),
    _fault(
        "a successor that has not begun does not keep its conversation busy",
        "scheduler:Scheduler.busy",
        "return self.live.foreground(conversation) > 0",
        "return any(self.live[i].task.role != 'start' for i in "
        "self.live.foreground_ids(conversation))",
    ),
    _fault(
        "what waited is not woken by a settlement",
        _COMMITTED,
        "changes.marked, changes.freed)",
        "changes.marked)",
    ),
    _fault(
        "a mark wakes nothing", _COMMITTED, "changes.changed, changes.marked,", "changes.changed,"
    ),
    _fault(
        "a running method is not told of the mark",
        _COMMITTED,
        'if invocation is not None and invocation.method != "abort":',
        "if False:",
    ),
    _fault(
        "nothing goes on after a method returned",
        "scheduler:Scheduler.finished",
        "elif live is not None:",
        "elif False:",
    ),
    _fault(
        "a task starts before its dependencies ended",
        _METHOD,
        'return None if live.waits_for else "execute"',
        'return "execute"',
    ),
    _fault("execute instead of recover", _METHOD, 'return "recover"', 'return "execute"'),
    _fault(
        "recover instead of abort after a reopen",
        _METHOD,
        "if live.task.abort:",
        "if live.task.abort and not live.seeded:",
    ),
    _fault(
        "something starts while the session closes",
        _RESERVE,
        'if self.phase not in ("open", "stopping"):',
        'if self.phase not in ("open", "stopping", "closing"):',
    ),
    _fault(
        "a task that broke its contract runs once more",
        _METHOD,
        "if live.task.id in self._broken:",
        "if False:",
    ),
)

_WAITING: Final = (
    _fault(
        "a waiter is not removed when its caller leaves",
        "driver:Driver._wait",
        "self.scheduler.waits.remove(waiter)",
        "pass",
    ),
    _fault(
        "a waiter's listener stays on its call",
        "driver:Driver._wait",
        "if remove is not None:",
        "if False:",
    ),
    _fault(
        "a resolved waiter stays registered",
        "scheduler:Scheduler._resolve",
        "if self.waits.remove(waiter):",
        "if True:",
    ),
    _fault(
        "a drive that is given up cancels the work",
        "driver:Driver._give_up",
        "if self.scheduler.waits.remove(waiter) and not waiter.result.done():",
        "for i in self.scheduler.running.values():\n"
        "        i.runner and i.runner.cancel()\n"
        "    if self.scheduler.waits.remove(waiter) and not waiter.result.done():",
    ),
    _fault(
        "waits for oneself are not refused",
        "driver:Driver._wait",
        "self.scheduler.waits.check(waiter)",
        "pass",
    ),
    _fault(
        "a wait for a live task is answered at once",
        "scheduler:Scheduler.waiting",
        "if waiter.task not in self.live:",
        "if True:",
    ),
    _fault(
        "a drive does not look whether it is idle already",
        "scheduler:Scheduler.waiting",
        "self._test_conversation(waiter.conversation, actions)",
        "pass",
    ),
    _fault(
        "the idle session is not announced",
        "scheduler:Scheduler._settled",
        "self._test_session(actions)",
        "pass",
    ),
    _fault(
        "a fault leaves the waiters waiting",
        "scheduler:Scheduler._end",
        "self._resolve(waiter, error(), actions)",
        "pass",
    ),
)

_LIFE: Final = (
    _fault(
        "opening starts what is live",
        "harness:Harness.open",
        "if not storage.last_seq:",
        "driver.dispatch(driver.scheduler.attached(None))\n    if not storage.last_seq:",
    ),
    _fault(
        "opening ends what nobody can run",
        "harness:Harness.open",
        "if not storage.last_seq:",
        "driver.post(lambda: driver._orphans(None), lambda _: None)\n    if not storage.last_seq:",
    ),
    _fault(
        "background work of unknown kinds is ended too",
        "scheduler:Scheduler.orphaned",
        "not live.task.background and",
        "True and",
    ),
    _fault(
        "the storage is closed before everything returned",
        "scheduler:Scheduler._test_drained",
        "if self._drained or self.running or",
        "if self._drained or",
    ),
    _fault(
        "an end is dropped while a commit is under way",
        "driver:Driver._returned",
        "self.line.post(Returned(",
        "self.line.idle and self.line.post(Returned(",
    ),
    _fault(
        "losses in flight are not made durable",
        "driver:Driver._invoke",
        "if invocation.again:",
        "if False:",
    ),
    _fault(
        "losses in flight are counted from one again",
        "opening:_make_scheduler",
        "links = read_links(storage, live)",
        "links = read_links(storage, live)\n"
        "    for id in live.ids(): live[id].crashes = min(live[id].crashes, 1)",
    ),
    _fault(
        "a parked task is recovered all the same",
        "scheduler:Scheduler.parked",
        "task.id in self._crashed or",
        "False or",
    ),
    _fault(
        "a clean close counts as a loss",
        "lifecycle:Lifecycle._end_storage",
        "if holds_losses(driver.storage, live[id]):",
        "if False:",
    ),
    _fault(
        "a shutdown leaves background work alone",
        "lifecycle:Lifecycle._marks",
        "if not live[id].task.abort]",
        "if not live[id].task.abort and not live[id].task.background]",
    ),
    _fault(
        "close returns before the end",
        "lifecycle:Lifecycle.close",
        "await asyncio.shield(self._ended)",
        "pass",
    ),
)

# What simulations found in the harness, put back as it was.
_FOUND: Final = (
    _fault(
        "a call that was cancelled along with its method counts as broken contract",
        "scheduler:Scheduler._expected",
        "(asyncio.CancelledError, CallCancelledError)",
        "asyncio.CancelledError",
    ),
    _fault(
        "a known request is refused where its receipt was asked for",
        "conversation:ConversationHandle.accept",
        'if on_duplicate == "return":',
        "if False:",
    ),
    _fault(
        "a storage that is busy while a loss is counted breaks the task",
        "driver:Driver._count_crash",
        "except RetryableError as error:",
        "except ZeroDivisionError as error:",
    ),
    _fault(
        "a loss is not counted if the mark comes before its method began",
        _RESERVE,
        "again = live.seeded",
        'again, live.seeded = live.seeded and method != "execute", False',
    ),
    _fault(
        "a task still owns what was deleted",
        "live:LiveIndex.apply",
        "self._disown(write.id)",
        "pass",
    ),
    _fault(
        "a shutdown that was refused once is refused for ever",
        "lifecycle:Lifecycle._stop_ended",
        "self._stopping = None",
        "pass",
    ),
)

FAULTS: Final = (*_WRITING, *_INDEXES, *_DECIDING, *_WAITING, *_LIFE, *_FOUND)
"""Each breaks a promise of the harness."""

CONTROLS: Final = (
    _fault("slots are taken in another order", _RESERVE, "in ids:", "in reversed(list(ids)):"),
    _fault(
        "who ran out of budget takes its waiter away later",
        "driver:Driver._out_of_budget",
        "self.scheduler.waits.remove(waiter)",
        "pass",
    ),
    _fault(
        "every drive looks at all live tasks again",
        "scheduler:Scheduler.attached",
        "served = self.ancestry.attach(conversation)",
        "served = (self.ancestry.attach(conversation), self.live.conversations())[1]",
    ),
    _fault(
        "waiters are resolved in another order",
        "scheduler:Scheduler._settled",
        "in self.waits.of_task(task.id):",
        "in reversed(self.waits.of_task(task.id)):",
    ),
)
"""Each changes how the harness works and breaks no promise."""
