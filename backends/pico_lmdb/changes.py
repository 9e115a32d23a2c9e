"""What a commit puts into and takes from the trees, worked out before its transaction begins.

So the transaction is short, and can be run again after the map has grown.
"""

from __future__ import annotations

from pico_lmdb.engine import Transaction, Tree
from pico_lmdb.layout import RECORDS
from pico_store.errors import OwnershipLostError


class Changes:
    """The changes of one session by a handle of some epoch."""

    __slots__ = ("epoch", "epoch_key", "main", "others", "prefixes", "records")

    def __init__(self, epoch_key: bytes, epoch: bytes) -> None:
        self.epoch_key = epoch_key
        self.epoch = epoch
        self.main: dict[bytes, bytes | None] = {}
        """Rows of the main tree; ``None`` deletes one."""
        self.records: dict[bytes, bytes] = {}
        """Rows of `RECORDS`."""
        self.others: dict[tuple[int, bytes], bytes | None] = {}
        """Rows of other trees."""
        self.prefixes: list[tuple[int, bytes]] = []
        """Whole ranges that are deleted, before anything is put."""

    def empty(self) -> None:
        """Forget them all."""
        self.main.clear()
        self.records.clear()
        self.others.clear()
        self.prefixes.clear()

    def clear(self, tree: int, prefix: bytes) -> None:
        """Delete every row of a prefix, those of these changes included."""
        self.prefixes.append((tree, prefix))
        for place in [p for p in self.others if p[0] == tree and p[1].startswith(prefix)]:
            del self.others[place]

    def apply(self, transaction: Transaction, trees: list[Tree]) -> None:
        """Make the changes in a transaction.

        Raises:
            OwnershipLostError: Another open took the session over; nothing was changed.
        """
        # First of all: another owner may have put the same rows.
        if transaction.get(self.epoch_key) != self.epoch:
            raise lost(self.epoch)
        for tree, prefix in self.prefixes:
            delete_prefix(transaction, trees[tree], prefix)
        put, delete = transaction.put, transaction.delete
        for key, value in self.main.items():
            if value is None:
                delete(key)
            else:
                put(key, value)
        if self.records:
            records = self.records
            tree_of_records = trees[RECORDS]
            # In order, and as an append where it is one: it leaves the pages behind it full.
            for key in sorted(records) if len(records) > 1 else records:
                value = records[key]
                if not put(key, value, True, True, True, tree_of_records):
                    put(key, value, True, True, False, tree_of_records)
        for (tree, key), value in self.others.items():
            if value is None:
                delete(key, b"", trees[tree])
            else:
                put(key, value, True, True, False, trees[tree])


def delete_prefix(transaction: Transaction, tree: Tree, prefix: bytes) -> int:
    """Delete every row of a prefix and return how many there were."""
    count = 0
    cursor = transaction.cursor(tree)
    if cursor.set_range(prefix):
        while cursor.key().startswith(prefix):
            cursor.delete()
            count += 1
    cursor.close()
    return count


def lost(epoch: bytes) -> OwnershipLostError:
    """Return the error of a handle whose epoch is over."""
    return OwnershipLostError(
        f"this handle's epoch {int.from_bytes(epoch, 'big')} is over: another open took the "
        "session; nothing was written; open it again"
    )
