"""Faults in strict JSON: values that come back as something else, or live."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from copy import deepcopy
from math import isfinite

from msgspec import UNSET
from msgspec.structs import replace

from pico_conformance.zoo.mutant import plant
from pico_conformance.zoo.wrapper import AfterCommit, Faulty, Rewritten
from pico_store.address import Address, Seq
from pico_store.batch import ListAppend, MainWrite, ValueSet
from pico_store.query import ListQuery
from pico_store.records import At, Element, Entry, JsonValue, Page, Task, Version
from pico_store.storage import Storage


class Converted(Rewritten):
    """Converts each part of a value on its way in; what is very large stays as it is."""

    def part(self, part: object) -> object:
        """Return what is stored of a part whose own parts are converted already."""
        raise NotImplementedError

    def write(self, write: MainWrite) -> MainWrite:
        self._left = 5_000
        if isinstance(write, ValueSet | ListAppend):
            return replace(write, value=self._converted(write.value))
        if isinstance(write, Entry) and write.data is not UNSET:
            return replace(write, data=self._converted(write.data))
        return write

    def _converted(self, value: object, depth: int = 0) -> object:
        self._left -= 1
        if depth > 200 or self._left < 0:
            return value
        if type(value) is list:
            return self.part([self._converted(item, depth + 1) for item in value])
        if type(value) is dict:
            pairs = [(key, self._converted(item, depth + 1)) for key, item in value.items()]
            return self.part(dict(pairs))
        return self.part(value)


@plant("JSON-2")
class NegativeZeroLost(Converted):
    """-0.0 comes back as 0.0."""

    def part(self, part: object) -> object:
        return 0.0 if type(part) is float and part == 0 else part


@plant("JSON-2")
class WholeFloatsAreIntegers(Converted):
    """1.0 comes back as 1, as JavaScript writes it."""

    def part(self, part: object) -> object:
        whole = type(part) is float and part.is_integer() and abs(part) < 2**53
        return int(part) if whole and isinstance(part, float) else part


@plant("JSON-1", "JSON-2")
class BooleansAreNumbers(Converted):
    """True comes back as 1."""

    def part(self, part: object) -> object:
        return int(part) if isinstance(part, bool) else part


@plant("JSON-2")
class LargeIntegersAreFloats(Converted):
    """Integers past 2^53 come back as the nearest that a float holds."""

    def part(self, part: object) -> object:
        large = type(part) is int and 2**53 < abs(part) < 2**64
        return (
            int(float(part)) - (float(part) >= 2**64) if large and isinstance(part, int) else part
        )


@plant("JSON-2")
class SignedIntegersOnly(Converted):
    """Integers from 2^63 on come back negative."""

    def part(self, part: object) -> object:
        return part - 2**64 if type(part) is int and 2**63 <= part < 2**64 else part


@plant("JSON-2")
class FloatsShortened(Converted):
    """Floats come back with fifteen digits."""

    def part(self, part: object) -> object:
        if type(part) is not float or not isfinite(part) or not isfinite(float(f"{part:.15g}")):
            return part
        return float(f"{part:.15g}")


@plant("JSON-2")
class TinyFloatsAreZero(Converted):
    """Floats too small to be normal come back as 0.0."""

    def part(self, part: object) -> object:
        return 0.0 if type(part) is float and 0 < abs(part) < 2.3e-308 else part


@plant("JSON-2")
class NotANumberIsNull(Converted):
    """NaN and infinities are stored as null, as JavaScript writes them."""

    def part(self, part: object) -> object:
        return None if type(part) is float and not isfinite(part) else part


@plant("JSON-1")
class TuplesTaken(Converted):
    """A tuple is stored as a list."""

    def part(self, part: object) -> object:
        return list(part) if type(part) is tuple else part


@plant("JSON-1")
class SubclassesTaken(Converted):
    """A subclass of a string or integer is stored as what it derives from."""

    def part(self, part: object) -> object:
        if isinstance(part, str):
            return str.__str__(part)
        return int(part) if isinstance(part, int) and not isinstance(part, bool) else part


@plant("JSON-1", "JSON-6")
class KeysMadeStrings(Converted):
    """Keys of objects that are integers are stored as strings, as json.dumps does."""

    def part(self, part: object) -> object:
        if type(part) is not dict:
            return part
        return {str(key) if type(key) is int else key: item for key, item in part.items()}


@plant("JSON-6")
class MembersSorted(Converted):
    """Objects come back with their members in the order of their keys."""

    def part(self, part: object) -> object:
        if type(part) is not dict or any(type(key) is not str for key in part):
            return part
        return dict(sorted(part.items()))


@plant("JSON-1")
class EmptyObjectsAreLists(Converted):
    """An empty object comes back as an empty list."""

    def part(self, part: object) -> object:
        return [] if part == {} else part


@plant("JSON-1", "JSON-6")
class NullMembersDropped(Converted):
    """Members of objects that are null are left out."""

    def part(self, part: object) -> object:
        if type(part) is not dict:
            return part
        return {key: item for key, item in part.items() if item is not None}


@plant("JSON-3")
class StringsNormalised(Converted):
    """Strings come back in Unicode's composed form."""

    def part(self, part: object) -> object:
        return unicodedata.normalize("NFC", part) if type(part) is str else part


