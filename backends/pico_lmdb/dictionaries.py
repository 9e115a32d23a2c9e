"""The dictionaries that a file's payloads are compressed with."""

from __future__ import annotations

from pico_lmdb.engine import Transaction
from pico_lmdb.layout import DICTIONARY, MAIN, dictionary_key
from pico_lmdb.rows import DictionaryRow, decode_dictionary, unseal
from pico_store.errors import StoreDamagedError


def newest_dictionary(path: str, transaction: Transaction) -> tuple[int, DictionaryRow] | None:
    """Return the number and the row of the newest dictionary, if there is any.

    Args:
        path: The folder, for the message.
        transaction: Reads.

    Raises:
        StoreDamagedError: It is not what was written.
    """
    cursor = transaction.cursor()
    there = cursor.prev() if cursor.set_range(dictionary_key(2**32 - 1)) else cursor.last()
    if not there or not cursor.key().startswith(DICTIONARY):
        return None
    key, stored = cursor.item()
    number = int.from_bytes(key[len(DICTIONARY) :], "big")
    row = unseal(MAIN, key, stored)
    if row is None:
        problem = f"dictionary {number} is damaged; run pico verify, restore a backup"
        raise StoreDamagedError(f"{path}: {problem}")
    return number, decode_dictionary(row)
