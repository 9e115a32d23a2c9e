"""The context of a conversation, kept warm by its handle."""

from __future__ import annotations

from pico_store.address import Seq
from pico_store.context import Context, derive_context
from pico_store.records import At
from pico_store.storage import Storage


class ContextCache:
    """Derives the context of one conversation.

    Source: design §2.2; CTX-1, CTX-2.
    """

    def __init__(self, storage: Storage, conversation: Seq) -> None:
        self._storage = storage
        self._conversation = conversation

    def context(self, at: At | None) -> Context:
        """Return the context at a position; now if ``None``."""
        return derive_context(self._storage, self._conversation, at)
