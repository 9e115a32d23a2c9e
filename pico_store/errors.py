"""The errors of the storage layer, each class defined by what the caller can do next."""

from __future__ import annotations


class PicoError(Exception):
    """Every error that pico raises on purpose."""


# --- The request is wrong: correct it. Nothing was written; the handle goes on. -----------------


class RefusedError(PicoError, ValueError):
    """The request broke a clause of the contract; nothing was written and no number consumed.

    Attributes:
        path: Where the offending part is, such as ``writes[2].value.items[0]``; empty when the
            request as a whole is refused.
        clause: The clause of SPEC.md that refused it, such as ``SEQ-1``.
    """

    def __init__(self, clause: str, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem} ({clause})" if path else f"{problem} ({clause})")
        self.clause = clause
        self.path = path
        self.problem = problem

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.clause, self.path, self.problem)


class InvalidBatchError(RefusedError):
    """A write of the batch is not allowed in the state it would meet: build another batch."""


class InvalidValueError(RefusedError):
    """A value is not strict JSON: replace the part that ``path`` names."""


class LimitExceededError(RefusedError):
    """Something is larger than the contract allows: send less."""


class InvalidQueryError(RefusedError):
    """A read was asked with arguments that mean nothing: correct the query."""


class UnknownConversationError(RefusedError):
    """The conversation does not exist or was deleted: ask for another."""


class StaleWriterError(RefusedError):
    """The batch was built for another sequence number: read again and build it anew."""


class SessionExistsError(RefusedError):
    """The session exists already: open it, or choose another id."""


class UnknownSessionError(RefusedError):
    """The store holds no such session: create it, or choose another id."""


class StoreUrlError(RefusedError):
    """The store URL cannot be understood: correct it."""


class MissingDriverError(RefusedError):
    """The backend's library is not installed: install the extra that the message names."""


class UnsupportedError(RefusedError):
    """This backend does not promise what was asked: use another way or another backend."""


# --- Nothing happened: try again. The handle goes on. -------------------------------------------


class RetryableError(PicoError):
    """The backend knows that nothing became durable; the same call may succeed later."""


class StoreBusyError(RetryableError):
    """Another writer held the store past the configured wait: try again."""


class StoreFullError(RetryableError):
    """There was no room for the commit, which was undone: make room and try again."""


class StoreIOError(RetryableError):
    """The operating system refused an access, and nothing became durable: mend it and retry."""


# --- The handle is of no more use. ----------------------------------------------------------------


class StorageClosedError(PicoError):
    """The handle was closed: open the session again."""


class CommitUncertainError(PicoError):
    """The commit may or may not be durable; the handle is faulted.

    Reopen the session: it shows the last complete batch. Compare its ``last_seq`` with the number
    that the commit would have reached before doing anything again.
    """


class StorageFaultedError(PicoError):
    """An earlier commit of this handle ended uncertain: reopen the session."""


class OwnershipLostError(PicoError):
    """Another open took the session over; this handle can never commit again: reopen it."""


# --- Somebody else has it. ------------------------------------------------------------------------


class SessionOwnedError(PicoError):
    """A live owner holds the session: wait for it, open read-only, or take it over on purpose."""


# --- The store cannot be used as it is. -----------------------------------------------------------


class StoreUnusableError(PicoError):
    """The store cannot be opened; nothing in it was changed."""


class NotAStoreError(StoreUnusableError):
    """The path holds something that is not a store of this backend."""


class NewerFormatError(StoreUnusableError):
    """A newer version of pico wrote the store: upgrade pico."""


class StoreDamagedError(StoreUnusableError):
    """Stored bytes are not what was written: run ``verify``, restore a backup.

    The message names the record. A damaged record is never returned and never skipped.
    """
