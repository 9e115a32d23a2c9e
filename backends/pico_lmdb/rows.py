"""The rows of each tree: MessagePack, followed by four bytes of checksum.

The checksum is a CRC-32 over the tree's number (as the start value), the key and the MessagePack,
so that no row can pass for another.

Source: SPEC.md, DUR-8.
"""

from __future__ import annotations

from struct import Struct as PackStruct
from typing import Final
from zlib import crc32

import msgspec
from msgspec import Raw, Struct

from pico_store.address import Seq
from pico_store.records import Conversation, ForkPoint, TaskRole

pack: Final = msgspec.msgpack.Encoder().encode

four: Final = PackStruct(">I").pack
"""The bytes of a checksum."""

BACKGROUND: Final = 1
TURN: Final = 2
ABORT: Final = 4
ROLES: Final[dict[TaskRole, int]] = {"start": 0, "inflight": 1, "terminal": 2}
ROLE_NAMES: Final[tuple[TaskRole, ...]] = ("start", "inflight", "terminal")


class DictionaryRow(Struct, array_like=True, frozen=True):
    """A dictionary; its number is in the key."""

    rows: int
    """How many there were to train it on."""
    data: bytes


class EntryRow(Struct, array_like=True, frozen=True, tag=0):
    """An entry; its id is in the key."""

    conversation: Seq
    kind: int
    key: str | None
    by_task: Seq | None
    head: Seq | None
    body: Raw


class TaskRow(Struct, array_like=True, frozen=True, tag=1):
    """A task; its id is in the key."""

    conversation: Seq
    kind: int
    status: str
    role: int
    flags: int
    after: tuple[Seq, ...]
    body: Raw


class ConversationRow(Struct, array_like=True, frozen=True):
    """A conversation; its id is in the key."""

    parent: Seq | None
    at: Seq | None
    owner: Seq | None
    through: int | None
    """Of a deleted conversation, the greatest number that a live one inherits of it."""


class CurrentRow(Struct, array_like=True, frozen=True, tag=0):
    """The current value of a sticky, session or scratch address."""

    rest: bytes | None
    seq: Seq
    body: Raw


class AbsentRow(Struct, array_like=True, frozen=True, tag=1):
    """A sticky address whose value was deleted; its policy stays."""

    rest: bytes | None
    seq: Seq


class VersionedRow(Struct, array_like=True, frozen=True, tag=2):
    """A rewindable value."""

    rest: bytes | None
    number: int


class ListRow(Struct, array_like=True, frozen=True, tag=3):
    """A list."""

    rest: bytes | None
    number: int
    rewind: bool


AddressRow = CurrentRow | AbsentRow | VersionedRow | ListRow


class ScratchRow(Struct, array_like=True, frozen=True):
    """A scratch write; without a namespace nothing is left of it but its number."""

    writes: int
    """The size of the batch, in its first row; else 0."""
    namespace: str | None = None
    key: str | None = None
    body: Raw = Raw()


class SessionRow(Struct, array_like=True, frozen=True):
    """A session; its number is in the key."""

    name: str
    epoch: int
    owner: str | None


class KindRow(Struct, array_like=True, frozen=True):
    """A kind of entries or tasks; its number is in the key."""

    name: str
    entries: bool
    """Whether an entry ever had it."""


class TailRow(Struct, array_like=True, frozen=True):
    """Where a session's main batches end."""

    last: Seq
    first: Seq
    """The number that the boundaries begin at."""
    boundaries: list[int]
    """For each batch, how many numbers lie between it and the one before, and its size."""


decode_record: Final = msgspec.msgpack.Decoder(EntryRow | TaskRow).decode
decode_task: Final = msgspec.msgpack.Decoder(TaskRow).decode
decode_conversation: Final = msgspec.msgpack.Decoder(ConversationRow).decode
decode_address: Final = msgspec.msgpack.Decoder(AddressRow).decode
decode_scratch: Final = msgspec.msgpack.Decoder(ScratchRow).decode
decode_session: Final = msgspec.msgpack.Decoder(SessionRow).decode
decode_kind: Final = msgspec.msgpack.Decoder(KindRow).decode
decode_tail: Final = msgspec.msgpack.Decoder(TailRow).decode
decode_dictionary: Final = msgspec.msgpack.Decoder(DictionaryRow).decode
decode_boundaries: Final = msgspec.msgpack.Decoder(list[int]).decode


def seal(tree: int, key: bytes, row: bytes) -> bytes:
    """Return a row as it is stored."""
    return row + four(crc32(row, crc32(key, tree)))


def unseal(tree: int, key: bytes, stored: bytes) -> bytes | None:
    """Return the row that was stored, or ``None`` where the checksum differs."""
    row = stored[:-4]
    if four(crc32(row, crc32(key, tree))) != stored[-4:]:
        return None
    return row


def seal_key(tree: int, key: bytes) -> bytes:
    """Return an empty row as it is stored."""
    return four(crc32(key, tree))


def packed_kind(kind: int) -> bytes:
    """Return what `TRANSCRIPTS` holds of an entry's kind."""
    return kind.to_bytes((kind.bit_length() + 7) // 8 or 1, "big")


def conversation_record(id: Seq, row: ConversationRow) -> Conversation:
    """Return a conversation from its row."""
    parent = None if row.parent is None or row.at is None else ForkPoint(row.parent, row.at)
    return Conversation(id=id, parent=parent, owner=row.owner)


def conversation_row(record: Conversation, through: int | None) -> ConversationRow:
    """Return the row of a conversation."""
    parent = record.parent
    if parent is None:
        return ConversationRow(None, None, record.owner, through)
    return ConversationRow(parent.conversation_id, parent.at, record.owner, through)


def boundaries(first: int, numbers: list[int]) -> list[tuple[Seq, Seq]]:
    """Return the first and last number of each batch of a row."""
    found = []
    seq = first
    for gap, writes in zip(numbers[::2], numbers[1::2], strict=True):
        seq += gap
        found.append((Seq(seq), Seq(seq + writes - 1)))
        seq += writes
    return found
