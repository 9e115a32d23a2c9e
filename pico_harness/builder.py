"""Running builders: the plain functions that make a batch of a transaction."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from typing import TypeVar

from pico_harness.errors import BuilderError
from pico_harness.tx import ScratchTx, Tx

T = TypeVar("T")
X = TypeVar("X", Tx, ScratchTx)


def build(plan: Callable[[X], T], tx: X) -> T:
    """Run a builder and return what it returns.

    Raises:
        BuilderError: It is no plain function (LINE-1).
    """
    if not callable(plan):
        problem = f"a builder that is {type(plan).__name__}"
        raise BuilderError("LINE-1", f"{problem}; allowed: a plain function of the transaction")
    try:
        result = plan(tx)
    except BaseException:
        tx.close()
        raise
    # A generator function has not begun; taken for a builder it would write nothing unnoticed.
    if isinstance(result, (Awaitable, Generator, AsyncGenerator)):
        if isinstance(result, Coroutine):
            result.close()
        tx.close()
        problem = f"the builder returned {type(result).__name__}, something to await"
        raise BuilderError("LINE-1", f"{problem}; allowed: a plain function that does not await")
    return result
