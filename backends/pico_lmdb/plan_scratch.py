"""The changes of scratch batches: one row a write, by task and number.

A list element's payload is in its own row. Any other write leaves a row that holds nothing but its
number: the sequence and the boundaries need it. Values have rows by address beside that.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Raw

from pico_lmdb.changes import Changes
from pico_lmdb.layout import MAIN, last_number, scratch_write, scratch_writes
from pico_lmdb.memo import Memo
from pico_lmdb.rows import decode_scratch, pack, seal
from pico_lmdb.snapshot import Snapshot
from pico_store.address import Address, ScratchAddress, Seq
from pico_store.batch import ListAppend, ListClear, ListRemove, ValueDelete, ValueSet
from pico_store.check import CheckedBatch


class ScratchPlan:
    """Works out the changes of the scratch batches of one session."""

    def __init__(
        self,
        memo: Memo,
        snapshot: Callable[[], Snapshot],
        put_value: Callable[[Address, Seq, bytes | None], None],
    ) -> None:
        self._memo = memo
        self._session = memo.session
        self._snapshot = snapshot
        self._put_value = put_value

    def fill(self, changes: Changes, checked: CheckedBatch) -> None:
        """Add the changes of a batch."""
        assert checked.task is not None
        main = changes.main
        self._memo.bare.discard(checked.task)
        for index, write in enumerate(checked.writes):
            seq = Seq(checked.first + index)
            key = scratch_write(self._session, checked.task, seq)
            writes = 0 if index else len(checked.writes)
            body = checked.bodies[index]
            address = write.address  # type: ignore[union-attr]
            assert type(address) is ScratchAddress
            match write:
                case ListAppend():
                    assert body is not None
                    main[key] = put_element(self._session, address, seq, writes, body)[1]
                    continue
                case ListRemove():
                    self._spend(changes, scratch_write(self._session, address.task, write.element))
                case ListClear():
                    self._clear(changes, address)
                case ValueSet() | ValueDelete():
                    self._put_value(address, seq, body)
            main[key] = spent(key, writes)

    def _spend(self, changes: Changes, key: bytes) -> None:
        """Take the payload out of a row."""
        pending = changes.main.get(key)
        if pending is not None:
            changes.main[key] = spent(key, decode_scratch(pending[:-4]).writes)
            return
        with self._snapshot() as snapshot:
            found = snapshot.read(MAIN, key, "list element", last_number(key, 14)[0])
        assert found is not None, "a list element is gone that the checks found"
        changes.main[key] = spent(key, decode_scratch(found).writes)

    def _clear(self, changes: Changes, address: ScratchAddress) -> None:
        prefix = scratch_writes(self._session, address.task)
        rows = {
            key: decode_scratch(stored[:-4])
            for key, stored in changes.main.items()
            if stored is not None and key.startswith(prefix)
        }
        with self._snapshot() as snapshot:
            for key, stored in snapshot.under(MAIN, prefix):
                if key not in rows:
                    id = last_number(key, 14)[0]
                    row = snapshot.checked(MAIN, key, stored, "list element", id)
                    rows[key] = decode_scratch(row)
        for key, found in rows.items():
            if found.namespace == address.namespace and found.key == address.key:
                changes.main[key] = spent(key, found.writes)


def put_element(
    session: int, address: ScratchAddress, seq: Seq, writes: int, body: bytes
) -> tuple[bytes, bytes]:
    """Return the key and the row of a list element."""
    key = scratch_write(session, address.task, seq)
    row = (writes, address.namespace, address.key, Raw(body))
    return key, seal(MAIN, key, pack(row))


def spent(key: bytes, writes: int) -> bytes:
    """Return a row of which nothing is left but its number."""
    return seal(MAIN, key, pack((writes,)))
