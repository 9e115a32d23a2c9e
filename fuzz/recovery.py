"""What a reopened session must be: the model after some batches, and a session that goes on."""

from __future__ import annotations

from collections.abc import Iterable

from fuzz.script import SESSION, Script, without_last
from pico_store.digest import digest
from pico_store.errors import PicoError, UnknownSessionError
from pico_store.records import BatchRange
from pico_store.snapshot import SnapshotItem
from pico_store.storage import Storage, Store


def check_prefix(
    store: Store, script: Script, at_least: int, at_most: int, *, go_on: bool = True
) -> tuple[int, str]:
    """Compare a session with the states after so many batches, and commit what follows.

    Args:
        store: Holds it.
        script: What was committed.
        at_least: How many batches must be there.
        at_most: How many may be there.
        go_on: Whether to commit another batch afterwards.

    Returns:
        How many batches are there, those that this committed included, and what is wrong.
    """
    try:
        storage = store.open(SESSION)
    except PicoError as error:
        return 0, f"the session does not open: {type(error).__name__}: {error}"
    try:
        found = digest(storage.export())
        if found not in script.digests[at_least : at_most + 1]:
            return 0, _difference(storage, script, found, at_least, at_most)
        count = script.digests.index(found)
        if not go_on or count == len(script.batches):
            return count, ""
        return count + 1, go_on_with(storage, script, count)
    except PicoError as error:
        return 0, f"the session cannot be used: {type(error).__name__}: {error}"
    finally:
        storage.close()


def go_on_with(storage: Storage, script: Script, index: int) -> str:
    """Commit a batch to a session that holds those before it; return what is wrong."""
    made = storage.commit(script.batches[index])
    if made != script.ranges[index]:
        return f"batch {index} became {made} instead of {script.ranges[index]}"
    if digest(storage.export()) != script.digests[index + 1]:
        return f"batch {index}, committed after reopening, gives another state"
    return ""


def _difference(storage: Storage, script: Script, found: str, at_least: int, at_most: int) -> str:
    which = f"{at_least} to {at_most} batches were to be there"
    if found in script.digests:
        return f"lost: {which}, {script.digests.index(found)} are"
    lasts = [0, *(int(range_.last) for range_ in script.ranges)]
    near = [index for index, last in enumerate(lasts) if last == storage.last_seq]
    place = f"whose numbers end as after batch {near[0]}" if near else "that ends within a batch"
    return f"half: {which}; a state is that no prefix gives, {place} (last {storage.last_seq})"


def is_there(store: Store) -> bool:
    """Tell whether the store holds the session."""
    try:
        store.open(SESSION, read_only=True).close()
    except UnknownSessionError:
        return False
    return True


def check_logs(
    items: Iterable[SnapshotItem], script: Script, mains_at_least: int, sent: int
) -> tuple[int, str]:
    """Compare a session whose main batches and whose scratch are in files of their own.

    A power cut may take the end of each file: what is there must be the model after a prefix of
    the main batches and, of each live task, a prefix of its scratch.

    Args:
        items: The session's export.
        script: What was committed.
        mains_at_least: Up to which batch, exclusive, every main batch must be there.
        sent: How many batches were begun at all.

    Returns:
        How many main batches are there, and what is wrong.
    """
    found = list(items)
    batches = {item for item in found if isinstance(item, BatchRange)}
    mains = [i for i in range(sent) if not script.is_scratch(i)]
    there = [i for i in mains if script.ranges[i] in batches]
    if there != mains[: len(there)]:
        return 0, f"main batches are missing between others: {sorted(set(mains) - set(there))}"
    needed = [i for i in mains if i < mains_at_least]
    if len(there) < len(needed):
        return 0, f"lost: {len(needed)} main batches were to be there, {len(there)} are"
    kept = _kept(script, batches, there, sent)
    if isinstance(kept, str):
        return 0, kept
    expected = without_last(script.model(kept).export())
    if without_last(found) != expected:
        scratch = len(kept) - len(there)
        return 0, f"half: {len(there)} main batches and {scratch} of scratch are there, and more"
    return len(there), ""


def _kept(script: Script, batches: set[BatchRange], there: list[int], sent: int) -> set[int] | str:
    """Return the indexes of what the session consists of."""
    kept = set(there)
    gone: set[int | None] = set()
    for index in range(sent):
        if not script.is_scratch(index):
            continue
        task = script.ranges[index].task
        if script.ranges[index] in batches:
            if task in gone:
                return f"scratch batch {index} is there, one before it of the same task is not"
            kept.add(index)
        else:
            gone.add(task)
    return kept
