"""The errors of the harness, each class defined by what the caller can do next."""

from __future__ import annotations

from collections.abc import Sequence

from pico_store.address import Seq
from pico_store.errors import PicoError


class HarnessError(PicoError):
    """Every error that the harness raises on purpose."""


# --- The request is wrong: correct it. Nothing was written; the session goes on. ----------------


class RejectedError(HarnessError, ValueError):
    """The request broke a rule; nothing was written and no number consumed.

    Attributes:
        rule: The clause that it broke, such as ``LINE-1``.
    """

    def __init__(self, rule: str, problem: str) -> None:
        super().__init__(f"{problem} ({rule})")
        self.rule = rule
        self.problem = problem

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.rule, self.problem)


class ArgumentError(RejectedError):
    """An argument is of another type, or out of its bounds: correct the call.

    Attributes:
        argument: Which.
    """

    def __init__(self, argument: str, problem: str) -> None:
        super().__init__("ARG-1", f"{argument}: {problem}")
        self.argument = argument
        self._given = problem

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.argument, self._given)


class BuilderError(RejectedError):
    """A builder did what no builder may do: write it differently."""


class NestedOperationError(RejectedError):
    """A builder started an operation of the line it runs on: do it before or after the commit."""


class AuthorityError(RejectedError):
    """The transaction may not change that task: leave it to the task's own invocation."""


class KindError(RejectedError):
    """A kind, or the registration of one, is not well formed: correct the declaration."""


class WaitCycleError(RejectedError):
    """The wait, or the work to be created, would wait for itself: wait for something else."""


class WrongLoopError(HarnessError):
    """The harness belongs to another event loop: use it there, or open the session here."""


class UnknownTaskError(RejectedError):
    """No such task, or it is terminal already: look at it before asking again."""


class UnknownInputError(RejectedError):
    """No such input in this conversation: use the id that ``accept`` returned."""


class StoredTypeError(RejectedError):
    """What is stored does not have the declared type: read it untyped, or migrate it."""


class RequestAlreadyAcceptedError(RejectedError):
    """The request id was used before: take the first receipt, or choose another id.

    Attributes:
        input_id: The input that the first acceptance made.
        conversation: Where it is.
        same_payload: Whether both acceptances carried the same payload.
    """

    def __init__(
        self, request_id: str, input_id: Seq, conversation: Seq, *, same_payload: bool
    ) -> None:
        differs = "the same" if same_payload else "another"
        problem = f"request {request_id!r:.80} was accepted as input {input_id} of conversation "
        super().__init__("IN-2", f"{problem}{conversation}, with {differs} payload")
        self.request_id = request_id
        self.input_id = input_id
        self.conversation = conversation
        self.same_payload = same_payload

    def __reduce__(self) -> tuple[object, ...]:
        return _accepted, (self.request_id, self.input_id, self.conversation, self.same_payload)


def _accepted(request_id: str, input_id: Seq, conversation: Seq, same: bool) -> Exception:  # noqa: FBT001 - pickle passes by position
    return RequestAlreadyAcceptedError(request_id, input_id, conversation, same_payload=same)


# --- Somebody cancelled: clean up and return. -----------------------------------------------------


class TaskCancelledError(HarnessError):
    """The invocation's task carries the abort mark: it may write nothing more; let it return."""


class StaleInvocationError(HarnessError):
    """The invocation returned, or is another task's: use the runtime that it was given."""


class CallCancelledError(HarnessError):
    """The call's own cancellation came before the operation: nothing was done."""


# --- The work cannot go on by itself. -------------------------------------------------------------


class TaskParkedError(HarnessError):
    """Parked tasks keep the scope from becoming idle: `Harness.inspect` says why they are.

    Attributes:
        tasks: Their ids, ascending.
    """

    def __init__(self, tasks: Sequence[Seq]) -> None:
        names = ", ".join(map(str, tasks[:5])) + (" ..." if len(tasks) > 5 else "")
        problem = f"only parked tasks are left, and what waits for them: {names}"
        ways = (
            "inspect says why; a kind that can run them, resume_task or abort_task lets them go on"
        )
        super().__init__(f"{problem}; {ways} (TASKS-5)")
        self.tasks = tuple(tasks)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.tasks,)


# --- The harness is of no more use. ---------------------------------------------------------------


class SessionClosedError(HarnessError):
    """The harness is closing or closed: open the session again."""


class SessionStoppingError(HarnessError):
    """A shutdown was admitted: only its clean-up may still write; open the session again after."""


class SessionFaultedError(HarnessError):
    """A commit ended uncertain or a task broke its contract; ``__cause__`` is the first error.

    Everything that was acknowledged is stored. Open the session again: that starts nothing, so
    what is wrong can be looked at, aborted or replaced before driving.
    """
