"""The changes that making and deleting conversations brings."""

from __future__ import annotations

from collections.abc import Callable

from pico_lmdb.changes import Changes
from pico_lmdb.layout import (
    BY_OWNER,
    BY_OWNER_CONVERSATION,
    BY_PARENT,
    CONVERSATIONS,
    RECORD,
    after_prefix,
    last_number,
    link,
    of_record,
)
from pico_lmdb.memo import Memo
from pico_lmdb.rows import (
    ConversationRow,
    conversation_record,
    conversation_row,
    decode_conversation,
    pack,
    seal,
    seal_key,
)
from pico_lmdb.snapshot import Snapshot
from pico_store.address import Seq
from pico_store.forks import inherited_through
from pico_store.records import Conversation


class ConversationPlan:
    """Works out the conversations of one batch, whose earlier writes count."""

    def __init__(self, memo: Memo, snapshot: Callable[[], Snapshot], changes: Changes) -> None:
        self._memo = memo
        self._session = memo.session
        self._snapshot = snapshot
        self._changes = changes

    def put(self, record: Conversation, through: Seq | None, source: Seq | None) -> None:
        """Put a conversation, with its links.

        Args:
            record: The conversation.
            through: What is still shown of a deleted one.
            source: The conversation of its owner, if that is known.
        """
        others, session, id = self._changes.others, self._session, record.id
        self._put_row(id, conversation_row(record, through))
        if record.parent is not None:
            key = link(BY_PARENT, session, record.parent.conversation_id, id)
            others[CONVERSATIONS, key] = seal_key(CONVERSATIONS, key)
        if record.owner is not None:
            key = link(BY_OWNER, session, record.owner, id)
            others[CONVERSATIONS, key] = seal_key(CONVERSATIONS, key)
        if source is not None:
            key = link(BY_OWNER_CONVERSATION, session, source, id)
            others[CONVERSATIONS, key] = seal_key(CONVERSATIONS, key)

    def delete(self, taken: list[Seq]) -> None:
        """Mark conversations as deleted, with what live ones still show of them."""
        with self._snapshot() as snapshot:
            for id in taken:
                self._memo.conversations.pop(id, None)
                self._set_through(snapshot, id, 0)

            def forks(id: Seq) -> list[Conversation]:
                return self._forks(snapshot, id)

            def is_live(id: Seq) -> bool:
                return self._row(snapshot, id).through is None

            # What is shown may shrink for the taken ones and for deleted ones above them.
            for id in taken:
                source: Seq | None = id
                while source is not None and not is_live(source):
                    self._set_through(snapshot, source, inherited_through(source, forks, is_live))
                    source = self._row(snapshot, source).parent

    def _set_through(self, snapshot: Snapshot, id: Seq, through: int) -> None:
        row = self._row(snapshot, id)
        self._put_row(id, ConversationRow(row.parent, row.at, row.owner, through))

    def _put_row(self, id: Seq, row: ConversationRow) -> None:
        key = of_record(RECORD, self._session, id)
        self._changes.others[CONVERSATIONS, key] = seal(CONVERSATIONS, key, pack(row))

    def _row(self, snapshot: Snapshot, id: Seq) -> ConversationRow:
        key = of_record(RECORD, self._session, id)
        pending = self._changes.others.get((CONVERSATIONS, key))
        if pending is not None:
            return decode_conversation(pending[:-4])
        found = snapshot.read(CONVERSATIONS, key, "conversation", id)
        if found is None:
            raise snapshot.damaged(f"conversation {id}")
        return decode_conversation(found)

    def _forks(self, snapshot: Snapshot, id: Seq) -> list[Conversation]:
        prefix = of_record(BY_PARENT, self._session, id)
        keys = list(snapshot.keys(CONVERSATIONS, prefix, after_prefix(prefix)))
        for tree, key in self._changes.others:
            if tree == CONVERSATIONS and key.startswith(prefix):
                keys.append(key)
        ids = [Seq(last_number(key, 13)[0]) for key in keys]
        return [conversation_record(fork, self._row(snapshot, fork)) for fork in ids]