@plant("JSON-3")
class StringsEndAtNul(Converted):
    """A string ends before its first NUL."""

    def part(self, part: object) -> object:
        return part.partition("\0")[0] if type(part) is str else part


@plant("JSON-3")
class LinesSplit(Converted):
    """What Unicode calls a line separator comes back as a line feed."""

    def part(self, part: object) -> object:
        return part.replace("\u2028", "\n").replace("\x85", "\n") if type(part) is str else part


@plant("JSON-3")
class SurrogatesReplaced(Converted):
    """A lone surrogate is stored as a question mark."""

    def part(self, part: object) -> object:
        return part.encode(errors="replace").decode() if type(part) is str else part


# --- Copies ---


@plant("JSON-7")
class ValueReturnedLive(Faulty):
    """A value read twice is one object, which a reader may have changed."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage)
        self._known: dict[Seq, Version[JsonValue]] = {}

    def get_value(self, address: Address, at: At | None = None) -> Version[JsonValue] | None:
        found = self.storage.get_value(address, at)
        return None if found is None else self._known.setdefault(found.seq, found)


@plant("JSON-7")
class EntryReturnedLive(Faulty):
    """An entry read twice is one object, which a reader may have changed."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage)
        self._known: dict[Seq, Entry] = {}

    def get_entries(self, ids: Iterable[Seq]) -> dict[Seq, Entry]:
        found = self.storage.get_entries(ids)
        return {id: self._known.setdefault(id, entry) for id, entry in found.items()}


@plant("JSON-7")
class StateReturnedLive(Faulty):
    """The state of a settled task is one object for all readers."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage)
        self._known: dict[Seq, Task] = {}

    def get_tasks(self, ids: Iterable[Seq]) -> dict[Seq, Task]:
        found = self.storage.get_tasks(ids)
        for id, task in found.items():
            if task.role == "terminal":
                state = self._known.setdefault(id, task).state
                found[id] = replace(task, state=state)
        return found


@plant("JSON-7")
class InputKeptLive(AfterCommit):
    """What was passed in as a value is kept as it is, and changes with it."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage)
        self._known: dict[Seq, JsonValue] = {}

    def after(self, write: MainWrite, seq: Seq) -> None:
        if isinstance(write, ValueSet):
            self._known[seq] = write.value

    def get_value(self, address: Address, at: At | None = None) -> Version[JsonValue] | None:
        found = self.storage.get_value(address, at)
        if found is None or found.seq not in self._known:
            return found
        return Version(found.seq, deepcopy(self._known[found.seq]))


@plant("JSON-7")
class ElementKeptLive(AfterCommit):
    """What was appended to a list is kept as it is, and changes with it."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage)
        self._known: dict[Seq, JsonValue] = {}

    def after(self, write: MainWrite, seq: Seq) -> None:
        if isinstance(write, ListAppend):
            self._known[seq] = write.value

    def read_list(self, address: Address, query: ListQuery) -> Page[Element[JsonValue]]:
        page = self.storage.read_list(address, query)
        items = [
            Element(item.id, deepcopy(self._known.get(item.id, item.value))) for item in page.items
        ]
        return replace(page, items=items)
