"""What is said of a session that somebody else has open for writing, on every backend."""

from __future__ import annotations

from datetime import UTC, datetime

from pico_store.errors import RefusedError
from pico_store.records import JsonObject
from pico_store.storage import Owner


def check_opening(*, read_only: bool, take_over: bool) -> None:
    """Refuse to take a session over only to read it; every `Store.open` asks this first.

    Source: SPEC.md, OWN-5.
    """
    if read_only and take_over:
        problem = "with read_only=True; allowed: one of the two, a reader disturbs no owner"
        raise RefusedError("OWN-5", "take_over", problem)


def owned_problem(session_id: str, owner: Owner) -> str:
    """Return the message of `SessionOwnedError`: who has the session, and what can be done."""
    return (
        f"session {session_id!r:.80} is open for writing in {owner_text(owner)}; close it there "
        "(a process that ended holds nothing), open it read-only, or pass take_over=True"
    )


def record_text(owner: Owner | None) -> str:
    """Return what is to be said of the owner on record, as a sentence without its end."""
    if owner is None:
        return "owner on record: nobody"
    if owner.ended:
        return f"owner gone (process {owner.pid} ended): {owner_text(owner)}"
    return f"owner on record: {owner_text(owner)}"


def owner_json(owner: Owner | None) -> JsonObject | None:
    """Return an owner as commands print it with ``--json``."""
    if owner is None:
        return None
    return {
        "pid": owner.pid,
        "host": owner.host,
        "sinceMs": owner.since_ms,
        "ended": owner.ended,
    }


def owner_text(owner: Owner) -> str:
    """Return who an owner is and since when."""
    try:
        since = datetime.fromtimestamp(owner.since_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        # A damaged record may say anything.
        since = f"{owner.since_ms} (Unix ms)"
    return f"process {owner.pid} on {owner.host} since {since}"
